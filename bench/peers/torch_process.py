"""The process that PyTorch is measured in: to be imported before torch, which this does not need."""
import ctypes
import os

# These pin OpenBLAS to the kernels or the cache of another CPU, and can halve its speed.
os.environ.pop("OPENBLAS_CORETYPE", None)
os.environ.pop("OPENBLAS_L2_SIZE", None)

C_LIBRARY = ctypes.CDLL(None)


def keep_freed_memory():
    """Has glibc keep what is freed. By default it gives large blocks back to the system, and taking
    them again costs page faults: some 5 to 15 % of a step, another share in each run."""
    trim_threshold, mmap_max = -1, -4  # <malloc.h>
    if hasattr(C_LIBRARY, "mallopt"):
        C_LIBRARY.mallopt(trim_threshold, -1)
        C_LIBRARY.mallopt(mmap_max, 0)


def wait(options):
    """Waits for what was given to a GPU."""
    if options.device == "cuda":
        import torch
        torch.cuda.synchronize()
