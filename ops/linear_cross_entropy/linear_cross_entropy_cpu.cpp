#include <algorithm>
#include <limits>

#include "ops/linear_cross_entropy/linear_cross_entropy.h"
#include "ops/softmax/rows.h"
#include "runtime/matmul.h"
#include "runtime/parallel.h"
#include "runtime/scratch.h"
#include "runtime/tile.h"
#include "runtime/transpose.h"

namespace weft {
namespace {

// 16 MiB in f32, which stay in the last-level cache; more if that is less than a block of rows.
constexpr i64 logits_at_a_time = 1 << 22;
// The working set of a panel of classes and a piece of rows stays in the L2 cache.
constexpr i64 most_rows = 384;
constexpr i64 most_classes = 128;
constexpr i64 panel_bytes = 256 << 10;  // of the table, if its rows are long
constexpr i64 row_block = 64;           // rows that a product and a thread process together
constexpr i64 most_groups = 8;          // of panels: a thread takes one at a time

// The type of sums, logits and gradients if x and the table are of type S.
template <class S>
using Sum = std::conditional_t<std::is_same_v<S, bf16>, float, S>;

// Rows of x are split into pieces, classes into panels. The logits of a piece are [panels, rows,
// classes], so that the operands of a product are contiguous.
template <class S>
struct Problem {
  using T = Sum<S>;
  i64 R, d, V;
  i64 rows;     // of a piece; the last one may have fewer
  i64 classes;  // of a panel, likewise
  i64 panels, groups;
  const S *x, *table;
  const i64* targets;
  double* nats;
  T *dx, *dtable;  // null if they are not wanted

  i64 first(i64 panel) const { return panel * classes; }
  i64 count(i64 panel) const { return std::min(classes, V - first(panel)); }

