#include <algorithm>
#include <limits>

#include "ops/linear_cross_entropy/linear_cross_entropy.h"
#include "ops/softmax/rows.h"
#include "runtime/operands.h"
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

// Rows of x are split into pieces, classes into panels. The logits of a piece are [panels, rows,
// classes], so that the operands of a product are contiguous.
template <class S>
struct Problem {
  using T = Accumulator<S>;
  i64 R, d, V;
  i64 rows;     // of a piece; the last one may have fewer
  i64 classes;  // of a panel, likewise
  i64 width;    // of a row of a panel's logits: its classes, and whole vectors of pairs
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
  using T = Accumulator<S>;
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
          in_pairs<S> ? (classes + 31) / 32 * 32 : classes,
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

// Rows [rows, width] as operands, in place if they are numbers of the type of sums.
template <class S>
class RowOperands {
 public:
  using O = Operand<S>;

  RowOperands(i64 rows, i64 width, const S* x)
      : memory_(in_place ? 0 : PackedRows<S>::size(rows, width, Along::both)) {
    if constexpr (in_place) {
      packed_.width = width;
      packed_.by_width = packed_.by_row = const_cast<O*>(x);  // is only read
    } else {
      O* next = memory_.data();
      packed_ = PackedRows<S>(rows, width, Along::both, next);
      packed_.pack(rows, 1, x, width);
    }
  }
  const PackedRows<S>& operator*() const { return packed_; }
  const PackedRows<S>* operator->() const { return &packed_; }

 private:
  static constexpr bool in_place = std::is_same_v<S, O>;
  Scratch<O> memory_;
  PackedRows<S> packed_ = {};
};

// e ← e^(z − m) for the rows of a piece that begins at `row`, and the classes of a panel.
template <class S, class T = Accumulator<S>>
void exponentials(const Problem<S>& p, const PackedRows<S>& x, i64 row, i64 rows, i64 panel,
                  const Operand<S>* turned, T* e, const Sums<T>& sums) {
  const i64 count = p.count(panel);
  for (i64 begin = 0; begin < rows; begin += row_block) {
    const i64 end = std::min(rows, begin + row_block);
    tile_product<Operand<S>>(end - begin, count, operands<S>(p.d), x.along_width(begin),
                             {turned, p.classes}, {e + begin * p.width, p.width}, false);
    for (i64 i = begin; i < end; ++i) {
      T* const logits = e + i * p.width;
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
template <class S, class T = Accumulator<S>>
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

// e ← g, and dx (+)= g E and dE (+)= gᵀ x, for the same rows and classes; `memory` is for g in
// pairs, p.rows · p.width of them.
template <class S, class T = Accumulator<S>>
void add_gradients(const Problem<S>& p, const PackedRows<S>& x, const PackedRows<S>& table, i64 row,
                   i64 rows, i64 panel, T* e, const T* factors, Operand<S>* memory, T* dx,
                   bool add) {
  using O = Operand<S>;
  const i64 count = p.count(panel), width = p.width;
  const auto share = static_cast<T>(1 / static_cast<double>(p.R));
  for (i64 i = 0; i < rows; ++i) {
    T *const g = e + i * width, factor = factors[i];
    const i64 target = p.targets[row + i] - p.first(panel);
    const bool here = 0 <= target && target < count;
    const T own = here ? g[target] * factor - share : T(0);
    for (i64 j = 0; j < count; ++j) g[j] *= factor;
    if (here) g[target] = own;
    std::fill(g + count, g + width, T(0));
  }
  const i64 at = p.first(panel);
  tile_product<O>(rows, p.d, operands<S>(count), along_queries<S>(e, rows, width, memory),
                  table.rows_from(at), {dx, p.d}, add);
  const Rows<const O> by_row = along_keys<S>(e, rows, width, memory);
  tile_product<O>(count, p.d, operands<S>(rows), {by_row.data, 1, by_row.row}, x.rows_from(0),
                  {p.dtable + at * p.d, p.d}, row > 0);
}

}  // namespace

template <class Device, class S>
void LinearCrossEntropyKernels<Device, S>::forward(const Device&, const Tensor& x,
                                                   const Tensor& table, const Tensor& targets,
                                                   const Tensor& nats,
                                                   const LinearCrossEntropy::Saved& gradients) {
  using T = Accumulator<S>;
  if (x.size(0) == 0) return;
  const Problem<S> p = problem_of<S>(x, table, targets, nats, gradients);
  const i64 panel_size = p.rows * p.width, row_size = p.rows * p.d;
  const i64 turned_size = p.classes * operands<S>(p.d);
  const RowOperands<S> classes(p.V, p.d, p.table);
  const Scratch<Operand<S>> turned(p.panels * turned_size);  // Eᵀ, by panels
  const Scratch<T> logits(p.panels * panel_size);
  const ThreadScratch<Operand<S>> pairs(p.groups, in_pairs<S> ? panel_size / 2 + p.width : 0);
  Pieces<T> numbers((2 * p.panels + 1) * p.rows + (p.groups - 1) * row_size);
  const i64 count = p.rows * p.panels;
  const Sums<T> sums{numbers.take(count), numbers.take(count), numbers.take(p.rows)};
  T* const others = numbers.take((p.groups - 1) * row_size);  // dx of all groups but the first
  p.each_panel([&](i64, i64 panel) {
    const auto [data, width, step] = classes->along_width(p.first(panel));
    transpose<Operand<S>>(p.count(panel), width, {data, width},
                          {turned.data() + panel * turned_size, p.classes});
  });
  for (i64 row = 0; row < p.R; row += p.rows) {
    const i64 rows = std::min(p.rows, p.R - row);
    const RowOperands<S> piece(rows, p.d, p.x + row * p.d);
    p.each_panel([&](i64, i64 panel) {
      exponentials(p, *piece, row, rows, panel, turned.data() + panel * turned_size,
                   logits.data() + panel * panel_size, sums);
    });
    parallel_ranges(rows, row_block,
                    [&](i64 begin, i64 end) { combine(p, row, begin, end, sums); });
    if (p.dx == nullptr) continue;
    T* const dx = p.dx + row * p.d;
    p.each_panel([&](i64 group, i64 panel) {
      T* const part = group == 0 ? dx : others + (group - 1) * row_size;
      add_gradients(p, *piece, *classes, row, rows, panel, logits.data() + panel * panel_size,
                    sums.shift + panel * p.rows, pairs.mine(), part, panel > p.from(group));
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
