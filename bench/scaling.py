"""Time and memory against length, on logarithmic axes: `bench/plot scaling`.

A column for each device, time above memory. Each line ends where its budget or the longest length
ends it, and is named above the axes; members of a family share a colour and differ in their dashes.
A ring marks from where a mechanism is faster than fused full attention.
"""
import json
import math
from pathlib import Path

from drawing import COLOURS, Refusal, save, spread

BASELINE, BASELINE_COLOUR = "full", "#000000"
DASHES = ["-", (0, (5, 1.6)), (0, (1.2, 1.4)), (0, (6, 1.4, 1.2, 1.4)), (0, (2.6, 1.2))]
COLUMN_INCHES, ROW_INCHES = 6.2, 3.7
TEXT = 10  # points
LABEL_POINTS = 102  # above the axes, for the slanting names


def is_device(device):
    """Whether this is what attention_bench writes of a device, as far as it is drawn."""
    texts = all(isinstance(device[key], str) for key in
                ["device", "processor", "isa", "settings", "commit", "tests"])
    return texts and isinstance(device["threads"], int) and all(
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
        raise Refusal(f"{path}: is no curves.json of attention_bench ({error!r})") from None
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


def milliseconds(value):
    return f"{value / 1000:g} s" if value >= 1000 else f"{value:g} ms" if value >= 1 else \
        f"{1000 * value:g} µs"


def label_above(axes, ends):
    """Names the (name, colour, x, y) of each line's end above the axes, moved apart; x in 0 … 1."""
    inches = axes.get_position().width * axes.figure.get_figwidth()
    gap = 0.21 / inches
    places = spread([axes.transAxes.inverted().transform(axes.transData.transform(end[2:]))[0]
                     for end in ends], gap)
    over = max(0, max(places) - 1.0)  # a block at the right edge moves in as a whole
    order = sorted(range(len(ends)), key=places.__getitem__)
    limit = 1.0
    for index in reversed(order):
        places[index] = min(places[index], limit)
        limit = places[index] - gap
    for (name, colour, x, y), place in zip(ends, places):
        axes.annotate("", xy=(x, y), xytext=(place, 1.02), textcoords="axes fraction",
                      annotation_clip=False, zorder=1,
                      arrowprops={"arrowstyle": "-", "color": colour, "lw": 0.6, "alpha": 0.45,
                                  "shrinkA": 0, "shrinkB": 2})
        axes.annotate(name, xy=(place, 1.025), xycoords="axes fraction", color=colour, fontsize=TEXT,
                      rotation=50, rotation_mode="anchor", ha="left", va="center",
                      annotation_clip=False)


def guide(axes, slope, label):
    """A grey line of this slope, from a point below what is drawn."""
    (left, right), (low, high) = axes.get_xlim(), axes.get_ylim()
    x, y = left * (right / left) ** 0.12, low * (high / low) ** 0.01
    far = min(right, x * (high / y) ** (1 / slope))
    top = y * (far / x) ** slope
    axes.plot([x, far], [y, top], color="0.6", lw=0.9, ls=(0, (1, 2.5)), zorder=0)
    middle = x * (far / x) ** (0.2 if slope > 1 else 0.6)
    angle = math.degrees(math.atan2(slope * math.log(far / x) / math.log(high / low) *
                                    ROW_INCHES, math.log(far / x) / math.log(right / left) *
                                    COLUMN_INCHES))
    axes.annotate(label, xy=(middle, y * (middle / x) ** slope), color="0.45", fontsize=TEXT,
                  rotation=angle, rotation_mode="anchor", ha="center", va="center", zorder=0.5,
                  bbox={"facecolor": "white", "edgecolor": "none", "pad": 1})


def at(points, length):
    """The line's value there, by straight lines between logarithms."""
    for (x0, y0), (x1, y1) in zip(points, points[1:]):
        if x0 <= length <= x1:
            share = math.log(length / x0) / math.log(x1 / x0)
            return math.exp(math.log(y0) + share * math.log(y1 / y0))
    return None


def draw_panel(axes, curves, key, style):
    """The lines of one panel; returns their ends for the labels, and marks the crossovers of time."""
    ends = []
    for curve in curves:
        colour, dashes = style[curve["name"]]
        points = [(p["length"], p[key]) for p in curve["points"] if p[key]]
        if not points:
            continue
        baseline = curve["name"] == BASELINE
        axes.plot(*zip(*points), color=colour, ls=dashes, lw=2.4 if baseline else 1.5,
                  marker="o", ms=2.6, zorder=4 if baseline else 3)
        crossover = curve["faster_than_full"]
        if key == "ms" and crossover["kind"] == "at":
            value = at(points, crossover["length"])
            if value:
                axes.plot([crossover["length"]], [value], "o", ms=8, mfc="none", mec=colour,
                          mew=1.6, zorder=5)
        ends.append((curve["name"], colour, *points[-1]))
    return ends


def finish(axes, lengths, unit):
    from matplotlib import ticker

    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=10 if unit is milliseconds else 2)
    axes.set_xlim(min(lengths) / 1.25, max(lengths) * 1.25)
    powers = range(math.floor(math.log2(min(lengths))), math.ceil(math.log2(max(lengths))) + 1)
    axes.set_xticks([2.0 ** p for p in powers if p % 2 == 0])
    axes.xaxis.set_major_formatter(
        ticker.FuncFormatter(lambda x, _: power_of_1024(x, ["", " Ki", " Mi"])))
    if unit is milliseconds:
        axes.yaxis.set_major_formatter(ticker.FuncFormatter(lambda y, _: milliseconds(y)))
    else:
        low, high = (math.log2(y) for y in axes.get_ylim())
        axes.set_yticks([2.0 ** p for p in range(math.ceil(low), math.floor(high) + 1) if p % 2 == 0])
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


