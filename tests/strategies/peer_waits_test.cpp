// Waits of ranks for each other and for the network, from what each did between two collectives.
#include "strategies/trainer/peer_waits.h"

#include <gtest/gtest.h>

#include <array>

namespace millrace::train {
namespace {

TEST(PeerWaits, AWaitIsBlamedOnWhatTheLateRankWasLongerIn) {
  PeerWait sum;
  attribute_wait(2, {.load = 3.5, .update = 1, .other = 0.5},
                 {.load = 2, .update = 1.5, .other = 0}, sum);
  EXPECT_DOUBLE_EQ(sum.load, 1.5);  // 1.5 and 0.5 s longer; in update it was shorter
  EXPECT_EQ(sum.update, 0);
  EXPECT_DOUBLE_EQ(sum.other, 0.5);
  attribute_wait(1, {}, {}, sum);  // no named kind took longer
  EXPECT_DOUBLE_EQ(sum.other, 1.5);
  EXPECT_DOUBLE_EQ(sum.total(), 3);
}

TEST(PeerWaits, TheRankThatEntersLastIsTheOneTheOthersWaitFor) {
  const std::array work{RankWork{1, {.update = 1}}, RankWork{1.5, {.load = 0.5, .update = 1}},
                        RankWork{1.25, {.update = 1.25}}};
  PeerWaits waits(3);
  waits.add(work, /*mine=*/0, /*waited_s=*/0.5);
  EXPECT_EQ(waits.late()[0].total(), 0);
  EXPECT_DOUBLE_EQ(waits.late()[1].load, 0.75);  // of rank 0 and rank 2
  EXPECT_EQ(waits.late()[1].update, 0);
  EXPECT_EQ(waits.late()[2].total(), 0);
  EXPECT_EQ(waits.network_s(), 0);
  EXPECT_EQ(straggler_of(waits.late()), 1u);
  EXPECT_EQ(cause_of_waits(waits.late(), 0), "load");
}

TEST(PeerWaits, WhatNoRankWasLateForIsTheNetworks) {
  const std::array work{RankWork{1, {.update = 1}}, RankWork{1.5, {.update = 1.5}}};
  PeerWaits early(2), late(2);
  early.add(work, 0, 0.75);
  late.add(work, 1, 0.25);
  EXPECT_DOUBLE_EQ(early.network_s(), 0.25);
  EXPECT_DOUBLE_EQ(late.network_s(), 0.25);
  for (const PeerWaits* one : {&early, &late}) EXPECT_DOUBLE_EQ(one->late()[1].update, 0.5);
  EXPECT_EQ(cause_of_waits(early.late(), 0.25 + 0.25), "update");
  EXPECT_EQ(cause_of_waits(early.late(), 0.75), "network");
  early.add(work, 0, 0.25);  // shorter than the others' clocks say
  EXPECT_DOUBLE_EQ(early.network_s(), 0.25);
}

TEST(PeerWaits, WithoutWaitsThereIsNoCause) {
  PeerWaits waits(2);
  waits.add(std::array{RankWork{1, {}}, RankWork{1, {}}}, 0, 0);
  EXPECT_EQ(cause_of_waits(waits.late(), waits.network_s()), "");
}

}  // namespace
}  // namespace millrace::train
