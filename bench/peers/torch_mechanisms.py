"""The attention mechanisms of weft in PyTorch, without dropout, for torch_export.py."""
import math

import torch_step  # first: it prepares the environment, and says where PyTorch is not  # noqa: F401

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

import torch_blocks
import torch_features
import torch_forms
import torch_patterns
from torch_draws import PLANES, POSITIONS, normal, words


class Refusal(Exception):
    """A model or a file that has no form here, told in one line."""


def chosen(what, name, forms):
    if name not in forms:
        raise Refusal(f"{what} {name} has no form in PyTorch here; there are {', '.join(forms)}")
    return forms[name]


# --- attention: x [B, N, d] → [B, N, d]

def largest(scores, count):
    """Where the `count` largest of each row stand; of equal ones the first."""
    first = scores.sort(dim=-1, descending=True, stable=True).indices[..., :count]
    return torch.zeros_like(scores, dtype=torch.bool).scatter_(-1, first, True)


def weights_of(scores):
    """Softmax over the keys; 0 where all are hidden."""
    nothing = (scores == -math.inf).all(-1, keepdim=True)
    return scores.softmax(-1).masked_fill(nothing, 0)


def positions_of(model):
    """The most that what is learnt by position serves."""
    return model["length"] if "length" in model else (model["size"] // model["patch"]) ** 2


def drawn(*shape):
    """Drawn once by weft, and in the file; a parameter, so that modules can share it."""
    return nn.Parameter(torch.empty(*shape), requires_grad=False)


class Attention(nn.Module):
    """`spec` is the mechanism with its options, `layer` where it stands among `layers`. Where it
    draws, it does so from the stream of random numbers that weft gives to this application."""

    def __init__(self, spec, model, layer, layers):
        super().__init__()
        self.spec, self.causal, self.heads = spec, model["causal"], model["heads"]
        self.layer, self.layers = layer, layers
        self.width, self.values = model["width"], model.get("value_width", model["width"])
        self.output = nn.Linear(self.values, self.width, bias=model["model"] == "vision transformer")

    def forward(self, x, stream):
        self.stream = stream
        return self.output(self.mixed(x).flatten(2))

    def split(self, x):  # [B, N, H·E] → [B, H, N, E]
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def temperature(self, width):
        return self.spec.get("temperature", 0) or width ** -0.5

    def unseen(self, scores):  # the keys that a query does not see
        hidden = torch.zeros(scores.shape[-2:], dtype=torch.bool)
        return torch.ones_like(hidden).triu(1) if self.causal else hidden

    def softmax_of(self, q, k, v):  # [B, H, N, E] each → [B, N, H, M]
        scores = self.temperature(q.shape[-1]) * (q @ k.transpose(-2, -1))
        weights = weights_of(scores.masked_fill(self.unseen(scores), -math.inf))
        return (weights @ v).transpose(1, 2)


def turned(x, base):
    """Rotary positions of x [B, H, N, E]; the features 2i and 2i + 1 are a pair."""
    width = x.shape[-1]
    rates = base ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)
    angles = torch.arange(x.shape[-2])[:, None] * rates
    c, s = angles.cos().to(x), angles.sin().to(x)
    even, odd = x[..., 0::2], x[..., 1::2]
    return torch.stack([c * even - s * odd, s * even + c * odd], -1).flatten(-2)


class Full(Attention):
    def __init__(self, spec, model, layer, layers):
        super().__init__(spec, model, layer, layers)
        self.qkv = nn.Linear(self.width, 2 * self.width + self.values, bias=False)
        self.rotary_base = model.get("rotary_base")  # none: q and k stay as they are

    def mixed(self, x):
        parts = self.qkv(x).split([self.width, self.width, self.values], -1)
        q, k, v = map(self.split, parts)
        if self.rotary_base:
            q, k = turned(q, self.rotary_base), turned(k, self.rotary_base)
        return self.softmax_of(q, k, v)


class Sinkformer(Full):
    """Weights normalised along rows and columns in turn; columns sum to queries over keys."""

    def softmax_of(self, q, k, v):
        return torch_forms.sinkformed(self.spec, q, k, v).transpose(1, 2)


