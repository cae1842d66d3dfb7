#!/usr/bin/env python3
"""The forms in which PyTorch's users write a mechanism, for torch_attention.py.

    python3 bench/peers/torch_forms.py '{"mechanism": "local", "context": 9, "temperature": 0,
        "causal": true}'

says how far each form, not compiled, is from the definition over N x N, one JSON object a line: of
full, the patterns, the features, linformer and synthesizer (given its scores by position). The forms
of the others are those of torch_mechanisms.py, which torch_export.py compares with weft.
"""
import functools
import json
import math
import os
import shutil
import sys
import types
from typing import Callable, NamedTuple

if __name__ == "__main__":
    import torch_step  # first: it says where PyTorch is not  # noqa: F401

import torch
import torch.nn.functional as F

import torch_blocks
import torch_features
import torch_patterns
from torch_features import FEATURES
from torch_patterns import PATTERNS

FUSED = getattr(F, "scaled_dot_product_attention", None)
try:
    from torch.nn.attention import flex_attention as flex
except ImportError:
    flex = None


class Form(NamedTuple):
    name: str
    make: Callable  # length → the function of q [B, H, N, E], k, v and what else inputs_of() has
    all_pairs: bool = False  # whether it computes all N × N scores, and its mechanism fewer
    bytes_of_pair: int = 0   # that it holds for each of them, above what is linear in N
    compiled: bool = False
    backward: bool = True


def item():
    """Bytes of a number: bf16 is PyTorch's default type where all inputs are in it."""
    return torch.finfo(torch.get_default_dtype()).bits // 8


def later(rows, columns, device):
    """The mask of what causal scores leave out."""
    return torch.ones(rows, columns, dtype=torch.bool, device=device).triu(1)


# --- full

def naive(q, k, v, future):
    scores = (q * q.shape[-1] ** -0.5) @ k.transpose(-2, -1)
    if future is not None:
        scores = scores.masked_fill(future, float("-inf"))
    return scores.softmax(-1) @ v


def full(spec, options, causal):
    held = 3 * item() * options.batch * options.heads  # scores and weights, and their gradient

    def unfused(length):
        future = later(length, length, options.device) if causal else None
        return lambda q, k, v: naive(q, k, v, future)

    forms = [Form("naive", unfused, False, held)]
    if FUSED:
        forms.append(Form("fused", lambda length: lambda q, k, v: FUSED(q, k, v, is_causal=causal)))
    return forms


# --- patterns

def around(spec, causal, near):
    """The mechanism, where near(q, k, v) is attention over its pattern."""
    scale = spec["temperature"] or None

    def longformer(q, k, v, q_global, k_global, v_global):
        first = spec["global_tokens"]
        seen = first if causal else None
        far = FUSED(q_global[:, :, :first], k_global[:, :, :seen], v_global[:, :, :seen],
                    is_causal=causal, scale=scale)
        return torch.cat([far, near(q, k, v)[:, :, first:]], 2)

    def block_local(q, k, v):
        rows = FUSED(*(torch_patterns.pooled(x, spec) for x in (q, k, v)), scale=scale)
        return near(q, k, v) + torch_patterns.over_blocks(rows, spec, v.shape[2])

    if spec["mechanism"] == "longformer" and spec["global_tokens"] > 0:
        return longformer
    return block_local if spec["mechanism"] == "block-local" else near


def patterns(spec, options, causal):
    scale = spec["temperature"] or None
    masks = options.heads if torch_patterns.by_heads(spec) else 1

    def sees(length):
        return torch_patterns.pattern_of(spec, causal, options.heads, length)

    def masked(length):
        mask = torch_patterns.dense(sees(length), options.heads, length)
        return around(spec, causal, lambda q, k, v: FUSED(q, k, v, attn_mask=mask, scale=scale))

    def flexible(length):
        pattern = sees(length)
        mask = flex.create_block_mask(lambda b, h, i, j: pattern(h, i, j), None,
                                      masks if masks > 1 else None, length, length,
                                      device=options.device)
        attend = torch.compile(flex.flex_attention, dynamic=False)
        return around(spec, causal,
                      lambda q, k, v: attend(q, k, v, block_mask=mask, scale=scale))

    def blocks(length):  # a block as one more head; the last may be short
        size = min(spec["block"], length)
        whole = length // size * size

        def inside(q, k, v):
            parts = (x[:, :, :whole].unflatten(2, (-1, size)).flatten(1, 2) for x in (q, k, v))
            out = FUSED(*parts, scale=scale).unflatten(1, (q.shape[1], -1)).flatten(2, 3)
            if whole == length:
                return out
            rest = FUSED(*(x[:, :, whole:] for x in (q, k, v)), scale=scale)
            return torch.cat([out, rest], 2)
        return around(spec, causal, inside)

    # A mask of bool, and one of numbers, as it is added.
    forms = [Form("masked", masked, True, (1 + item()) * masks)]
    if flex and can_compile(options):
        # Its mask is made of N × N places in i64, and of what each head sees; on CPUs it has no
        # backward.
        held = 32 + 11 * (masks - 1)
        forms.append(Form("flex", flexible, False, held, True, options.device == "cuda"))
    if spec["mechanism"] == "block-local":
        forms.append(Form("blocks", blocks))
    return forms


