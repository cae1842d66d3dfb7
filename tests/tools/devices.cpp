// devices as users run it.
#include "doctest/doctest.h"
#include "tests/cuda_there.h"
#include "tests/program.h"

using namespace weft;

TEST_SUITE("tools") {

TEST_CASE("devices: what is compiled in, and what is there") {
  const ProgramRun run = app("devices", {});
  CHECK(run.status == 0);
  CHECK(contains(run.out, "cpu   "));
  CHECK(contains(run.out, "1 threads; products by "));
  CHECK(contains(run.out, "; attention in bf16 by "));
  CHECK(contains(run.out, "cuda  compiled in: ") == built_for_cuda);
  CHECK(contains(run.out, "cuda  not compiled in; configure with -Dgpu=cuda") == !built_for_cuda);
  if (contains(run.out, "compiled in: emulated")) {
    CHECK(contains(run.out, "0: emulated device, compute capability 9.0"));
  }
}

}  // TEST_SUITE("tools")
