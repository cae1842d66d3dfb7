#!/usr/bin/env python3
"""Times training steps of the CSP paper's vision transformers in PyTorch on the CPU.

The twin of weft's train_bench for the cifar10 presets: the same model (Yuan & Xu 2024, arXiv
2410.10914, Table 3), the same batch, Adam, written as PyTorch users write it. Prints one JSON
object a line; README.md says what the keys mean.
"""
import torch_step as bench  # first: it prepares the environment, and says where PyTorch is not
from torch_process import keep_freed_memory

import torch
import torch.nn.functional as F
from torch import nn

SIZE, PATCH, CLASSES, BATCH = 32, 4, 10, 64
WIDTH, HEADS, LAYERS, HIDDEN, DROPOUT = 512, 8, 6, 512, 0.1
TOKENS = (SIZE // PATCH) ** 2

PRESETS = {  # name: (attention, channels of the values, parameters as the paper's Table 3 has them)
    "cifar10-full": ("full", 512, 9_523_722),
    "cifar10-csp": ("csp", 512, 6_377_994),
    "cifar10-csp-wide": ("csp", 1024, 9_523_722),
}


class FullAttention(nn.Module):
    """out = dropout(W_o dropout(softmax(QKᵀ/√E)) V)"""

    def __init__(self, channels, fused):
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 3 * channels, bias=False)
        self.out = nn.Sequential(nn.Linear(channels, WIDTH), nn.Dropout(DROPOUT))
        self.fused = fused

    def forward(self, x):  # [B, N, d]
        batch, length, width = x.shape
        qkv = self.qkv(x).view(batch, length, 3, HEADS, width // HEADS)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)  # [B, H, N, E] each
        if self.fused:
            mixed = F.scaled_dot_product_attention(q, k, v, dropout_p=DROPOUT)
        else:
            scores = (q * (width // HEADS) ** -0.5) @ k.transpose(-2, -1)
            mixed = F.dropout(scores.softmax(-1), DROPOUT) @ v
        return self.out(mixed.transpose(1, 2).reshape(batch, length, width))


class SamplePermutation(nn.Module):
    """Each channel shifted, then its pairs sorted into the order that the first channel has."""

    def __init__(self, channels, fused):
        super().__init__()
        self.values = nn.Linear(WIDTH, channels, bias=False)
        self.out = nn.Sequential(nn.Linear(channels, WIDTH), nn.Dropout(DROPOUT))
        shifts = torch.arange(channels) * -(-TOKENS // channels) % TOKENS
        source = (torch.arange(TOKENS)[:, None] - shifts[None, :]) % TOKENS
        self.register_buffer("source", source, persistent=False)

    def forward(self, x):  # [B, N, d]
        values = self.values(x)
        batch, length, channels = values.shape
        shifted = values.gather(1, self.source.expand(batch, -1, -1))
        pairs = shifted.view(batch, length // 2, 2, channels)
        ascending = pairs.sort(2).values
        falls = pairs[:, :, :1, :1] > pairs[:, :, 1:, :1]  # in the first channel
        mixed = torch.where(falls, ascending.flip(2), ascending)
        return self.out(mixed.view(batch, length, channels))


class Layer(nn.Module):
    def __init__(self, attention):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention = attention
        self.feed_forward = nn.Sequential(
            nn.Linear(WIDTH, HIDDEN), nn.GELU(), nn.Dropout(DROPOUT),
            nn.Linear(HIDDEN, WIDTH), nn.Dropout(DROPOUT))

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.feed_forward(self.norm2(x))


class VisionTransformer(nn.Module):
    def __init__(self, attention, channels, fused):
        super().__init__()
        self.patch = nn.Linear(3 * PATCH**2, WIDTH)
        self.position = nn.Parameter(torch.randn(TOKENS + 1, WIDTH))
        self.class_token = nn.Parameter(torch.randn(WIDTH))  # counted by the paper, and never used
        kind = FullAttention if attention == "full" else SamplePermutation
        self.layers = nn.Sequential(*(Layer(kind(channels, fused)) for _ in range(LAYERS)))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, CLASSES)

    def forward(self, images):  # [B, S, S, 3]
        side = SIZE // PATCH
        patches = images.view(-1, side, PATCH, side, 3 * PATCH).transpose(2, 3)
        tokens = self.patch(patches.reshape(-1, TOKENS, 3 * PATCH**2)) + self.position[:TOKENS]
        return self.head(self.norm(self.layers(F.dropout(tokens, DROPOUT)).mean(1)))


def measure(preset, fused, options):
    attention, channels, published = PRESETS[preset]
    torch.manual_seed(options.seed)
    model = VisionTransformer(attention, channels, fused)
    parameters = bench.count_parameters(model, preset, published)
    try:
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, foreach=True)
    except TypeError:
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    images = torch.randn(options.batch, SIZE, SIZE, 3)
    labels = torch.randint(0, CLASSES, (options.batch,))
    loss = bench.as_wanted(lambda: F.cross_entropy(model(images), labels), options)
    milliseconds = bench.step_times(loss, optimizer, options)
    return bench.row(preset, TOKENS, milliseconds, options, compiled=options.compile,
                     parameters=parameters, fused=fused)


def main():
    parser = bench.parser_of(__doc__.split("\n")[0], PRESETS, BATCH, steps=8, warmup=2)
    options = parser.parse_args()
    keep_freed_memory()
    bench.prepare(options)
    for preset in PRESETS if options.preset == "all" else [options.preset]:
        forms = [False, True] if PRESETS[preset][0] == "full" and bench.HAS_FUSED else [False]
        bench.print_fastest([measure(preset, fused, options) for fused in forms])


if __name__ == "__main__":
    main()
