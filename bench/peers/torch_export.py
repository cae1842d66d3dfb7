#!/usr/bin/env python3
"""Models of charlm, wordlm and vision in PyTorch: the weights that `export` wrote, the same logits.

    build/apps/charlm export --checkpoint runs/first --example --out first.safetensors
    python3 bench/peers/torch_export.py first.safetensors

    from torch_export import load                       # in a program of one's own
    model = load("first.safetensors")                   # an nn.Module
    logits = model(ids)                                 # vision: model(images [B, S, S, channels])

Takes files of --format safetensors and folders of --format npy. All that the weights do not say
stands in the metadata's `architecture`. With --example inside, says how far PyTorch's logits are from
weft's, one JSON object a line: `error` is the largest difference where both compute in f64, over the
largest logit, or over 1 where all are smaller; more than 1e-6 is exit status 1. `error_f32` is the
same in f32, where each rounds in its own way. Attention that hashes by drawn numbers (clustered,
i-clustered, lsh) draws here what weft draws in evaluation. In f32 such a model, and topk, can
choose another hash or key where two numbers are equal but for rounding: its `error_f32` is then a
large one.

Modules have weft's names, `feed_forward` aside (RENAMED). A linear map is [in, out] to weft and
[out, in] to PyTorch, a convolution [window, in, out] and [out, in, window].
"""
import json
import pathlib
import re
import struct
import sys

import torch_step  # first: it prepares the environment, and says where PyTorch is not  # noqa: F401

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from torch_mechanisms import Refusal, attention_of, chosen

TOLERANCE = 1e-6
RENAMED = [(r"feed_forward\.(weight|bias)1$", r"feed_forward.up.\1"),
           (r"feed_forward\.(weight|bias)2$", r"feed_forward.down.\1"),
           (r"\.gain$", ".weight"), (r"^embedding\.table$", "embedding.weight")]
ACTIVATIONS = {"relu": F.relu, "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
               "gelu_erf": F.gelu, "silu": F.silu}


# --- charlm and wordlm

