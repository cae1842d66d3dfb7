"""Time and memory per token against length, on logarithmic axes: `bench/plot scaling`.

A column for each device, a panel for each question: what a token costs in time where the time of a call
grows with N², where it grows with N, and what it costs in memory. Linear mechanisms are level lines. A line
ends where its budget or the longest length ends it, and is named at the right edge; members of a family
share a colour and differ in their dashes. A ring marks from where a mechanism is faster than fused full
attention.
"""
import json
import math
import re
from pathlib import Path

from drawing import COLOURS, Refusal, pyplot, save, spread

BASELINE, BASELINE_COLOUR = "full", "#000000"
DASHES = ["-", (0, (5, 1.6)), (0, (1.2, 1.4)), (0, (6, 1.4, 1.2, 1.4)), (0, (2.6, 1.2))]
COLUMN_INCHES, PANEL_INCHES = 3.6, 2.3  # of the axes; panels with many names are higher
TEXT = 9  # points
NAMES_INCHES = 1.9  # to the right of the axes
LINE_INCHES = 0.15


def is_device(device):
    """Whether this is what attention_bench writes of a device, as far as it is drawn."""
    texts = all(isinstance(device[key], str) for key in
                ["device", "processor", "isa", "settings", "commit", "tests"])
    return texts and isinstance(device["threads"], int) and device.get("batch", 1) > 0 and all(
        isinstance(curve["name"], str) and isinstance(curve["faster_than_full"]["kind"], str)
        and curve["faster_than_full"].get("length", 1) > 0 and curve["points"]
        and all(p["length"] > 0 and (p["ms"] is None or p["ms"] > 0) and (p["peak_bytes"] or 1) > 0
                for p in curve["points"])
        for curve in device["curves"])


def read_curves(path):
    """The devices of a curves.json that attention_bench wrote; a folder stands for that file in it."""
    path = Path(path)
    path = path / "curves.json" if path.is_dir() else path
    try:
        devices = json.loads(path.read_text(encoding="utf-8"))
        if not all(is_device(device) for device in devices):
            raise ValueError("a value of another kind")
    except (OSError, UnicodeDecodeError) as error:
        raise Refusal(f"{path}: cannot be read: {error}") from None
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise Refusal(f"{path}: is not a curves.json of attention_bench ({error!r})") from None
    return [device for device in devices if device["curves"]]


def family(name, names):
    """The shortest of the names that is a part of this one: csp of csp-sort. Another library's
    attention is full attention, where it names no other."""
    shortest = min((other for other in names if other in name), key=len)
    return BASELINE if shortest.startswith("PyTorch") else shortest


def styles(names):
    """{name: (colour, dashes)}: the families' colours, and their members' dashes, in order."""
    families = {}
    for name in names:
        families.setdefault(family(name, names), []).append(name)
    colours = iter([c for c in COLOURS if c != BASELINE_COLOUR] * len(names))
    result = {}
    for head, members in families.items():
        colour = BASELINE_COLOUR if head == BASELINE else next(colours)
        for member, dashes in zip(members, DASHES * len(members)):
            result[member] = colour, dashes
    return result


