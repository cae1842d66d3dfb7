// oneDNN has no public gemm in bf16. Its matmul primitive compiles code for one set of sizes and
// strides, which takes a millisecond, so each thread keeps those that it has used.
#include <array>
#include <map>
#include <unordered_map>

#include <dnnl.hpp>

#include "runtime/error.h"
#include "runtime/gemm.h"
#include "runtime/gemm_bf16_converted.h"
#include "runtime/parallel.h"

namespace weft {
namespace {

using dnnl::memory;

// What the code of a product depends on: m, n, k, lda, ldb, ldc, and a bit for each of what
// follows. A prepared b has ldb 0, and its layout follows from k and n.
using ProductKey = std::array<i64, 7>;
constexpr i64 turned_a = 1, turned_b = 2, onto_c = 4, c_in_f32 = 8, biased = 16;

struct Product {
  memory::desc a, b, bias, c, scratch;
  dnnl::matmul run;
};

dnnl::engine& engine() {
  static dnnl::engine only(dnnl::engine::kind::cpu, 0);
  return only;
}

dnnl::stream& stream() {
  static thread_local dnnl::stream own(engine());
  return own;
}

memory::desc matrix(i64 rows, i64 columns, memory::data_type type, bool transposed, i64 leading) {
  const memory::dims strides = transposed ? memory::dims{1, leading} : memory::dims{leading, 1};
  return {{rows, columns}, type, strides};
}

memory at(const memory::desc& layout, const void* data) {
  return memory(layout, engine(), const_cast<void*>(data));
}

constexpr auto narrow = memory::data_type::bf16, wide = memory::data_type::f32;

dnnl::matmul::desc described(const Product& p) {
  return p.bias ? dnnl::matmul::desc(p.a, p.b, p.bias, p.c) : dnnl::matmul::desc(p.a, p.b, p.c);
}

Product compiled(const ProductKey& key, const memory::desc* prepared) {
  const auto [m, n, k, lda, ldb, ldc, form] = key;
  Product product{
      matrix(m, k, narrow, (form & turned_a) != 0, lda),
      prepared != nullptr ? *prepared : matrix(k, n, narrow, (form & turned_b) != 0, ldb),
      (form & biased) != 0 ? matrix(1, n, wide, false, n) : memory::desc{},
      matrix(m, n, (form & c_in_f32) != 0 ? wide : narrow, false, ldc),
      {},
      {}};
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if ((form & onto_c) != 0) {
    dnnl::post_ops add;
    add.append_sum(1);
    attributes.set_post_ops(add);
  }
  const dnnl::matmul::primitive_desc description(described(product), attributes, engine());
  product.scratch = description.scratchpad_desc();
  product.run = dnnl::matmul(description);
  return product;
}

void run(const ProductKey& key, const memory::desc* prepared, const bf16* a, const void* b,
         const float* bias, void* c) {
  constexpr std::size_t most_kept = 1024;
  static thread_local std::map<ProductKey, Product> products;
  const OneThread one;
  try {
    auto found = products.find(key);
    if (found == products.end()) {
      if (products.size() >= most_kept) products.clear();
      found = products.emplace(key, compiled(key, prepared)).first;
    }
    const Product& product = found->second;
    const Scratch<std::uint8_t> scratch(static_cast<i64>(product.scratch.get_size()));
    std::unordered_map<int, memory> arguments{
        {DNNL_ARG_SRC, at(product.a, a)},
        {DNNL_ARG_WEIGHTS, at(product.b, b)},
        {DNNL_ARG_DST, at(product.c, c)},
        {DNNL_ARG_SCRATCHPAD, at(product.scratch, scratch.data())}};
    if (bias != nullptr) arguments.emplace(DNNL_ARG_BIAS, at(product.bias, bias));
    product.run.execute(stream(), arguments);
    stream().wait();
  } catch (const dnnl::error& error) {
    fail("matmul: oneDNN refused a product in bf16 of {}×{}×{}: {}", key[0], key[2], key[1],
         error.what());
  }
}

template <class C>
constexpr i64 form_of_c = std::is_same_v<C, float> ? c_in_f32 : 0;

}  // namespace

template <class C>
void gemm(bool transpose_a, bool transpose_b, i64 m, i64 n, i64 k, const bf16* a, i64 lda,
          const bf16* b, i64 ldb, float beta, C* c, i64 ldc) {
  require(beta == 0 || beta == 1, "matmul: wanted a product in bf16 alone or on top of c, got {} c",
          beta);
  if (!gemm_bf16_is_native() || m * n * k == 0) {
    return gemm_converted(transpose_a, transpose_b, m, n, k, a, lda, b, ldb, beta, c, ldc);
  }
  const i64 form = (transpose_a ? turned_a : 0) + (transpose_b ? turned_b : 0) +
                   (beta != 0 ? onto_c : 0) + form_of_c<C>;
  run({m, n, k, lda, ldb, ldc, form}, nullptr, a, b, nullptr, c);
}

template void gemm(bool, bool, i64, i64, i64, const bf16*, i64, const bf16*, i64, float, float*,
                   i64);
template void gemm(bool, bool, i64, i64, i64, const bf16*, i64, const bf16*, i64, float, bf16*,
                   i64);

struct PreparedRight::Layout {
  memory::desc layout;
  Scratch<std::uint8_t> bytes;
};

PreparedRight::PreparedRight(bool transposed, i64 k, i64 n, const bf16* b, i64 ldb)
    : transposed_(transposed), k_(k), n_(n), b_(b), ldb_(ldb) {
  if (!gemm_bf16_is_native() || n * k == 0) return;
  constexpr i64 rows = 512;  // of a usual block
  const OneThread one;
  try {
    const dnnl::matmul::primitive_desc description(
        dnnl::matmul::desc(matrix(rows, k, narrow, false, k),
                           memory::desc({k, n}, narrow, memory::format_tag::any),
                           matrix(rows, n, narrow, false, n)),
        engine());
    const memory::desc layout = description.weights_desc(),
                       given = matrix(k, n, narrow, transposed, ldb);
    if (layout == given) return;
    const Scratch<std::uint8_t> bytes(static_cast<i64>(layout.get_size()));
    auto made = std::make_shared<Layout>(Layout{layout, bytes});
    memory from = at(given, b), to = at(layout, made->bytes.data());
    dnnl::reorder(from, to).execute(stream(), from, to);
    stream().wait();
    layout_ = std::move(made);
  } catch (const dnnl::error& error) {
    fail("matmul: oneDNN refused to prepare a {}×{} matrix of bf16: {}", k, n, error.what());
  }
}

template <class C>
void PreparedRight::multiply(i64 m, const bf16* a, i64 lda, const float* bias, C* c,
                             i64 ldc) const {
  if (!gemm_bf16_is_native() || m * n_ * k_ == 0) {
    return gemm_converted(transposed_, m, n_, k_, a, lda, b_, ldb_, bias, c, ldc);
  }
  const i64 form = form_of_c<C> + (bias != nullptr ? biased : 0);
  if (layout_ == nullptr) {
    return run({m, n_, k_, lda, ldb_, ldc, form + (transposed_ ? turned_b : 0)}, nullptr, a, b_,
               bias, c);
  }
  run({m, n_, k_, lda, 0, ldc, form}, &layout_->layout, a, layout_->bytes.data(), bias, c);
}

template void PreparedRight::multiply(i64, const bf16*, i64, const float*, float*, i64) const;
template void PreparedRight::multiply(i64, const bf16*, i64, const float*, bf16*, i64) const;

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
