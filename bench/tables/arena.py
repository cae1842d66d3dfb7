"""The tables of Long Range Arena: mechanisms in one small model, the published figures beside ours."""
from papers import Row, Table, run

OF_THEIR_PAPERS = ["cosformer", "csp"]  # not in the arena's table
MAJORITY = ("majority", "by the most frequent class, %")


def rows(task, figures, baselines):
    """`figures`: (mechanism, small models, arena), None where there is none; `baselines`: published for every row."""
    def row(name, small, arena):
        words = [f"{small} (small models)" if small else "", f"{arena} ({'its own, larger' if name in OF_THEIR_PAPERS else 'arena'})"]
        return Row(f"{task}-{name}", name, [", ".join(word for word in words if word), *baselines])
    return [row(*figure) for figure in figures]


def table(title, task, steps, batch, figures, notes, baselines, small=()):
    headings, published = zip(*baselines)
    run(Table(
        title, "lra", steps, [("accuracy", "right, %"), *headings], rows(task, figures, published),
        "Small models: Nyströmformer (arXiv 2102.03902), as its code has them: 2 layers of width 64, 2 heads, mean over the positions, "
        f"{steps:,} steps of {batch}. Arena: Long Range Arena (arXiv 2011.04006), and the papers of cosFormer and CSP, whose models are "
        "larger and differ from row to row.",
        [f"{notes} The test accuracy is that of the best validation."], small=small, unit="steps"))
