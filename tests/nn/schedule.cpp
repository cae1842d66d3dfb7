#include "nn/schedule.h"

#include "doctest/doctest.h"

using namespace weft;

TEST_SUITE("nn") {

TEST_CASE("schedule: warm-up rises by equal parts and ends at the rate") {
  for (const auto kind : {Schedule::constant, Schedule::cosine, Schedule::linear}) {
    const Schedule schedule{.kind = kind, .rate = 0.5, .warmup = 4, .steps = 20};
    CHECK(schedule.at(0) == doctest::Approx(0.125));
    CHECK(schedule.at(1) == doctest::Approx(0.25));
    CHECK(schedule.at(3) == doctest::Approx(0.5));
    CHECK(schedule.at(4) == doctest::Approx(0.5));
  }
}

TEST_CASE("schedule: constant stays") {
  const Schedule schedule{.kind = Schedule::constant, .rate = 0.3};
  CHECK(schedule.at(0) == 0.3);
  CHECK(schedule.at(1'000'000) == 0.3);
}

TEST_CASE("schedule: cosine and linear fall to the last rate and stay there") {
  Schedule cosine{.rate = 1, .warmup = 10, .steps = 50, .last = 0.2}, linear = cosine;
  cosine.kind = Schedule::cosine;
  linear.kind = Schedule::linear;
  CHECK(cosine.at(20) == doctest::Approx(0.2 + 0.8 * (1 + std::sqrt(0.5)) / 2));  // a quarter
  CHECK(cosine.at(30) == doctest::Approx(0.6));
  CHECK(cosine.at(50) == doctest::Approx(0.2));
  CHECK(cosine.at(80) == doctest::Approx(0.2));
  CHECK(linear.at(20) == doctest::Approx(0.8));
  CHECK(linear.at(40) == doctest::Approx(0.4));
  CHECK(linear.at(50) == doctest::Approx(0.2));
  CHECK(linear.at(51) == doctest::Approx(0.2));
}

TEST_CASE("schedule: a name that does not exist is an error that lists those that do") {
  CHECK(schedule_kind("cosine") == Schedule::cosine);
  CHECK_THROWS_WITH_AS(schedule_kind("cosin"),
                       "schedule: wanted constant, cosine or linear, got 'cosin'", Error);
}

}  // TEST_SUITE("nn")
