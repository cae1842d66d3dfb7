"""The mechanisms that are whole blocks in PyTorch, without dropout: x [B, N, d] and what is learnt, by
weft's names. torch_mechanisms.py makes modules of them, torch_forms.py what is timed."""
import math

import torch
import torch.nn.functional as F


def shapes(spec, width, causal, most):
    """Of what is learnt, in weft's order; `most` positions attend to each other in mega."""
    d, name = width, spec["mechanism"]
    if name == "isab":
        c = spec["width"] or d
        made = {"inducing": (spec["points"], c)}
        for mab in (0, 1):
            for letter in "qkvo":
                of_x = letter in ("kv" if mab == 0 else "q")
                made[f"w{letter}{mab}"] = (d if of_x else c, c)
        made |= {f"b{letter}{mab}": (c,) for mab in (0, 1) for letter in "qkvo"}
        return made | ({"norm_gain": (4, c), "norm_bias": (4, c)} if spec["norm"] else {})
    if name == "star":
        steps = spec["steps"]
        a = spec["heads"] * (spec["head_width"] or max(d // spec["heads"], 1))
        made = {"norm_gain": (steps, d), "norm_bias": (steps, d)}
        for part in ("ring", "star"):
            made |= {f"{part}_qkv": (steps, d, 3 * a), f"{part}_qkv_bias": (steps, 3 * a),
                     f"{part}_out": (steps, a, d), f"{part}_out_bias": (steps, d)}
        return made
    if name == "biblosa":
        c, ways = spec["width"] or d, 2 if spec["direction"] == "both" else 1
        maps = {"map": (d, c, c), "token": (c, 2 * c, c), "pool": (c, c, c), "block": (c, c, c),
                "block_token": (c, 2 * c, c), "gate": (2 * c, c, c), "out": (3 * c, 2 * c, 2 * c)}
        made = {}
        for part, (rows, columns, biases) in maps.items():
            made |= {f"w_{part}": (ways, rows, columns), f"b_{part}": (ways, biases)}
        return made
    z, n, h = spec["key_width"], spec["states"], spec["value_width"] or 2 * d  # mega
    made = {"norm_gain": (d,), "norm_bias": (d,)}
    made |= {f"ema_{part}": (1 if causal else 2, d, n) for part in ("delta", "alpha", "beta", "gamma")}
    return made | {"ema_omega": (d,), "w_v": (d, h), "b_v": (h,), "w_x": (d, 2 * d + z + h),
                   "b_x": (2 * d + z + h,), "w_h": (h, d), "b_h": (d,), "gamma": (2, z),
                   "beta": (2, z), "rel_bias": (2 * most - 1,)}


def isab(spec, x, p):
    heads = spec["heads"]
    scale = spec["temperature"] or p["inducing"].shape[1] ** -0.5

    def split(rows):
        return rows.unflatten(-1, (heads, -1)).transpose(1, 2)

    def norm(rows, number):
        if not spec["norm"]:
            return rows
        return F.layer_norm(rows, rows.shape[-1:], p["norm_gain"][number], p["norm_bias"][number])

    def mab(number, queries, keys):
        q, k, v = (rows @ p[f"w{letter}{number}"] + p[f"b{letter}{number}"]
                   for letter, rows in (("q", queries), ("k", keys), ("v", keys)))
        found = F.scaled_dot_product_attention(split(q), split(k), split(v), scale=scale)
        o = norm(q + found.transpose(1, 2).flatten(2), 2 * number)
        mapped = o @ p[f"wo{number}"] + p[f"bo{number}"]
        return norm(o + mapped.relu(), 2 * number + 1)

    return mab(1, x, mab(0, p["inducing"].expand(x.shape[0], -1, -1), x))


def star(spec, x, p):
    heads, steps = spec["heads"], p["norm_gain"].shape[0]
    scale = (p["ring_out"].shape[1] // heads) ** -0.5

    def mapped(rows, name, t):
        return rows @ p[name][t] + p[name + "_bias"][t]

    def neighbours(rows):  # [B, N, A] → before, itself, after
        if spec["ends"] == "ring":
            return [rows.roll(1, 1), rows, rows.roll(-1, 1)]
        padded = F.pad(rows, (0, 0, 1, 1))
        return [padded[:, :-2], rows, padded[:, 2:]]

    def satellites(t, h, s):
        g = F.layer_norm(h, h.shape[-1:], p["norm_gain"][t], p["norm_bias"][t], 1e-6)
        q, *of_g = mapped(g, "ring_qkv", t).chunk(3, -1)
        of_e, of_s = (mapped(rows, "ring_qkv", t).chunk(3, -1)[1:] for rows in (x, s))
        k, v = (torch.stack(neighbours(own) + [e, one.expand_as(e)], 2).unflatten(-1, (heads, -1))
                for own, e, one in zip(of_g, of_e, of_s))  # [B, N, 5, H, E]
        a = (scale * (q.unflatten(-1, (heads, -1)).unsqueeze(2) * k).sum(-1)).softmax(2)
        return F.leaky_relu(mapped((a.unsqueeze(-1) * v).sum(2).flatten(2), "ring_out", t))

    def relay(t, h, s):
        q, k, v = (part.unflatten(-1, (heads, -1)).transpose(1, 2)
                   for part in mapped(torch.cat([s, h], 1), "star_qkv", t).chunk(3, -1))
        found = F.scaled_dot_product_attention(q[:, :, :1], k, v)
        return F.leaky_relu(mapped(found.transpose(1, 2).flatten(2), "star_out", t))

    h, s = x, x.mean(1, keepdim=True)
    for t in range(steps):
        h = satellites(t, h, s)
        if t + 1 < steps:
            s = relay(t, h, s)
    return h


def biblosa(spec, x, p):
    act = {"elu": F.elu, "relu": F.relu, "linear": lambda rows: rows}[spec["activation"]]
    length = x.shape[1]
    size = min(spec["block"], length)

    def direction(t, later):
        def mapped(rows, name):
            return rows @ p["w_" + name][t] + p["b_" + name][t]

        def directed(name, h, there):  # h [.., n, C], of which `there` [.., n] exist
            first, second = (h @ p["w_" + name][t]).chunk(2, -1)
            z = 5 * torch.tanh(((first + p["b_" + name][t]).unsqueeze(-3) + second.unsqueeze(-2)) / 5)
            pairs = torch.ones(h.shape[-2], h.shape[-2], dtype=torch.bool, device=h.device)
            seen = (pairs.triu(1) if later else pairs.tril(-1)) & there.unsqueeze(-2)
            weights = z.masked_fill(~seen.unsqueeze(-1), -1e9).softmax(-2)  # [.., i, j, C]
            sums = (weights * h.unsqueeze(-3)).sum(-2)
            return sums.masked_fill(~seen.any(-1).unsqueeze(-1), 0)

        blocks = F.pad(x, (0, 0, 0, -length % size)).unflatten(1, (-1, size))
        there = torch.arange(blocks.shape[1] * size, device=x.device).view(-1, size) < length
        h = act(mapped(blocks, "map"))
        s = directed("token", h, there)
        logits = mapped(s, "pool").masked_fill(~there.unsqueeze(-1), -math.inf)
        m = act(mapped((logits.softmax(2) * s).sum(2), "block"))
        a = directed("block_token", m, there.any(-1))
        gate = mapped(torch.cat([m, a], -1), "gate").sigmoid()
        e = gate * m + (1 - gate) * a
        c, f = mapped(torch.cat([h, s, e.unsqueeze(2).expand_as(h)], -1), "out").chunk(2, -1)
        f = f.sigmoid()
        return (f * act(c) + (1 - f) * h).flatten(1, 2)[:, :length]

    ways = {"both": (False, True), "forward": (False,), "backward": (True,)}[spec["direction"]]
    return torch.cat([direction(t, later) for t, later in enumerate(ways)], -1)


def mega(spec, x, p, causal, permuted=None):
    """Chunks as a batch, and the moving average by Fourier transforms. `permuted`, of v [B, N, h], stands
    for attention where that is csp."""
    length, z = x.shape[1], spec["key_width"]
    chunk = min(spec["chunk"] or length, length)
    normed = F.layer_norm(x, x.shape[-1:], p["norm_gain"], p["norm_bias"])

    def averaged():
        rate, alpha = p["ema_delta"].sigmoid(), p["ema_alpha"].sigmoid()
        weight = rate * p["ema_beta"] * p["ema_gamma"] * rate.shape[-1] ** -0.5
        lags = torch.arange(min(spec["truncation"] or length, length), device=x.device)
        powers = ((1 - rate * alpha).log().unsqueeze(-1) * lags).exp()
        kernel = torch.einsum("dcn,dcnl->dcl", weight, powers)
        y = 0
        for way, rows in zip(kernel, (normed, normed.flip(1))):
            spectrum = torch.fft.rfft(rows.transpose(1, 2), 2 * length)
            spectrum = spectrum * torch.fft.rfft(way, 2 * length)
            one = torch.fft.irfft(spectrum, 2 * length)[..., :length].transpose(1, 2)
            y = y + (one if rows is normed else one.flip(1))
        return y

    def attended(q, k, v):  # [B, chunks, c, ..]
        size = q.shape[2]
        place = torch.arange(size, device=x.device)
        middle = (len(p["rel_bias"]) - 1) // 2
        bias = p["rel_bias"][middle + place - place[:, None]]
        products = q @ k.transpose(-2, -1)
        future = torch.ones_like(bias, dtype=torch.bool).triu(1) if causal else None
        if spec["attention"] == "softmax":
            scores = products * z ** -0.5 + bias
            return (scores.masked_fill(future, -math.inf) if causal else scores).softmax(-1) @ v
        scores = products / (place[:, None] + 1 if causal else size) + bias
        if spec["attention"] == "laplace":
            weights = (1 + torch.erf((scores - 0.707107) / (0.282095 * 2 ** 0.5))) / 2
        else:
            weights = scores.relu() ** 2
        return (weights.masked_fill(future, 0) if causal else weights) @ v

    moved = F.silu(averaged() + p["ema_omega"] * normed)
    d, h = x.shape[2], p["w_h"].shape[0]
    u, shared, r, hx = (moved @ p["w_x"] + p["b_x"]).split([d, z, h, d], -1)
    shared, v = F.silu(shared), F.silu(normed @ p["w_v"] + p["b_v"])
    if permuted is None:
        q, k = (shared * p["gamma"][i] + p["beta"][i] for i in (0, 1))
        whole = length // chunk * chunk
        parts = [attended(*(rows[:, :whole].unflatten(1, (-1, chunk)) for rows in (q, k, v))).flatten(1, 2)]
        if whole < length:
            parts.append(attended(*(rows[:, None, whole:] for rows in (q, k, v)))[:, 0])
        o = torch.cat(parts, 1)
    else:
        o = permuted(v)
    update = F.silu(hx + (o * F.silu(r)) @ p["w_h"] + p["b_h"])
    return x + u.sigmoid() * (update - x)


BLOCKS = {"isab": isab, "star": star, "biblosa": biblosa}
