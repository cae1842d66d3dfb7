"""Which keys a query sees in local, longformer, sparse, bigbird and inside the blocks of block-local.

A pattern is a function sees(h, i, j) of head, query and key, tensors that broadcast: dense() makes a
mask of it, flex_attention calls it.
"""
import torch

from torch_draws import RANDOM_BLOCKS, words


def local(spec, **_):
    before = spec["context"] // 2
    behind = spec["context"] - before - 1
    return lambda h, i, j: (j >= i - before) & (j <= i + behind)


def longformer(spec, **_):
    """Of the positions that are not global; those that are see everything."""
    step, reach = spec["dilation"], spec["window"] * spec["dilation"]
    first = spec["global_tokens"]
    return lambda h, i, j: (j < first) | (((i - j).abs() <= reach) & ((i - j) % step == 0))


def sparse(spec, **_):
    stride = spec["stride"]
    others = stride - (spec["summary"] or min(32, stride))
    if spec["pattern"] == "strided":
        one, two = lambda i, j: j > i - stride, lambda i, j: (i - j) % stride == 0
    else:
        one, two = lambda i, j: i // stride == j // stride, lambda i, j: j % stride >= others
    if spec["combine"] == "merged":
        return lambda h, i, j: one(i, j) | two(i, j)
    return lambda h, i, j: torch.where(h % 2 == 0, one(i, j), two(i, j))


def random_blocks(spec, head, block, blocks, seed, layer):
    """Without repetition, by Floyd's algorithm, from those between the first and the last block that
    are not seen anyway (ops/attention/bigbird/blocks.h)."""
    others = [other for other in range(1, blocks - 1) if abs(other - block) > 1]
    count, chosen = min(spec["random"], len(others)), []
    place = (head << 32 | block) << 16
    drawn = words([place + i for i in range((count + 3) // 4)], layer ^ RANDOM_BLOCKS, blocks, seed)
    for word, last in zip(drawn.flatten().tolist(), range(len(others) - count, len(others))):
        other = others[word * (last + 1) >> 32]
        chosen.append(others[last] if other in chosen else other)
    return chosen


def bigbird(spec, heads, length, seed, layer):
    size = spec["block"]
    blocks = -(-length // size)
    number = torch.arange(blocks)
    seen = ((number[:, None] - number).abs() <= 1).repeat(heads, 1, 1)
    seen[:, [0, -1]] = seen[:, :, [0, -1]] = True
    for head in range(heads):
        for block in range(1, blocks - 1):
            seen[head, block, random_blocks(spec, head, block, blocks, seed, layer)] = True
    return lambda h, i, j: seen[h, i // size, j // size]


def block_local(spec, **_):
    size = spec["block"]
    return lambda h, i, j: i // size == j // size


PATTERNS = {"local": local, "longformer": longformer, "sparse": sparse, "bigbird": bigbird,
            "block-local": block_local}


def pattern_of(spec, causal, heads, length, seed=0, layer=0):
    sees = PATTERNS[spec["mechanism"]](spec, heads=heads, length=length, seed=seed, layer=layer)
    return (lambda h, i, j: sees(h, i, j) & (j <= i)) if causal else sees


def by_heads(spec):
    """Whether heads differ in what they see."""
    return spec["mechanism"] == "bigbird" or spec.get("combine") == "heads"


def dense(sees, heads, length):
    """[H, N, N], or [N, N] where heads do not differ; true where a query sees a key."""
    head, place = torch.arange(heads)[:, None, None], torch.arange(length)
    return sees(head, place[:, None], place)


def pooled(x, spec):
    """The mean or maximum of each block of positions, of which the last may be short:
    [B, H, N, E] → [B, H, blocks, E]."""
    size = min(spec["block"], x.shape[2])
    whole = x.shape[2] // size * size
    parts = x[:, :, :whole].unflatten(2, (-1, size)), x[:, :, None, whole:]
    parts = [part for part in parts if part.numel() > 0]
    mean = spec["pool"] == "mean"
    return torch.cat([part.mean(3) if mean else part.amax(3) for part in parts], 2)


def over_blocks(rows, spec, length):
    """A row for each block at all its positions: [B, H, blocks, M] → [B, H, N, M]."""
    return rows.repeat_interleave(spec["block"], 2)[:, :, :length]