class FeedForward(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.up = nn.Linear(model["width"], model["hidden"])
        self.down = nn.Linear(model["hidden"], model["width"])
        self.activation = chosen("activation", model["activation"], ACTIVATIONS)

    def forward(self, x):
        return self.down(self.activation(self.up(x)))


def is_prenorm(model):
    return chosen("wiring", model["wiring"], {"universal": False, "vanilla": False, "prenorm": True})


def norms(model, attention):
    """Of a block: that of an attention with a residual of its own is there already."""
    own = getattr(attention, "OWNS_RESIDUAL", False)
    norm = [nn.LayerNorm(model["width"], model["norm_epsilon"]) for _ in range(2)]
    return None if own else norm[0], norm[1]


class Block(nn.Module):
    """Norms behind the sums, or before the branches; without dropout, universal and vanilla wiring
    are the same."""

    def __init__(self, model, layer, layers):
        super().__init__()
        self.prenorm = is_prenorm(model)
        self.attention = attention_of(model["attention"], model, layer, layers)
        self.norm1, self.norm2 = norms(model, self.attention)
        self.feed_forward = FeedForward(model)

    def forward(self, x, step):
        # weft's wirings take three streams of random numbers each: the second is the attention's,
        # or the first, where norms come first.
        if self.prenorm:
            y = self.attention(x, 3 * step) if self.norm1 is None else (
                x + self.attention(self.norm1(x), 3 * step))
            return y + self.feed_forward(self.norm2(y))
        y = self.attention(x, 3 * step + 1)
        if self.norm1 is not None:
            y = self.norm1(x + y)
        return self.norm2(y + self.feed_forward(y))


class UniversalTransformer(nn.Module):
    """ids [B, N] → logits [B, N, V]"""

    def __init__(self, model):
        super().__init__()
        width, depth = model["width"], model["depth"]
        self.steps, self.shared = depth, model["shared"]
        self.embedding = nn.Embedding(model["vocabulary"], width)
        self.encoding = chosen("encoding", model["encoding"],
                               {name: name for name in ("position", "conv", "rotary", "none")})
        if self.encoding == "conv":
            self.convolution = nn.Conv1d(width, width, model["conv_width"])
            self.activation = chosen("activation", model["conv_activation"], ACTIVATIONS)
        elif self.encoding == "position":
            self.position = nn.Parameter(torch.empty(model["length"], width))
            self.depth = nn.Parameter(torch.empty(depth, width))
        if self.shared:
            self.block = Block(model, 0, depth)
        else:
            self.blocks = nn.ModuleList(Block(model, t, depth) for t in range(depth))
        self.halting = nn.Linear(width, 1) if model["act"] else None
        self.budget = 1 - model["act_epsilon"]
        self.norm = nn.LayerNorm(width, model["norm_epsilon"]) if is_prenorm(model) else nn.Identity()
        self.output = nn.Linear(width, width, bias=False)

    def encoded(self, h, step):
        if self.encoding in ("rotary", "none"):
            return h
        if self.encoding == "position":
            return h + (self.position[:h.shape[1]] + self.depth[step])
        padded = F.pad(h.transpose(1, 2), (self.convolution.kernel_size[0] - 1, 0))  # causal
        return self.activation(self.convolution(padded)).transpose(1, 2)

    def accumulated(self, states):
        """Adaptive computation time: every step is computed, halting only weighs."""
        if self.halting is None:
            return states[-1]
        sums, remainder, budget = 0, 1, torch.full(states[0].shape[:2], self.budget).to(states[0])
        for h in states:
            p = torch.sigmoid(self.halting(h).squeeze(-1))
            active, last = budget > 0, budget - p <= 0
            sums = sums + (active * torch.where(last, remainder, p)).unsqueeze(-1) * h
            remainder, budget = torch.where(last, remainder, remainder - p), budget - p
        return sums

    def forward(self, ids):
        h, states = self.embedding(ids), []
        for step in range(self.steps):
            block = self.block if self.shared else self.blocks[step]
            h = block(self.encoded(h, step), step)
            states.append(h)
        return F.linear(self.output(self.norm(self.accumulated(states))), self.embedding.weight)


# --- vision

class VisionBlock(nn.Module):
    """Norms before attention and feed-forward layer."""

    def __init__(self, model, layer):
        super().__init__()
        self.attention = attention_of(model["attention"], model, layer, model["layers"])
        self.norm1, self.norm2 = norms(model, self.attention)
        self.stream = 4 * layer + 1  # of random numbers: one for the patches, four for each block
        self.up = nn.Linear(model["width"], model["hidden"])
        self.down = nn.Linear(model["hidden"], model["width"])
        self.activation = chosen("activation", model["activation"], ACTIVATIONS)

    def forward(self, x):
        if self.norm1 is None:
            x = self.attention(x, self.stream)
        else:
            x = x + self.attention(self.norm1(x), self.stream)
        return x + self.down(self.activation(self.up(self.norm2(x))))


class VisionTransformer(nn.Module):
    """images [B, S, S, channels] → logits [B, classes]"""

    def __init__(self, model):
        super().__init__()
        width, self.side = model["width"], model["patch"]
        self.tokens = (model["size"] // self.side) ** 2
        self.patch = nn.Linear(self.side ** 2 * model["channels"], width)
        self.position = nn.Parameter(torch.empty(self.tokens + 1, width))
        self.class_token = nn.Parameter(torch.empty(width))  # of the paper's count, and unused
        self.blocks = nn.ModuleList(VisionBlock(model, layer) for layer in range(model["layers"]))
        self.norm = nn.LayerNorm(width, model["norm_epsilon"])
        self.head = nn.Linear(width, model["classes"])

    def forward(self, images):
        patches = images.unflatten(2, (-1, self.side)).unflatten(1, (-1, self.side)).transpose(2, 3)
        h = self.patch(patches.flatten(3).flatten(1, 2)) + self.position[:self.tokens]
        for block in self.blocks:
            h = block(h)
        return self.head(self.norm(h.mean(1)))


MODELS = {"universal transformer": UniversalTransformer, "vision transformer": VisionTransformer}


# --- files

def read(path):
    """The arrays by their names, and the metadata."""
    path = pathlib.Path(path)
    try:
        if path.is_dir():
            arrays = {file.stem: np.load(file) for file in path.glob("*.npy")}
            return arrays, json.loads((path / "metadata.json").read_text(encoding="utf-8"))
        data = path.read_bytes()  # what the package safetensors does, for the types that occur here
        (length,) = struct.unpack("<Q", data[:8])
        header = json.loads(data[8:8 + length])
        metadata = header.pop("__metadata__", {})
        types = {"F32": "<f4", "F64": "<f8", "I64": "<i8"}
        arrays = {}
        for name, entry in header.items():
            begin, end = (8 + length + offset for offset in entry["data_offsets"])
            arrays[name] = np.frombuffer(data[begin:end], types[entry["dtype"]])
            arrays[name] = arrays[name].reshape(entry["shape"])
        return arrays, metadata
    except OSError as error:
        raise Refusal(f"{path}: cannot be read: {error.strerror}") from None
    except (ValueError, KeyError, AttributeError, struct.error):
        raise Refusal(f"{path}: is not a file of `export`") from None


def state_dict_of(model, arrays):
    """What load_state_dict() takes: the arrays by PyTorch's names, matrices transposed."""
    matrices = {f"{name}.weight" for name, module in model.named_modules()
                if isinstance(module, (nn.Linear, nn.Conv1d))}
    state = {}
    for name, array in arrays.items():
        for old, new in RENAMED:
            name = re.sub(old, new, name)
        state[name] = torch.tensor(array.transpose() if name in matrices else array)  # all axes
    return state


def model_of(path, arrays, metadata):
    if "architecture" not in metadata:
        raise Refusal(f"{path}: its metadata has no architecture; export the checkpoint again")
    architecture = json.loads(metadata["architecture"])
    try:
        model = chosen("model", architecture["model"], MODELS)(architecture)
        weights = {name: array for name, array in arrays.items() if not name.startswith("example.")}
        model.load_state_dict(state_dict_of(model, weights))
    except Refusal as refusal:
        raise Refusal(f"{path}: {refusal}") from None
    except (KeyError, RuntimeError) as error:
        raise Refusal(f"{path}: its weights and its architecture do not fit: "
                      f"{' '.join(str(error).split())}") from None
    return model.eval(), architecture


def load(path):
    """The model that `export` wrote, without dropout."""
    return model_of(path, *read(path))[0]


def compared(model, arrays):
    """How far the logits are from weft's, in either type; the model is left in f64."""
    given = torch.tensor(arrays["example.input"])
    exact = arrays["example.logits_f64"]
    largest = float(np.abs(exact).max())

    def error(logits, wanted):
        return float(np.abs(logits.numpy() - wanted).max()) / max(1, largest)

    with torch.no_grad():
        rounded = error(model(given), arrays["example.logits"])
        model = model.double()
        found = error(model(given.double() if given.is_floating_point() else given), exact)
    return {"logits": exact.size, "largest": largest, "error": found, "error_f32": rounded}


def check(path):
    arrays, metadata = read(path)
    model, architecture = model_of(path, arrays, metadata)
    row = {"file": str(path), "model": architecture["model"],
           "attention": architecture["attention"]["mechanism"]}
    if "example.input" in arrays:
        row |= compared(model, arrays)
    print(json.dumps(row))
    return row.get("error", 0) <= TOLERANCE  # false for NaN


if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    try:
        sys.exit(0 if all([check(path) for path in sys.argv[1:]]) else 1)
    except Refusal as refusal:
        print(f"torch_export: {refusal}", file=sys.stderr)
        sys.exit(2)
