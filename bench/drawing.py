"""What the pictures of bench/ share."""
import math

# Okabe and Ito's colours, which colour-blind readers tell apart; without the yellow, too pale here.
COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000"]


class Refusal(Exception):
    """A mistake in the input, told in one line."""


def pyplot():
    """matplotlib's, which draws into files."""
    import matplotlib
    matplotlib.use("Agg")
    from matplotlib import pyplot as plots
    return plots


def spread(positions, gap, least=-math.inf, most=math.inf):
    """The positions, moved apart by at least the gap, about as near to their places as can be; from
    `least` to `most`, where these have room for all."""
    order = sorted(range(len(positions)), key=positions.__getitem__)
    blocks = []  # [sum of wanted bottoms, labels]: labels that touch move as one
    for index in order:
        blocks.append([positions[index], 1])
        while len(blocks) > 1:
            (low, count), (high, more) = blocks[-2], blocks[-1]
            if low / count + count * gap <= high / more:
                break
            blocks[-2:] = [[low + high - more * count * gap, count + more]]
    placed = []
    for bottoms, count in blocks:
        placed += [bottoms / count + i * gap for i in range(count)]
    for i, position in enumerate(placed):
        placed[i] = max(position, least + i * gap)
    for i, position in enumerate(placed):
        placed[i] = min(position, most - (len(placed) - 1 - i) * gap)
    result = [0.0] * len(positions)
    for index, position in zip(order, placed):
        result[index] = position
    return result


def save(figure, paths, **options):
    """Writes the figure, in the format that each path's ending names."""
    for path in paths:
        try:
            figure.savefig(path, bbox_inches="tight", **options)
        except (OSError, ValueError) as error:
            raise Refusal(f"{path}: cannot be written: {error}") from None
