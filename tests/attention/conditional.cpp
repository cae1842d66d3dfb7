// Properties of the wrapper alone (page: ops/attention/conditional/conditional.cpp).
#include "tests/attention/run_attention.h"

namespace weft {
namespace {

std::vector<Tensor> inputs(i64 N, i64 S) {
  return {normal({2, N, 2, 4}, 1), normal({2, S, 2, 4}, 2), normal({2, S, 2, 3}, 3)};
}

TEST_SUITE("attention") {

TEST_CASE("conditional: full attention up to the length, the inner mechanism above it") {
  const std::string spec = "conditional:length=12/topk:topk=2", inner = "topk:topk=2";
  struct Case {
    i64 N, S;
    std::string wanted;
  };
  for (const Case& c : {Case{12, 12, "full"}, Case{13, 12, inner}, Case{12, 13, inner},
                        Case{1, 40, inner}, Case{40, 40, inner}, Case{1, 1, "full"}}) {
    CAPTURE(c.N);
    CAPTURE(c.S);
    check_same_bits(attended_run(spec, inputs(c.N, c.S)), attended_run(c.wanted, inputs(c.N, c.S)));
  }
}

TEST_CASE("conditional: the inner mechanism's temperature is that of full attention, too") {
  for (const char* wrapper :
       {"conditional:length=12/", "conditional:length=12/conditional:length=4/"}) {
    check_same_bits(attended_run(wrapper + std::string("topk:topk=2,temperature=2"), inputs(12, 9)),
                    attended_run("full:temperature=2", inputs(12, 9)));
  }
}

TEST_CASE("conditional: lengths apply to queries where they do for the inner mechanism") {
  const AttentionCall call = with_lengths({8, 3});
  AttentionCall of_both = call;
  of_both.query_lengths = call.lengths;
  for (const char* wrapper :
       {"conditional:length=8/", "conditional:length=8/conditional:length=4/"}) {
    CAPTURE(wrapper);
    const Run local = attended_run("full", inputs(8, 8), of_both);
    check_close(attended_run(wrapper + std::string("local"), inputs(8, 8), call), local);
    check_close(defined_run(wrapper + std::string("local"), inputs(8, 8), call), local);
    const Run topk = attended_run("full", inputs(8, 8), call);
    check_close(attended_run(wrapper + std::string("topk"), inputs(8, 8), call), topk);
  }
}

TEST_CASE("conditional: it has the facts of its inner mechanism") {
  const AttentionSpec spec("conditional/topk");
  const Mechanism& sheet = spec.mechanism();
  CHECK(sheet.name == "conditional");
  CHECK(sheet.masks.causal);
  CHECK(sheet.cross);
  CHECK(sheet.strictly_causal);
  CHECK(attention_inputs(spec).size() == 3);
  CHECK(sheet.choices.size() == 1);
  CHECK(sheet.scaling == mechanism("topk").scaling);
  CHECK(sheet.memory == mechanism("topk").memory);
  CHECK((sheet.decode == nullptr));
  CHECK(attention_inputs(AttentionSpec("conditional:length=4/conditional/topk")).size() == 3);
}

TEST_CASE("conditional: bad specifications and calls are refused") {
  CHECK_ERROR(AttentionSpec("conditional"), "conditional wraps another mechanism");
  CHECK_ERROR(AttentionSpec("conditional/agglomerative"),
              "agglomerative is one over zq, zk, y");
  CHECK_ERROR(AttentionSpec("conditional:length=0/topk"), "length is a number in [1, ");
  AttentionCall call;
  call.given["topk"] = Tensor::zeros({2, 2, 8, 2}, DType::i64);
  CHECK_ERROR(attended("conditional/topk:topk=2", inputs(8, 8), call),
              "conditional: topk was given, but N = 8 and S = 8 are no longer than length=512");
}

}  // TEST_SUITE("attention")

}  // namespace
}  // namespace weft