# --- features

def features(spec, options, causal):
    def attend(*inputs):
        return torch_features.attention(spec, *inputs[:3], causal, *inputs[3:])

    forms = [Form("eager", lambda length: attend)]
    if can_compile(options):
        forms.append(Form("compiled", lambda length: torch.compile(attend, dynamic=False),
                          compiled=True))
    return forms


# --- slots

def linformer(spec, options):
    scale = spec["temperature"] or None

    def attend(q, k, v, proj_k, proj_v=None):
        rows = proj_k.T, (proj_k if proj_v is None else proj_v).T
        return FUSED(q, rows[0] @ k, rows[1] @ v, scale=scale)

    return [Form("fused", lambda length: attend)]


# --- rows and columns in turn

def sinkformed(spec, q, k, v):
    scores = (spec["temperature"] or q.shape[-1] ** -0.5) * (q @ k.transpose(-2, -1))
    rows, columns = 0, torch.zeros_like(k[..., :1]).transpose(-2, -1)
    share = math.log(scores.shape[-2] / scores.shape[-1])
    for step in range(spec["iterations"]):
        if step % 2 == 0:
            rows = -(scores + columns).logsumexp(-1, keepdim=True)
        else:
            columns = share - (scores + rows).logsumexp(-2, keepdim=True)
            columns = columns.detach() if spec["detach_columns"] else columns
    return (scores + rows + columns).exp() @ v


def sinkformer(spec, options, causal):
    # Scores and weights with their gradients, and what each half step takes the sums of.
    held = item() * (spec["iterations"] + 5) * options.batch * options.heads
    return [Form("naive", lambda length: functools.partial(sinkformed, spec), False, held)]


# --- scores by position

def synthesized(spec, length, first, *learnt):  # [B or 1, H, N, N]
    mode = spec["mode"]
    if mode == "random":
        return first[None, :, :length, :length]
    if mode == "factorized-random":
        return (first[:, :length] @ learnt[0][..., :length])[None]
    hidden = first.relu()
    if mode == "dense":
        return hidden @ learnt[0][..., :length] + learnt[1][:, None, :length]
    first, second = (hidden @ learnt[at] + learnt[at + 1][:, None] for at in (0, 2))
    # Along the keys the first factor repeats, the second has each number several times.
    return (second.unsqueeze(-1) * first.unsqueeze(-2)).flatten(-2)[..., :length]


def synthesizer(spec, options, causal):
    dot = spec["dot"]

    def make(length):
        future = later(length, length, options.device) if causal else None

        def attend(*inputs):
            v, learnt = inputs[2 if dot else 0], inputs[3 if dot else 1:]
            scores = synthesized(spec, length, *learnt)
            if dot:
                scale = spec["temperature"] or inputs[0].shape[-1] ** -0.5
                scores = scores + scale * (inputs[0] @ inputs[1].transpose(-2, -1))
            if causal:
                scores = scores.masked_fill(future, -math.inf)
            return scores.softmax(-1) @ v
        return attend

    held = 3 * item() * options.batch * options.heads  # scores and weights, and their gradient
    return [Form("naive", make, False, held)]


