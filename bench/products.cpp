// Matrix products of the presets' layers, in f32 and in bf16, on one thread: the bound of what a
// training step can gain from bf16.
//
//     forward   y = x W        x [rows, n], W [n, m]
//     dX        dx = dy Wᵀ
//     dW        dW = xᵀ dy     summed over the rows, in f32
//
// Rates are those of the fastest of some runs. "prepared" is the library's product with W in the
// layout that it chose, which costs a copy of W a step; the others take W as it lies. The last line
// is one tile of attention in registers: 64 keys × 64 queries of depth 64, with pairs of bf16
// interleaved as the instruction wants them, beside the tile of f32 that the engine for pairs uses.

#include <cstring>

#include <nlohmann/json.hpp>

#include "apps/command_line/options.h"
#include "autograd/gradcheck.h"
#include "bench/ceilings.h"
#include "bench/measure.h"
#include "runtime/gemm.h"
#include "runtime/matmul.h"
#include "runtime/parallel.h"
#include "runtime/simd.h"
#include "runtime/tile.h"

namespace weft::bench {
namespace {

struct Layer {
  const char* of;
  i64 n, m;
};
constexpr i64 rows = 4096;  // 32 windows of 128 tokens; 64 pictures of 64 patches
constexpr Layer layers[] = {
    {"text8: queries, keys and values", 64, 192},
    {"text8: feed-forward, up", 64, 256},
    {"text8: feed-forward, down", 256, 64},
    {"text8: convolution", 512, 64},
    {"wikitext2: queries, keys and values", 128, 384},
    {"wikitext2: feed-forward, up", 128, 512},
    {"wikitext2: output", 128, 9914},
    {"cifar10: every map", 512, 512},
};

// GFLOP/s of a product of so many operations.
double rate_of(double operations, double seconds, const std::function<void()>& f) {
  return operations / fastest(f, {}, {.seconds = seconds}) / 1e9;
}

struct Case {
  const char* name;
  Tensor a, b;
  bool sums;  // over the rows: f32 always
};

// The three products of a layer, in one type.
std::vector<Case> products_of(const Layer& layer, DType type) {
  const auto random = [&](i64 height, i64 width, std::uint64_t seed) {
    return random_uniform({height, width}, DType::f32, seed, -1, 1).to(type);
  };
  const Tensor x = random(rows, layer.n, 1), w = random(layer.n, layer.m, 2);
  const Tensor dy = random(rows, layer.m, 3);
  return {{"forward", x, w, false},
          {"dX", dy, w.transpose(0, 1), false},
          {"dW", x.transpose(0, 1), dy, true}};
}

// The numbers of x in bf16, in pairs: any pairs do for a rate.
Tensor pairs_of(const Tensor& x) {
  const Tensor narrow = x.to(DType::bf16), pairs = Tensor::empty({x.count() / 2}, DType::i32);
  std::memcpy(pairs.bytes(), narrow.bytes(), static_cast<std::size_t>(x.count()) * sizeof(bf16));
  return pairs;
}

// GFLOP/s of a product whose right-hand matrix is prepared once; 0 without instructions for bf16.
double prepared_rate(const Tensor& a, const Tensor& b, double operations, double seconds) {
  if (!gemm_bf16_is_native()) return 0;
  const bool turned = b.stride(1) != 1;
  const i64 m = a.size(0), k = a.size(1), n = b.size(1);
  const PreparedRight right(turned, k, n, b.data<bf16>(), b.stride(turned ? 1 : 0));
  const Tensor c = Tensor::empty({m, n}, DType::bf16);
  return rate_of(operations, seconds, [&] {
    right.multiply(m, a.data<bf16>(), a.stride(0), nullptr, c.data<bf16>(), n);
  });
}

// GFLOP/s of a tile in f32, and in bf16 (0 without the instructions).
std::pair<double, double> tile_rates(double seconds) {
  constexpr int together = 1000;
  constexpr i64 side = 64;
  constexpr double operations = 2.0 * side * side * side * together;
  const Tensor a = random_uniform({side, side}, DType::f32, 1, -1, 1);
  const Tensor b = random_uniform({side, side}, DType::f32, 2, -1, 1);
  const Tensor c = Tensor::empty({side, side}, DType::f32);
  const double f32 = rate_of(operations, seconds, [&] {
    for (int i = 0; i < together; ++i) {
      tile_product<float>(side, side, side, {a.data<float>(), side, 1}, {b.data<float>(), side},
                          {c.data<float>(), side}, false);
    }
  });
  double bf16 = 0;
  if constexpr (simd::has_bf16_dot) {
    const Tensor left = pairs_of(a), right = pairs_of(b);
    bf16 = rate_of(operations, seconds, [&] {
      for (int i = 0; i < together; ++i) {
        tile_product<Bf16Pair>(side, side, side / 2, {left.data<Bf16Pair>(), side / 2, 1},
                               {right.data<Bf16Pair>(), side}, {c.data<float>(), side}, false);
      }
    });
  }
  return {f32, bf16};
}

int products_main(int argc, char** argv) {
  Program app("Rates of the presets' matrix products in f32 and bf16.");
  bool json = false;
  double seconds = 0.2;
  app.add_flag("--json", json, "print one JSON object per line");
  app.add_option("--seconds", seconds, "shortest measuring time of a product, in seconds")
      .show_default();
  if (const auto status = app.parse(argc, argv)) return *status;
  set_threads(1);
  Row facts = machine();
  if (!json) {
    fmt::print("{}\n{:<38}{:<8} {:>8} {:>8} {:>6} {:>9} {:>6}\n", matmul_library(), "GFLOP/s", "",
               "f32", "bf16", "ratio", "prepared", "ratio");
  }
  const auto print = [&](const char* of, const char* product, double f32, double bf16,
                         double prepared) {
    if (json) {
      Row row = facts;
      row.update({{"of", of}, {"product", product}, {"f32_gflops", f32}, {"bf16_gflops", bf16}});
      if (prepared > 0) row["prepared_gflops"] = prepared;
      return fmt::print("{}\n", row.dump());
    }
    fmt::print("{:<38}{:<8} {:8.0f} {:8.0f} {:6.2f}", of, product, f32, bf16, bf16 / f32);
    if (prepared > 0) fmt::print(" {:9.0f} {:6.2f}", prepared, prepared / f32);
    fmt::print("\n");
  };
  for (const Layer& layer : layers) {
    const std::vector<Case> wide = products_of(layer, DType::f32);
    const std::vector<Case> narrow = products_of(layer, DType::bf16);
    for (std::size_t i = 0; i < wide.size(); ++i) {
      const double operations = 2.0 * double(rows) * double(layer.n) * double(layer.m);
      const auto rate = [&](const Case& c) {
        const DType type = c.sums ? DType::f32 : c.a.dtype();
        const Tensor to = Tensor::empty({c.a.size(0), c.b.size(1)}, type);
        return rate_of(operations, seconds, [&] { matmul_into(c.a, c.b, to); });
      };
      const double prepared =
          i < 2 ? prepared_rate(narrow[i].a, narrow[i].b, operations, seconds) : 0;
      print(layer.of, wide[i].name, rate(wide[i]), rate(narrow[i]), prepared);
    }
  }
  const auto [f32, bf16] = tile_rates(seconds);
  print("attention: a tile in registers", "z = k qᵀ", f32, bf16, 0);
  return 0;
}

}  // namespace
}  // namespace weft::bench

int main(int argc, char** argv) {
  return weft::bench::run_bench("products", weft::bench::products_main, argc, argv);
}
