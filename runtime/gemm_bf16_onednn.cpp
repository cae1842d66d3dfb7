// oneDNN has no public gemm in bf16. Its matmul primitive compiles code for one set of sizes and
// strides, which takes a millisecond, so each thread keeps those that it has used.
#include <array>
#include <map>

#include <dnnl.hpp>

#include "runtime/error.h"
#include "runtime/gemm.h"
#include "runtime/gemm_bf16_converted.h"

namespace weft {
namespace {

using dnnl::memory;

// What the code of a product depends on: m, n, k, lda, ldb, ldc, and a bit for each of transpose_a,
// transpose_b, a sum onto c, and c in f32.
using ProductKey = std::array<i64, 7>;

struct Product {
  memory::desc a, b, c, scratch;
  dnnl::matmul run;
};

dnnl::engine& engine() {
  static dnnl::engine only(dnnl::engine::kind::cpu, 0);
  return only;
}

memory::desc matrix(i64 rows, i64 columns, memory::data_type type, bool transposed, i64 leading) {
  const memory::dims strides = transposed ? memory::dims{1, leading} : memory::dims{leading, 1};
  return {{rows, columns}, type, strides};
}

Product compiled(const ProductKey& key) {
  const auto [m, n, k, lda, ldb, ldc, form] = key;
  constexpr auto narrow = memory::data_type::bf16;
  Product product{matrix(m, k, narrow, (form & 1) != 0, lda),
                  matrix(k, n, narrow, (form & 2) != 0, ldb),
                  matrix(m, n, (form & 8) != 0 ? memory::data_type::f32 : narrow, false, ldc),
                  {},
                  {}};
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if ((form & 4) != 0) {
    dnnl::post_ops add;
    add.append_sum(1);
    attributes.set_post_ops(add);
  }
  const dnnl::matmul::primitive_desc description(
      dnnl::matmul::desc(product.a, product.b, product.c), attributes, engine());
  product.scratch = description.scratchpad_desc();
  product.run = dnnl::matmul(description);
  return product;
}

}  // namespace

template <class C>
void gemm(bool transpose_a, bool transpose_b, i64 m, i64 n, i64 k, const bf16* a, i64 lda,
          const bf16* b, i64 ldb, float beta, C* c, i64 ldc) {
  require(beta == 0 || beta == 1, "matmul: wanted a product in bf16 alone or on top of c, got {} c",
          beta);
  if (!gemm_bf16_is_native() || m * n * k == 0) {
    return gemm_converted(transpose_a, transpose_b, m, n, k, a, lda, b, ldb, beta, c, ldc);
  }
  constexpr std::size_t most_kept = 1024;
  static thread_local std::map<ProductKey, Product> products;
  static thread_local dnnl::stream stream(engine());
  const i64 form = i64{transpose_a} + 2 * i64{transpose_b} + 4 * i64{beta != 0} +
                   8 * i64{std::is_same_v<C, float>};
  const ProductKey key{m, n, k, lda, ldb, ldc, form};
  try {
    auto found = products.find(key);
    if (found == products.end()) {
      if (products.size() >= most_kept) products.clear();
      found = products.emplace(key, compiled(key)).first;
    }
    const Product& product = found->second;
    const Scratch<std::uint8_t> scratch(static_cast<i64>(product.scratch.get_size()));
    const auto at = [](const memory::desc& layout, const void* data) {
      return memory(layout, engine(), const_cast<void*>(data));
    };
    product.run.execute(stream, {{DNNL_ARG_SRC, at(product.a, a)},
                                 {DNNL_ARG_WEIGHTS, at(product.b, b)},
                                 {DNNL_ARG_DST, at(product.c, c)},
                                 {DNNL_ARG_SCRATCHPAD, at(product.scratch, scratch.data())}});
    stream.wait();
  } catch (const dnnl::error& error) {
    fail("matmul: oneDNN refused a product in bf16 of {}×{}×{}: {}", m, k, n, error.what());
  }
}

template void gemm(bool, bool, i64, i64, i64, const bf16*, i64, const bf16*, i64, float, float*,
                   i64);
template void gemm(bool, bool, i64, i64, i64, const bf16*, i64, const bf16*, i64, float, bf16*,
                   i64);

bool gemm_bf16_is_native() {
  static const bool native = [] {
    const auto isa = dnnl::get_effective_cpu_isa();
    return isa == dnnl::cpu_isa::avx512_core_bf16 || isa == dnnl::cpu_isa::avx512_core_amx;
  }();
  return native;
}

std::string gemm_bf16_library() {
  if (!gemm_bf16_is_native()) return "by f32";
  const bool amx = dnnl::get_effective_cpu_isa() == dnnl::cpu_isa::avx512_core_amx;
  return amx ? "oneDNN with AMX" : "oneDNN with AVX512-BF16";
}

}  // namespace weft
