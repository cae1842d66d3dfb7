// Run by meson.build: is there an NVIDIA driver that finds a GPU? If so, prints the compute
// capabilities of all, as 90 or 80,90; if not, prints the reason and ends with status 1.
#include <dlfcn.h>

#include <cstdio>
#include <set>

namespace {

template <class Function>
Function* found(void* library, const char* name) {
  return reinterpret_cast<Function*>(dlsym(library, name));
}

}  // namespace

int main() {
  void* const driver = dlopen("libcuda.so.1", RTLD_LAZY);
  if (driver == nullptr) return std::puts("libcuda.so.1 was not found"), 1;
  const auto init = found<int(unsigned flags)>(driver, "cuInit");
  const auto count_devices = found<int(int* count)>(driver, "cuDeviceGetCount");
  const auto get_device = found<int(int* device, int number)>(driver, "cuDeviceGet");
  const auto attribute =
      found<int(int* value, int attribute, int device)>(driver, "cuDeviceGetAttribute");
  if (init == nullptr || count_devices == nullptr || get_device == nullptr ||
      attribute == nullptr) {
    return std::puts("libcuda.so.1 lacks one of the functions that name its GPUs"), 1;
  }
  constexpr int no_device = 100;  // CUDA_ERROR_NO_DEVICE
  // CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR
  constexpr int major_part = 75, minor_part = 76;
  int status = init(0), count = 0;
  if (status == 0) status = count_devices(&count);
  std::set<int> capabilities;
  for (int number = 0; status == 0 && number < count; ++number) {
    int device = 0, major = 0, minor = 0;
    status = get_device(&device, number);
    if (status == 0) status = attribute(&major, major_part, device);
    if (status == 0) status = attribute(&minor, minor_part, device);
    capabilities.insert(10 * major + minor);
  }
  if (status == no_device || (status == 0 && count == 0)) {
    return std::puts("libcuda.so.1 finds no GPU"), 1;
  }
  if (status != 0) return std::printf("libcuda.so.1 reports error %d\n", status), 1;
  const char* comma = "";
  for (const int capability : capabilities) {
    std::printf("%s%d", comma, capability);
    comma = ",";
  }
}
