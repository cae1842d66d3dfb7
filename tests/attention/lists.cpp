// The engine for lists, over lists of every shape (its page: ops/attention/engines/lists/lists.h).
#include "ops/attention/engines/lists/attention.h"

#include "ops/attention/engines/lists/list_rule_cpu.h"
#include "ops/dropout/mask.h"
#include "ops/matmul/matmul.h"
#include "ops/pointwise/pointwise.h"
#include "ops/reduce/reduce.h"
#include "ops/views/views.h"
#include "tests/attention/run_attention.h"

namespace weft {
namespace {

struct Edge {
  i64 from = 0, type = 0;
};
using List = std::vector<Edge>;
using Sheet = std::vector<List>;

std::uint32_t drawn(i64 place, i64 count) {
  const Philox words = RandomKey{3, 1, 4}.words(static_cast<std::uint64_t>(place / 4));
  return below(words.word[place % 4], static_cast<std::uint32_t>(count));
}

struct Shapes {
  i64 B, N, S, H, E, M, types;
  i64 items, heads;  // of sheets
  i64 most;          // edges of a list
};

// Lists of 0 to `most` edges from any keys, some of them twice, with types in runs.
std::vector<Sheet> drawn_sheets(const Shapes& s) {
  std::vector<Sheet> sheets;
  i64 place = 0;
  for (i64 number = 0; number < s.items * s.heads; ++number) {
    Sheet sheet;
    for (i64 i = 0; i < s.N; ++i) {
      List list(i % 5 == 1 ? 0 : drawn(place++, s.most + 1));
      if (i == 2) list.resize(std::size_t(s.most));
      i64 type = 0;
      for (Edge& edge : list) {
        if (drawn(place++, 3) == 0) type = drawn(place++, s.types);
        edge = {drawn(place++, s.S), i == 2 ? 0 : type};
      }
      sheet.push_back(list);
    }
    sheets.push_back(sheet);
  }
  return sheets;
}

// A sheet as list_rule.h wants it.
struct SheetLines {
  const Sheet& lists;
  i64 keys;

