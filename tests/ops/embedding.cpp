#include "ops/embedding/embedding.h"

#include "autograd/tape.h"
#include "tests/check.h"
#include "tests/ops/cases.h"

namespace weft {
namespace {

TEST_SUITE("ops") {

TEST_CASE("embedding takes rows, and adds gradients to them") {
  const Tensor table = random_normal({4, 3}, DType::f64, 1);
  const Tensor ids = Tensor::from(std::vector<i64>{2, 0, 2, 3, 2, 0}, {2, 3});
  const Variable leaf = Variable::leaf(table.to(tested_device()));
  Tape tape;
  const Variable y = embedding(leaf, ids.to(tested_device()));
  CHECK(y.shape() == Shape{2, 3, 3});
  const Tensor dy = random_normal({2, 3, 3}, DType::f64, 2);
  tape.backward(y, dy.to(tested_device()));
  const Tensor rows = y.value().to(Device{}), gradient = leaf.gradient().to(Device{});
  const std::vector<i64> list = ids.to_vector<i64>();
  const Tensor wanted = Tensor::zeros({4, 3}, DType::f64);
  for (i64 p = 0; p < 6; ++p) {
    for (i64 j = 0; j < 3; ++j) {
      const i64 id = list[static_cast<std::size_t>(p)];
      CHECK(rows.view<double, 3>()(p / 3, p % 3, j) == table.view<double, 2>()(id, j));
      wanted.view<double, 2>()(id, j) += dy.view<double, 3>()(p / 3, p % 3, j);
    }
  }
  CHECK(relative_error(gradient, wanted) <= tolerance::backward_f64);
  for (i64 j = 0; j < 3; ++j) CHECK(gradient.view<double, 2>()(1, j) == 0);
}

TEST_CASE("a row used very often keeps its gradient accurate in f32") {
  const Variable table = Variable::leaf(random_normal({2, 5}, DType::f32, 1).to(tested_device()));
  const Tensor ids = Tensor::zeros({300000}, DType::i64, tested_device());
  const Tensor dy = Tensor::full({300000, 5}, double(0.1f), DType::f32, tested_device());
  Tape tape;
  tape.backward(embedding(table, ids), dy);
  const std::vector<float> g = table.gradient().to_vector<float>();
  CHECK(g[4] == static_cast<float>(300000 * double(0.1f)));
  CHECK(g[5] == 0);
}

TEST_CASE("ids of either integer type, and none at all") {
  const Tensor table = random_normal({6, 2}, DType::f32, 1).to(tested_device());
  const Tensor ids = random_integers({5}, 6, 2).to(tested_device());
  CHECK(same_bits(embedding(table, ids).value(), embedding(table, ids.to(DType::i32)).value()));
  const Tensor none = Tensor::empty({3, 0}, DType::i64, tested_device());
  CHECK(embedding(table, none).shape() == Shape{3, 0, 2});
}

TEST_CASE("more rows than a device sorts by are refused, and what to do is said") {
  if (tested_device() == Device{}) return;
  const i64 rows = i64{1} << 31;  // of no columns: no memory
  const Variable table = Variable::leaf(Tensor::empty({rows, 0}, DType::f32, tested_device()));
  Tape tape;
  const Variable y = embedding(table, random_integers({5}, 6, 2).to(tested_device()));
  CHECK_ERROR(
      tape.backward(y, y.value()),
      "embedding: wanted at most 2147483647 ids and rows of the table on a CUDA device, got "
      "5 and 2147483648; split them, or use the CPU");
}

TEST_CASE("bad ids and tables are refused with position and value") {
  const Tensor table = random_normal({4, 3}, DType::f32, 1);
  const auto ids = [](i64 bad) { return Tensor::from(std::vector<i64>{0, 3, bad, 1}, {2, 2}); };
  CHECK_ERROR(embedding(table, ids(4)),
              "embedding: the id at position 2 of [2,2] is 4, but the table has 4 rows");
  CHECK_ERROR(embedding(table, ids(-1)), "is -1");
  CHECK_ERROR(embedding(table, Tensor::zeros({2}, DType::f32)),
              "wanted ids in i64 or i32, got f32");
  CHECK_ERROR(embedding(random_normal({4}, DType::f32, 1), ids(0)),
              "wanted a table [V, d], got [4]");
}

}  // TEST_SUITE("ops")
}  // namespace
}  // namespace weft
