#!/usr/bin/env python3
"""Attention in PyTorch, forward and backward, for `bench/attention_bench`, which starts this.

Says first in which forms this PyTorch has the mechanisms of --attention (torch_forms.py):

- full: naive (softmax(q kT / sqrt(E)) v, N x N held), fused (F.scaled_dot_product_attention);
- patterns: masked (the same with a dense mask), flex (flex_attention, compiled; forward alone on
  CPUs, where it has no backward); of block-local besides blocks (a block as one more head);
- sinkformer, synthesizer: naive; sinkhorn: blocks (a block as one more head);
- features, and the blocks isab, star, biblosa and mega: eager, compiled (torch.compile).

Then answers each line "ATTENTION FORM LENGTH", ATTENTION a number from 0, by one JSON object a line,
until its input ends. bench/peer.h describes the lines. Masks are made, and functions compiled, before
the time is taken.
"""
import argparse
import json
import sys
import time

from torch_process import C_LIBRARY, keep_freed_memory, wait  # before torch


def say(record):
    print(json.dumps(record), flush=True)


try:
    import torch

    import torch_forms
except ImportError as missing:
    say({"error": f"not installed for {sys.executable} ({missing})"})
    sys.exit(0)

MOST_RUNS = 1000  # of a measurement, as in attention_bench


def quantile(values, share):
    """Between two order statistics, linearly."""
    values = sorted(values)
    place = share * (len(values) - 1)
    below = int(place)
    above = min(below + 1, len(values) - 1)
    return values[below] + (place - below) * (values[above] - values[below])


class PeakOfDevice:
    """Bytes above those in use when it was made, by PyTorch's own count."""

    def __init__(self):
        torch.cuda.reset_peak_memory_stats()
        self.before = torch.cuda.memory_allocated()

    def bytes(self):
        return torch.cuda.max_memory_allocated() - self.before


class PeakOfProcess:
    """The same by the resident set of the process, which PyTorch on the CPU does not count itself."""

    def __init__(self):
        if hasattr(C_LIBRARY, "malloc_trim"):
            C_LIBRARY.malloc_trim(0)
        try:
            with open("/proc/self/clear_refs", "w") as file:
                file.write("5")
            self.before = self.resident("VmRSS")
        except OSError:
            self.before = None

    @staticmethod
    def resident(which):
        with open("/proc/self/status") as file:
            line = next(line for line in file if line.startswith(which))
        return 1024 * int(line.split()[1])

    def bytes(self):
        return None if self.before is None else max(0, self.resident("VmHWM") - self.before)


def one_pass(function, inputs, dout, options):
    """Seconds of forward and of backward; without a gradient of the output of forward alone."""
    for x in inputs:
        x.grad = None
    wait(options)
    start = time.perf_counter()
    out = function(*inputs)
    wait(options)
    middle = time.perf_counter()
    if dout is None:
        return (middle - start,)
    out.backward(dout)
    wait(options)
    return middle - start, time.perf_counter() - middle


def measure(spec, form, length, options):
    inputs = torch_forms.inputs_of(spec, length, options, form.backward)
    dout = None
    if form.backward:
        dout = torch.randn(*torch_forms.output_shape(spec, inputs, options))
    function = form.make(length)
    if form.compiled:
        torch.compiler.reset()  # past eight lengths it would compile no more
        one_pass(function, inputs, dout, options)
    begin = time.perf_counter()
    peak = PeakOfDevice() if options.device == "cuda" else PeakOfProcess()
    one_pass(function, inputs, dout, options)  # warms up
    peak_bytes = peak.bytes()
    passes, total = [], 0
    while len(passes) < 3 or (total < options.seconds and len(passes) < MOST_RUNS):
        passes.append(one_pass(function, inputs, dout, options))
        total += sum(passes[-1])
        if 0 < options.row_seconds < time.perf_counter() - begin:
            break
    row = {"runs": len(passes), "backward_ms": None}
    for name, times in zip(("forward", "backward"), zip(*passes)):
        for suffix, share in [("", 0.5), ("_p10", 0.1), ("_p90", 0.9)]:
            row[f"{name}{suffix}_ms"] = 1e3 * quantile(times, share)
    if form.backward:
        both = list(map(sum, passes))
        row.update(p10_ms=1e3 * quantile(both, 0.1), p90_ms=1e3 * quantile(both, 0.9))
    return {**row, "peak_bytes": peak_bytes}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--device", default="cpu", help="cpu, cuda or cuda:N")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--key-width", type=int, default=64)
    parser.add_argument("--value-width", type=int, default=64)
    parser.add_argument("--queries", type=int, default=0, help="number of queries; 0: as many as keys")
    parser.add_argument("--precision", default="f32", choices=["f32", "bf16"], help="of all inputs")
    parser.add_argument("--attention", action="append", default=[], metavar="JSON",
                        help="a mechanism with all its options, and whether it is causal")
    parser.add_argument("--seconds", type=float, default=1, help="shortest time of a measurement")
    parser.add_argument("--row-seconds", type=float, default=0, help="longest time of a measurement; 0: no limit")
    options = parser.parse_args()
    keep_freed_memory()
    torch.manual_seed(1)
    torch.set_num_threads(options.threads)
    if options.precision == "bf16":
        torch.set_default_dtype(torch.bfloat16)
    if options.device != "cpu":
        index, count = torch.device(options.device).index or 0, torch.cuda.device_count()
        if index >= count:
            return say({"error": f"PyTorch {torch.__version__} sees {count} CUDA devices, wanted {options.device}"})
        torch.cuda.set_device(index)
        options.device = "cuda"  # the one that is set
        bf16 = options.precision == "bf16"
        torch.set_default_tensor_type(torch.cuda.BFloat16Tensor if bf16 else torch.cuda.FloatTensor)
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    specs = [json.loads(text) for text in options.attention]
    forms = [torch_forms.forms_of(spec, options) for spec in specs]
    listed = [{"attention": number, "form": form.name, "all_pairs": form.all_pairs,
               "bytes_of_pair": form.bytes_of_pair}
              for number, those in enumerate(forms) for form in those]
    say({"peer": "PyTorch", "version": torch.__version__, "forms": listed})
    for line in sys.stdin:
        number, name, length = line.split()
        (form,) = (form for form in forms[int(number)] if form.name == name)
        try:
            say(measure(specs[int(number)], form, int(length), options))
        except RuntimeError as error:  # out of memory, say
            say({"error": str(error).splitlines()[0]})


if __name__ == "__main__":
    main()
