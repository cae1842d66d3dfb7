#include "runtime/cuda/emulated/accesses/recorder.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <map>
#include <stdexcept>
#include <string_view>
#include <unordered_map>
#include <utility>

#include <link.h>

#include "runtime/cuda/emulated/accesses/races.h"
#include "runtime/cuda/emulated/accesses/traffic.h"
#include "runtime/cuda/emulated/cuda_runtime.h"

namespace weft::emulated::accesses {
namespace {

struct Instruction {
  const void* pc;
  const Region* region = nullptr;  // of the last access, valid for `version`
  std::uint64_t version = 0;
};

// Numbers of instructions by return address, with a cache in front for the few frequent ones.
class Instructions {
 public:
  std::uint32_t number_of(const void* pc) {
    auto& [hot_pc, hot] = hot_[reinterpret_cast<std::uintptr_t>(pc) % hot_.size()];
    if (hot_pc == pc) return hot;
    const auto [found, fresh] = numbers_.try_emplace(pc, static_cast<std::uint32_t>(all_.size()));
    if (fresh) all_.push_back({pc});
    hot_pc = pc;
    return hot = found->second;
  }
  Instruction& operator[](std::uint32_t number) { return all_[number]; }

 private:
  std::array<std::pair<const void*, std::uint32_t>, 4099> hot_{};
  std::unordered_map<const void*, std::uint32_t> numbers_;
  std::deque<Instruction> all_;
};

class Regions {
 public:
  Regions() {
    dl_iterate_phdr(
        [](dl_phdr_info* object, std::size_t, void* self) {
          static_cast<Regions*>(self)->add_data_of(*object);
          return 0;
        },
        this);
  }

  // Replaces a region that begins at the same address.
  const Region* add(const Region& region) {
    ++version_;
    return &(all_[region.begin] = region);
  }
  void remove(const std::byte* begin) {
    ++version_;
    all_.erase(begin);
  }
  // Null for memory that kernels do not share: stacks of the host, constants, threadIdx and its
  // like.
  const Region* find(const std::byte* at) const {
    auto next = all_.upper_bound(at + guard);
    while (next != all_.begin()) {
      --next;
      if (next->second.holds(at)) return &next->second;
      if (next->first <= at) return nullptr;
    }
    return nullptr;
  }
  std::uint64_t version() const { return version_; }

 private:
  void add_data_of(const dl_phdr_info& object) {
    const std::string_view name = object.dlpi_name;  // empty: the program itself
    if (!name.empty() && name.find("libweft") == name.npos) return;
    const auto* const base = reinterpret_cast<const std::byte*>(object.dlpi_addr);
    const std::byte* constants = nullptr;  // the end of the relocated, read-only data
    for (int i = 0; i < object.dlpi_phnum; ++i) {
      const auto& part = object.dlpi_phdr[i];
      if (part.p_type == PT_GNU_RELRO) constants = base + part.p_vaddr + part.p_memsz;
    }
    for (int i = 0; i < object.dlpi_phnum; ++i) {
      const auto& part = object.dlpi_phdr[i];
      if (part.p_type != PT_LOAD || (part.p_flags & PF_W) == 0) continue;
      const std::byte* begin = base + part.p_vaddr;
      const std::byte* const end = begin + part.p_memsz;
      if (constants > begin && constants < end) begin = constants;
      all_[begin] = {begin, static_cast<std::size_t>(end - begin), 0, Space::shared, false, {}};
    }
  }

  std::map<const std::byte*, Region> all_;
  std::uint64_t version_ = 1;
};

struct Recorder {
  Mode mode = Mode::races;
  Instructions instructions;
  Regions regions;
  Launched launch;
  const Region* dynamic = nullptr;  // shared memory that the running block's launch asked for

