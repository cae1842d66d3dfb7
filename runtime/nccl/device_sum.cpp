// Sums by NCCL, in a module of its own: a process that trains alone, or on the CPU, never loads it.
#include <chrono>
#include <future>
#include <span>
#include <thread>

#include <nccl.h>

#include "runtime/cuda/device_sum.h"
#include "runtime/cuda/stream.h"
#include "runtime/error.h"

namespace weft {
namespace {

static_assert(NCCL_VERSION_CODE >= NCCL_VERSION(2, 14, 0), "ncclInProgress is of NCCL 2.14");

void check_nccl(ncclResult_t result, ncclComm_t comm = nullptr) {
  if (result == ncclSuccess) return;
  throw DeviceError(fmt::format("NCCL reports: {} ({}); NCCL_DEBUG=INFO says more",
                                ncclGetErrorString(result), ncclGetLastError(comm)));
}

// NCCL connects the ranks in a call that blocks for as long as one of them does not come. A thread
// of its own makes it, so that this one can watch the other ranks, and give up.
ncclComm_t connected(const Cuda& device, Communicator& ranks) {
  ncclUniqueId id{};
  if (ranks.leads()) check_nccl(ncclGetUniqueId(&id));
  ranks.broadcast(std::as_writable_bytes(std::span(&id, 1)));
  std::packaged_task<ncclComm_t()> connect([device, id, size = ranks.size(), rank = ranks.rank()] {
    check_cuda(cudaSetDevice(device.index), "nccl");  // each thread has a current device
    ncclComm_t comm = nullptr;
    check_nccl(ncclCommInitRank(&comm, size, id, rank));
    return comm;
  });
  std::future<ncclComm_t> comm = connect.get_future();
  std::thread(std::move(connect)).detach();
  ranks.wait_until(
      [&] { return comm.wait_for(std::chrono::seconds(0)) == std::future_status::ready; });
  return comm.get();
}

class NcclSum final : public DeviceSum {
 public:
  NcclSum(const Cuda& device, Communicator& ranks)
      : device_stream_(stream_of(device)), comm_(connected(device, ranks)) {
    check_cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "nccl");
    for (cudaEvent_t* const event : {&forks_, &joins_}) {
      check_cuda(cudaEventCreateWithFlags(event, cudaEventDisableTiming), "nccl");
    }
  }

  void begin(DType dtype, const void* from, void* to, i64 count) override {
    require(dtype == DType::f32 || dtype == DType::f64, "nccl: wanted f32 or f64 elements, got {}",
            name_of(dtype));
    follow(stream_, device_stream_, forks_);
    check_nccl(
        ncclAllReduce(from, to, static_cast<std::size_t>(count),
                      dtype == DType::f32 ? ncclFloat32 : ncclFloat64, ncclSum, comm_, stream_),
        comm_);
  }

  void join() override { follow(device_stream_, stream_, joins_); }

  void check() override {
    ncclResult_t found = ncclSuccess;
    check_nccl(ncclCommGetAsyncError(comm_, &found), comm_);
    if (found != ncclInProgress) check_nccl(found, comm_);
  }

 private:
  // Work that `later` gets from now on waits for what `first` has now. A wait is for the last
  // record before it, so that an event can be recorded again at once.
  static void follow(cudaStream_t later, cudaStream_t first, cudaEvent_t event) {
    check_cuda(cudaEventRecord(event, first), "nccl");
    check_cuda(cudaStreamWaitEvent(later, event, 0), "nccl");
  }

  cudaStream_t device_stream_;
  ncclComm_t comm_;
  cudaStream_t stream_ = nullptr;
  cudaEvent_t forks_ = nullptr, joins_ = nullptr;
};

}  // namespace
}  // namespace weft

extern "C" weft::DeviceSum* weft_nccl_sum(const weft::Cuda& device, weft::Communicator& ranks) {
  return new weft::NcclSum(device, ranks);
}
