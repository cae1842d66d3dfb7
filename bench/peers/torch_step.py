"""What the twins of `bench/train_bench` in PyTorch share: options, timing, report."""
import argparse
import json
import pathlib
import statistics
import sys
import time

from torch_process import wait  # before torch

try:
    import torch
    import torch.nn.functional as F
except ImportError as error:
    print(f"{pathlib.Path(sys.argv[0]).stem}: PyTorch is not here ({error}); on Debian: apt-get "
          "install python3-torch, then run this with /usr/bin/python3", file=sys.stderr)
    sys.exit(2)

HAS_FUSED = hasattr(F, "scaled_dot_product_attention")


def parser_of(description, presets, batch, steps, warmup):
    """The options that both scripts take."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--preset", default="all", choices=["all", *presets])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"],
                        help="cuda: PyTorch 2 and a GPU (TF32 off)")
    parser.add_argument("--precision", default="f32", choices=["f32", "bf16"],
                        help="bf16: forward under torch.autocast")
    parser.add_argument("--compile", action="store_true", help="use torch.compile (PyTorch 2)")
    parser.add_argument("--batch", type=int, default=batch)
    parser.add_argument("--steps", type=int, default=steps,
                        help=f"timed steps (default {steps})")
    parser.add_argument("--warmup", type=int, default=warmup,
                        help=f"steps before them (default {warmup})")
    parser.add_argument("--seed", type=int, default=1)
    return parser


def prepare(options):
    """Threads and device as the options have them, and the rate of the matrix library."""
    torch.set_num_threads(options.threads)
    if options.device == "cuda":
        torch.set_default_device("cuda")
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    options.gemm_gflops = round(gemm_gflops(options), 1)


def as_wanted(loss, options):
    """The loss, compiled if that is wanted; on a GPU with CUDA graphs."""
    mode = "reduce-overhead" if options.device == "cuda" else None
    return torch.compile(loss, mode=mode) if options.compile else loss


def gemm_gflops(options, repeats=5):
    """Rate of one large f32 product, what the matrix library of this PyTorch can do at best."""
    size = 8192 if options.device == "cuda" else 2048
    a, b = torch.rand(size, size), torch.rand(size, size)
    seconds = []
    for _ in range(repeats):
        wait(options)
        start = time.perf_counter()
        a @ b
        wait(options)
        seconds.append(time.perf_counter() - start)
    return 2e-9 * size**3 / min(seconds)


def count_parameters(model, preset, published):
    parameters = sum(p.numel() for p in model.parameters())
    assert parameters == published, f"{preset}: {parameters} parameters, the paper has {published}"
    return parameters


def step_times(loss, optimizer, options):
    """Milliseconds of each timed step (forward, backward, optimizer), of the clock and of the
    processor."""
    milliseconds = []
    for _ in range(options.warmup + options.steps):
        start, processor = time.perf_counter(), time.process_time()
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(options.device, torch.bfloat16, options.precision == "bf16"):
            value = loss()
        value.backward()
        optimizer.step()
        wait(options)
        milliseconds.append((1e3 * (time.perf_counter() - start),
                             1e3 * (time.process_time() - processor)))
    return milliseconds[options.warmup:]


def row(preset, tokens, milliseconds, options, **more):
    """What README.md explains; `tokens` is the length of an example."""
    clock, processor = zip(*milliseconds)
    median = statistics.median(clock)
    deciles = statistics.quantiles(clock if len(clock) > 1 else 2 * clock, n=10, method="inclusive")
    return {
        "peer": "pytorch", "version": torch.__version__, "preset": preset,
        "precision": options.precision, "threads": options.threads, "device": options.device,
        "batch": options.batch,
        "length": tokens, "tokens_per_second": round(options.batch * tokens / median * 1e3),
        "ms_median": round(median, 3), "cpu_ms_median": round(statistics.median(processor), 3),
        "ms_p10": round(deciles[0], 3), "ms_p90": round(deciles[-1], 3),
        "gemm_gflops": options.gemm_gflops, **more,
    }


def print_fastest(rows):
    print(json.dumps(min(rows, key=lambda row: row["ms_median"])), flush=True)
