// Meets at c10d's store, and runs collectives over Gloo and NCCL.

#define USE_C10D_GLOO  // LibTorch was built with Gloo, and its header requires the macro

#include "strategies/torch/peers.h"

#include <c10/util/Logging.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <mutex>
#include <thread>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <torch/csrc/distributed/c10d/comm.hpp>
#include <utility>

#include "base/descriptor.h"
#include "millrace/error.h"
#include "strategies/control/socket.h"

namespace millrace::train {
namespace {

std::string first_line(const c10::Error& error) {
  const std::string what = error.what_without_backtrace();
  return what.substr(0, what.find('\n'));
}

std::string place_of(const RankInfo& info) {
  return info.master_addr + ":" + std::to_string(info.master_port);
}

/// Returns a loopback listener for the store if all ranks are on this host, else none.
base::Descriptor listener_of(const RankInfo& info) {
  if (info.store_fd >= 0) {
    base::Descriptor given(info.store_fd);
    int listens = 0;
    socklen_t size = sizeof listens;
    if (getsockopt(given.get(), SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) != 0 || listens == 0 ||
        port_of(given) != info.master_port) {
      given.release();  // leaves the descriptor to its owner
      throw UsageError(std::string(kStoreVariable) + " names no socket that listens at port " +
                           std::to_string(info.master_port),
                       std::string("unset it: `millrace launch` sets it for rank 0"));
    }
    fcntl(given.get(), F_SETFD, FD_CLOEXEC);
    return given;
  }
  return info.on_loopback() ? listen_on(info.master_addr, info.master_port) : base::Descriptor();
}

c10::intrusive_ptr<c10d::Store> open_store(const RankInfo& info, std::chrono::seconds timeout) {
  c10d::TCPStoreOptions options;
  options.port = static_cast<std::uint16_t>(info.master_port);
  options.isServer = info.rank == 0 && !info.agent_store;
  options.numWorkers = static_cast<std::size_t>(info.world);
  options.waitWorkers = false;  // meet() reports which ranks are missing
  options.timeout = timeout;
  const auto cannot_serve = [&](const std::string& why) {
    return RunError("rank 0 cannot serve the rendezvous at " + place_of(info) + ": " + why,
                    "another program may have the port: set MASTER_PORT to a free one, or use "
                    "`millrace launch`, which finds one");
  };
  try {
    // By default the store would listen at every address of the host, without authentication.
    base::Descriptor listener = options.isServer ? listener_of(info) : base::Descriptor();
    if (listener) options.masterListenFd = listener.release();
    auto store = c10::make_intrusive<c10d::TCPStore>(info.master_addr, options);
    store->setTimeout(timeout);
    return store;
  } catch (const RunError& error) {
    throw cannot_serve(error.what());
  } catch (const c10::Error& error) {
    if (options.isServer) throw cannot_serve(first_line(error));
    throw RunError("rank " + std::to_string(info.rank) + " cannot reach rank 0 at " +
                       place_of(info) + " within " + std::to_string(timeout.count()) +
                       " s: " + first_line(error),
                   "check that rank 0 was started, MASTER_ADDR and MASTER_PORT");
  }
}

/// Returns Gloo's options. It listens at the address from which rank 0 is reached, unless the user
/// has chosen an interface. Its own choice, the address of the host's name, is 127.0.1.1 on many
/// hosts.
c10::intrusive_ptr<c10d::ProcessGroupGloo::Options> gloo_options(
    const RankInfo& info, std::chrono::milliseconds timeout) {
  using Gloo = c10d::ProcessGroupGloo;
  const bool is_chosen = std::getenv("GLOO_SOCKET_IFNAME") != nullptr;
  const std::string own = is_chosen ? std::string() : own_address_to(info.master_addr);
  if (own.empty() || (is_loopback(own) && info.local_world < info.world))
    return Gloo::Options::create_default(timeout);
  auto options = Gloo::Options::create(timeout);
  options->devices.push_back(Gloo::createDeviceForHostname(own));
  return options;
}

}  // namespace

Peers::Peers(const RankInfo& rank, const CudaLibrary* cuda, std::chrono::seconds timeout)
    : info_(rank), timeout_(timeout) {
  static std::once_flag once;
  std::call_once(once, c10::initLogging);  // honours TORCH_CPP_LOG_LEVEL
  // A launcher that restarts a run serves the same store, so each attempt uses its own names.
  const char* const attempt = std::getenv("TORCHELASTIC_RESTART_COUNT");
  store_ = c10::make_intrusive<c10d::PrefixStore>(
      std::string("millrace/") + (attempt != nullptr ? attempt : "0"), open_store(info_, timeout_));
  meet();
  try {
    auto group = c10::make_intrusive<c10d::ProcessGroup>(store_, info_.rank, info_.world);
    // The control channel detects lost ranks; this time-out only bounds what it cannot see.
    const auto patience = std::chrono::duration_cast<std::chrono::milliseconds>(2 * timeout_);
    const auto gloo = c10::make_intrusive<c10d::ProcessGroupGloo>(
        c10::make_intrusive<c10d::PrefixStore>("gloo", store_), info_.rank, info_.world,
        gloo_options(info_, patience));
    group->setBackend(c10::DeviceType::CPU, c10d::ProcessGroup::BackendType::GLOO,
                      c10::intrusive_ptr<c10d::Backend>(gloo));
    group->setDefaultBackend(c10d::ProcessGroup::BackendType::GLOO);
    group_ = std::move(group);
  } catch (const c10::Error& error) {
    throw RunError("rank " + std::to_string(info_.rank) +
                       " cannot connect to the others: " + first_line(error),
                   "GLOO_SOCKET_IFNAME chooses the network interface");
  }
  if (cuda != nullptr)
    cuda->add_nccl(*group_, *store_, std::chrono::duration<double>(2 * timeout_).count());
}

Peers::~Peers() {
  if (group_) group_->shutdown();
}

void Peers::meet() {
  char host[256] = "";
  gethostname(host, sizeof host - 1);
  const std::string self = std::to_string(info_.rank);
  set("world/" + self, std::to_string(info_.world));
  std::string missing;
  for (int other = 0; other < info_.world; ++other) {
    const std::string key = "world/" + std::to_string(other);
    // The first missing rank uses up the whole time-out.
    const auto patience =
        missing.empty() ? std::chrono::milliseconds(timeout_) : std::chrono::milliseconds(1);
    try {
      store_->wait({key}, patience);
    } catch (const c10::Error&) {
      missing += (missing.empty() ? "" : ", ") + std::to_string(other);
      continue;
    }
    if (const std::string world = get(key); world != std::to_string(info_.world))
      throw UsageError("rank " + std::to_string(other) + " was started for " + world +
                           " ranks, rank " + self + " for " + std::to_string(info_.world),
                       "start all of them with the same WORLD_SIZE");
  }
  if (!missing.empty())
    throw RunError("rank " + self + " at " + host + " has waited " +
                       std::to_string(timeout_.count()) + " s in vain for rank " + missing +
                       " of " + std::to_string(info_.world),
                   "start the missing ones, or allow more time: train.timeout");
}

template <class Call>
auto Peers::with_store(const Call& call) const {
  try {
    return call();
  } catch (const c10::Error& error) {
    throw RunError("rank " + std::to_string(info_.rank) + " has lost rank 0 at " + place_of(info_) +
                       ": " + first_line(error),
                   "rank 0 has probably ended: see what it said");
  }
}

std::string Peers::get(const std::string& key) const {
  const std::vector<std::uint8_t> value = with_store([&] { return store_->get(key); });
  return {value.begin(), value.end()};
}

void Peers::set(const std::string& key, const std::string& value) const {
  with_store([&] { store_->set(key, std::vector<std::uint8_t>(value.begin(), value.end())); });
}

void Peers::sum(torch::Tensor& values) const { begin_sum(values)->wait(); }

c10::intrusive_ptr<c10d::Work> Peers::begin_sum(const torch::Tensor& values) const {
  std::vector<torch::Tensor> tensors{values};
  return group_->allreduce(tensors);
}

void Peers::broadcast(const std::vector<torch::Tensor>& tensors) const {
  constexpr std::size_t kBytes = 250 << 20;  // bytes per broadcast
  if (!tensors.empty()) c10d::broadcast_coalesced(group_, tensors, kBytes);
}

std::vector<std::string> Peers::gather(const std::string& mine) {
  const std::string prefix = "text/" + std::to_string(told_++) + "/";
  set(prefix + std::to_string(info_.rank), mine);
  std::vector<std::string> all;
  for (int other = 0; other < info_.world; ++other)
    all.push_back(get(prefix + std::to_string(other)));
  return all;
}

std::string Peers::tell(const std::string& text) {
  const std::string key = "text/" + std::to_string(told_++);
  if (info_.rank == 0) set(key, text);
  return get(key);
}

void Peers::announce(std::uint64_t count) const {
  set("count/" + std::to_string(info_.rank), std::to_string(count));
}

void Peers::wait_for(std::uint64_t count) const {
  // Asks again and again: the store answers one call at a time, and a call that waits would hold up
  // the trainer's.
  constexpr std::chrono::milliseconds kBetween{5};
  const auto until = std::chrono::steady_clock::now() + timeout_;
  for (int other = 1; other < info_.world; ++other) {
    const std::string key = "count/" + std::to_string(other);
    const auto is_there = [&] { return store_->check({key}); };
    while (!with_store(is_there) || std::stoull(get(key)) < count) {
      if (std::chrono::steady_clock::now() >= until)
        throw RunError("rank " + std::to_string(other) +
                           " has not written its records up to step " + std::to_string(count) +
                           " within " + std::to_string(timeout_.count()) + " s",
                       "see whether its disk is full or slow, or allow more time: train.timeout");
      std::this_thread::sleep_for(kBetween);
    }
  }
}

}  // namespace millrace::train
