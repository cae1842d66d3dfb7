"""The random numbers that weft draws (runtime/random.h)."""
import math

import numpy as np
import torch

# What a draw is for, in the highest byte of its stream.
PLANES, POSITIONS, RANDOM_BLOCKS = 0x80 << 24, 0x40 << 24, 0x30 << 24


def words(indices, stream, step=0, seed=0):
    """Philox 4×32-10: four words of 32 bits for each index, [count, 4]. In evaluation seed and step
    are 0 for what is drawn anew in each pass."""
    low, high = np.uint64(0xFFFFFFFF), np.uint64(32)
    indices = np.asarray(indices, np.uint64)
    a, b = indices & low, indices >> high
    c, d = (np.full(indices.size, word, np.uint64) for word in (step, stream))
    for turn in range(10):
        key0, key1 = (np.uint64(part + turn * word & 0xFFFFFFFF) for part, word in
                      ((seed, 0x9E3779B9), (seed >> 32, 0xBB67AE85)))
        first, second = a * np.uint64(0xD2511F53), c * np.uint64(0xCD9E8D57)
        a, b = (second >> high) ^ b ^ key0, second & low
        c, d = (first >> high) ^ d ^ key1, first & low
    return np.stack([a, b, c, d], 1)


def normal(first, second):
    """Standard normal numbers from pairs of words, by Box and Muller."""
    radius = np.sqrt(-2 * np.log((first + 0.5) * 2.0 ** -32))
    return torch.from_numpy(radius * np.cos(second * (2 * math.pi * 2.0 ** -32)))
