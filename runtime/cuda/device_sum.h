// Sums over all ranks of values on their CUDA devices, by NCCL.
//
// Sums are queued on a stream of their own, so that they run while the device's stream goes on:
//
//     device's stream  ── work ──●────── work ───────●── work on the sums
//                          begin │              join │
//     stream of sums             └─ sum ─── sum ─────┘
//
// Both edges are events, which a capture of the device's stream records: it then includes the sums.
#pragma once

#include "runtime/communicator.h"
#include "runtime/cuda/device.h"
#include "runtime/dtype.h"

namespace weft {

class DeviceSum {
 public:
  virtual ~DeviceSum() = default;
  // Queues the sum of `count` f32 or f64 elements, after the work that the device's stream has now:
  // that of all ranks' `from` is stored in every rank's `to`. Both stay where they are until the
  // work after join() is done. All ranks call this in the same order.
  virtual void begin(DType dtype, const void* from, void* to, i64 count) = 0;
  // Work that the device's stream gets from now on waits for all sums begun.
  virtual void join() = 0;
  // Throws if NCCL has found an error since. A sum that waits for a rank that has ended may wait
  // for ever, and so does who waits for the device.
  virtual void check() = 0;
};

// That of this process, made at the first call, which all ranks make together; it is never
// destroyed. Null on an emulated device, whose memory the ranks exchange as on the CPU. Throws if
// there is no module for NCCL.
DeviceSum* device_sum(const Cuda& device, Communicator& ranks);

// The type of the module's function "weft_nccl_sum".
using MakeDeviceSum = DeviceSum* (*)(const Cuda& device, Communicator& ranks);

}  // namespace weft