class SinkhornTransformer(Full):
    """Each block of queries sees its own block of keys, and one that an order of blocks brings."""

    def __init__(self, spec, model, layer, layers):
        super().__init__(spec, model, layer, layers)
        width, values = self.width // self.heads, self.values // self.heads
        sizes = {}
        if spec["sort"] == "simple":
            sizes = {"sort_weight": (2 * width, positions_of(model) // spec["block"])}
        elif self.causal:
            sizes = {"null_k": (width,), "null_v": (values,)}
        self.learnt = list(sizes)
        for name, size in sizes.items():
            setattr(self, name, nn.Parameter(torch.empty(self.heads, *size)))

    def softmax_of(self, q, k, v):
        attend = torch_forms.by_blocks(self.spec, self.causal, q.shape[2], q.device)
        return attend(q, k, v, *(getattr(self, name) for name in self.learnt)).transpose(1, 2)


class TopK(Full):
    """Softmax over the k largest scores of each query; of equal ones the first."""

    def softmax_of(self, q, k, v):
        products = q @ k.transpose(-2, -1)
        products = products.masked_fill(self.unseen(products), -math.inf)
        others = ~largest(products, self.spec["topk"])
        scores = (self.temperature(q.shape[-1]) * products).masked_fill(others, -math.inf)
        return (scores.softmax(-1) @ v).transpose(1, 2)


class SharedFull(Attention):
    """The keys are the queries, at length 1 where the options say so."""

    def __init__(self, spec, model, layer, layers):
        super().__init__(spec, model, layer, layers)
        self.qv = nn.Linear(self.width, self.width + self.values, bias=False)

    def mixed(self, x):
        q, v = map(self.split, self.qv(x).split([self.width, self.values], -1))
        return self.softmax_of(q, F.normalize(q, dim=-1) if self.spec["normalize_keys"] else q, v)


class Pattern(Full):
    """local, sparse and bigbird; what the others begin with."""

    def __init__(self, spec, model, layer, layers):
        super().__init__(spec, model, layer, layers)
        self.seed = drawn(1) if spec["mechanism"] == "bigbird" else None  # of its random blocks

    def unseen(self, scores):
        heads, length = scores.shape[-3], scores.shape[-1]
        seed = 0 if self.seed is None else int(self.seed)
        sees = torch_patterns.pattern_of(self.spec, self.causal, heads, length, seed, self.layer)
        return ~torch_patterns.dense(sees, heads, length)


class Longformer(Pattern):
    """The first positions see everything, by projections of their own."""

    def __init__(self, spec, model, layer, layers):
        super().__init__(spec, model, layer, layers)
        self.first = spec["global_tokens"]
        if self.first > 0:
            self.qkv_global = nn.Linear(self.width, 2 * self.width + self.values, bias=False)

    def mixed(self, x):
        near = super().mixed(x)
        if self.first == 0:
            return near
        parts = self.qkv_global(x).split([self.width, self.width, self.values], -1)
        q, k, v = map(self.split, parts)
        scores = self.temperature(q.shape[-1]) * (q @ k.transpose(-2, -1))
        scores = scores.masked_fill(Attention.unseen(self, scores), -math.inf)
        far = (scores.softmax(-1) @ v).transpose(1, 2)
        return torch.cat([far[:, :self.first], near[:, self.first:]], 1)


class BlockLocal(Pattern):
    """Inside blocks, plus attention between their pooled rows."""

    def softmax_of(self, q, k, v):
        pooled = [torch_patterns.pooled(x, self.spec) for x in (q, k, v)]
        weights = (self.temperature(q.shape[-1]) * pooled[0] @ pooled[1].transpose(-2, -1)).softmax(-1)
        between = torch_patterns.over_blocks(weights @ pooled[2], self.spec, v.shape[2])
        return super().softmax_of(q, k, v) + between.transpose(1, 2)


class Features(Full):
    """linear, cosformer and performer."""

    def __init__(self, spec, model, layer, layers):
        super().__init__(spec, model, layer, layers)
        self.omega = None
        if spec["mechanism"] == "performer":
            width = self.width // self.heads
            self.omega = drawn(torch_features.rows_of(spec, width), width)

    def softmax_of(self, q, k, v):
        return torch_features.attention(self.spec, q, k, v, self.causal, self.omega,
                                        running=self.causal).transpose(1, 2)


class Linformer(Full):
    """Learnt matrices mix the keys, and the values, into slots."""

    def __init__(self, spec, model, layer, layers):
        super().__init__(spec, model, layer, layers)
        sizes = positions_of(model), spec["rank"]
        self.proj_k = nn.Parameter(torch.empty(*sizes))
        self.proj_v = None if spec["share_kv"] else nn.Parameter(torch.empty(*sizes))

    def softmax_of(self, q, k, v):
        value_matrix = self.proj_k if self.proj_v is None else self.proj_v
        mixed = (proj[:k.shape[2]].T @ x for x, proj in ((k, self.proj_k), (v, value_matrix)))
        return super().softmax_of(q, *mixed)


class Synthesizer(Attention):
    """Scores that are learnt by position, or made of the query alone; with dot=1 beside products."""

    def __init__(self, spec, model, layer, layers):
        super().__init__(spec, model, layer, layers)
        mode, most, rank = spec["mode"], positions_of(model), spec["rank"]
        self.rotary_base = model.get("rotary_base")  # none: q and k stay as they are
        if spec["dot"]:
            self.qkv = nn.Linear(self.width, 2 * self.width + self.values, bias=False)
        else:
            self.v = nn.Linear(self.width, self.values, bias=False)
        width = spec["hidden"] or self.width // self.heads
        first = spec["factor"] or math.ceil(math.sqrt(most))
        second = -(-most // first)
        if mode.endswith("dense"):
            self.hidden = nn.Linear(self.width, self.heads * width)
        sizes = {"random": {"random": (most, most)},
                 "factorized-random": {"random1": (most, rank), "random2": (rank, most)},
                 "dense": {"w2": (width, most), "b2": (most,)},
                 "factorized-dense": {"w2a": (width, first), "b2a": (first,),
                                      "w2b": (width, second), "b2b": (second,)}}[mode]
        self.learnt = list(sizes)
        for name, size in sizes.items():
            setattr(self, name, nn.Parameter(torch.empty(self.heads, *size)))

    def inputs(self, x):  # what the mechanism takes, in its order
        if self.spec["dot"]:
            parts = self.qkv(x).split([self.width, self.width, self.values], -1)
        else:
            parts = (self.v(x),)
        parts += (self.hidden(x),) if "dense" in self.spec["mode"] else ()
        return [self.split(part) for part in parts] + [getattr(self, name) for name in self.learnt]

    def mixed(self, x):
        inputs, length = self.inputs(x), x.shape[1]
        scores = 0
        if self.spec["dot"]:
            q, k, *inputs = inputs
            if self.rotary_base:
                q, k = turned(q, self.rotary_base), turned(k, self.rotary_base)
            scores = self.temperature(q.shape[-1]) * (q @ k.transpose(-2, -1))
        v, *learnt = inputs
        scores = scores + torch_forms.synthesized(self.spec, length, *learnt)
        weights = weights_of(scores.masked_fill(self.unseen(scores), -math.inf))
        return (weights @ v).transpose(1, 2)


class AdaptiveSpan(Full):
    """Each head looks as far back as its span says, with a ramp of factors at the end."""

    def __init__(self, spec, model, layer, layers):
        super().__init__(spec, model, layer, layers)
        self.span = nn.Parameter(torch.empty(self.heads))
        self.key_pe = nn.Parameter(torch.empty(spec["max_span"], self.width // self.heads))

    def softmax_of(self, q, k, v):
        most, length = self.spec["max_span"], q.shape[-2]
        back = torch.arange(length)[:, None] - torch.arange(length) - 1  # δ − 1
        rows = back.clamp(0, most - 1).expand(*q.shape[:-2], -1, -1)
        scores = q @ k.transpose(-2, -1) + (q @ self.key_pe.T).gather(-1, rows)
        factors = ((self.span[:, None, None] * most - back) / self.spec["ramp"] + 1).clamp(0, 1)
        seen = (back >= 0) & (back < most) & (factors > 0)
        weights = weights_of((self.temperature(q.shape[-1]) * scores).masked_fill(~seen, -math.inf))
        weights = weights * factors
        return (weights / (weights.sum(-1, keepdim=True) + 1e-8) @ v).transpose(1, 2)


class TransformerXl(Full):
    """Scores know the distance by sines and cosines, seen through a learnt map of each head."""

    def __init__(self, spec, model, layer, layers):
        super().__init__(spec, model, layer, layers)
        width = self.width // self.heads
        positions = spec["position_width"] or (self.width + 1) // 2 * 2
        self.w_r = nn.Parameter(torch.empty(positions, self.heads, width))
        self.pos_bias_u = nn.Parameter(torch.empty(self.heads, width))
        self.pos_bias_v = nn.Parameter(torch.empty(self.heads, width))

    def softmax_of(self, q, k, v):
        length, half = q.shape[-2], self.w_r.shape[0] // 2
        back = torch.arange(length)[:, None] - torch.arange(length)
        far = torch.arange(length, dtype=torch.float64)
        if self.spec["clamp"] > 0:
            far = far.clamp(max=self.spec["clamp"])
        angles = far[:, None] * 10000 ** (-torch.arange(half, dtype=torch.float64) / half)
        rho = torch.cat([angles.sin(), angles.cos()], -1).to(q)
        rows = torch.einsum("sd,dhe->hes", rho, self.w_r)
        by_row = (q + self.pos_bias_v[:, None]) @ rows
        places = back.clamp(min=0).expand(*q.shape[:-2], -1, -1)
        scores = (q + self.pos_bias_u[:, None]) @ k.transpose(-2, -1) + by_row.gather(-1, places)
        scores = self.temperature(q.shape[-1]) * scores
        return (weights_of(scores.masked_fill(back < 0, -math.inf)) @ v).transpose(1, 2)


class Conditional(nn.Module):
    """Full attention up to a length, the inner mechanism above it, with the same weights."""

    def __init__(self, spec, model, layer, layers):
        super().__init__()
        last = spec["inner"]
        while "inner" in last:
            last = last["inner"]
        full = {"mechanism": "full", "temperature": last.get("temperature", 0)}
        inner = attention_of(spec["inner"], model, layer, layers)
        self.length, self.inner, self.full = spec["length"], [inner], [Full(full, model, layer, layers)]
        for name, module in inner.named_children():
            self.add_module(name, module)
        for name, parameter in inner.named_parameters(recurse=False):
            self.register_parameter(name, parameter)
        self.full[0].qkv, self.full[0].output = inner.qkv, inner.output

    def forward(self, x, stream):  # lists hide the two from state_dict(): the weights are here
        return (self.full if x.shape[1] <= self.length else self.inner)[0](x, stream)


class Clustered(Full):
    """The means of clusters of queries attend, for all their members. The clusters are K-means in
    Hamming space over hashes by random planes (ops/attention/clustered/clusters.h)."""

    def hashes(self, q):  # → [B, H, N, bits] of 0 and 1
        bits, width = self.spec["bits"], q.shape[-1]
        count = bits * (width + 1)
        pairs = words(np.arange((count + 1) // 2), self.stream ^ PLANES).reshape(-1, 2)[:count]
        planes = normal(pairs[:, 0], pairs[:, 1]).reshape(bits, width + 1).to(q)
        thresholds = planes[:, width] * self.spec["hash_bias"]
        return (q @ planes[:, :width].T > thresholds).to(q)

    def positions(self, length):
        """Whose hashes are the first centroids: by Fisher and Yates, and again from the first."""
        clusters, order = self.spec["clusters"], list(range(length))
        drawn = words(np.arange(min(clusters, length)), self.stream ^ POSITIONS)[:, 0].tolist()
        for i, word in enumerate(drawn):
            other = i + (word * (length - i) >> 32)
            order[i], order[other] = order[other], order[i]
        return [order[c % length] for c in range(clusters)]

    def members(self, q):  # → [B, H, N, C], 1 where a query belongs to a cluster
        clusters, hashes = self.spec["clusters"], self.hashes(q)
        centroids = hashes[:, :, self.positions(q.shape[2])]
        for left in reversed(range(self.spec["iterations"])):
            ones = hashes.sum(-1)[..., :, None] + centroids.sum(-1)[..., None, :]
            distances = ones - 2 * hashes @ centroids.transpose(-2, -1)
            nearest = (distances * clusters + torch.arange(clusters)).argmin(-1)  # ties: the lowest
            members = F.one_hot(nearest, clusters).to(q)
            if left:
                sizes = members.sum(2).unsqueeze(-1)  # [B, H, C, 1]
                most = 2 * members.transpose(-2, -1) @ hashes > sizes  # an empty one keeps its code
                centroids = torch.where(sizes > 0, most.to(q), centroids)
        return members

    def means(self, members, q):  # [B, H, C, E]; 0 of no members
        return members.transpose(-2, -1) @ q / members.sum(2).clamp(min=1).unsqueeze(-1)

    def softmax_of(self, q, k, v):
        members = self.members(q)
        scores = self.temperature(q.shape[-1]) * self.means(members, q) @ k.transpose(-2, -1)
        return (members @ (scores.softmax(-1) @ v)).transpose(1, 2)


class ImprovedClustered(Clustered):
    """On the keys that its cluster's mean scores highest, a query spends the cluster's mass by its
    own scores. The causal form sees the past among these keys, and nothing else."""

    def softmax_of(self, q, k, v):
        members, temperature = self.members(q), self.temperature(q.shape[-1])
        of_means = temperature * self.means(members, q) @ k.transpose(-2, -1)
        chosen_keys = largest(of_means, self.spec["topk"]).to(q)  # [B, H, C, S]
        scores = temperature * q @ k.transpose(-2, -1)
        hidden = (members @ chosen_keys == 0) | self.unseen(scores)
        own = weights_of(scores.masked_fill(hidden, -math.inf)) @ v
        if self.causal:
            return own.transpose(1, 2)
        weights = of_means.softmax(-1)
        mass = (weights * chosen_keys).sum(-1, keepdim=True)
        others = (weights * (1 - chosen_keys)) @ v
        return (members @ mass * own + members @ others).transpose(1, 2)


class Lsh(Attention):
    """Attention inside the chunks of lists that are sorted by random hashes, a list for each round
    (ops/attention/lsh/lsh.h). Here each round is a matrix [N, N] of who sees whom."""

    def __init__(self, spec, model, layer, layers):
        super().__init__(spec, model, layer, layers)
        self.q = nn.Linear(self.width, self.width, bias=False)
        self.v = nn.Linear(self.width, self.values, bias=False)

    def mixed(self, x):
        q, v = self.split(self.q(x)), self.split(self.v(x))
        return self.softmax_of(q, F.normalize(q, dim=-1) if self.spec["normalize_keys"] else q, v)

    def buckets(self, q):  # → [R, B, H, N]
        rounds, planes, width = self.spec["rounds"], self.spec["buckets"] // 2, q.shape[-1]
        drawn = words(np.arange(rounds * planes * width), self.stream ^ PLANES)
        drawn = normal(drawn[:, 0], drawn[:, 1]).reshape(rounds, 1, 1, planes, width).to(q)
        heights = q @ drawn.transpose(-2, -1)
        both = torch.cat([heights, -heights], -1)
        return both.sort(dim=-1, descending=True, stable=True).indices[..., 0]  # ties: the lowest

    def places(self, q):  # → [R, B, H, N, N]: how often a query sees a key
        length, bucket = q.shape[2], self.buckets(q)
        size = min(self.spec["chunk"], length)
        chunk = bucket.sort(dim=-1, stable=True).indices.argsort(-1) // size  # rank in the list
        query, key = chunk.unsqueeze(-1), chunk.unsqueeze(-2)
        places = ((key == query) | (key == query - 1)).to(q)
        if self.spec["wrap"]:  # the first chunk sees the last of the round before, too
            places += ((query == 0) & (key.roll(1, 0) == (length - 1) // size)).to(q)
        hidden = self.unseen(places)
        if self.spec["self"] == "exclude":
            hidden = hidden | torch.eye(length, dtype=torch.bool)
        if not self.spec["across_buckets"]:
            hidden = hidden | (bucket.unsqueeze(-1) != bucket.unsqueeze(-2))
        return places.masked_fill(hidden, 0)

    def softmax_of(self, q, k, v):
        scores = self.temperature(q.shape[-1]) * q @ k.transpose(-2, -1)
        places, together = self.places(q), self.spec["combine"] == "logsumexp"
        counts = places
        if self.spec["self"] == "last":  # a query sees itself where it sees nothing else
            itself = torch.eye(q.shape[2], dtype=torch.bool)
            others = places.masked_fill(itself, 0).sum(-1, keepdim=True)
            others = others.sum(0, keepdim=True) if together else others
            counts = places.masked_fill(itself & (others > 0), 0)
        if self.spec["duplicates"] == "correct":
            counts = counts / places.sum(0).clamp(min=1)
        scores = (scores + counts.log()).movedim(0, -2)  # [B, H, N, R, N]
        if together:  # one softmax over the keys of all rounds
            weights = weights_of(scores.flatten(-2)).reshape(scores.shape).sum(-2)
        else:
            weights = weights_of(scores).mean(-2)
        return (weights @ v).transpose(1, 2)


class Agglomerative(Attention):
    """Means of soft classes over the past (or all), gathered in f64 as weft does."""
    LEAST_MASS = 1e-3

    def __init__(self, spec, model, layer, layers):
        super().__init__(spec, model, layer, layers)
        self.zq, self.zk = (nn.Linear(self.width, self.heads) for _ in range(2))
        self.y = nn.Linear(self.width, self.values, bias=False)

    def mixed(self, x):
        query, key = self.zq(x).softmax(-1).double(), self.zk(x).softmax(-1).double()  # [B, N, H]
        weighted = key.unsqueeze(-1) * self.y(x).unflatten(-1, (self.heads, -1))  # [B, N, H, M]
        if self.causal:
            mass, sums = key.cumsum(1), weighted.cumsum(1)
        else:
            mass, sums = key.sum(1, keepdim=True), weighted.sum(1, keepdim=True)
        return ((query / mass.clamp(min=self.LEAST_MASS)).unsqueeze(-1) * sums).to(x.dtype)


class SamplePermutation(Attention):
    """csp, csp-shift and csp-sort: each channel shifted along the sequence, then sorted in groups."""
    HEAD_STEP, HEADS_OF_ONE = 8, 8

    def __init__(self, spec, model, layer, layers):
        super().__init__(spec, model, layer, layers)
        self.v = nn.Linear(self.width, self.values, bias=False)
        released = spec.get("preset") == "released"
        self.shift = spec.get("shift", "none")
        self.code = released or spec.get("rule") == "code"
        self.sorts = "group" in spec and spec.get("sort", 1) == 1
        self.order = "ascending" if released else spec.get("order")
        self.steps, self.temperature = spec.get("sinkhorn", 0), spec.get("temperature", 1)
        if self.shift == "custom":
            raise Refusal("attention shift=custom of csp has no form in PyTorch here: its shifts are "
                          "given by the caller")

    def shift_of(self, c, length):  # J of channel c, from 0
        channels = self.values
        place, whole = self.layer * channels + c, 1 - 2.0 ** -44
        if self.shift == "linear":
            return (2 * max(c - 1, 0) if self.code else c * -(-length // channels)) % length
        if self.shift == "head":
            heads = self.heads if self.heads > 1 else self.HEADS_OF_ONE
            return self.HEAD_STEP * (c * heads // channels) % length
        if self.shift == "none":
            return 0
        every = self.layers * channels
        if self.code:
            return math.ceil(length ** (place / every) * whole) % length
        return (math.floor(length ** (place / (every - 1) if every > 1 else 0) + 0.5) - 1) % length

    def sorted_groups(self, x):  # [B, groups, G, C]
        if self.steps > 0:
            x = x.transpose(2, 3)  # a plan of the first channel's samples and those of each
            scores = x[..., :1, :, None] * x[..., None, :] / self.temperature
            for _ in range(self.steps):
                scores = scores - scores.logsumexp(-1, keepdim=True)
                scores = scores - scores.logsumexp(-2, keepdim=True)
            return (scores.exp() @ x[..., None]).squeeze(-1).transpose(2, 3)
        if self.order == "descending":
            return x.sort(dim=2, descending=True, stable=True).values
        ascending = x.sort(dim=2, stable=True).values
        if self.order == "ascending":
            return ascending
        rank = x[..., :1].sort(dim=2, stable=True).indices.argsort(2)  # of the first channel's samples
        return ascending.gather(2, rank.expand_as(x))

    def mixed(self, x):
        return self.permuted(self.v(x))

    def permuted(self, values):
        length, channels = values.shape[1:]
        shifts = torch.tensor([self.shift_of(c, length) for c in range(channels)])
        source = (torch.arange(length)[:, None] - shifts) % length
        values = values.gather(1, source.expand_as(values))
        if not self.sorts:
            return values
        groups = self.spec["groups"]
        size = min(-(-length // groups) if groups > 0 else self.spec["group"], length)
        whole = length // size * size  # the last group may be short
        parts = [self.sorted_groups(values[:, :whole].unflatten(1, (-1, size))).flatten(1, 2)]
        if whole < length:
            parts.append(self.sorted_groups(values[:, None, whole:]).flatten(1, 2))
        return torch.cat(parts, 1)


class WholeBlock(nn.Module):
    """isab, star and biblosa: what torch_blocks.py has, and an output map where the width is another."""

    def __init__(self, spec, model, layer, layers):
        super().__init__()
        self.spec, width = spec, model["width"]
        most = spec.get("chunk") or positions_of(model)
        self.learnt = torch_blocks.shapes(spec, width, model["causal"], most)
        for name, shape in self.learnt.items():
            setattr(self, name, nn.Parameter(torch.empty(*shape)))
        out = spec.get("width") or width
        if spec["mechanism"] == "biblosa" and spec["direction"] == "both":
            out *= 2
        self.output = None
        if out != width:
            self.output = nn.Linear(out, width, bias=model["model"] == "vision transformer")

    def block(self, x):
        own = {name: getattr(self, name) for name in self.learnt}
        return torch_blocks.BLOCKS[self.spec["mechanism"]](self.spec, x, own)

    def forward(self, x, stream):
        out = self.block(x)
        return out if self.output is None else self.output(out)


class Mega(WholeBlock):
    """A block with norm and residual of its own, whose attention csp may stand for."""
    OWNS_RESIDUAL = True

    def __init__(self, spec, model, layer, layers):
        super().__init__(spec, model, layer, layers)
        self.causal, self.permuted = model["causal"], None
        if spec["attention"] == "csp":
            options = {name: spec[f"csp_{name}"] for name in ("shift", "group", "groups", "order")}
            own = {"causal": False, "heads": 1, "width": self.w_h.shape[0], "model": ""}
            permutation = SamplePermutation(options, own, layer, layers)  # its maps are not used
            self.permuted = permutation.permuted

    def block(self, x):
        own = {name: getattr(self, name) for name in self.learnt}
        return torch_blocks.mega(self.spec, x, own, self.causal, self.permuted)


MECHANISMS = {"full": Full, "topk": TopK, "shared-full": SharedFull, "conditional": Conditional,
              "clustered": Clustered, "i-clustered": ImprovedClustered,
              "i-clustered-causal": ImprovedClustered, "lsh": Lsh,
              "agglomerative": Agglomerative, "csp": SamplePermutation,
              "csp-shift": SamplePermutation, "csp-sort": SamplePermutation,
              "local": Pattern, "longformer": Longformer, "sparse": Pattern, "bigbird": Pattern,
              "block-local": BlockLocal, "linear": Features, "cosformer": Features,
              "performer": Features, "linformer": Linformer, "sinkformer": Sinkformer,
              "sinkhorn": SinkhornTransformer,
              "synthesizer": Synthesizer,
              "adaptive-span": AdaptiveSpan, "transformer-xl": TransformerXl, "mega": Mega,
              **dict.fromkeys(torch_blocks.BLOCKS, WholeBlock)}


def attention_of(spec, model, layer, layers):
    return chosen("attention", spec["mechanism"], MECHANISMS)(spec, model, layer, layers)
