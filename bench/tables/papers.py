"""Trains the rows of a published table and writes them as Markdown and JSON, the published figures beside ours."""
import argparse
import json
import math
import re
import subprocess
import sys
from datetime import datetime, timezone
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


class Row:
    """`small`: options of this row alone where --small is asked for."""

    def __init__(self, preset, name, published, small=()):
        self.preset, self.name, self.published, self.small = preset, name, published, list(small)


class Table:
    """`figures`: (key in the log's test line, heading); `published` of a row has their values in order. `small`: options
    that scale the models down. `unit`: what the length of a training is counted in, as an option of the app is called."""

    def __init__(self, title, app, epochs, figures, rows, source, notes=(), small=(), unit="epochs"):
        self.title, self.app, self.epochs, self.figures = title, app, epochs, figures
        self.rows, self.source, self.notes, self.small, self.unit = rows, source, list(notes), list(small), unit


def arguments(table):
    parser = argparse.ArgumentParser(description=f"{table.title}. {table.source}")
    parser.add_argument("--data", required=True, help="the data set, as for the app's --data")
    parser.add_argument("--out", type=Path, required=True, help="folder for the runs, the table and its JSON")
    parser.add_argument("--build", type=Path, default=ROOT / "build", help="build folder (default: build/)")
    parser.add_argument("--budget", type=float, default=1.0,
                        help=f"share of the paper's {table.epochs} {table.unit} to train at most; at least one is trained")
    if table.small:
        parser.add_argument("--small", action="store_true", help=f"smaller models: {' '.join(table.small)}")
    parser.add_argument("--rows", help="train only these presets, comma-separated")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, help="threads of each training")
    parser.add_argument("--seeds", default="1", help="comma-separated; several give mean and standard error")
    parser.add_argument("more", nargs="*", help="after --: further options of every training")
    options = parser.parse_args()
    if not 0 < options.budget <= 1:
        parser.error(f"--budget: wanted a share in (0, 1], got {options.budget}")
    options.small = table.small and options.small
    return options


def program(options, app):
    path = options.build / "apps" / app
    if not path.exists():
        sys.exit(f"{path} does not exist: meson compile -C {options.build}")
    return str(path)


def chosen(rows, names):
    """Those of --rows, in the order of the table; all where it is not given."""
    wanted = rows.split(",") if rows else names
    unknown = set(wanted) - set(names)
    if unknown:
        sys.exit(f"--rows: there is no {', '.join(sorted(unknown))}; there are {', '.join(names)}")
    return [name for name in names if name in wanted]


def place_of(data):
    """Of --data, a path or `builtin`."""
    return str(Path(data).resolve()) if Path(data).exists() else data


def keep_settings(folder, data, told):
    """Refuses a folder that holds runs of other data or of other settings."""
    text = json.dumps({"data": place_of(data), **told}) + "\n"
    kept = folder / "settings.json"
    if kept.exists() and kept.read_text() != text and any(folder.rglob("metrics.jsonl")):
        sys.exit(f"{folder}: holds runs of other settings ({kept.read_text().strip()}); name another folder")
    folder.mkdir(parents=True, exist_ok=True)
    kept.write_text(text)


def log_of(folder):
    """The lines of a run's log; a last one without a newline was cut short, and a resumed run writes it again."""
    file = folder / "metrics.jsonl"
    return [json.loads(line) for line in file.read_text().split("\n")[:-1]] if file.exists() else []


def tested(folder):
    """The first test line of a run that came to its end."""
    return next((line for line in log_of(folder) if line["kind"] == "test"), None)


def status_of(command, **more):
    """The exit status of a training. Ctrl-C reaches it, too: it ends its step and writes a checkpoint, which this awaits."""
    running, interrupted = subprocess.Popen(command, **more), False
    while running.returncode is None:
        try:
            running.wait()
        except KeyboardInterrupt:
            interrupted = True
    if interrupted:
        sys.exit(130)
    return running.returncode


def complete(options, app, folder, name, words):
    """Trains in the folder, unless that is done; a run that was interrupted goes on with its settings."""
    if tested(folder) is not None:
        return
    resumed = any(folder.glob("step-*/manifest.json"))
    command = [program(options, app), "train", "--out", str(folder), "--device", options.device,
               *(["--resume"] if resumed else ["--force", *words])]
    if options.threads:
        command += ["--threads", str(options.threads)]
    print("$", " ".join(command), flush=True)
    if status_of(command) != 0:
        sys.exit(f"{name}: the training did not finish")


