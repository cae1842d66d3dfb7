#!/usr/bin/env python3
"""The files that weft reads and writes, against the packages that people read and write them with.

    python3 -m venv venv && venv/bin/pip install numpy ml_dtypes safetensors tensorboard
    venv/bin/python tests/formats/formats.py check [--build build]
    venv/bin/python tests/formats/formats.py write    # the files beside this script, anew

`check` says for every file beside this script that the package writes these very bytes and reads
the right values from them; weft's own tests say the same of weft (tests/nn/formats.cpp,
tests/charlm/event_file.cpp). With --build it also trains a small model by that build's charlm and
reads what the run and `charlm export` wrote. A package that is not here is a line, and exit
status 77.
"""
import argparse
import importlib
import io
import json
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).parent
skipped = []


def package(name):
    try:
        return importlib.import_module(name)
    except ImportError as error:
        skipped.append(name)
        print(f"skipped: what needs {name} ({error})")
        return None


np = package("numpy")
if np is None:
    sys.exit(77)


def values(shape, dtype):
    """Numbers that every type here holds exactly: those of tests/nn/formats.cpp."""
    counted = (np.arange(np.prod(shape, dtype=int)) * 37 % 101).reshape(shape)
    return (counted / 4 - 12 if np.dtype(dtype).kind == "f" else counted).astype(dtype)


# --- .npy

NPY = {  # file: (values, version)
    "f2.npy": (values((2, 3), "<f2"), (1, 0)),
    "f4.npy": (values((2, 3), "<f4"), (1, 0)),
    "f8.npy": (values((3, 1, 2), "<f8"), (1, 0)),
    "i4.npy": (values((7,), "<i4"), (1, 0)),
    "i8.npy": (values((), "<i8"), (1, 0)),
    "u1.npy": (values((0, 3), "|u1"), (1, 0)),
    "six.npy": (values((1, 2, 1, 2, 3, 1), "<f4"), (1, 0)),
    "version2.npy": (values((2, 3), "<f4"), (2, 0)),
    "version3.npy": (values((2, 3), "<f4"), (3, 0)),
    "fortran.npy": (np.asfortranarray(values((2, 3, 4), "<f8")), (1, 0)),
}


def npy_bytes(array, version):
    stream = io.BytesIO()
    np.lib.format.write_array(stream, array, version)
    return stream.getvalue()


def same(got, wanted):
    return got.dtype == wanted.dtype and got.shape == wanted.shape and (got == wanted).all()


# --- safetensors

def tensors(ml_dtypes):
    return {
        "matrix": values((2, 3), "<f4"),
        "double": values((3, 1, 2), "<f8"),
        "half": values((5,), "<f4").astype(ml_dtypes.bfloat16),
        "count": values((), "<i8"),
        "index": values((2, 2), "<i4"),
        "bytes": values((5,), "|u1"),
        "nothing": values((0, 3), "<f4"),
    }


METADATA = {"made by": "the package safetensors"}


# --- TensorBoard's event files

RECORDS = "tensorboard.summary.writer.record_writer"
EVENTS = [  # of tests/charlm/event_file.cpp: (wall time, step, {tag: number or text})
    (1600000000.25, 1, {"train/loss": 2.5, "train/learning_rate": np.float32(0.1)}),
    (1600000060.5, 300, {"validation/loss": -1.0}),
    (1600000061, 301, {"sample": "    the river\n    ×"}),
]


def event_bytes(tensorboard):
    """The events by TensorBoard's protocol buffers and its writer of records."""
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
    from tensorboard.compat.proto.tensor_pb2 import TensorProto
    from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto
    from tensorboard.compat.proto.types_pb2 import DT_STRING

    def value_of(tag, value):
        if not isinstance(value, str):
            return Summary.Value(tag=tag, simple_value=value)
        plugin = SummaryMetadata.PluginData(plugin_name="text")
        return Summary.Value(tag=tag, metadata=SummaryMetadata(plugin_data=plugin),
                             tensor=TensorProto(dtype=DT_STRING, tensor_shape=TensorShapeProto(),
                                                string_val=[value.encode()]))

    stream = io.BytesIO()
    records = tensorboard.RecordWriter(stream)
    records.write(Event(wall_time=EVENTS[0][0],
                        file_version="brain.Event:2").SerializeToString(deterministic=True))
    for wall_time, step, values in EVENTS:
        summary = Summary(value=[value_of(tag, value) for tag, value in values.items()])
        event = Event(wall_time=wall_time, step=step, summary=summary)
        records.write(event.SerializeToString(deterministic=True))
    return stream.getvalue()