def synthesizer_inputs(spec, length, options):
    """The shapes behind v."""
    heads, width = options.heads, spec["hidden"] or options.key_width
    first = spec["factor"] or math.ceil(math.sqrt(length))
    second = -(-length // first)
    hidden = (options.batch, heads, length, width)
    return {"random": [(heads, length, length)],
            "factorized-random": [(heads, length, spec["rank"]), (heads, spec["rank"], length)],
            "dense": [hidden, (heads, width, length), (heads, length)],
            "factorized-dense": [hidden, (heads, width, first), (heads, first),
                                 (heads, width, second), (heads, second)]}[spec["mode"]]


# --- an order of blocks

def by_blocks(spec, causal, length, device):
    """The function of q, k, v and what is learnt: the order of blocks, or the null block."""
    size, heat = spec["block"], spec["sort_temperature"]

    def sorted_by(order, x):  # x [B, H, n, b, E]
        return (order @ x.flatten(3)).unflatten(3, x.shape[3:])

    def order_of(q, k, learnt):
        if learnt:
            both = torch.cat([q.mean(3), k.mean(3)], -1) * size
            scores = both @ learnt[0][..., :q.shape[2]]
        else:
            scores = q.mean(3) @ k.mean(3).transpose(-2, -1) * q.shape[-1] ** -0.5
        scores = (scores.relu() + 1e-6).log() / heat
        for step in range(2 * spec["iterations"]):
            scores = scores - scores.logsumexp(-1 - step % 2, keepdim=True)
        return scores.exp()

    def picked(q, k, v, null_k, null_v, future):
        length = q.shape[2] * size
        count = torch.arange(1, length + 1, device=q.device)[:, None]
        means = [x.flatten(2, 3).cumsum(2) / count for x in (q, k)]
        scores = means[0][:, :, ::size] @ means[1].unflatten(2, (-1, size)).sum(3).transpose(-2, -1)
        scores = F.pad(scores * q.shape[-1] ** -0.5 / heat, (1, 0))
        weight, block = scores.masked_fill(future, -math.inf).softmax(-1).max(-1)
        blocks = []
        for x, null in ((k, null_k), (v, null_v)):
            rows = torch.cat([null[None, :, None, None].expand(x.shape[0], -1, 1, size, -1), x], 2)
            index = block[..., None, None].expand(-1, -1, -1, *x.shape[3:])
            blocks.append(weight[..., None, None] * rows.gather(2, index))
        return blocks

    mask = None
    if causal:
        future = later(length // size, length // size + 1, device)  # of blocks, behind a null one
        own = later(size, size, device)
        mask = ~torch.cat([torch.zeros_like(own), own], 1)

    def attend(q, k, v, *learnt):
        q, k, v = (x.unflatten(2, (-1, size)) for x in (q, k, v))
        if causal:
            k_sorted, v_sorted = picked(q, k, v, *learnt, future)
        else:
            order = order_of(q, k, learnt)
            k_sorted, v_sorted = sorted_by(order, k), sorted_by(order, v)
        blocks = (torch.cat(pair, 3).flatten(1, 2) for pair in ((k_sorted, k), (v_sorted, v)))
        out = FUSED(q.flatten(1, 2), *blocks, attn_mask=mask, scale=spec["temperature"] or None)
        return out.unflatten(1, (v.shape[1], -1)).flatten(2, 3)

    return attend


def sinkhorn(spec, options, causal):
    return [Form("blocks", lambda length: by_blocks(spec, causal, length, options.device))]


# --- blocks

def block_shapes(spec, width, length):
    return torch_blocks.shapes(spec, width, spec["causal"], spec.get("chunk") or length)


def blocks(spec, options, causal):
    name, width = spec["mechanism"], options.heads * options.value_width

    def make(length):
        learnt = block_shapes(spec, width, length)

        def attend(x, *parameters):
            own = dict(zip(learnt, parameters))
            if name == "mega":
                return torch_blocks.mega(spec, x, own, causal)
            return torch_blocks.BLOCKS[name](spec, x, own)
        return attend

    held = 0
    if name == "biblosa":  # tanh, scores and weights of each feature, and their gradient
        ways = 2 if spec["direction"] == "both" else 1
        held = 4 * item() * options.batch * ways * (spec["width"] or width) // spec["block"] ** 2
    forms = [Form("eager", make, False, held)]
    if can_compile(options):
        forms.append(Form("compiled", lambda length: torch.compile(make(length), dynamic=False),
                          False, held, compiled=True))
    return forms


def output_shape(spec, inputs, options):
    """Of what a form gives."""
    x = inputs[0]
    if not is_block(spec):
        return options.batch, options.heads, x.shape[2], options.value_width
    width = spec.get("width") or x.shape[2]
    both = spec["mechanism"] == "biblosa" and spec["direction"] == "both"
    return (*x.shape[:2], 2 * width if both else width)


# --- all of them

def is_block(spec):
    name = spec["mechanism"]
    return name in torch_blocks.BLOCKS or (name == "mega" and spec["attention"] != "csp")


def can_compile(options):
    """On CPUs by a C++ compiler."""
    return hasattr(torch, "compile") and (
        options.device == "cuda" or shutil.which(os.environ.get("CXX", "g++")) is not None)


def forms_of(spec, options):
    """None: the mechanism has no form here."""
    name, causal = spec["mechanism"], spec["causal"]
    if name == "full" and spec["temperature"] == 0:
        return full(spec, options, causal)
    if name == "linformer" and FUSED:
        return linformer(spec, options)
    if name in PATTERNS and FUSED:
        return patterns(spec, options, causal)
    if name == "sinkformer":
        return sinkformer(spec, options, causal)
    if name == "synthesizer":
        return synthesizer(spec, options, causal)
    if name == "sinkhorn" and FUSED:
        return sinkhorn(spec, options, causal)
    if is_block(spec) and FUSED:
        return blocks(spec, options, causal)
    return features(spec, options, causal) if name in FEATURES else []


def inputs_of(spec, length, options, gradients):
    """q, k, v, and what the mechanism takes besides; a drawn omega wants no gradient."""
    if is_block(spec):
        width = options.heads * options.value_width
        inputs = [torch.randn(options.batch, length, width)]
        for name, shape in block_shapes(spec, width, length).items():
            start = torch.ones if name.endswith("gain") else torch.randn
            inputs.append(start(*shape).mul(1 if name.endswith("gain") else width ** -0.5))
        return [x.requires_grad_(gradients) for x in inputs]
    sizes = ((options.queries or length, options.key_width), (length, options.key_width),
             (length, options.value_width))
    if spec["mechanism"] == "synthesizer":
        own = [(options.batch, options.heads, *size) for size in sizes[0 if spec["dot"] else 2:]]
        return [torch.randn(*size).mul(0.1).requires_grad_(gradients)
                for size in own + synthesizer_inputs(spec, length, options)]
    further = spec["mechanism"] == "longformer" and spec["global_tokens"] > 0
    inputs = [torch.randn(options.batch, options.heads, *size, requires_grad=gradients)
              for size in sizes * (2 if further else 1)]
    if spec["mechanism"] == "performer":
        rows = torch_features.rows_of(spec, options.key_width)
        inputs.append(torch.randn(rows, options.key_width))
    if spec["mechanism"] == "linformer":
        for _ in range(1 if spec["share_kv"] else 2):
            proj = torch.rand(length, spec["rank"]).mul(2).sub(1) * spec["rank"] ** -0.5
            inputs.append(proj.requires_grad_(gradients))
    if spec["mechanism"] == "sinkhorn":
        rows = ()
        if spec["sort"] == "simple":
            rows = ((2 * options.key_width, length // spec["block"]),)
        elif spec["causal"]:
            rows = (options.key_width,), (options.value_width,)
        inputs += [torch.randn(options.heads, *size, requires_grad=gradients) for size in rows]
    return inputs


# --- whether they are right

def by_pairs(spec, q, k, v, omega=None):
    """Features over N × N."""
    query, key = FEATURES[spec["mechanism"]](spec, q, k, omega=omega, running=False)
    weights = query @ key.transpose(-2, -1)
    weights = weights.tril() if spec["causal"] else weights
    return weights @ v / torch_features.DIVISORS[spec["mechanism"]](weights.sum(-1, keepdim=True))


def check(spec, length):
    from torch_mechanisms import attention_of  # which torch_export.py compares with weft
    options = types.SimpleNamespace(device="cpu", batch=2, heads=2, value_width=8)
    model = {"causal": spec["causal"], "heads": options.heads, "width": 16, "model": "",
             "length": length}
    torch.manual_seed(1)
    module, x = attention_of(spec, model, 0, 1), torch.randn(options.batch, length, model["width"])
    for parameter in module.parameters():
        parameter.data.normal_()
    if "seed" in dict(module.named_parameters()):
        module.seed.data.zero_()
    if spec["mechanism"] == "synthesizer":
        inputs = module.inputs(x)
    else:
        inputs = [module.split(part) for name, projection in module.named_children()
                  if name.startswith("qkv") for part in projection(x).chunk(3, -1)]
    if spec["mechanism"] == "performer":
        inputs.append(module.omega)
    inputs += [p for name, p in module.named_parameters() if name.startswith("proj_")]
    if spec["mechanism"] in FEATURES:
        torch_features.CHUNK = 64  # several, the last of them short
        exact = by_pairs(spec, *inputs)
    else:
        exact = module.mixed(x).transpose(1, 2)
    for form in forms_of(spec, options):
        error = (form.make(length)(*inputs) - exact).abs().max() / exact.abs().max()
        print(json.dumps({"attention": spec["mechanism"], "form": form.name, "error": float(error)}))


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    torch.compile = lambda function, **_: function
    with torch.no_grad():
        for text in sys.argv[1:]:
            check(json.loads(text), 200)
