// Verification with runs that are functions: its order, drift, void runs and their limits.
#include "predict/verification.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "predict/rules.h"

namespace millrace::predict {
namespace {

using Index = std::optional<std::size_t>;

const std::vector<std::size_t> kThree{0, 1, 2};

/// Rates of a quiet machine: 100 for the baseline, (change + 2) times that for a change.
TimedRun quiet(Index change) {
  return {change, change ? 100.0 * static_cast<double>(*change + 2) : 100, 0.01};
}

TEST(Verification, TheOrderIsRandomAndDependsOnTheSeedOnly) {
  std::vector<std::size_t> changes(20);
  std::iota(changes.begin(), changes.end(), 0);
  const VerificationOrder order = verification_order(changes, 3, 7);
  EXPECT_EQ(order, verification_order(changes, 3, 7));
  EXPECT_NE(order, verification_order(changes, 3, 8));
  EXPECT_NE(order[0], order[1]);
  for (std::vector<std::size_t> block : order) {
    EXPECT_NE(block, changes);
    std::sort(block.begin(), block.end());
    EXPECT_EQ(block, changes);
  }
}

TEST(Verification, EveryChangeRunsBetweenTwoBaselines) {
  const VerificationOrder order = verification_order(kThree, 2, 1);
  EXPECT_EQ(planned_runs(order), 14u);
  const Verification verified(order, quiet);
  ASSERT_EQ(verified.runs().size(), 14u);
  std::size_t at = 0;
  for (const auto& block : order) {
    EXPECT_FALSE(verified.runs()[at++].change);
    for (const std::size_t change : block) {
      EXPECT_EQ(verified.runs()[at++].change, Index(change));
      EXPECT_FALSE(verified.runs()[at++].change);
    }
  }
  EXPECT_EQ(verified.void_runs(), 0);
  EXPECT_FALSE(verified.is_void());
  EXPECT_EQ(verified.baseline(), 100);
  EXPECT_EQ(verified.baseline_scatter(), 0);
  for (const std::size_t change : kThree)
    EXPECT_DOUBLE_EQ(verified.ratio(change).value(), static_cast<double>(change + 2));
}

TEST(Verification, TheBaselinesScatterIsThatOfTheirLogarithms) {
  double rate = 100;
  const Verification verified(verification_order(kThree, 1, 1), [&](Index change) {
    TimedRun run = quiet(change);
    if (!change) run.images_per_s = std::exchange(rate, 110);  // once 100, three times 110
    return run;
  });
  EXPECT_NEAR(std::log1p(verified.baseline_scatter()), 0.5 * std::log(1.1), 1e-12);
}

TEST(Verification, AChangeThatIsSettledNeedsNoFurtherBlock) {
  std::array<int, 3> calls{};
  const Verification verified(verification_order(kThree, 5, 1), [&](Index change) {
    TimedRun run = quiet(change);
    if (!change) return run;
    const int call = calls[*change]++;
    if (*change == 1) run.images_per_s *= call % 2 == 0 ? 1 : 1.1;
    if (*change == 2 && call == 0) run.images_per_s *= 1.1;
    return run;
  });
  EXPECT_EQ(calls, (std::array{2, 5, 5})) << "the same twice; never the same; once another";
  EXPECT_FALSE(verified.is_void());
  EXPECT_DOUBLE_EQ(verified.ratio(0).value(), 2);
  EXPECT_DOUBLE_EQ(verified.ratio(2).value(), 4);
}

TEST(Verification, TheScatterOfAllChangesSettlesOneThatHasFewRatios) {
  std::vector<std::size_t> twenty(20);
  std::iota(twenty.begin(), twenty.end(), 0);
  std::vector<int> calls(twenty.size());
  const Verification verified(verification_order(twenty, 5, 1), [&](Index change) {
    TimedRun run = quiet(change);
    if (!change) return run;
    // Two ratios 0.5% apart have an interval of 3.2% by themselves.
    run.images_per_s *= calls[*change]++ % 2 == 0 ? 1 : *change == 7 ? 1.03 : 1.005;
    return run;
  });
  for (const std::size_t change : twenty)
    EXPECT_EQ(calls[change], change == 7 ? 5 : 2) << change << ": 7 differs by more than 2%";
}

TEST(Verification, OneValidRatioIsEnoughForAChangeThatIsTriedOnce) {
  std::array<int, 3> calls{};
  const Verification verified(verification_order(kThree, 3, 1),
                              [&](Index change) {
                                TimedRun run = quiet(change);
                                if (!change) return run;
                                const int call = ++calls[*change];
                                run.images_per_s *= 1 + 0.1 * call;  // never settled
                                if (*change == 2 && call <= kTries) run.others = 0.5;
                                return run;
                              },
                              /*accept_noise=*/false, /*once=*/{1, 2});
  EXPECT_EQ(calls, (std::array{3, 1, kTries + 1}))
      << "void in the first block, valid in the second";
  EXPECT_FALSE(verified.is_void());
  EXPECT_DOUBLE_EQ(verified.ratio(1).value(), 3 * 1.1);
  EXPECT_FALSE(verified.interval(1)) << "one block";
}

TEST(Verification, AMachineThatSlowsDownSteadilyMovesNoRatio) {
  double speed = 1;
  const Verification verified(verification_order(kThree, 1, 1), [&](Index change) {
    TimedRun run = quiet(change);
    run.images_per_s *= speed;
    speed -= 0.1;
    return run;
  });
  EXPECT_LT(verified.runs().back().images_per_s, 50);
  for (const std::size_t change : kThree)
    EXPECT_NEAR(verified.ratio(change).value(), static_cast<double>(change + 2), 1e-9);
}

TEST(Verification, ARunThatOthersDisturbedIsRepeatedAndLeftOut) {
  int calls = 0;
  const Verification verified(verification_order(kThree, 1, 1), [&](Index change) {
    TimedRun run = quiet(change);
    if (++calls % 3 == 0) {  // every third run has half of the machine
      run.others = 0.5;
      run.images_per_s /= 2;
    }
    return run;
  });
  EXPECT_EQ(verified.runs().size(), 7u + 3u);
  EXPECT_EQ(verified.void_runs(), 3);
  EXPECT_FALSE(verified.is_void());
  for (const std::size_t change : kThree)
    EXPECT_DOUBLE_EQ(verified.ratio(change).value(), static_cast<double>(change + 2));
}

TEST(Verification, ALoadThatNeverEndsStopsItAfterItsFirstBlock) {
  const VerificationOrder order = verification_order(kThree, 3, 1);
  const Verification verified(order, [](Index change) {
    TimedRun run = quiet(change);
    run.others = 0.3;
    return run;
  });
  EXPECT_TRUE(verified.stopped());
  EXPECT_EQ(verified.runs().size(), 7u) << "nothing is repeated before a run was valid";
  EXPECT_EQ(verified.void_runs(), static_cast<int>(verified.runs().size()));
  EXPECT_TRUE(verified.is_void());
  EXPECT_FALSE(verified.baseline());
  for (const std::size_t change : kThree) {
    EXPECT_FALSE(verified.ratio(change));
    EXPECT_DOUBLE_EQ(verified.disturbed_ratio(change).value(), static_cast<double>(change + 2))
        << "shown all the same";
  }
}

TEST(Verification, OneValidRunInTheFirstBlockIsReasonToGoOn) {
  int calls = 0;
  const Verification verified(verification_order(kThree, 2, 1), [&](Index change) {
    TimedRun run = quiet(change);
    if (++calls != 5) run.others = 0.3;
    return run;
  });
  EXPECT_FALSE(verified.stopped());
  EXPECT_TRUE(verified.is_void());
  EXPECT_EQ(verified.runs().size(), 14u + 7u);
}

TEST(Verification, AcceptsNoiseWhenAskedTo) {
  const VerificationOrder order = verification_order(kThree, 3, 1);
  int block = 0;
  const Verification verified(
      order,
      [&](Index change) {
        TimedRun run = quiet(change);
        run.others = 0.5;
        if (change) run.images_per_s *= 1 + 0.1 * (block++ / 3 - 1);  // 10% less, equal, 10% more
        return run;
      },
      /*accept_noise=*/true);
  EXPECT_EQ(verified.runs().size(), planned_runs(order)) << "nothing is repeated";
  EXPECT_EQ(verified.void_runs(), static_cast<int>(verified.runs().size())) << "and counted";
  EXPECT_TRUE(verified.accepts_noise());
  EXPECT_FALSE(verified.is_void() || verified.stopped());
  EXPECT_EQ(verified.baseline(), 100);
  for (const std::size_t change : kThree) {
    const auto ratio = static_cast<double>(change + 2);
    EXPECT_DOUBLE_EQ(verified.ratio(change).value(), ratio);
    const auto interval = verified.interval(change).value();
    EXPECT_LT(interval.first, 0.87 * ratio) << "t of two degrees of freedom: wide";
    EXPECT_GT(interval.second, 1.13 * ratio);
  }
  EXPECT_FALSE(Verification(verification_order(kThree, 1, 1), quiet).interval(0)) << "one block";
}

TEST(Verification, IsVoidWhenOneChangeLacksHalfOfItsBlocks) {
  // Others take the cores whenever change 1 runs, in `blocks` of three.
  const auto with_void_blocks = [](std::size_t blocks) {
    std::size_t runs = 0;
    return Verification(verification_order(kThree, 3, 1), [&, blocks](Index change) {
      TimedRun run = quiet(change);
      if (change == 1 && runs++ < blocks * kTries) run.others = 0.2;
      return run;
    });
  };
  EXPECT_EQ(with_void_blocks(1).valid_blocks(1), 2u);
  EXPECT_FALSE(with_void_blocks(1).is_void());
  const Verification verified = with_void_blocks(2);
  EXPECT_EQ(verified.valid_blocks(1), 1u);
  EXPECT_FALSE(verified.ratio(1));
  EXPECT_TRUE(verified.ratio(0) && verified.ratio(2));
  EXPECT_TRUE(verified.is_void());
}

TEST(Verification, AChangeThatFailsIsNotRunAgainAndTheOthersCount) {
  std::array<int, 3> calls{};
  const Verification verified({{0, 1, 2}, {2, 0, 1}}, [&](Index change) {
    TimedRun run = quiet(change);
    if (change) ++calls[*change];
    run.failed = change == 1;
    return run;
  });
  EXPECT_EQ(calls, (std::array{2, 1, 2}));
  EXPECT_TRUE(verified.has_failed(1) && !verified.has_failed(0));
  EXPECT_FALSE(verified.ratio(1));
  EXPECT_EQ(verified.ratio(2), 4);
  EXPECT_FALSE(verified.is_void() || verified.stopped()) << "the others have a score";
  EXPECT_EQ(verified.runs().size(), 6u + 5u) << "the baseline before it serves the next change";
  const Verification nothing({{0}, {0}}, [](Index change) {
    return TimedRun{change, 100, 0, change.has_value()};
  });
  EXPECT_TRUE(nothing.is_void()) << "no change is left";
  EXPECT_EQ(nothing.runs().size(), 2u);
}

TEST(Verification, ABaselineThatFailsEndsItAndKeepsTheRatios) {
  int baselines = 0;
  const Verification verified({{0}, {0}, {0}}, [&](Index change) {
    TimedRun run = quiet(change);
    run.failed = !change && ++baselines == 3;
    return run;
  });
  EXPECT_TRUE(verified.stopped());
  EXPECT_EQ(verified.runs().size(), 4u) << "a run that failed is not tried again";
  EXPECT_EQ(verified.valid_blocks(0), 1u);
}

TEST(Verification, TheThresholdIsATenthOfTheMachine) {
  EXPECT_DOUBLE_EQ(kMaxOthers, 0.1);
  EXPECT_FALSE((TimedRun{{}, 1, 0.1}.is_void()));
  EXPECT_TRUE((TimedRun{{}, 1, 0.1001}.is_void()));
  EXPECT_FALSE((TimedRun{{}, 1, std::numeric_limits<double>::quiet_NaN()}.is_void())) << "unknown";
}

}  // namespace
}  // namespace millrace::predict
