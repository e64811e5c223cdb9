// Launchers' environment variables, and the messages for contradictory ones.
#include "strategies/control/rank.h"

#include <gtest/gtest.h>

#include <map>

#include "millrace/error.h"

namespace millrace::train {
namespace {

using Variables = std::map<std::string, std::string>;

std::optional<RankInfo> rank_of(const Variables& variables) {
  return rank_from_environment([&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

Variables operator+(Variables base, const Variables& more) {
  for (const auto& [name, value] : more) base[name] = value;
  return base;
}

/// Returns the message and hint of the rejection.
std::string refusal(const Variables& variables) {
  try {
    rank_of(variables);
  } catch (const UsageError& error) {
    EXPECT_FALSE(error.hint().empty()) << error.what();
    return std::string(error.what()) + " | " + error.hint();
  }
  ADD_FAILURE() << "not refused";
  return {};
}

void expect_refused(const Variables& variables, const std::vector<std::string>& parts) {
  const std::string text = refusal(variables);
  for (const std::string& part : parts)
    EXPECT_NE(text.find(part), std::string::npos) << part << " in: " << text;
}

const Variables kTorchrun{{"RANK", "5"},
                          {"WORLD_SIZE", "8"},
                          {"LOCAL_RANK", "1"},
                          {"LOCAL_WORLD_SIZE", "4"},
                          {"MASTER_ADDR", "host-a"},
                          {"MASTER_PORT", "29501"}};

TEST(Rank, NoLauncherNoRank) {
  EXPECT_FALSE(rank_of({}));
  EXPECT_FALSE(rank_of({{"MASTER_ADDR", "host-a"}, {"MASTER_PORT", "1"}, {"RANK", ""}}));
  EXPECT_FALSE(rank_of({{"SLURM_JOB_ID", "12"}, {"SLURM_NTASKS", "4"}})) << "salloc's shell";
}

TEST(Rank, Torchrun) {
  const auto info = rank_of(kTorchrun + Variables{{"TORCHELASTIC_USE_AGENT_STORE", "True"}});
  ASSERT_TRUE(info);
  EXPECT_EQ(info->rank, 5);
  EXPECT_EQ(info->world, 8);
  EXPECT_EQ(info->local_rank, 1);
  EXPECT_EQ(info->local_world, 4);
  EXPECT_EQ(info->master_addr, "host-a");
  EXPECT_EQ(info->master_port, 29501);
  EXPECT_TRUE(info->agent_store);
  EXPECT_EQ(info->launcher, "torchrun");
  EXPECT_FALSE(
      rank_of(kTorchrun + Variables{{"TORCHELASTIC_USE_AGENT_STORE", "False"}})->agent_store);
  EXPECT_EQ(rank_of(kTorchrun + Variables{{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "2"}})->rank, 5)
      << "torchrun inside of srun";
}

TEST(Rank, TheLaunchersKeyAndStore) {
  const auto info = rank_of(
      kTorchrun + Variables{{"MILLRACE_KEY", "00000000deadbeef"}, {"MILLRACE_STORE_FD", "7"}});
  EXPECT_EQ(info->key, 0xDEADBEEFu);
  EXPECT_EQ(info->store_fd, 7);
  EXPECT_FALSE(rank_of(kTorchrun)->key);
  EXPECT_EQ(rank_of(kTorchrun)->store_fd, -1);
  for (const char* key : {"5ec4e7", "00000000deadbeef0", "00000000deadbeeg", "-000000deadbeef0"}) {
    const std::string text = refusal(kTorchrun + Variables{{"MILLRACE_KEY", key}});
    EXPECT_NE(text.find("MILLRACE_KEY"), std::string::npos) << text;
    EXPECT_EQ(text.find(key), std::string::npos) << "it may be a secret: " << text;
  }
  expect_refused(kTorchrun + Variables{{"MILLRACE_STORE_FD", "0"}}, {"MILLRACE_STORE_FD=0"});
}

TEST(Rank, OnLoopbackAreRanksOfOneHostThatMeetThere) {
  RankInfo info{.world = 2, .local_world = 2, .master_addr = "127.0.0.1"};
  EXPECT_TRUE(info.on_loopback());
  info.master_addr = "host-a";
  EXPECT_FALSE(info.on_loopback()) << "others may be meant to reach it";
  info.master_addr = "localhost";
  EXPECT_TRUE(info.on_loopback());
  info.world = 4;
  EXPECT_FALSE(info.on_loopback());
}

TEST(Rank, ByHandOnOneHost) {
  const auto info = rank_of(
      {{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", "29500"}});
  EXPECT_EQ(info->local_rank, 1);
  EXPECT_EQ(info->local_world, 2);
  expect_refused({{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "far"}, {"MASTER_PORT", "1"}},
                 {"LOCAL_RANK is not set"});
}

TEST(Rank, TorchrunsMistakes) {
  expect_refused({{"WORLD_SIZE", "2"}}, {"RANK is not set", "torchrun"});
  expect_refused({{"RANK", "0"}}, {"WORLD_SIZE is not set"});
  Variables without = kTorchrun;
  without.erase("MASTER_PORT");
  expect_refused(without, {"MASTER_PORT is not set", "millrace launch"});
  without = kTorchrun;
  without.erase("MASTER_ADDR");
  expect_refused(without, {"MASTER_ADDR is not set"});
  expect_refused(kTorchrun + Variables{{"RANK", "8"}}, {"RANK=8, but WORLD_SIZE=8"});
  expect_refused(kTorchrun + Variables{{"RANK", "-1"}}, {"RANK=-1"});
  expect_refused(kTorchrun + Variables{{"RANK", "one"}}, {"RANK=one", "whole number"});
  expect_refused(kTorchrun + Variables{{"RANK", "1 "}}, {"RANK=1 "});
  expect_refused(kTorchrun + Variables{{"WORLD_SIZE", "0"}}, {"WORLD_SIZE=0", "from 1"});
  expect_refused(kTorchrun + Variables{{"WORLD_SIZE", "99999999999999999999"}}, {"WORLD_SIZE="});
  expect_refused(kTorchrun + Variables{{"LOCAL_RANK", "4"}},
                 {"LOCAL_RANK=4, but LOCAL_WORLD_SIZE"});
  expect_refused(kTorchrun + Variables{{"LOCAL_WORLD_SIZE", "9"}}, {"LOCAL_WORLD_SIZE=9"});
  expect_refused(kTorchrun + Variables{{"MASTER_PORT", "70000"}}, {"MASTER_PORT=70000", "65535"});
}

const Variables kMpi{{"OMPI_COMM_WORLD_RANK", "3"},
                     {"OMPI_COMM_WORLD_SIZE", "4"},
                     {"OMPI_COMM_WORLD_LOCAL_RANK", "3"},
                     {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"}};

TEST(Rank, OpenMpi) {
  const auto info = rank_of(kMpi + Variables{{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "1"}});
  EXPECT_EQ(info->rank, 3);
  EXPECT_EQ(info->local_world, 4);
  EXPECT_EQ(info->master_addr, "127.0.0.1") << "all ranks are local";
  EXPECT_EQ(info->master_port, kDefaultMasterPort);
  EXPECT_EQ(info->launcher, "openmpi");
  const Variables spread{{"OMPI_COMM_WORLD_LOCAL_RANK", "1"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}};
  expect_refused(kMpi + spread, {"MASTER_ADDR is not set", "several hosts", "mpirun -x"});
  const auto far = rank_of(kMpi + spread + Variables{{"MASTER_ADDR", "a"}, {"MASTER_PORT", "77"}});
  EXPECT_EQ(far->master_addr, "a");
  EXPECT_EQ(far->master_port, 77);
  expect_refused(kMpi + Variables{{"OMPI_COMM_WORLD_RANK", "4"}}, {"OMPI_COMM_WORLD_RANK=4"});
  expect_refused({{"OMPI_COMM_WORLD_RANK", "0"}}, {"OMPI_COMM_WORLD_SIZE is not set", "Open MPI"});
}

const Variables kSlurm{{"SLURM_JOB_ID", "1234567"},
                       {"SLURM_PROCID", "5"},
                       {"SLURM_NTASKS", "7"},
                       {"SLURM_LOCALID", "1"},
                       {"SLURM_NODEID", "2"},
                       {"SLURM_NNODES", "4"},
                       {"SLURM_TASKS_PER_NODE", "2(x3),1"},
                       {"SLURM_JOB_NODELIST", "n[01-03],m7"}};

TEST(Rank, Slurm) {
  const auto info = rank_of(kSlurm);
  EXPECT_EQ(info->rank, 5);
  EXPECT_EQ(info->world, 7);
  EXPECT_EQ(info->local_rank, 1);
  EXPECT_EQ(info->local_world, 2);
  EXPECT_EQ(info->master_addr, "n01");
  EXPECT_EQ(info->master_port, kSlurmPorts + 1234567 % 20000);
  EXPECT_EQ(info->launcher, "slurm");
  EXPECT_EQ(rank_of(kSlurm +
                    Variables{{"SLURM_PROCID", "6"}, {"SLURM_NODEID", "3"}, {"SLURM_LOCALID", "0"}})
                ->local_world,
            1);
  EXPECT_EQ(rank_of(kSlurm + Variables{{"MASTER_ADDR", "x"}, {"MASTER_PORT", "9"}})->master_addr,
            "x");
  EXPECT_EQ(rank_of(kSlurm + Variables{{"PMI_RANK", "5"}, {"PMI_SIZE", "7"}})->launcher, "slurm");
}

TEST(Rank, SlurmsHostLists) {
  const auto host = [](const char* list) {
    return rank_of(kSlurm + Variables{{"SLURM_JOB_NODELIST", list}})->master_addr;
  };
  EXPECT_EQ(host("node1"), "node1");
  EXPECT_EQ(host("b,a"), "b");
  EXPECT_EQ(host("rack[01-02,07]n[3-4],login"), "rack01n3");
  EXPECT_EQ(host("n[7,9]-ib"), "n7-ib");
  expect_refused(kSlurm + Variables{{"SLURM_JOB_NODELIST", "["}}, {"SLURM_JOB_NODELIST=["});
  Variables without = kSlurm;
  without.erase("SLURM_JOB_NODELIST");
  expect_refused(without, {"SLURM_JOB_NODELIST is not set", "MASTER_ADDR"});
  without["SLURM_LAUNCH_NODE_IPADDR"] = "10.0.0.1";
  EXPECT_EQ(rank_of(without)->master_addr, "10.0.0.1");
}

TEST(Rank, SlurmsBatchStepIsOneTask) {
  const auto info = rank_of({{"SLURM_JOB_ID", "12"}, {"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "1"}});
  ASSERT_TRUE(info);
  EXPECT_EQ(info->world, 1);
  EXPECT_EQ(rank_of({{"SLURM_PROCID", "0"}})->world, 1);
}

TEST(Rank, SlurmsMistakes) {
  expect_refused(kSlurm + Variables{{"SLURM_PROCID", "7"}}, {"SLURM_PROCID=7, but SLURM_NTASKS=7"});
  expect_refused(kSlurm + Variables{{"SLURM_TASKS_PER_NODE", "2"}}, {"SLURM_TASKS_PER_NODE=2"});
  expect_refused(kSlurm + Variables{{"SLURM_TASKS_PER_NODE", "(x2),"}}, {"SLURM_TASKS_PER_NODE="});
  expect_refused(kSlurm + Variables{{"SLURM_LOCALID", "2"}}, {"SLURM_LOCALID=2"});
  Variables without = kSlurm;
  without.erase("SLURM_JOB_ID");
  expect_refused(without, {"SLURM_JOB_ID is not set", "MASTER_PORT"});
}

TEST(Rank, Pmi) {
  const Variables variables{
      {"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "2"}};
  const auto info = rank_of(variables);
  EXPECT_EQ(info->rank, 1);
  EXPECT_EQ(info->local_world, 2);
  EXPECT_EQ(info->launcher, "pmi");
  EXPECT_EQ(rank_of(variables + Variables{{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "1"}})->world, 2)
      << "mpirun inside of a Slurm job";
  expect_refused({{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}}, {"MPI_LOCALRANKID is not set"});
  expect_refused(variables + Variables{{"MPI_LOCALRANKID", "0"}, {"MPI_LOCALNRANKS", "1"}},
                 {"MASTER_ADDR is not set"});
}

}  // namespace
}  // namespace millrace::train
