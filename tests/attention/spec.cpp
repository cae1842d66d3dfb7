// Names of mechanisms, and the errors for wrong ones.
#include "ops/attention/mechanism.h"
#include "tests/check.h"

namespace weft {
namespace {

// A wrapper with an option of each kind, for these tests alone: the list that other tests loop over
// is built before it is registered.
const Mechanism& wrapper() {
  static const bool registered = [] {
    const std::size_t listed = mechanisms().size();
    Mechanism sheet;
    sheet.name = "spectest";
    sheet.wrapper = true;
    OptionSheet length, shift, rate;
    length.name = "length", length.initial = "16", length.least = 1, length.most = 4096;
    shift.name = "shift", shift.initial = "none", shift.choices = {"none", "linear"};
    rate.name = "rate", rate.initial = "0.5", rate.most = 1, rate.whole = false;
    sheet.options = {length, shift, rate};
    const Registration registration(sheet);
    return mechanisms().size() == listed;
  }();
  CHECK(registered);
  return mechanism("spectest");
}

TEST_SUITE("attention") {

TEST_CASE("spec: a name alone") {
  const AttentionSpec spec("full");
  CHECK(spec.mechanism().name == "full");
  CHECK(spec.inner() == nullptr);
  CHECK(spec.number("temperature") == 0);
  CHECK(spec.text() == "full");
}

TEST_CASE("spec: options, and the text that makes the spec again") {
  wrapper();
  const AttentionSpec spec("spectest:rate=0.25,length=8/full:temperature=2e-1");
  CHECK(spec.integer("length") == 8);
  CHECK(spec.number("rate") == 0.25);
  CHECK(spec.word("shift") == "none");
  REQUIRE(spec.inner() != nullptr);
  CHECK(spec.inner()->mechanism().name == "full");
  CHECK(spec.inner()->number("temperature") == 0.2);
  CHECK(spec.text() == "spectest:length=8,rate=0.25/full:temperature=0.2");
  CHECK(AttentionSpec(spec.text()).text() == spec.text());
}

TEST_CASE("spec: what is written is known, a default too, through the text and back") {
  wrapper();
  const AttentionSpec written("spectest:shift=none,length=16/full");
  CHECK(written.text() == "spectest:length=16,shift=none/full");
  for (const AttentionSpec& spec : {written, AttentionSpec(written.text())}) {
    CHECK(spec.sets("length"));
    CHECK(spec.sets("shift"));
    CHECK(spec.is_default("length"));
    CHECK_FALSE(spec.sets("rate"));
  }
  const AttentionSpec bare("spectest/full");
  CHECK_FALSE(bare.sets("length"));
  CHECK(bare.with("length", 16).sets("length"));
  CHECK(bare.with("length", 8).text() == "spectest:length=8/full");
}

TEST_CASE("spec: a number means the same however it is written") {
  wrapper();
  for (const std::string value : {"8", "08", "8.0", "0.8e1"}) {
    CAPTURE(value);
    CHECK(AttentionSpec("spectest:length=" + value + "/full").text() == "spectest:length=8/full");
  }
  for (const std::string value : {"0.5", "0.50", "5e-1", "00.5"}) {
    CAPTURE(value);
    const AttentionSpec spec("spectest:rate=" + value + "/full");
    CHECK(spec.is_default("rate"));
    CHECK(spec.text() == "spectest:rate=0.5/full");
  }
  for (const double value : {1 / 3.0, 1e-300, 0.1, 1e6}) {
    const AttentionSpec spec(fmt::format("full:temperature={}", value));
    CHECK(AttentionSpec(spec.text()).number("temperature") == value);
  }
}

TEST_CASE("spec: wrappers stand before wrappers") {
  wrapper();
  const AttentionSpec spec("spectest/spectest:shift=linear/agglomerative");
  CHECK(spec.inner()->word("shift") == "linear");
  CHECK(spec.inner()->inner()->mechanism().name == "agglomerative");
  CHECK(spec.text() == "spectest/spectest:shift=linear/agglomerative");
}

TEST_CASE("spec: unknown names are answered with those that exist and the nearest") {
  CHECK_ERROR(AttentionSpec("fulll"), "no mechanism 'fulll'");
  for (const Mechanism* known : mechanisms()) {
    CHECK_ERROR(AttentionSpec("fulll"), known->name.c_str());
  }
  CHECK_ERROR(AttentionSpec("fulll"), "did you mean full?");
  CHECK_ERROR(AttentionSpec("aglomerative"), "did you mean agglomerative?");
  CHECK_ERROR(AttentionSpec(""), "no mechanism ''");
  CHECK_ERROR(AttentionSpec("Full"), "did you mean full?");
  CHECK_ERROR(AttentionSpec("full "), "no mechanism 'full '");
  CHECK_ERROR(mechanism("none"), "no mechanism 'none'");
}

TEST_CASE("spec: unknown options are answered with those that exist and the nearest") {
  wrapper();
  CHECK_ERROR(AttentionSpec("spectest:lenght=3/full"), "no option 'lenght'");
  CHECK_ERROR(AttentionSpec("spectest:lenght=3/full"), "length, shift, rate; did you mean length?");
  CHECK_ERROR(AttentionSpec("full:tau=1"), "attention full: there is no option 'tau'");
  CHECK_ERROR(AttentionSpec("agglomerative:classes=3"), "it has none");
  CHECK_ERROR(AttentionSpec("full").number("clusters"), "no option 'clusters'");
}

TEST_CASE("spec: values out of bounds and values that are none") {
  wrapper();
  for (const std::string value : {"", "x", "3x", " 3", "3 ", "nan", "inf", "1e999", "0x3", "1,5"}) {
    CAPTURE(value);
    CHECK_THROWS_AS(AttentionSpec("spectest:length=" + value + "/full"), Error);
  }
  CHECK_ERROR(AttentionSpec("spectest:length=0/full"), "length is a number in [1, 4096], got '0'");
  CHECK_ERROR(AttentionSpec("spectest:length=4097/full"), "got '4097'");
  CHECK_ERROR(AttentionSpec("full:temperature=-1"), "temperature is a number in [0, ");
  CHECK_ERROR(AttentionSpec("spectest:shift=up/full"), "shift is one of none, linear, got 'up'");
  CHECK_ERROR(AttentionSpec("spectest:shift=linear/full").number("shift"), "not a number");
  CHECK_ERROR(AttentionSpec("spectest:length=2.5/full").integer("length"), "whole number");
}

TEST_CASE("spec: mistakes of syntax") {
  wrapper();
  CHECK_ERROR(AttentionSpec("full:temperature"), "wanted name:option=value,option=value");
  CHECK_ERROR(AttentionSpec("full:"), "wanted name:option=value,option=value");
  CHECK_ERROR(AttentionSpec("full:=1"), "got '=1'");
  CHECK_ERROR(AttentionSpec("full:temperature=1,"), "got ''");
  CHECK_ERROR(AttentionSpec("full:temperature=1,temperature=2"), "given twice");
  CHECK_ERROR(AttentionSpec("full:temperature=1:2"), "got '1:2'");
}

TEST_CASE("spec: mistakes with wrappers") {
  wrapper();
  CHECK_ERROR(AttentionSpec("spectest"), "spectest wraps another mechanism: spectest/full");
  CHECK_ERROR(AttentionSpec("spectest:length=4"), "spectest:length=4/full");
  CHECK_ERROR(AttentionSpec("full/full"), "full is not a wrapper");
  CHECK_ERROR(AttentionSpec("spectest/"), "no mechanism ''");
  CHECK_ERROR(AttentionSpec("/full"), "no mechanism ''");
  CHECK_ERROR(AttentionSpec("spectest/ful"), "did you mean full?");
  CHECK_ERROR(AttentionSpec("spectest/full/full"), "full is not a wrapper");
}

TEST_CASE("registry: a name can be taken once") {
  CHECK_ERROR(Registration(mechanism("full")), "full: the name is registered twice");
}

TEST_CASE("spec: a list, whose options have commas, too") {
  using List = std::vector<std::string>;
  CHECK(split_specifications("full") == List{"full"});
  CHECK(split_specifications("a,b:x=1,y=2,c") == List{"a", "b:x=1,y=2", "c"});
  CHECK(split_specifications("a,x=1,y=2,w:l=3/b,x=1") == List{"a:x=1,y=2", "w:l=3/b:x=1"});
  CHECK(split_specifications("w:l=3/full:t=1,s=2,w/full:t=1,w:l=3,r=0/full:t=1,full") ==
        List{"w:l=3/full:t=1,s=2", "w/full:t=1", "w:l=3,r=0/full:t=1", "full"});
  for (const char* text : {"", ",", "a,", ",a", "a,,b"}) {
    CAPTURE(text);
    CHECK_ERROR(split_specifications(text), "single commas");
  }
  CHECK_ERROR(split_specifications("x=1,a"), "the option x=1 comes before any mechanism");
}

}  // TEST_SUITE("attention")

}  // namespace
}  // namespace weft
