#include "runtime/cuda/emulated/accesses/traffic.h"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstdlib>

#include <fmt/core.h>

namespace weft::emulated::accesses {
namespace {

constexpr std::uint64_t sector = 32, banks = 32, bank_bytes = 4;

// The units of `unit` bytes that each of these accesses touches, in order, one entry for each
// access.
std::vector<std::uint64_t> pieces_of(const std::vector<std::uint64_t>& begins, std::uint64_t bytes,
                                     std::uint64_t unit) {
  std::vector<std::uint64_t> pieces;
  for (const std::uint64_t begin : begins) {
    for (std::uint64_t i = begin / unit; i <= (begin + bytes - 1) / unit; ++i) pieces.push_back(i);
  }
  std::ranges::sort(pieces);
  return pieces;
}

void keep_distinct(std::vector<std::uint64_t>& sorted) {
  sorted.erase(std::ranges::unique(sorted).begin(), sorted.end());
}

// The number of different units that they touch.
std::uint64_t touched(const std::vector<std::uint64_t>& begins, std::uint64_t bytes,
                      std::uint64_t unit) {
  std::vector<std::uint64_t> pieces = pieces_of(begins, bytes, unit);
  keep_distinct(pieces);
  return pieces.size();
}

// Passes over the banks for lanes that are served together. Lanes that read the same word get it in
// one pass; atomic operations on one word are serialised.
std::uint64_t passes_of(const std::vector<std::uint64_t>& begins, std::uint64_t bytes,
                        bool atomic) {
  std::vector<std::uint64_t> words = pieces_of(begins, bytes, bank_bytes);
  if (!atomic) keep_distinct(words);
  std::array<std::uint64_t, banks> of_bank{};
  for (const std::uint64_t word : words) ++of_bank[word % banks];
  return *std::ranges::max_element(of_bank);
}

const char* name_of(Kind kind) {
  return kind == Kind::read ? "read" : kind == Kind::write ? "write" : "atomic";
}

}  // namespace

Counts& Counts::operator+=(const Counts& more) {
  requests += more.requests, lanes += more.lanes;
  sectors += more.sectors, least_sectors += more.least_sectors;
  passes += more.passes, least_passes += more.least_passes;
  return *this;
}

Traffic& traffic() {
  static auto* const one = new Traffic;
  return *one;
}

void Traffic::write_to(std::string path) {
  path_ = std::move(path);
  std::atexit([] { traffic().write(); });
}

void Traffic::launch_begins() {
  kernel_ = &kernels_[launched().kernel];
  ++kernel_->launches;
}

void Traffic::block_begins() {
  ++kernel_->blocks;
  const unsigned threads = launched().threads();
  warps_.assign((threads + warp_size - 1) / warp_size, {});
  threads_.assign(threads, {});
}

void Traffic::block_ends() {
  for (Warp& warp : warps_) count(warp);
}

void Traffic::add(const Region& region, const Access& access) {
  const unsigned own = running_thread();
  Thread& thread = threads_[own];
  Warp& warp = warps_[own / warp_size];
  const Key key{thread.meetings, access.instruction, thread.times[access.instruction]++};
  const auto [found, fresh] = warp.places.try_emplace(key, warp.requests.size());
  if (fresh) {
    warp.requests.push_back({region.space, access.kind, access.bytes, access.instruction});
  }
  Request& request = warp.requests[found->second];
  request.mask |= 1u << own % warp_size;
  request.at[own % warp_size] = access.at;
}

void Traffic::barrier_passed(const std::source_location& site) {
  ++kernel_->barriers[{site.file_name(), site.line()}];
  for (unsigned first = 0; first < threads_.size(); first += warp_size) meet(first, 0xffffffff);
}

void Traffic::lanes_met(unsigned first, unsigned mask) { meet(first, mask); }

void Traffic::meet(unsigned first, unsigned mask) {
  const unsigned lanes =
      std::min<unsigned>(warp_size, static_cast<unsigned>(threads_.size()) - first);
  std::uint32_t most = 0;
  bool all = true;
  for (unsigned l = 0; l < lanes; ++l) {
    if (mask >> l & 1) most = std::max(most, threads_[first + l].meetings);
    all = all && (mask >> l & 1) != 0;
  }
  for (unsigned l = 0; l < lanes; ++l) {
    if ((mask >> l & 1) == 0) continue;
    threads_[first + l].meetings = most + 1;
    threads_[first + l].times.clear();
  }
  if (all) count(warps_[first / warp_size]);
}

void Traffic::count(Warp& warp) {
  std::vector<std::uint64_t> begins, together;
  for (const Request& request : warp.requests) {
    Counts& counts =
        kernel_->counts[{request.instruction, request.space, request.kind, request.bytes}];
    ++counts.requests;
    counts.lanes += static_cast<std::uint64_t>(std::popcount(request.mask));
    if (request.space == Space::global) {
      begins.clear();
      for (unsigned l = 0; l < warp_size; ++l) {
        if (request.mask >> l & 1)
          begins.push_back(reinterpret_cast<std::uintptr_t>(request.at[l]));
      }
      counts.sectors += touched(begins, request.bytes, sector);
      counts.least_sectors += (touched(begins, request.bytes, 1) + sector - 1) / sector;
      continue;
    }
    const unsigned at_once = request.bytes <= 4 ? 32 : request.bytes == 8 ? 16 : 8;
    for (unsigned begin = 0; begin < warp_size; begin += at_once) {
      together.clear();
      for (unsigned l = begin; l < begin + at_once; ++l) {
        if (request.mask >> l & 1)
          together.push_back(reinterpret_cast<std::uintptr_t>(request.at[l]));
      }
      if (together.empty()) continue;
      counts.passes += passes_of(together, request.bytes, request.kind == Kind::atomic);
      ++counts.least_passes;
    }
  }
  warp.requests.clear();
  warp.places.clear();
}

std::vector<Row> Traffic::rows() const {
  std::vector<const void*> pcs;
  for (const auto& [kernel, found] : kernels_) {
    for (const auto& [key, counts] : found.counts) pcs.push_back(address_of(std::get<0>(key)));
  }
  const std::map<const void*, Line> lines = lines_of(pcs);
  std::vector<Row> rows;
  for (const auto& [entry, kernel] : kernels_) {
    std::map<std::tuple<std::string, int, Space, Kind, std::uint32_t>, Counts> sums;
    for (const auto& [key, counts] : kernel.counts) {
      const auto& [instruction, space, kind, bytes] = key;
      const Line& line = lines.at(address_of(instruction));
      sums[{line.file, line.number, space, kind, bytes}] += counts;
    }
    for (const auto& [key, counts] : sums) {
      const auto& [file, line, space, kind, bytes] = key;
      rows.push_back({entry, name_of_kernel(entry), {file, line}, space, kind, bytes, counts});
    }
  }
  return rows;
}

void Traffic::write() const {
  FILE* const file = std::fopen(path_.c_str(), "w");
  if (file == nullptr) {
    fmt::print(stderr, "traffic: {} cannot be written\n", path_);
    return;
  }
  const auto begin = [&](const void* entry, const std::string& kernel) {
    fmt::print(file, "{{\"entry\": \"{}\", \"kernel\": \"{}\", ", entry, kernel);
  };
  for (const auto& [entry, kernel] : kernels_) {
    const std::string name = name_of_kernel(entry);
    begin(entry, name);
    fmt::print(file, "\"launches\": {}, \"blocks\": {}}}\n", kernel.launches, kernel.blocks);
    for (const auto& [site, times] : kernel.barriers) {
      begin(entry, name);
      fmt::print(file,
                 "\"file\": \"{}\", \"line\": {}, \"kind\": \"barrier\", \"requests\": {}}}\n",
                 from_root(site.first), site.second, times);
    }
  }
  for (const Row& row : rows()) {
    const Counts& c = row.counts;
    begin(row.entry, row.kernel);
    fmt::print(file,
               "\"file\": \"{}\", \"line\": {}, \"space\": \"{}\", \"kind\": \"{}\", \"bytes\": "
               "{}, \"requests\": {}, \"lanes\": {}, \"sectors\": {}, "
               "\"least_sectors\": {}, \"passes\": {}, \"least_passes\": {}}}\n",
               row.line.file, row.line.number, row.space == Space::global ? "global" : "shared",
               name_of(row.kind), row.bytes, c.requests, c.lanes, c.sectors, c.least_sectors,
               c.passes, c.least_passes);
  }
  std::fclose(file);
}

}  // namespace weft::emulated::accesses