def read_events(path):
    """[(wall time, step, {tag: number or text})] by TensorBoard's own reader, which checks the
    checksums."""
    from tensorboard.backend.event_processing.event_file_loader import RawEventFileLoader
    from tensorboard.compat.proto.event_pb2 import Event
    events = [Event.FromString(raw) for raw in RawEventFileLoader(str(path)).Load()]
    assert events[0].file_version == "brain.Event:2"
    return [(event.wall_time, event.step,
             {value.tag: value.tensor.string_val[0].decode() if value.HasField("tensor") else
              value.simple_value for value in event.summary.value})
            for event in events[1:]]


# --- what is run

def say(name, good):
    print(f"{'ok' if good else 'WRONG'}: {name}")
    return good


def check_files():
    good = True
    for name, (array, version) in NPY.items():
        data = (HERE / name).read_bytes()
        good &= say(name, data == npy_bytes(array, version) and same(np.load(HERE / name), array))
    safetensors, ml_dtypes = package("safetensors.numpy"), package("ml_dtypes")
    if safetensors and ml_dtypes:
        wanted = tensors(ml_dtypes)
        data = (HERE / "python.safetensors").read_bytes()
        loaded = dict(safetensors.deserialize(data))  # load() knows no bf16
        good &= say("python.safetensors", data == safetensors.save(wanted, METADATA) and
                    loaded.keys() == wanted.keys() and
                    all(entry["shape"] == list(wanted[name].shape) and
                        bytes(entry["data"]) == wanted[name].tobytes()
                        for name, entry in loaded.items()))
    if tensorboard := package(RECORDS):
        path = HERE / "events.tfevents"
        good &= say("events.tfevents", path.read_bytes() == event_bytes(tensorboard) and
                    read_events(path) == EVENTS)
    return good


def check_build(build):
    """What a run and its exports hold, by the packages and by the log."""
    good = True
    with tempfile.TemporaryDirectory() as folder:
        run, file, npy = (f"{folder}/{name}" for name in ("run", "weights.safetensors", "npy"))
        charlm = str(pathlib.Path(build) / "apps" / "charlm")
        small = "--steps 40 --epoch-steps 20 --report-steps 10 --quiet --width 16 --heads 2"
        for words in (["train", "--out", run, *small.split()],
                      ["export", "--checkpoint", run, "--out", file],
                      ["export", "--checkpoint", run, "--out", npy, "--format", "npy"]):
            subprocess.run([charlm, *words], check=True)
        arrays = {path.stem: np.load(path) for path in pathlib.Path(npy).glob("*.npy")}
        good &= say(f"charlm export --format npy: {len(arrays)} arrays", len(arrays) > 10)
        if safetensors := package("safetensors.numpy"):
            loaded = safetensors.load_file(file)
            good &= say("charlm export: the same tensors by the package safetensors",
                        loaded.keys() == arrays.keys() and
                        all(same(loaded[name], arrays[name]) for name in loaded))
        log = [json.loads(line) for line in open(f"{run}/metrics.jsonl", encoding="utf-8")]
        if package(RECORDS):
            (path,) = pathlib.Path(run).glob("*tfevents*")
            written = read_events(path)
            events = [(step, scalars["train/loss"]) for _, step, scalars in written
                      if "train/loss" in scalars]
            wanted = [(line["step"], np.float32(line["loss"])) for line in log
                      if line["kind"] == "train"]
            good &= say(f"charlm train: {len(wanted)} losses by TensorBoard",
                        len(wanted) > 0 and events == wanted)
            texts = [(step, values) for _, step, values in written if "sample" in values or
                     "configuration" in values]
            good &= say("charlm train: configuration and sample by TensorBoard",
                        len(texts) == 2 and texts[0][0] == 0 and texts[1][0] == 40 and
                        "| width | 16 |" in texts[0][1]["configuration"] and
                        len(texts[1][1]["sample"]) > 400)
    return good


def write():
    for name, (array, version) in NPY.items():
        (HERE / name).write_bytes(npy_bytes(array, version))
    safetensors, ml_dtypes = package("safetensors.numpy"), package("ml_dtypes")
    if safetensors and ml_dtypes:
        data = safetensors.save(tensors(ml_dtypes), METADATA)
        (HERE / "python.safetensors").write_bytes(data)
    if tensorboard := package(RECORDS):
        (HERE / "events.tfevents").write_bytes(event_bytes(tensorboard))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("command", choices=["check", "write"])
    parser.add_argument("--build", help="a build directory whose charlm is to be checked, too")
    options = parser.parse_args()
    if options.command == "write":
        return write()
    good = check_files()
    if options.build:
        good &= check_build(options.build)
    return 77 if good and skipped else int(not good)


if __name__ == "__main__":
    sys.exit(main())