def train(options, table, row, seed):
    folder = options.out / row.preset / f"seed-{seed}"
    epochs = max(1, round(options.budget * table.epochs))
    complete(options, table.app, folder, f"{row.preset}, seed {seed}",
             ["--preset", row.preset, "--data", options.data, f"--{table.unit}", str(epochs), "--seed", seed,
              *(table.small + row.small if options.small else []), *options.more])
    lines = log_of(folder)
    validations = [line for line in lines if line["kind"] == "validation"]
    length = len(validations) if table.unit == "epochs" else validations[-1]["step"]
    return {"seed": seed, table.unit: length, "seconds": validations[-1]["elapsed"], "commit": commits([folder / "result.json"]),
            "test": tested(folder)}


def mean_and_error(values):
    """The mean and its standard error; of one value, none. A log has null for what is not finite."""
    if None in values:
        return math.inf, None
    mean = sum(values) / len(values)
    if len(values) == 1:
        return mean, None
    return mean, (sum((x - mean) ** 2 for x in values) / (len(values) - 1) / len(values)) ** 0.5


def cell(values):
    mean, error = mean_and_error(values)
    if mean == math.inf:
        return "not finite"
    return f"{mean:.3f}" if error is None else f"{mean:.3f} ± {error:.3f}"


def markdown(heads, rows):
    """A table of cells, which are texts; without a newline at its end."""
    return "\n".join("| " + " | ".join(row) + " |" for row in [heads, ["---"] * len(heads), *rows])


def parameters(options, table, row):
    folder = options.out / row.preset / f"seed-{options.seeds.split(',')[0]}"
    command = [program(options, table.app), "info", "--checkpoint", str(folder), "--json"]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)["parameters"]


def commits(results):
    """Of the programs that completed the runs, by the JSON that each left; some left none, or one without it."""
    said = {json.loads(file.read_text()).get("commit", "not recorded") if file.exists() else "not recorded"
            for file in results}
    return ", ".join(sorted(said))


def facts(options):
    """The device, threads and date that a result is of."""
    kind, _, index = options.device.partition(":")
    begin = "cpu " if kind == "cpu" else f"{index or 0}: "  # below `cuda` a line for each device
    listed = subprocess.run([Path(program(options, "devices")).resolve()], capture_output=True, text=True).stdout.splitlines()
    rows = (" ".join(row.split()) for row in listed)
    found = next((row.removeprefix(begin) for row in rows if row.startswith(begin)), "")
    device = " ".join([options.device, re.sub(r", \d+ threads", "", found)]).strip()  # the threads are those of `devices`
    with open("/proc/cpuinfo") as info:
        processor = next((row.split(": ", 1)[1].strip() for row in info if row.startswith("model name")), "unknown")
    return {"device": f"{processor}; {device}", "threads": options.threads or "all",
            "date": f"{datetime.now(timezone.utc):%Y-%m-%d}"}


def measured_on(known):
    """Device, threads, commit and date of what was measured, in words."""
    return f"{known['device']}, threads {known['threads']}, commit {known['commit']}, {known['date']}"


def run(table):
    options = arguments(table)
    wanted = chosen(options.rows, [row.preset for row in table.rows])
    known = facts(options)
    keep_settings(options.out, options.data, {
        table.unit: max(1, round(options.budget * table.epochs)),
        "options": (table.small if options.small else []) + options.more})
    heads = ["model", "parameters", table.unit, "time"]
    for _, heading in table.figures:
        heads += [heading, "published"]
    rows, results = [], []
    for row in table.rows:
        if row.preset not in wanted:
            continue
        runs = [train(options, table, row, seed) for seed in options.seeds.split(",")]
        count = parameters(options, table, row)
        minutes = sum(r["seconds"] for r in runs) / len(runs) / 60
        cells = [row.name, f"{count:,}", f"{max(r[table.unit] for r in runs):,}", f"{minutes:.1f} min"]
        for (key, _), published in zip(table.figures, row.published):
            cells += [cell([r["test"][key] for r in runs]), str(published)]
        rows.append(cells)
        results.append({"preset": row.preset, "parameters": count, "runs": runs,
                        "published": dict(zip([key for key, _ in table.figures], row.published))})
        settings = (table.small if options.small else []) + options.more
        share = f"{options.budget:g} of the paper's {table.epochs} {table.unit} at most" if options.budget < 1 else \
            f"the paper's {table.epochs} {table.unit} at most"
        text = "\n".join([f"**{table.title}.** {table.source} Here: {share}, seeds {options.seeds}"
                          + (f", {' '.join(settings)}" if settings else "") + ".", *table.notes, "",
                          markdown(heads, rows), ""])
        (options.out / "table.md").write_text(text)
        commit = ", ".join(sorted({r["commit"] for done in results for r in done["runs"]}))
        (options.out / "table.json").write_text(json.dumps(
            {"table": table.title, **known, "commit": commit, "budget": options.budget, "options": settings, "rows": results},
            indent=1) + "\n")
    print((options.out / "table.md").read_text())
