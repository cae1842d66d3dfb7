#!/usr/bin/env python3
"""One training step of wordlm's four wikitext2 presets in PyTorch, timed.

torch_charlm.py's models with the width and the vocabulary of the paper's Table 2: most of the
arithmetic is the vocabulary's, whose logits [B, N, V] PyTorch holds whole.
"""
import torch_charlm

VOCABULARY, WIDTH = 9914, 128

PRESETS = {  # name: (attention, encoding, parameters as the paper's Table 2 counts them)
    "wikitext2-full-position": ("full", "position", 1_500_289),
    "wikitext2-full-conv": ("full", "conv", 1_614_465),
    "wikitext2-agglomerative-position": ("agglomerative", "position", 1_469_585),
    "wikitext2-agglomerative-conv": ("agglomerative", "conv", 1_583_761),
}

if __name__ == "__main__":
    torch_charlm.main(__doc__, PRESETS, VOCABULARY, WIDTH, steps=10, warmup=2)
