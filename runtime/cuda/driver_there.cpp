// Run by meson.build: is there an NVIDIA driver that finds a GPU? If not, prints the reason to
// stdout.
#include <dlfcn.h>

#include <cstdio>

int main() {
  void* const driver = dlopen("libcuda.so.1", RTLD_LAZY);
  if (driver == nullptr) return std::puts("libcuda.so.1 was not found"), 1;
  using Init = int (*)(unsigned flags);
  const auto init = reinterpret_cast<Init>(dlsym(driver, "cuInit"));
  if (init == nullptr) return std::puts("libcuda.so.1 has no cuInit"), 1;
  const int status = init(0);
  constexpr int no_device = 100;  // CUDA_ERROR_NO_DEVICE
  if (status == no_device) return std::puts("libcuda.so.1 finds no GPU"), 1;
  if (status != 0) return std::printf("libcuda.so.1 reports error %d\n", status), 1;
}
