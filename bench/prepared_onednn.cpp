#include <memory>

#include <dnnl.hpp>

#include "bench/prepared.h"
#include "runtime/gemm.h"

namespace weft::bench {

std::function<void()> prepared_product(const Tensor& a, const Tensor& b) {
  using dnnl::memory;
  if (!gemm_bf16_is_native()) return {};
  const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  dnnl::stream stream(engine);
  const auto layout = [](const Tensor& x) {
    return memory::desc({x.size(0), x.size(1)}, memory::data_type::bf16,
                        memory::dims{x.stride(0), x.stride(1)});
  };
  const auto chosen = [](const Tensor& x) {
    return memory::desc({x.size(0), x.size(1)}, memory::data_type::bf16, memory::format_tag::any);
  };
  const Tensor c = Tensor::empty({a.size(0), b.size(1)}, DType::bf16);
  const dnnl::matmul::primitive_desc description(
      dnnl::matmul::desc(layout(a), chosen(b), layout(c)), engine);
  memory left(layout(a), engine, a.data<bf16>()), right(layout(b), engine, b.data<bf16>());
  memory packed(description.weights_desc(), engine), to(layout(c), engine, c.data<bf16>());
  dnnl::reorder(right, packed).execute(stream, right, packed);
  const dnnl::matmul product(description);
  return [=, keep = a]() mutable {
    product.execute(stream, {{DNNL_ARG_SRC, left}, {DNNL_ARG_WEIGHTS, packed}, {DNNL_ARG_DST, to}});
    stream.wait();
  };
}

}  // namespace weft::bench