  Recorder() {
    const char* const value = std::getenv("WEFT_ACCESSES");
    const std::string_view wanted = value != nullptr ? value : "races";
    if (wanted == "off") mode = Mode::off;
    if (wanted == "report") mode = Mode::report;
    if (wanted.starts_with("traffic=")) {
      mode = Mode::traffic;
      traffic().write_to(std::string(wanted.substr(8)));
    } else if (wanted != "off" && wanted != "report" && wanted != "races") {
      throw std::invalid_argument("WEFT_ACCESSES is '" + std::string(wanted) +
                                  "'; it can be races, report, traffic=FILE or off");
    }
  }
  bool seeks_races() const { return mode == Mode::races || mode == Mode::report; }
};

Recorder& recorder() {
  static auto* const one = new Recorder;
  return *one;
}

// The thread of a block that this host thread runs.
struct Running {
  bool any = false;
  unsigned thread = 0;
  const std::byte* stack = nullptr;
  std::size_t stack_bytes = 0;
};
thread_local Running running;
thread_local bool host_works = false;  // the host writes on behalf of a stream

// threadIdx and its like are not in the memory of a device.
bool is_place(const void* at) {
  const auto within = [&](const auto& variable) {
    return static_cast<std::size_t>(static_cast<const std::byte*>(at) -
                                    reinterpret_cast<const std::byte*>(&variable)) <
           sizeof variable;
  };
  return within(threadIdx) || within(blockIdx) || within(blockDim) || within(gridDim);
}

void record(const Region& region, const Access& access) {
  Recorder& all = recorder();
  if (all.seeks_races()) {
    races().add(region, access);
  } else {
    traffic().add(region, access);
  }
}

const Region* region_of(Instruction& by, const std::byte* at) {
  const Regions& regions = recorder().regions;
  if (by.version != regions.version() || !by.region->holds(at)) {
    by.region = regions.find(at);
    by.version = by.region != nullptr ? regions.version() : 0;
  }
  return by.region;
}

void by_thread(const std::byte* at, std::size_t bytes, Kind kind, bool aligned, const void* pc) {
  Recorder& all = recorder();
  const std::uint32_t number = all.instructions.number_of(pc);
  const Region* const region = region_of(all.instructions[number], at);
  if (region == nullptr || is_place(at)) return;
  if (aligned) return record(*region, {at, static_cast<std::uint32_t>(bytes), kind, number});
  for (const std::byte* const end = at + bytes; at < end;) {
    const bool word = reinterpret_cast<std::uintptr_t>(at) % 4 == 0 && end - at >= 4;
    record(*region, {at, word ? 4u : 1u, kind, number, true});
    at += word ? 4 : 1;
  }
}

}  // namespace

void set_mode(Mode mode) { recorder().mode = mode; }
const Launched& launched() { return recorder().launch; }
unsigned running_thread() { return running.thread; }
const void* address_of(std::uint32_t instruction) {
  return recorder().instructions[instruction].pc;
}

void access(const void* place, std::size_t bytes, Kind kind, bool aligned, const void* pc) {
  const auto* const at = static_cast<const std::byte*>(place);
  if (running.any) {
    if (static_cast<std::size_t>(at - running.stack) < running.stack_bytes) return;
    running.any = false;  // the recorder's own accesses are not recorded
    by_thread(at, bytes, kind, aligned, pc);
    running.any = true;
  } else if (kind == Kind::write) {
    host_wrote(at, bytes);  // by Thrust, whose code is compiled with the kernels'
  }
}

void access_of_call(const void* at, std::size_t bytes, Kind kind, const void* pc) {
  if (running.any || host_works) access(at, bytes, kind, false, pc);
}

void atomic_access(const void* at, std::size_t bytes, const void* pc) {
  access(at, bytes, Kind::atomic, true, pc);
}

void instruction_reads(const void* at, std::size_t bytes, const void* pc) {
  access(at, bytes, Kind::read, true, pc);
}

void copy_started(const void* to, const void* from, std::size_t bytes, const void* pc) {
  if (bytes > 0) access(from, bytes, Kind::read, bytes == 16, pc);
  access(to, 16, Kind::write, true, pc);
}

void copy_arrived(const void* to, const void* pc) {
  if (recorder().seeks_races()) access(to, 16, Kind::write, true, pc);  // traffic counted it
}

void watch_stream(bool works) { host_works = works; }

void watch_launch(const void* kernel, Extent grid, Extent block,
                  const std::function<void()>& work) {
  Recorder& all = recorder();
  all.launch = {kernel, grid, block, {}, 0};
  if (all.seeks_races()) races().launch_begins();
  if (all.mode == Mode::traffic) traffic().launch_begins();
  std::string error;
  try {
    work();
  } catch (const std::exception& thrown) {
    error = thrown.what();
  }
  none_runs();
  const std::string found = all.seeks_races() ? races().launch_ends() : "";
  if (all.mode == Mode::report && !found.empty()) {
    std::fprintf(stderr, "%s\n", found.c_str());
  } else {
    error += (error.empty() || found.empty() ? "" : "\n") + found;
  }
  if (!error.empty()) throw std::runtime_error(error);
}

void block_begins(Extent index, const std::byte* shared, std::size_t shared_bytes) {
  Recorder& all = recorder();
  all.launch.index = index;
  all.launch.number = static_cast<std::uint32_t>(
      (std::uint64_t{index.z} * all.launch.grid.y + index.y) * all.launch.grid.x + index.x);
  std::shared_ptr<Shadow> shadow;  // a shadow of the same size is reused
  if (const Region* const before = all.dynamic; before != nullptr) {
    if (before->bytes == shared_bytes) shadow = before->shadow;
    all.regions.remove(before->begin);
  }
  all.dynamic = all.regions.add({shared, shared_bytes, 0, Space::shared, true, shadow});
  if (all.seeks_races()) races().block_begins();
  if (all.mode == Mode::traffic) traffic().block_begins();
}

void block_ends() {
  none_runs();
  if (recorder().mode == Mode::traffic) traffic().block_ends();
}

void thread_runs(unsigned thread, const void* stack, std::size_t stack_bytes) {
  running = {recorder().mode != Mode::off, thread, static_cast<const std::byte*>(stack),
             stack_bytes};
}
void none_runs() { running.any = false; }

void barrier_passed(const std::source_location& site) {
  Recorder& all = recorder();
  const bool any = std::exchange(running.any, false);
  if (all.seeks_races()) races().barrier_passed();
  if (all.mode == Mode::traffic) traffic().barrier_passed(site);
  running.any = any;
}

void lanes_met(unsigned first, unsigned mask, bool orders_memory) {
  Recorder& all = recorder();
  const bool any = std::exchange(running.any, false);
  if (all.seeks_races() && orders_memory) races().lanes_met(first, mask);
  if (all.mode == Mode::traffic) traffic().lanes_met(first, mask);
  running.any = any;
}

void allocated(const std::byte* begin, std::size_t bytes) {
  Recorder& all = recorder();
  const Region* const region = all.regions.add({begin, bytes, guard, Space::global, false, {}});
  if (all.seeks_races()) races().forget(*region);
}

void freed(const std::byte* begin) { recorder().regions.remove(begin); }

void host_wrote(const void* place, std::size_t bytes) {
  const auto* const begin = static_cast<const std::byte*>(place);
  Recorder& all = recorder();
  if (!all.seeks_races()) return;
  const Region* const region = all.regions.find(begin);
  if (region != nullptr && region->space == Space::global) {
    races().host_wrote(*region, begin, bytes);
  }
}

// The allocator of a device, and the emulated device itself, fill fresh memory with bytes 0xff: a
// whole allocation that is set to 0xff counts as unwritten.
void host_set(const void* place, int byte, std::size_t bytes) {
  const auto* const begin = static_cast<const std::byte*>(place);
  Recorder& all = recorder();
  if (!all.seeks_races()) return;
  const Region* const region = all.regions.find(begin);
  if (region == nullptr) return;
  if ((byte & 0xff) == 0xff && begin == region->begin && bytes == region->bytes) {
    races().forget(*region);
  } else {
    races().host_wrote(*region, begin, bytes);
  }
}

void host_copied(const void* to, const void* from, std::size_t bytes) {
  Recorder& all = recorder();
  if (!all.seeks_races()) return;
  const auto* const begin = static_cast<const std::byte*>(to);
  const auto* const source = static_cast<const std::byte*>(from);
  const Region* const region = all.regions.find(begin);
  const Region* const other = all.regions.find(source);
  if (region == nullptr || region->space != Space::global) return;
  races().host_wrote(*region, begin, bytes);
  if (other != nullptr && other->space == Space::global) {
    races().host_copied(*region, begin, *other, source, bytes);
  }
}

}  // namespace weft::emulated::accesses