def draw(files, outputs):
    devices = [device for file in files for device in read_curves(file)]
    if not devices:
        raise Refusal(f"{', '.join(files)}: no rows to draw")
    import matplotlib
    matplotlib.use("Agg")
    from matplotlib import pyplot

    matplotlib.rcParams["svg.fonttype"] = "none"
    matplotlib.rcParams["svg.hashsalt"] = "weft"  # the same picture, the same bytes
    names = []
    for device in devices:
        names += [c["name"] for c in device["curves"] if c["name"] not in names]
    style = styles(names)
    figure, grid = pyplot.subplots(2, len(devices), squeeze=False, sharex="col",
                                   figsize=(COLUMN_INCHES * len(devices), 2 * ROW_INCHES + 3.2))
    figure.subplots_adjust(hspace=0.5, wspace=0.2)
    for device, column in zip(devices, grid.T):
        lengths = [p["length"] for c in device["curves"] for p in c["points"]]
        queries = device.get("queries", 0)
        letter = "S" if queries else "N"
        for axes, key, unit in zip(column, ["ms", "peak_bytes"], [milliseconds, None]):
            ends = draw_panel(axes, device["curves"], key, style)
            finish(axes, lengths, unit)
            if ends:
                guide(axes, 1, f"∝ {letter}")
                guide(axes, 2, f"∝ {letter}²")
                label_above(axes, ends)
        column[0].set_title(title_of(device), fontsize=TEXT + 1, fontweight="bold", loc="left",
                            pad=LABEL_POINTS)
        column[0].set_xlabel("○ from here on faster than full", fontsize=TEXT, color="0.3",
                             loc="left")
        counted = f"keys S, queries: {queries}" if queries else "length N"
        column[1].set_xlabel(counted, fontsize=TEXT)
        column[1].annotate(
            f"{device['settings']}\ncommit {device['commit']}, tests: {device['tests']}",
            xy=(0, -0.16), xycoords="axes fraction", fontsize=TEXT - 2, color="0.4", va="top")
    grid[0][0].set_ylabel("time, forward and backward", fontsize=TEXT)
    grid[1][0].set_ylabel("peak memory above the inputs", fontsize=TEXT)
    save(figure, outputs, dpi=120)
