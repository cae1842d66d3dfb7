#!/usr/bin/env python3
"""One training step of charlm's four text8 presets in PyTorch, timed.

The twin of `bench/train_bench`: the same universal transformer (Spellings 2019, arXiv 1907.06607,
Table 1), the same batch and the same optimizer, written as PyTorch users write it. Prints one JSON
object a line; README.md says what the keys mean.
"""
import math

import torch_step as bench  # first: it prepares the environment, and says where PyTorch is not
from torch_process import keep_freed_memory

import torch
import torch.nn.functional as F
from torch import nn

LENGTH, BATCH = 128, 32           # N, B
HEADS, DEPTH, KERNEL = 8, 5, 8    # H = m, L, window of the convolution
VOCABULARY, WIDTH = 28, 64        # V, d: charlm's

PRESETS = {  # name: (attention, encoding, parameters as the paper's Table 1 counts them)
    "text8-full-position": ("full", "position", 64_193),
    "text8-full-conv": ("full", "conv", 88_513),
    "text8-agglomerative-position": ("agglomerative", "position", 57_041),
    "text8-agglomerative-conv": ("agglomerative", "conv", 81_361),
}


class FullAttention(nn.Module):
    """Causal softmax attention, no biases: out = dropout(softmax(QKᵀ/√E)) V Wo."""

    def __init__(self, width, dropout, fused):
        super().__init__()
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.dropout, self.fused = dropout, fused
        future = torch.full((LENGTH, LENGTH), -math.inf).triu(1)
        self.register_buffer("future", future, persistent=False)

    def forward(self, x):  # [B, N, d]
        batch, length, width = x.shape
        qkv = self.qkv(x).view(batch, length, 3, HEADS, width // HEADS)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)  # [B, H, N, E] each
        if self.fused:
            dropout = self.dropout if self.training else 0
            mixed = F.scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=True)
        else:
            scores = (q * (width // HEADS) ** -0.5) @ k.transpose(-2, -1) + self.future
            mixed = F.dropout(scores.softmax(-1), self.dropout, self.training) @ v
        return self.out(mixed.transpose(1, 2).reshape(batch, length, width))


class AgglomerativeAttention(nn.Module):
    """Masked agglomerative attention: each class keeps a running, weighted mean of its values."""

    def __init__(self, width, dropout):
        super().__init__()
        self.classes = nn.Linear(width, 2 * HEADS)  # the logits of query and key classes
        self.values = nn.Linear(width, width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.dropout = dropout

    def forward(self, x):  # [B, N, d]
        batch, length, width = x.shape
        logits = self.classes(x).view(batch, length, 2, HEADS)
        query, key = logits.softmax(-1).unbind(2)  # [B, N, m] each
        values = self.values(x).view(batch, length, HEADS, width // HEADS)
        sums = (key.unsqueeze(-1) * values).cumsum(1)  # [B, N, m, e]
        weights = key.cumsum(1).clamp(min=1e-3)  # [B, N, m]
        mixed = (query / weights).unsqueeze(-1) * sums
        mixed = F.dropout(mixed.view(batch, length, width), self.dropout, self.training)
        return self.out(mixed)


class Block(nn.Module):
    """Post-norm block in universal wiring: the dropout is on the sum."""

    def __init__(self, width, attention, dropout):
        super().__init__()
        self.attention = attention
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.dropout = dropout

    def forward(self, x):
        y = self.norm1(F.dropout(x + self.attention(x), self.dropout, self.training))
        transition = self.down(F.gelu(self.up(y), approximate="tanh"))
        return self.norm2(F.dropout(y + transition, self.dropout, self.training))


class UniversalTransformer(nn.Module):
    """One block, five times, with adaptive computation time and an embedding tied to the output."""

    def __init__(self, attention, encoding, bare, fused, vocabulary=VOCABULARY, width=WIDTH):
        super().__init__()
        attention_dropout, dropout, self.output_dropout = (0, 0, 0) if bare else (0.1, 0.1, 0.6)
        self.bare = bare
        self.embedding = nn.Parameter(torch.empty(vocabulary, width).uniform_(-0.05, 0.05))
        self.position = self.depth = self.conv = None
        if encoding == "position":
            self.position = nn.Parameter(torch.empty(LENGTH, width).uniform_(-0.05, 0.05))
            self.depth = nn.Parameter(torch.empty(DEPTH, width).uniform_(-0.05, 0.05))
        else:
            self.conv = nn.Conv1d(width, width, KERNEL)
        mechanism = (FullAttention(width, attention_dropout, fused) if attention == "full"
                     else AgglomerativeAttention(width, attention_dropout))
        self.block = Block(width, mechanism, dropout)
        self.halt = nn.Linear(width, 1)
        self.output = nn.Linear(width, width, bias=False)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
        nn.init.constant_(self.halt.bias, 0.1)

    def encode(self, h, step):
        if self.conv is None:
            return h + (self.position + self.depth[step])
        padded = F.pad(h.transpose(1, 2), (KERNEL - 1, 0))  # causal: zeros on the left
        return F.relu(self.conv(padded)).transpose(1, 2)

    def forward(self, ids):  # [B, N] -> logits [B, N, V] and the ponder cost
        h = F.embedding(ids, self.embedding)
        if self.bare:
            for step in range(DEPTH):
                h = self.block(self.encode(h, step))
            state, ponder = h, 0.0
        else:
            state, ponder = self.adaptive_steps(h)
        hidden = F.dropout(self.output(state), self.output_dropout, self.training)
        return F.linear(hidden, self.embedding), ponder

    def adaptive_steps(self, h):
        """Graves 2016 as the paper's code has it: every step is computed, halting only weighs."""
        budget = torch.full(h.shape[:2], 0.99)  # [B, N], as are all below
        remainder = torch.ones(h.shape[:2])
        steps = torch.zeros(h.shape[:2])
        state = 0.0
        for step in range(DEPTH):
            h = self.block(self.encode(h, step))
            p = torch.sigmoid(self.halt(h).squeeze(-1))
            with torch.no_grad():
                active = (budget > 0).float()
                budget = budget - p
                last = budget <= 0
                steps = steps + active
            state = state + (active * torch.where(last, remainder, p)).unsqueeze(-1) * h
            ponder = 0.01 * (remainder + steps).mean()  # the last step's counts
            remainder = torch.where(last, remainder, remainder - p)
        return state, ponder


def loss_of(model, ids, targets):
    logits, ponder = model(ids)
    decay = 1e-6 * (model.embedding.square().sum() + model.output.weight.square().sum())
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten()) + decay + ponder


def measure(preset, model, bare, fused, published, options):
    parameters = bench.count_parameters(model, preset, published)
    optimizer = torch.optim.Adadelta(model.parameters(), lr=1.0, rho=0.95, eps=1e-7, foreach=True)
    window = torch.randint(1, len(model.embedding), (options.batch, LENGTH + 1))
    ids, targets = window[:, :-1].contiguous(), window[:, 1:].contiguous()
    loss = bench.as_wanted(loss_of, options)
    milliseconds = bench.step_times(lambda: loss(model, ids, targets), optimizer, options)
    return bench.row(preset, LENGTH, milliseconds, options, bare=bare, compiled=options.compile,
                     parameters=parameters, fused=fused)


def main(description, presets, vocabulary, width, steps, warmup):
    parser = bench.parser_of(description.split("\n")[0], presets, BATCH, steps, warmup)
    parser.add_argument("--bare", action="store_true", help="only the step without dropout and ACT")
    parser.add_argument("--whole", action="store_true", help="only the step with both")
    parser.add_argument("--attention", default="auto", choices=["auto", "fused", "plain"],
                        help="F.scaled_dot_product_attention or its parts; auto: the faster here")
    parser.add_argument("--default-malloc", action="store_true",
                        help="leave the C library's allocator as it is")
    options = parser.parse_args()
    if not options.default_malloc:
        keep_freed_memory()
    bench.prepare(options)
    if options.attention == "fused" and not bench.HAS_FUSED:
        parser.error(f"PyTorch {torch.__version__} has no fused attention; 2.0 or later has")
    for preset in presets if options.preset == "all" else [options.preset]:
        attention, encoding, published = presets[preset]
        forms = [False]
        if attention == "full" and bench.HAS_FUSED:
            forms = {"auto": [False, True], "fused": [True], "plain": [False]}[options.attention]
        for bare in [False, True] if options.bare == options.whole else [options.bare]:
            rows = []
            for fused in forms:
                torch.manual_seed(options.seed)
                model = UniversalTransformer(attention, encoding, bare, fused, vocabulary, width)
                rows.append(measure(preset, model, bare, fused, published, options))
            bench.print_fastest(rows)


if __name__ == "__main__":
    main(__doc__, PRESETS, VOCABULARY, WIDTH, steps=30, warmup=5)