def power_of_1024(value, units):
    step = min(int(math.log2(value)) // 10, len(units) - 1) if value >= 1 else 0
    return f"{value / 1024 ** step:g}{units[step]}"


def microseconds(value):
    return f"{value / 1e6:g} s" if value >= 1e6 else f"{value / 1000:g} ms" if value >= 1000 else \
        f"{value:g} µs" if value >= 1 else f"{1000 * value:g} ns"


def drawn_of(curves):
    """The curves with the names that the picture has: of another library its full attention alone,
    PyTorch's scaled_dot_product_attention where it was measured."""
    peers = {c["name"] for c in curves if re.fullmatch(r"PyTorch \S+ \((naive|fused)\)", c["name"])}
    peers = {name for name in peers if name.endswith("(fused)")} or peers
    return [{**c, "name": c["name"].replace("(fused)", "SDPA")} for c in curves
            if not c["name"].startswith("PyTorch") or c["name"] in peers]


def is_quadratic(curve):
    """Whether the time of a call grows with N² rather than with N, by the fact sheet."""
    growth = curve.get("expected_time") or curve.get("time")
    return growth is not None and growth["slope"] > 1.5


def per_token(curve, key, batch):
    """[(length, µs or bytes of a token)]."""
    scale = (1000 if key == "ms" else 1) / batch
    return [(p["length"], scale * p[key] / p["length"]) for p in curve["points"] if p[key]]


def label_right(axes, ends):
    """Names the (name, colour, x, y) of each line's end at the right edge, in the order of their heights,
    moved apart: the lines that lead there do not cross each other."""
    inches = axes.get_position().height * axes.figure.get_figheight()
    heights = [axes.transAxes.inverted().transform(axes.transData.transform(end[2:]))[1] for end in ends]
    for (name, colour, x, y), height, place in zip(ends, heights,
                                                   spread(heights, LINE_INCHES / inches, 0, 1)):
        begin = axes.transAxes.inverted().transform(axes.transData.transform((x, y)))[0]
        axes.plot([begin, 1, 1.06], [height, height, place], transform=axes.transAxes, color=colour, lw=0.7,
                  alpha=0.5, clip_on=False, zorder=1)
        axes.annotate(name, xy=(1.07, place), xycoords="axes fraction", color=colour, fontsize=TEXT,
                      va="center", annotation_clip=False)


def at(points, length):
    """The line's value there, by straight lines between logarithms."""
    for (x0, y0), (x1, y1) in zip(points, points[1:]):
        if x0 <= length <= x1:
            share = math.log(length / x0) / math.log(x1 / x0)
            return math.exp(math.log(y0) + share * math.log(y1 / y0))
    return None


def draw_panel(axes, curves, key, batch, style):
    """The lines of one panel; returns their ends for the names, and marks the crossovers of time."""
    ends = []
    for curve in curves:
        colour, dashes = style[curve["name"]]
        points = per_token(curve, key, batch)
        if not points:
            continue
        baseline = curve["name"] == BASELINE
        axes.plot(*zip(*points), color=colour, ls=dashes, lw=2.4 if baseline else 1.5,
                  zorder=4 if baseline else 3)
        crossover = curve["faster_than_full"]
        if key == "ms" and crossover["kind"] == "at":
            value = at(points, crossover["length"])
            if value:
                axes.plot([crossover["length"]], [value], "o", ms=7, mfc="none", mec=colour,
                          mew=1.5, zorder=5)
        ends.append((curve["name"], colour, *points[-1]))
    return ends


def finish(axes, lengths, unit):
    from matplotlib import ticker

    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=10 if unit is microseconds else 2)
    axes.set_xlim(min(lengths), max(lengths))
    powers = [p for p in range(math.floor(math.log2(min(lengths))), math.ceil(math.log2(max(lengths))) + 1)
              if min(lengths) <= 2.0 ** p <= max(lengths)]
    axes.set_xticks([2.0 ** p for p in powers if p % 2 == 0 or len(powers) < 8])
    axes.xaxis.set_major_formatter(
        ticker.FuncFormatter(lambda x, _: power_of_1024(x, ["", " Ki", " Mi"])))
    if unit is microseconds:
        axes.yaxis.set_major_formatter(ticker.FuncFormatter(lambda y, _: microseconds(y)))
    else:
        low, high = (math.log2(y) for y in axes.get_ylim())
        powers = range(math.ceil(low), math.floor(high) + 1)
        axes.set_yticks([2.0 ** p for p in powers if p % 2 == 0 or len(powers) < 5])
        axes.yaxis.set_major_formatter(
            ticker.FuncFormatter(lambda y, _: power_of_1024(y, [" B", " KiB", " MiB", " GiB"])))
    axes.minorticks_off()
    axes.tick_params(labelsize=TEXT, length=3, color="0.6")
    axes.grid(color="0.93", lw=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def title_of(device):
    threads = f"{device['threads']} thread{'s' if device['threads'] != 1 else ''}"
    if device["device"] == "cpu":
        return f"CPU, {threads}: {device['processor']}, {device['isa']}"
    return f"GPU: {device['device']}"


def panels_of(device):
    """[(question, what is drawn, unit, curves)]."""
    curves = drawn_of(device["curves"])
    length, token = ("S", "key") if device.get("queries", 0) else ("N", "token")
    quadratic = [c for c in curves if is_quadratic(c)]
    others = [c for c in curves if not is_quadratic(c) or c["name"] == BASELINE]
    return [(f"Time per {token}, of calls whose time grows with {length}²", "ms", microseconds, quadratic),
            (f"Time per {token}, of calls whose time grows with {length}", "ms", microseconds, others),
            (f"Peak memory per {token}, above the inputs", "peak_bytes", None, curves)]


def draw(files, outputs):
    devices = [device for file in files for device in read_curves(file)]
    if not devices:
        raise Refusal(f"{', '.join(files)}: no rows to draw")
    plots = pyplot()

    plots.rcParams["svg.fonttype"] = "none"
    plots.rcParams["svg.hashsalt"] = "weft"  # the same picture, the same bytes
    names = []
    for device in devices:
        names += [c["name"] for c in drawn_of(device["curves"]) if c["name"] not in names]
    style = styles(names)
    columns = [panels_of(device) for device in devices]
    heights = [max(PANEL_INCHES, LINE_INCHES * max(len(column[row][3]) for column in columns))
               for row in range(len(columns[0]))]
    pitch = COLUMN_INCHES + NAMES_INCHES + 0.7
    figure, grid = plots.subplots(
        len(heights), len(devices), squeeze=False, figsize=(pitch * len(devices), 1.4 * sum(heights)),
        gridspec_kw={"height_ratios": heights, "left": 0, "bottom": 0, "top": 1, "hspace": 0.33,
                     "right": 1 - NAMES_INCHES / (pitch * len(devices)),
                     "wspace": (NAMES_INCHES + 0.7) / COLUMN_INCHES})
    for device, panels, column in zip(devices, columns, grid.T):
        queries = device.get("queries", 0)
        for axes, (question, key, unit, curves) in zip(column, panels):
            axes.set_title(question, fontsize=TEXT + 1, loc="left")
            lengths = [p["length"] for c in curves for p in c["points"]]
            if not lengths:
                axes.set_axis_off()
                continue
            ends = draw_panel(axes, curves, key, device.get("batch", 1), style)
            finish(axes, lengths, unit)
            label_right(axes, ends)
        column[1].set_xlabel("○ from here on faster than full", fontsize=TEXT, color="0.3", loc="left")
        counted = f"keys S, queries: {queries}" if queries else "length N"
        column[-1].set_xlabel(counted, fontsize=TEXT)
        column[-1].annotate(
            f"{title_of(device)}\n{device['settings']}\ncommit {device['commit']}, tests: {device['tests']}",
            xy=(0, 0), xycoords="axes fraction", xytext=(0, -34), textcoords="offset points",
            fontsize=TEXT - 1, color="0.4", va="top")
    save(figure, outputs, dpi=180)