  i64 rows() const { return std::max(i64(std::ssize(lists)), keys); }
  i64 edges(i64 row) const {
    return row < std::ssize(lists) ? std::ssize(lists[std::size_t(row)]) : 0;
  }
  i64 runs(i64 row) const {
    i64 count = 0, last = -1;
    each_edge(row, [&](i64, i64, i64 type) { count += type != last, last = type; });
    return count;
  }
  i64 out_edges(i64 key) const {
    i64 count = 0;
    each_out_edge(key, [&](i64, i64) { ++count; });
    return count;
  }
  template <class F>
  void each_edge(i64 row, const F& f) const {
    for (i64 e = 0; e < edges(row); ++e) {
      const Edge& edge = lists[std::size_t(row)][std::size_t(e)];
      f(e, edge.from, edge.type);
    }
  }
  template <class F>
  void each_out_edge(i64 key, const F& f) const {
    for (i64 i = 0; i < std::ssize(lists); ++i) {
      each_edge(i, [&](i64 e, i64 from, i64) {
        if (from == key) f(i, e);
      });
    }
  }
};

struct SheetsRule {
  const std::vector<Sheet>& sheets;
  i64 keys;
  SheetLines sheet(i64 number) const { return {sheets[std::size_t(number)], keys}; }
};

// The lists of these sheets on the tested device, filled on the CPU.
std::shared_ptr<const EdgeListTensors> lists_of(const std::vector<Sheet>& sheets, i64 items,
                                                i64 heads, i64 keys) {
  const SheetsRule rule{sheets, keys};
  EdgeListSizes sizes{.items = items, .heads = heads, .rows = std::ssize(sheets[0]), .keys = keys};
  for (i64 number = 0; number < sizes.sheets(); ++number) {
    const SheetLines sheet = rule.sheet(number);
    i64 edges = 0, runs = 0;
    for (i64 line = 0; line < sheet.rows(); ++line) {
      edges += sheet.edges(line), runs += sheet.runs(line);
      sizes.longest = std::max(sizes.longest, sheet.edges(line));
      sizes.longest_out = std::max(sizes.longest_out, sheet.out_edges(line));
    }
    sizes.edges = std::max(sizes.edges, edges), sizes.runs = std::max(sizes.runs, runs);
  }
  const auto lists = std::make_shared<EdgeListTensors>(sizes, Device{});
  fill_lists(Cpu{}, lists->by_rule(rule));
  for (Tensor* const x : {&lists->starts, &lists->from, &lists->run_starts, &lists->runs,
                          &lists->out_starts, &lists->out}) {
    *x = x->to(tested_device());
  }
  return lists;
}

// One-hot rows.
Tensor units(const std::vector<i64>& places, i64 width) {
  const Tensor matrix = Tensor::zeros({std::ssize(places), width}, DType::f64);
  for (std::size_t e = 0; e < places.size(); ++e) {
    matrix.view<double, 2>()(e, places[e]) = 1;
  }
  return matrix;
}

Variable head_of(const Variable& x, i64 b, i64 h) {
  return reshape(slice(slice(x, 0, b, b + 1), 2, h, h + 1), {x.size(1), x.size(3)});
}

// Edge by edge with matrices that select rows: q, k, v and types give o of each head and batch
// item.
Differentiable edge_by_edge(const Shapes& s, const std::vector<Sheet>& sheets, double temperature,
                            double rate, const RandomKey& key) {
  i64 longest = 0;
  for (const Sheet& sheet : sheets) {
    for (const List& list : sheet) longest = std::max(longest, i64(std::ssize(list)));
  }
  return [=](std::span<const Variable> in) {
    std::vector<Variable> outputs;
    for (i64 b = 0; b < s.B; ++b) {
      for (i64 h = 0; h < s.H; ++h) {
        const std::size_t sheet = (s.items > 1 ? b : 0) * s.heads + (s.heads > 1 ? h : 0);
        std::vector<i64> to, from, types;
        std::vector<double> left;
        const DropoutMask mask(key, rate, longest, s.H * s.N);
        for (i64 i = 0; i < s.N; ++i) {
          const List& list = sheets[sheet][std::size_t(i)];
          for (i64 e = 0; e < std::ssize(list); ++e) {
            to.push_back(i), from.push_back(list[std::size_t(e)].from);
            types.push_back(list[std::size_t(e)].type);
            left.push_back(mask.keeps((b * s.H + h) * s.N + i, e) ? mask.factor : 0);
          }
        }
        const i64 edges = std::ssize(to);
        const Variable at = units(to, s.N), of = units(from, s.S);
        const Variable q = head_of(in[0], b, h), k = head_of(in[1], b, h), v = head_of(in[2], b, h);
        Variable keys = matmul(of, k);
        if (in.size() > 3) keys = add(keys, matmul(units(types, s.types), in[3]));
        const Variable z = scale(sum(mul(matmul(at, q), keys), 1), temperature);
        const Variable powers = reshape(exp(z), {edges, 1});
        const Variable sums = matmul(at, matmul(transpose(at, 0, 1), powers));
        const Variable weights = mul(div(powers, sums), Tensor::from(left, {edges, 1}));
        outputs.push_back(matmul(transpose(at, 0, 1), mul(weights, matmul(of, v))));
      }
    }
    return outputs;
  };
}

Differentiable by_engine(const Shapes& s, const std::vector<Sheet>& sheets, double temperature,
                         double rate, const RandomKey& key) {
  const auto lists = lists_of(sheets, s.items, s.heads, s.S);
  return [=](std::span<const Variable> in) {
    const ListsCall call{"lists", temperature, rate, key};
    const Variable out =
        lists_attention(call, lists, in[0], in[1], in[2], in.size() > 3 ? in[3] : Variable());
    std::vector<Variable> outputs;
    for (i64 b = 0; b < s.B; ++b) {
      for (i64 h = 0; h < s.H; ++h) outputs.push_back(head_of(out, b, h));
    }
    return outputs;
  };
}

std::vector<Tensor> inputs_of(const Shapes& s, bool typed) {
  std::vector<Tensor> inputs{normal({s.B, s.N, s.H, s.E}, 1), normal({s.B, s.S, s.H, s.E}, 2),
                             normal({s.B, s.S, s.H, s.M}, 3)};
  if (typed) inputs.push_back(normal({s.types, s.E}, 4));
  return inputs;
}

TEST_SUITE("attention") {

TEST_CASE("lists: the engine is the sum over edges, for lists of every shape") {
  const bool few = few_wanted();
  const Shapes all[] = {
      {1, 1, 1, 1, 1, 1, 1, 1, 1, 1},    {2, 9, 7, 3, 3, 5, 4, 1, 1, 6},
      {2, 6, 30, 2, 20, 9, 3, 2, 1, 40}, {2, 30, 6, 2, 4, 17, 2, 1, 2, 9},
      {2, 5, 5, 2, 2, 2, 6, 2, 2, 8},    {1, few ? 4 : 40, 300, 1, 5, 70, 3, 1, 1, 290}};
  for (const Shapes& s : all) {
    const std::vector<Sheet> sheets = drawn_sheets(s);
    for (const bool typed : {true, false}) {
      for (const double rate : {0.0, 0.3}) {
        if (few && !typed && rate > 0) continue;
        CAPTURE(s.N);
        CAPTURE(s.S);
        CAPTURE(typed);
        const std::vector<Tensor> inputs = inputs_of(s, typed);
        const Run wanted = run(edge_by_edge(s, sheets, 0.4, rate, {7, 8, 9}), inputs, 17, Device{});
        const Run got = run(by_engine(s, sheets, 0.4, rate, {7, 8, 9}), inputs);
        check_close(got, wanted);
      }
    }
  }
}

TEST_CASE("lists: gradients against central differences, with a type that no edge has") {
  Shapes s{2, 5, 4, 2, 3, 2, 3, 2, 1, 7};
  const std::vector<Sheet> sheets = drawn_sheets(s);
  s.types = 5;
  CHECK_GRADIENTS(by_engine(s, sheets, 0.7, 0.2, {1, 2, 3}), inputs_of(s, true), 3, 1e-6, 60);
  const Run run = weft::run(by_engine(s, sheets, 0.7, 0, {}), inputs_of(s, true));
  for (const double x : run.gradients[3].slice(0, 3, 5).to_vector<double>()) CHECK(x == 0);
}

TEST_CASE("lists: an edge alone copies its value, and an empty list gives 0") {
  const Sheet sheet{{{2, 1}}, {}, {{0, 0}}};
  const auto lists = lists_of({sheet}, 1, 1, 4);
  const Shapes s{2, 3, 4, 2, 3, 5, 2, 1, 1, 1};
  const std::vector<Tensor> inputs = inputs_of(s, true);
  const Run got = run(
      [&](std::span<const Variable> in) {
        return std::vector<Variable>{lists_attention({}, lists, in[0], in[1], in[2], in[3])};
      },
      inputs);
  const Tensor out = got.outputs[0];
  CHECK(same_bits(out.slice(1, 0, 1), inputs[2].slice(1, 2, 3)));
  CHECK(same_bits(out.slice(1, 2, 3), inputs[2].slice(1, 0, 1)));
  for (const double x : out.slice(1, 1, 2).to_vector<double>()) CHECK(x == 0);
  for (const std::size_t x : {0, 1, 3}) {
    for (const double gradient : got.gradients[x].to_vector<double>()) CHECK(gradient == 0);
  }
}

TEST_CASE("lists: what is refused") {
  CHECK_ERROR(EdgeListTensors({.edges = i64{1} << 31}, Device{}),
              "lists: 2147483648 edges are more than 2³¹ − 1");
  const Sheet sheet{{{2}}, {{0}}};
  const auto lists = lists_of({sheet}, 1, 1, 3);
  const QueryKeyValue in(1, 3, 3, 1, 2, 2);
  CHECK_ERROR(lists_attention({}, lists, in.q, in.k, in.v),
              "lists: lists of 1 items, 1 heads, 2 queries and 3 keys, got q [1,3,1,2] and k");
}

}  // TEST_SUITE("attention")

}  // namespace
}  // namespace weft
