#!/usr/bin/env python3
"""charlm's text8 models in PyTorch: the weights that `charlm export` wrote, and the same logits.

    build/apps/charlm export --checkpoint runs/agg-conv --example --out agg-conv.safetensors
    /usr/bin/python3 bench/peers/torch_export.py agg-conv.safetensors

Takes files of --format safetensors and folders of --format npy, of models with a preset's sizes.
With --example inside, says how far the logits of PyTorch are from weft's, one JSON object a line;
more than 1e-5 of the largest logit is exit status 1.

A linear map is [in, out] to weft and [out, in] to PyTorch; a convolution [window, in, out] and
[out, in, window]. NAMES is the rest of the difference.
"""
import json
import pathlib
import struct
import sys

import torch_charlm  # first: it prepares the environment, and says where PyTorch is not

import numpy as np
import torch

NAMES = {  # PyTorch: weft; of several, the columns stand side by side
    "embedding": ["embedding.table"],
    "position": ["position"],
    "depth": ["depth"],
    "conv.weight": ["convolution.weight"],
    "conv.bias": ["convolution.bias"],
    "block.attention.qkv.weight": ["block.attention.qkv.weight"],
    "block.attention.classes.weight": ["block.attention.zq.weight", "block.attention.zk.weight"],
    "block.attention.classes.bias": ["block.attention.zq.bias", "block.attention.zk.bias"],
    "block.attention.values.weight": ["block.attention.y.weight"],
    "block.attention.out.weight": ["block.attention.output.weight"],
    "block.norm1.weight": ["block.norm1.gain"],
    "block.norm1.bias": ["block.norm1.bias"],
    "block.up.weight": ["block.feed_forward.weight1"],
    "block.up.bias": ["block.feed_forward.bias1"],
    "block.down.weight": ["block.feed_forward.weight2"],
    "block.down.bias": ["block.feed_forward.bias2"],
    "block.norm2.weight": ["block.norm2.gain"],
    "block.norm2.bias": ["block.norm2.bias"],
    "halt.weight": ["halting.weight"],
    "halt.bias": ["halting.bias"],
    "output.weight": ["output.weight"],
}


def read(path):
    """The arrays by their names, and the metadata."""
    path = pathlib.Path(path)
    if path.is_dir():
        arrays = {file.stem: np.load(file) for file in path.glob("*.npy")}
        return arrays, json.loads((path / "metadata.json").read_text(encoding="utf-8"))
    data = path.read_bytes()  # what the package safetensors does, for the types that occur here
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + length])
    metadata = header.pop("__metadata__", {})
    types = {"F32": "<f4", "I64": "<i8"}
    arrays = {}
    for name, entry in header.items():
        begin, end = (8 + length + offset for offset in entry["data_offsets"])
        arrays[name] = np.frombuffer(data[begin:end], types[entry["dtype"]])
        arrays[name] = arrays[name].reshape(entry["shape"])
    return arrays, metadata


def state_dict_of(arrays):
    """What load_state_dict() of torch_charlm.UniversalTransformer takes."""
    state = {}
    for name, sources in NAMES.items():
        if sources[0] not in arrays:
            continue
        array = np.concatenate([arrays[source] for source in sources], axis=-1)
        if name.endswith(".weight"):
            array = array.transpose()  # all axes
        state[name] = torch.from_numpy(array.copy())
    return state


def check(path):
    arrays, metadata = read(path)
    preset = json.loads(metadata["configuration"])["preset"]
    if preset not in torch_charlm.PRESETS:
        sys.exit(f"{path}: its model is of no preset of charlm's; there are {', '.join(torch_charlm.PRESETS)}")
    attention, encoding, _ = torch_charlm.PRESETS[preset]
    model = torch_charlm.UniversalTransformer(attention, encoding, bare=False, fused=False)
    model.load_state_dict(state_dict_of(arrays))
    model.eval()
    row = {"file": str(path), "preset": preset}
    if "example.input" in arrays:
        with torch.no_grad():
            logits, _ = model(torch.from_numpy(arrays["example.input"].copy()))
        wanted = arrays["example.logits"]
        largest = float(np.abs(wanted).max())
        row |= {"logits": wanted.size, "largest": largest,
                "error": float(np.abs(logits.numpy() - wanted).max()) / largest}
    print(json.dumps(row))
    return row.get("error", 0) <= 1e-5


if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    sys.exit(0 if all([check(path) for path in sys.argv[1:]]) else 1)
