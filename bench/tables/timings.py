"""Rows of attention_bench for tables of published times: runs it, and writes what the tables make of them."""
import argparse
import json
import subprocess
import sys
from pathlib import Path

from papers import ROOT, markdown


def count(text):
    """A whole number from 1 on, as argparse's `type`."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"wanted 1 or more, got {text}")
    return number


def counts(text):
    return [count(number) for number in text.split(",")]


def parser(description):
    result = argparse.ArgumentParser(description=description)
    result.add_argument("--out", type=Path, required=True, help="folder for the table and its JSON")
    result.add_argument("--build", type=Path, default=ROOT / "build", help="build folder (default: build/)")
    result.add_argument("--device", default="cpu")
    result.add_argument("--threads", type=count, default=1)
    result.add_argument("--seconds", type=float, default=0.5, help="shortest measuring time of a row")
    return result


def measure(options, attention, lengths, *more):
    """The rows of these mechanisms, in the order in which they were measured."""
    program = options.build / "bench" / "attention_bench"
    if not program.exists():
        sys.exit(f"{program} does not exist: meson compile -C {options.build}")
    command = [str(program), "--attention", *attention, "--lengths", ",".join(map(str, lengths)),
               "--device", options.device, "--threads", str(options.threads),
               "--seconds", str(options.seconds), "--json", *more]
    print("$", " ".join(command), file=sys.stderr, flush=True)
    run = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if run.returncode not in (0, 1):
        sys.exit(f"attention_bench ended with status {run.returncode}")
    rows = [json.loads(line) for line in run.stdout.splitlines()]
    for row in rows:
        if row["kind"] != "row":
            print(f"{row['name']} at {row['length']}: {row['reason']}", file=sys.stderr)
    return [row for row in rows if row["kind"] == "row"]


def milliseconds(row):
    return row["forward_ms"] + row["backward_ms"]


def where(row):
    """What it was measured on."""
    return (f"{row['device']} ({row['processor']}, {row['isa']}), threads {row['threads']}, f32, commit "
            f"{row['commit']}, tests: {row['tests']}")


def write(options, title, heads, cells, data):
    text = "\n".join([title, "", markdown(heads, cells), ""])
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "table.md").write_text(text)
    (options.out / "table.json").write_text(json.dumps(data, indent=1) + "\n")
    print(text)
