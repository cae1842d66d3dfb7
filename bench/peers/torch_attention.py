#!/usr/bin/env python3
"""Full attention in PyTorch, forward and backward, for `bench/attention_bench`, which starts this.

Says first which forms this PyTorch has: naive (softmax(q kT / sqrt(E)) v, N x N held) and, from
PyTorch 2.0 on, fused (F.scaled_dot_product_attention). Then answers each line "FORM LENGTH" by one
JSON object a line, until its input ends. bench/peer.h describes the lines.
"""
import argparse
import ctypes
import json
import os
import sys
import time

# These pin OpenBLAS to the kernels or the cache of another CPU, and can halve its speed.
os.environ.pop("OPENBLAS_CORETYPE", None)
os.environ.pop("OPENBLAS_L2_SIZE", None)


def say(record):
    print(json.dumps(record), flush=True)


try:
    import torch
    import torch.nn.functional as F
except ImportError as missing:
    say({"error": f"not installed for {sys.executable} ({missing})"})
    sys.exit(0)

C_LIBRARY = ctypes.CDLL(None)


def quantile(values, share):
    """Between two order statistics, linearly."""
    values = sorted(values)
    place = share * (len(values) - 1)
    below = int(place)
    above = min(below + 1, len(values) - 1)
    return values[below] + (place - below) * (values[above] - values[below])


def attention(form, q, k, v, causal):  # q [B, H, N, E], k [B, H, S, E], v [B, H, S, M]
    if form == "fused":
        return F.scaled_dot_product_attention(q, k, v, is_causal=causal)
    scores = (q * q.shape[-1] ** -0.5) @ k.transpose(-2, -1)
    if causal:
        future = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1)
        scores = scores.masked_fill(future, float("-inf"))
    return scores.softmax(-1) @ v


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


def wait(options):
    if options.device == "cuda":
        torch.cuda.synchronize()


def one_pass(form, inputs, dout, options):
    """Seconds of forward and of backward."""
    for x in inputs:
        x.grad = None
    wait(options)
    start = time.perf_counter()
    out = attention(form, *inputs, options.causal)
    wait(options)
    middle = time.perf_counter()
    out.backward(dout)
    wait(options)
    return middle - start, time.perf_counter() - middle


def measure(form, length, options):
    queries = options.queries or length
    outer = (options.batch, options.heads)
    q, k, v = (queries, options.key_width), (length, options.key_width), (length, options.value_width)
    inputs = [torch.randn(*outer, *inner, requires_grad=True) for inner in (q, k, v)]
    dout = torch.randn(*outer, queries, options.value_width)
    begin = time.perf_counter()
    peak = PeakOfDevice() if options.device == "cuda" else PeakOfProcess()
    one_pass(form, inputs, dout, options)  # warms up
    peak_bytes = peak.bytes()
    forward, backward = [], []
    while len(forward) < 3 or sum(forward) + sum(backward) < options.seconds:
        there_and_back = one_pass(form, inputs, dout, options)
        forward.append(there_and_back[0])
        backward.append(there_and_back[1])
        if 0 < options.row_seconds < time.perf_counter() - begin:
            break
    row = {"runs": len(forward)}
    for name, times in [("forward", forward), ("backward", backward)]:
        for suffix, share in [("", 0.5), ("_p10", 0.1), ("_p90", 0.9)]:
            row[f"{name}{suffix}_ms"] = 1e3 * quantile(times, share)
    both = [a + b for a, b in zip(forward, backward)]
    return {**row, "p10_ms": 1e3 * quantile(both, 0.1), "p90_ms": 1e3 * quantile(both, 0.9),
            "peak_bytes": peak_bytes}


def keep_freed_memory():
    """Has glibc keep what is freed: taking large blocks again costs page faults."""
    trim_threshold, mmap_max = -1, -4  # <malloc.h>
    if hasattr(C_LIBRARY, "mallopt"):
        C_LIBRARY.mallopt(trim_threshold, -1)
        C_LIBRARY.mallopt(mmap_max, 0)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--key-width", type=int, default=64)
    parser.add_argument("--value-width", type=int, default=64)
    parser.add_argument("--queries", type=int, default=0, help="0: as many as keys")
    parser.add_argument("--causal", action="store_true")
    parser.add_argument("--seconds", type=float, default=1, help="least time of a measurement")
    parser.add_argument("--row-seconds", type=float, default=0, help="most time of one; 0: no limit")
    options = parser.parse_args()
    keep_freed_memory()
    torch.manual_seed(1)
    torch.set_num_threads(options.threads)
    if options.device == "cuda":
        if not torch.cuda.is_available():
            return say({"error": f"PyTorch {torch.__version__} sees no CUDA device"})
        torch.set_default_tensor_type(torch.cuda.FloatTensor)
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    forms = ["naive"] + ["fused"] * hasattr(F, "scaled_dot_product_attention")
    say({"peer": "PyTorch", "version": torch.__version__, "forms": forms})
    for line in sys.stdin:
        form, length = line.split()
        try:
            say(measure(form, int(length), options))
        except RuntimeError as error:  # out of memory, say
            say({"error": str(error).splitlines()[0]})


if __name__ == "__main__":
    main()