  // Calls f(group, panel) for every panel, those of a group in order.
  template <class F>
  void each_panel(const F& f) const {
    parallel_for(groups, [&](i64 group) {
      for (i64 panel = from(group); panel < from(group + 1); ++panel) f(group, panel);
    });
  }
  i64 from(i64 group) const { return panels * group / groups; }
};

template <class S>
Problem<S> problem_of(const Tensor& x, const Tensor& table, const Tensor& targets,
                      const Tensor& nats, const LinearCrossEntropy::Saved& gradients) {
  const i64 R = x.size(0), d = x.size(1), V = table.size(0);
  using T = Sum<S>;
  const i64 fitting = panel_bytes / i64(sizeof(T)) / std::max<i64>(d, 1) / 32 * 32;
  const i64 classes = std::min(V, std::clamp<i64>(fitting, 32, most_classes));
  const i64 held = std::min(logits_at_a_time / V / row_block * row_block, most_rows);
  const i64 panels = (V + classes - 1) / classes;
  const bool wanted = gradients.dx.defined();
  return {R,
          d,
          V,
          std::min(R, std::max(held, row_block)),
          classes,
          panels,
          std::min(panels, most_groups),
          x.data<S>(),
          table.data<S>(),
          targets.data<i64>(),
          nats.data<double>(),
          wanted ? gradients.dx.data<T>() : nullptr,
          wanted ? gradients.dtable.data<T>() : nullptr};
}

template <class T>
struct Sums {
  T* shift;  // [panels, rows]: m, the largest logit; then the factor from e^(z − m) to g
  T* z;      // [panels, rows]: Σ e^(z − m)
  T* own;    // [rows]: the target's logit
};

// c (+)= a b
template <class S>
void multiply_panels(i64 rows, i64 columns, i64 depth, Strided<S> a, Rows<const S> b,
                     Rows<Sum<S>> c, bool add) {
  if constexpr (std::is_same_v<S, bf16>) {
    matmul<bf16, float>(Cpu{}, {a.data, rows, depth, a.row, a.column},
                        {b.data, depth, columns, b.row, 1}, {c.data, rows, columns, c.row, 1}, add);
  } else {
    tile_product<S>(rows, columns, depth, a, b, c, add);
  }
}

// e ← e^(z − m) for the rows of x from `row` on and the classes of a panel.
template <class S, class T = Sum<S>>
void exponentials(const Problem<S>& p, i64 row, i64 rows, i64 panel, const S* turned, T* e,
                  const Sums<T>& sums) {
  constexpr i64 block = std::is_same_v<S, bf16> ? most_rows : row_block;
  const i64 count = p.count(panel);
  for (i64 begin = 0; begin < rows; begin += block) {
    const i64 end = std::min(rows, begin + block);
    multiply_panels<S>(end - begin, count, p.d, {p.x + (row + begin) * p.d, p.d, 1},
                       {turned, p.classes}, {e + begin * p.classes, p.classes}, false);
    for (i64 i = begin; i < end; ++i) {
      T* const logits = e + i * p.classes;
      const i64 target = p.targets[row + i] - p.first(panel);
      if (0 <= target && target < count) sums.own[i] = logits[target];
      const RowSum<T> sum = row_sum(logits, count, p.dx != nullptr ? logits : nullptr);
      const i64 at = panel * p.rows + i;
      sums.shift[at] = sum.z == 0 ? -std::numeric_limits<T>::infinity() : sum.shift;
      sums.z[at] = static_cast<T>(sum.z);
    }
  }
}

// The nats of rows begin … end − 1 of the piece that starts at row `row`, and the factors of their
// panels.
template <class S, class T = Sum<S>>
void combine(const Problem<S>& p, i64 row, i64 begin, i64 end, const Sums<T>& sums) {
  each_pack<T>(end - begin, [&](i64 offset, i64 n) {
    const i64 i = begin + offset;
    const auto each_shift = [&](const auto& f) {
      for (i64 panel = 0; panel < p.panels; ++panel) {
        f(sums.shift + panel * p.rows + i, sums.z + panel * p.rows + i);
      }
    };
    Pack<T> most(-std::numeric_limits<T>::infinity());
    each_shift([&](T* shift, T*) {
      const Pack<T> m = Pack<T>::load(shift, n);
      most = where(most < m, m, most);
    });
    double z[Pack<T>::lanes] = {};
    each_shift([&](T* shift, const T* sum) {
      exp(Pack<T>::load(shift, n) - most).store(shift, n);
      for (i64 k = 0; k < n; ++k) z[k] += double(shift[k]) * double(sum[k]);
    });
    T greatest[Pack<T>::lanes], factors[Pack<T>::lanes];
    most.store(greatest);
    for (i64 k = 0; k < n; ++k) {
      p.nats[row + i + k] = std::log(z[k]) + (double(greatest[k]) - double(sums.own[i + k]));
      factors[k] = static_cast<T>(1 / (z[k] * static_cast<double>(p.R)));
    }
    const Pack<T> factor = Pack<T>::load(factors, n);
    each_shift([&](T* shift, T*) { (Pack<T>::load(shift, n) * factor).store(shift, n); });
  });
}

// dx (+)= g E and dE (+)= gᵀ x, for the same rows and classes; g is scratch.
template <class S, class T = Sum<S>>
void add_gradients(const Problem<S>& p, i64 row, i64 rows, i64 panel, const T* e, const T* factors,
                   S* g, T* dx, bool add) {
  const i64 count = p.count(panel), width = p.classes;
  const auto share = static_cast<T>(1 / static_cast<double>(p.R));
  for (i64 i = 0; i < rows; ++i) {
    const T *const from = e + i * width, factor = factors[i];
    for (i64 j = 0; j < count; ++j) g[i * width + j] = convert<S>(from[j] * factor);
    const i64 target = p.targets[row + i] - p.first(panel);
    if (0 <= target && target < count) {
      g[i * width + target] = convert<S>(from[target] * factor - share);
    }
  }
  const i64 at = p.first(panel) * p.d;
  multiply_panels<S>(rows, p.d, count, {g, width, 1}, {p.table + at, p.d}, {dx, p.d}, add);
  multiply_panels<S>(count, p.d, rows, {g, 1, width}, {p.x + row * p.d, p.d}, {p.dtable + at, p.d},
                     row > 0);
}

// to [d, classes] = the transpose of a panel of the table.
template <class S>
void turn_panel(const Problem<S>& p, i64 panel, S* to) {
  const S* const from = p.table + p.first(panel) * p.d;
  if constexpr (std::is_same_v<S, bf16>) {
    for (i64 v = 0; v < p.count(panel); ++v) {
      for (i64 e = 0; e < p.d; ++e) to[e * p.classes + v] = from[v * p.d + e];
    }
  } else {
    transpose<S>(p.count(panel), p.d, {from, p.d}, {to, p.classes});
  }
}

}  // namespace

template <class Device, class S>
void LinearCrossEntropyKernels<Device, S>::forward(const Device&, const Tensor& x,
                                                   const Tensor& table, const Tensor& targets,
                                                   const Tensor& nats,
                                                   const LinearCrossEntropy::Saved& gradients) {
  using T = Sum<S>;
  if (x.size(0) == 0) return;
  const Problem<S> p = problem_of<S>(x, table, targets, nats, gradients);
  const i64 panel_size = p.rows * p.classes, row_size = p.rows * p.d;
  const Scratch<S> turned(p.panels * p.classes * p.d);  // Eᵀ, by panels
  const Scratch<T> logits(p.panels * panel_size);
  const ThreadScratch<S> g(p.dx == nullptr ? 0 : p.groups, panel_size);
  Pieces<T> numbers((2 * p.panels + 1) * p.rows + (p.groups - 1) * row_size);
  const i64 count = p.rows * p.panels;
  const Sums<T> sums{numbers.take(count), numbers.take(count), numbers.take(p.rows)};
  T* const others = numbers.take((p.groups - 1) * row_size);  // dx of all groups but the first
  p.each_panel(
      [&](i64, i64 panel) { turn_panel(p, panel, turned.data() + panel * p.classes * p.d); });
  for (i64 row = 0; row < p.R; row += p.rows) {
    const i64 rows = std::min(p.rows, p.R - row);
    p.each_panel([&](i64, i64 panel) {
      exponentials(p, row, rows, panel, turned.data() + panel * p.classes * p.d,
                   logits.data() + panel * panel_size, sums);
    });
    parallel_ranges(rows, row_block,
                    [&](i64 begin, i64 end) { combine(p, row, begin, end, sums); });
    if (p.dx == nullptr) continue;
    T* const dx = p.dx + row * p.d;
    p.each_panel([&](i64 group, i64 panel) {
      T* const part = group == 0 ? dx : others + (group - 1) * row_size;
      add_gradients(p, row, rows, panel, logits.data() + panel * panel_size,
                    sums.shift + panel * p.rows, g.mine(), part, panel > p.from(group));
    });
    parallel_ranges(rows * p.d, 1 << 13, [&](i64 begin, i64 end) {
      for (i64 group = 1; group < p.groups; ++group) {
        const T* const part = others + (group - 1) * row_size;
        for (i64 i = begin; i < end; ++i) dx[i] += part[i];
      }
    });
  }
}

template struct LinearCrossEntropyKernels<Cpu, float>;
template struct LinearCrossEntropyKernels<Cpu, double>;
template struct LinearCrossEntropyKernels<Cpu, bf16>;

}  // namespace weft
