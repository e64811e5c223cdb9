// Several ranks of one run in this process, one thread each.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <stdexcept>
#include <thread>
#include <vector>

#include "strategies/torch/ddp.h"
#include "tests/torch/training_run.h"

namespace millrace::test {

/// Returns a port at which nobody listens.
inline int free_port() {
  const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  const bool good = ::bind(fd, generic, size) == 0 && ::getsockname(fd, generic, &size) == 0;
  ::close(fd);
  if (!good) throw std::runtime_error("no free port");
  return ntohs(address.sin_port);
}

/// Returns the place of a rank that is a thread of this process.
inline train::RankInfo thread_rank(int rank, int world, int port) {
  return {.rank = rank,
          .world = world,
          .local_rank = rank,
          .local_world = world,
          .master_port = port,
          .launcher = "threads"};
}

/// Sets environment variables before there are threads, because setting them later crashes threads
/// that read the environment. Size 0 turns off c10d's flight recorder: there is one per process,
/// and several ranks in it would race for its entries.
inline void prepare_environment() {
  ::setenv("TORCH_FR_BUFFER_SIZE", "0", /*overwrite=*/1);
  ::setenv("TORCH_CPP_LOG_LEVEL", "ERROR", /*overwrite=*/0);
}

/// Trains `world` ranks of a run, each from the weights that fill_by_name() gives. `adapt` may
/// change a rank's run, and its strategy, before it begins; `make` makes the strategy, which must
/// not outlive the call. A rank that fails ends the process.
inline std::vector<Outcome> train_ranks(
    const TrainingRun& run, int world,
    const std::function<void(TrainingRun&, train::Ddp&)>& adapt = nullptr,
    const std::function<std::unique_ptr<train::Ddp>(const train::StrategyOptions&)>& make =
        [](const auto& options) { return std::make_unique<train::Ddp>(options); }) {
  prepare_environment();
  std::vector<Outcome> outcomes(static_cast<std::size_t>(world));
  const int port = free_port();
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world; ++rank) {
    threads.emplace_back([&, rank] {
      TrainingRun own = run;
      own.strategy.rank = thread_rank(rank, world, port);
      set(own.strategy, "train.timeout", 60);
      own.strategy.hooks.leave = [](const Error& error) {
        std::fprintf(stderr, "%s\n", error.what());
        ::_exit(static_cast<int>(error.exit()));
      };
      const std::unique_ptr<train::Ddp> ddp = make(own.strategy);
      fill_by_name(ddp->model());
      if (adapt) adapt(own, *ddp);
      outcomes[static_cast<std::size_t>(rank)] = train(*ddp, own);
      ddp->end({});
    });
  }
  for (std::thread& thread : threads) thread.join();
  return outcomes;
}

}  // namespace millrace::test
