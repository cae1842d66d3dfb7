"""Pictures of the committed measurements, as SVG with the colours of the page."""
import json
import math
from html import escape


def committed_curves(root):
    """Of each mechanism {"time": [(length, ms)], "memory": [(length, MiB)]}, and what was measured how."""
    file = root / "bench/results/curves-cpu/curves.json"
    found = {}
    panels = json.loads(file.read_text())
    panel = panels[0]
    for curve in panel["curves"]:
        points = curve["points"]
        found[curve["name"]] = {
            "time": [(p["length"], p["ms"]) for p in points],
            "memory": [(p["length"], p["peak_bytes"] / 2**20) for p in points if p.get("peak_bytes")]}
    said = (f"Forward and backward of one call: {panel['settings']}; {panel['processor']}, commit "
            f"{panel['commit']}.")
    return found, said


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
        ends.append([places[-1][1], places[-1][0], index, name])
    ends.sort()
    for before, here in zip(ends, ends[1:]):
        here[0] = max(here[0], before[0] + 14)
    for y, x, index, name in ends:
        parts.append(f'<text class="l{index}" x="{x + 6:.1f}" y="{y + 4:.1f}">{escape(name)}</text>')
    parts.append(f'<text x="{(left + width - right) / 2}" y="{height - 4}" text-anchor="middle">positions</text>')
    parts.append("</svg>")
    return (f'<figure><figcaption>{escape(title)}, {escape(unit)}</figcaption>' + "".join(parts) + "</figure>")


def table_of_numbers(unit, curves):
    """The same numbers for who cannot see the picture, or wants them."""
    lengths = sorted({x for line in curves.values() for x, _ in line})
    head = "".join(f"<th>{escape(name)}</th>" for name in curves)
    rows = ""
    for length in lengths:
        cells = "".join(f"<td>{number(dict(line)[length]) if length in dict(line) else ''}</td>"
                        for line in curves.values())
        rows += f"<tr><th>{length:,}</th>{cells}</tr>"
    return (f'<details><summary>{escape(unit)} as numbers</summary><div class="wide"><table><tr><th>positions'
            f"</th>{head}</tr>{rows}</table></div></details>")
