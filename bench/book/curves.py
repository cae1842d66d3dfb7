"""Pictures of the committed measurements, as SVG with the colours of the page."""
import json
import math
import re
from html import escape


class Run:
    """What one command measured: of each entrant {"time": [(length, ms)], "memory": [(length, MiB)]}."""

    def __init__(self, said):
        self.said, self.curves = said, {}

    def add(self, name, length, milliseconds, mebibytes):
        """False where the row is there already, and so is of another command."""
        curve = self.curves.setdefault(name, {"time": [], "memory": []})
        if length in dict(curve["time"]):
            return False
        curve["time"].append((length, milliseconds))
        if mebibytes:
            curve["memory"].append((length, mebibytes))
        return True

    def entrant(self, mechanism):
        """The first of this mechanism, with options or without; None where there is none."""
        return next((name for name in self.curves if name.split(":")[0] == mechanism), None)


# A line of attention_bench, in columns with a head, or with a word before each number.
ROW = re.compile(r"(\S.*?) +N +(\d+) +(?:forward +)?([\d.]+) +(?:ms +backward +)?([\d.]+) .*(?:%| -) .*?([\d.]+)(?: MiB)?$")


def printed_runs(file, root):
    """Of a file with what attention_bench printed, below lines with its command or what else it is (#)."""
    runs, head, run = [], [], None
    for line in file.read_text(encoding="utf-8").split("\n"):
        row = ROW.match(line)
        if row:
            name, length, forward, backward, peak = row.groups()
            if run and not run.add(name, int(length), float(forward) + float(backward), float(peak)):
                run = None  # rows of a further command of the same line
        elif "attention_bench" in line or (runs and line.startswith("#")):
            run = Run(line.lstrip("#$ ").split("; then")[0])
            runs.append(run)
        elif not runs:
            head.append(line.lstrip("# "))
    for run in runs:
        run.said = f"Forward and backward of one call: {run.said}. {' '.join(head)} ({file.relative_to(root)})"
    return [run for run in runs if run.curves]


def panels(file, root):
    """Of a file that attention_bench --out wrote: a run a device."""
    runs = []
    for panel in json.loads(file.read_text()):
        run = Run(f"Forward and backward of one call: {panel['settings']}; {panel['processor']}, commit {panel['commit']} "
                  f"({file.parent.relative_to(root)}).")
        for curve in panel["curves"]:
            for p in curve["points"]:
                if p["ms"]:
                    run.add(curve["name"], p["length"], p["ms"], (p.get("peak_bytes") or 0) / 2**20)
        runs.append(run)
    return runs


def committed_runs(root):
    """The measurements in bench/results; the one with most mechanisms and lengths comes first."""
    results = root / "bench/results"
    runs = []
    for file in results.glob("*/curves.json"):
        runs += panels(file, root)
    runs.sort(key=lambda run: sum(len(curve["time"]) for curve in run.curves.values()), reverse=True)
    for file in [*sorted(results.glob("*.txt"), reverse=True), *sorted(results.glob("*/*.txt"))]:
        runs += printed_runs(file, root)
    return runs


def runs_of(mechanism, runs):
    """The run that shows most of a mechanism, and one beside full attention where that one is not; best first."""
    def worth(run):
        lengths = len(run.curves[run.entrant(mechanism)]["time"])
        return (run is runs[0], lengths > 1 and "full" in run.curves, lengths > 1, "full" in run.curves)

    some = sorted((run for run in runs if run.entrant(mechanism)), key=worth, reverse=True)
    if not some:
        return []
    return some[:1] + ([] if "full" in some[0].curves else [r for r in some[1:] if "full" in r.curves][:1])


def number(value):
    return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"


def power(value):
    return f"{round(value):,}" if value >= 1 else f"{value:g}"


def curve_picture(title, unit, curves):
    """Of {name: points} on two logarithmic axes; the first name is the page's own."""
    width, height, left, right, top, bottom = 460, 300, 56, 110, 14, 36
    points = [point for line in curves.values() for point in line]
    low_x, high_x = min(x for x, _ in points), max(x for x, _ in points)
    low_y = 10 ** math.floor(math.log10(min(y for _, y in points)))
    high_y = 10 ** math.ceil(math.log10(max(y for _, y in points)))

    def place(x, y):
        across = math.log(x / low_x) / math.log(high_x / low_x)
        up = math.log(y / low_y) / math.log(high_y / low_y)
        return left + across * (width - left - right), height - bottom - up * (height - top - bottom)

    parts = [f'<svg class="curve" viewBox="0 0 {width} {height}" role="img" aria-label="{escape(title)}">']
    y = low_y
    while y <= high_y * 1.001:
        _, at = place(low_x, y)
        parts.append(f'<path class="grid" d="M{left} {at:.1f}H{width - right}"/>'
                     f'<text x="{left - 6}" y="{at + 4:.1f}" text-anchor="end">{power(y)}</text>')
        y *= 10
    x = low_x
    while x <= high_x * 1.001:
        at, _ = place(x, low_y)
        parts.append(f'<text x="{at:.1f}" y="{height - bottom + 16}" text-anchor="middle">'
                     f'{power(x) if x < 1024 else f"{x // 1024} Ki"}</text>')
        x *= 4
    ends = []
    for index, (name, line) in enumerate(curves.items()):
        places = [place(*point) for point in line]
        path = "M" + "L".join(f"{a:.1f} {b:.1f}" for a, b in places)
        parts.append(f'<path class="line l{index}" d="{path}"/>')
        parts += [f'<circle class="l{index}" cx="{a:.1f}" cy="{b:.1f}" r="2.5"/>' for a, b in places]
        ends.append([places[-1][1], places[-1][0], index, name])
    ends.sort()
    for before, here in zip(ends, ends[1:]):
        here[0] = max(here[0], before[0] + 14)
    for y, x, index, name in ends:
        parts.append(f'<text class="l{index}" x="{x + 6:.1f}" y="{y + 4:.1f}">{escape(name.split(":")[0])}</text>')
    parts.append(f'<text x="{(left + width - right) / 2}" y="{height - 4}" text-anchor="middle">positions</text>')
    parts.append("</svg>")
    return (f'<figure><figcaption>{escape(title)}, {escape(unit)}</figcaption>' + "".join(parts) + "</figure>")


def numbers_table(curves):
    lengths = sorted({x for line in curves.values() for x, _ in line})
    head = "".join(f"<th>{escape(name)}</th>" for name in curves)
    rows = ""
    for length in lengths:
        cells = "".join(f"<td>{number(dict(line)[length]) if length in dict(line) else ''}</td>"
                        for line in curves.values())
        rows += f"<tr><th>{length:,}</th>{cells}</tr>"
    return f'<div class="wide"><table><tr><th>positions</th>{head}</tr>{rows}</table></div>'
