"""Attention whose weights are products of features: linear, cosformer and performer.

Sums over keys take the place of a matrix N × N; the causal form goes from chunk to chunk.
"""
import math

import torch
import torch.nn.functional as F

CHUNK = 128  # positions whose weights are held at once


def linear(spec, q, k, **_):
    feature = {"elu": lambda x: F.elu(x) + 1, "relu": F.relu, "exp": torch.exp}[spec["feature"]]
    if spec["feature"] == "exp":
        q = q - q.amax(-1, keepdim=True)
    return feature(q), feature(k)


def cosformer(spec, q, k, **_):
    length = q.shape[-2]
    places = torch.arange(length, dtype=torch.float64, device=q.device)[:, None]
    angles = places * (math.pi / 2 / (spec["max_length"] or length))
    c, s = angles.cos().to(q), angles.sin().to(q)
    return tuple(torch.cat([c * x.relu(), s * x.relu()], -1) for x in (q, k))


def rows_of(spec, width):
    """Of performer's omega [rows, width]."""
    return spec["features"] or max(1, int(width * math.log(width)))


def performer(spec, q, k, omega, running):
    """With `running` a query subtracts the maximum of the keys up to itself, as weft's causal form
    does, so that the future stays hidden; otherwise that of all keys, as the released code does."""
    root = math.sqrt(spec["temperature"] or q.shape[-1] ** -0.5)
    q, k = root * q, root * k
    u_q, u_k = q @ omega.T, k @ omega.T
    if spec["kernel"] == "relu":
        return u_q.relu() + 1e-3, u_k.relu() + 1e-3
    half_q, half_k = (0.5 * (x * x).sum(-1, keepdim=True) for x in (q, k))
    if spec["kernel"] == "hyperbolic":  # what is subtracted against overflow cancels
        z_q, z_k = (torch.cat([u, -u], -1) - half for u, half in ((u_q, half_q), (u_k, half_k)))
        return (z_q - z_q.amax(-1, keepdim=True)).exp(), (z_k - z_k.amax((-2, -1), True)).exp()
    query, top = (u_q - half_q - u_q.amax(-1, keepdim=True)).exp() + 1e-4, u_k.amax((-2, -1), True)
    key = (u_k - half_k - top).exp()
    if not running:
        return query, key + 1e-4
    # e^(z - top_i) = e^(top - top_i) e^(z - top): a factor of the query; and 1e-4 as one more feature
    own = u_k.amax(-1, keepdim=True).cummax(-2).values
    constant = 1e-4 * query.sum(-1, keepdim=True)
    return (torch.cat([query * (top - own).exp(), constant], -1),
            torch.cat([key, torch.ones_like(key[..., :1])], -1))


FEATURES = {"linear": linear, "cosformer": cosformer, "performer": performer}
DIVISORS = {"linear": lambda sums: sums + 1e-6, "cosformer": lambda sums: sums.clamp(min=1e-6),
            "performer": lambda sums: sums}


def mixed(query, key, v, causal):
    """Sums of v and of 1 over the keys, weighted by products of features: query and key [B, H, N, F],
    v [B, H, N, M] → [B, H, N, M] and [B, H, N, 1]."""
    if not causal:
        return query @ (key.transpose(-2, -1) @ v), query @ key.sum(-2).unsqueeze(-1)
    length = v.shape[2]
    short = -length % CHUNK
    query, key, v = (F.pad(x, (0, 0, 0, short)).unflatten(2, (-1, CHUNK)) for x in (query, key, v))
    weights = (query @ key.transpose(-2, -1)).tril()  # [B, H, chunks, CHUNK, CHUNK]
    states, counts = key.transpose(-2, -1) @ v, key.sum(-2)
    before = states.cumsum(2) - states, (counts.cumsum(2) - counts).unsqueeze(-1)
    sums = weights @ v + query @ before[0], weights.sum(-1, keepdim=True) + query @ before[1]
    return tuple(x.flatten(2, 3)[:, :, :length] for x in sums)


def attention(spec, q, k, v, causal, omega=None, running=False):
    """[B, H, N, E] twice and [B, H, N, M] → [B, H, N, M]"""
    features = FEATURES[spec["mechanism"]](spec, q, k, omega=omega, running=running)
    sums, weights = mixed(*features, v, causal)
    return sums / DIVISORS[spec["mechanism"]](weights)
