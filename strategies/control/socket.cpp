// Non-blocking TCP sockets.
#include "strategies/control/socket.h"

#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <thread>

#include "millrace/error.h"

namespace millrace::train {
namespace {

using Time = std::chrono::steady_clock::time_point;
using Addresses = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

/// Resolves `host`; if it is empty, returns the addresses to listen at. Null with the reason in
/// `why`.
Addresses addresses_of(const std::string& host, int port, std::string& why) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV | (host.empty() ? AI_PASSIVE : 0);
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.empty() ? nullptr : host.c_str(), std::to_string(port).c_str(),
                                &hints, &found);
  if (error != 0) why = gai_strerror(error);
  return {error == 0 ? found : nullptr, &freeaddrinfo};
}

base::Descriptor socket_for(const addrinfo& address) {
  return base::Descriptor(socket(
      address.ai_family, address.ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC, address.ai_protocol));
}

/// Disables Nagle's algorithm: messages are small, and late ones are useless.
void send_at_once(const base::Descriptor& socket) {
  const int on = 1;
  setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

int milliseconds_to(Time deadline) {
  const auto left =
      std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
  return static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, 3'600'000));
}

bool wait_for(const base::Descriptor& socket, short events, Time deadline) {
  for (;;) {
    pollfd one{socket.get(), events, 0};
    const int ready = poll(&one, 1, milliseconds_to(deadline));
    if (ready > 0) return true;
    if (ready == 0 || errno != EINTR) return false;
  }
}

/// Makes one attempt. Returns an empty descriptor with the reason in `why` if it fails.
base::Descriptor try_connect(const addrinfo& address, Time deadline, std::string& why) {
  base::Descriptor fd = socket_for(address);
  if (fd && connect(fd.get(), address.ai_addr, address.ai_addrlen) == 0) return fd;
  if (!fd || errno != EINPROGRESS) {
    why = std::strerror(errno);
    return {};
  }
  if (!wait_for(fd, POLLOUT, deadline)) {
    why = "no answer";
    return {};
  }
  int error = 0;
  socklen_t size = sizeof error;
  getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &size);
  if (error == 0) return fd;
  why = std::strerror(error);
  return {};
}

}  // namespace

base::Descriptor listen_on(const std::string& address, int port) {
  std::string why;
  const Addresses all = addresses_of(address, port, why);
  for (const int family : {AF_INET6, AF_INET}) {  // an IPv6 socket accepts IPv4 too, where it
                                                  // exists
    for (const addrinfo* one = all.get(); one != nullptr; one = one->ai_next) {
      if (one->ai_family != family) continue;
      base::Descriptor fd = socket_for(*one);
      const int off = 0;
      const int on = 1;
      // A port of the caller's choice may still be held by connections of an earlier run.
      if (fd && port != 0) setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
      if (fd && family == AF_INET6)
        setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
      if (fd && bind(fd.get(), one->ai_addr, one->ai_addrlen) == 0 &&
          listen(fd.get(), SOMAXCONN) == 0)
        return fd;
      why = std::strerror(errno);
    }
  }
  throw RunError(fmt::format("cannot listen at {}{}: {}", address.empty() ? "any address" : address,
                             port == 0 ? "" : fmt::format(", port {}", port), why),
                 "ranks watch each other over TCP: is the address one of this host's?");
}

int port_of(const base::Descriptor& socket) {
  sockaddr_storage name{};
  socklen_t size = sizeof name;
  getsockname(socket.get(), reinterpret_cast<sockaddr*>(&name), &size);
  return ntohs(name.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6&>(name).sin6_port
                                          : reinterpret_cast<const sockaddr_in&>(name).sin_port);
}

base::Descriptor accept_from(const base::Descriptor& listener) {
  base::Descriptor fd(accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (fd) send_at_once(fd);
  return fd;
}

base::Descriptor connect_to(const std::string& host, int port, Time deadline) {
  std::string why;
  for (;;) {
    const Addresses all = addresses_of(host, port, why);
    for (const addrinfo* one = all.get(); one != nullptr; one = one->ai_next) {
      base::Descriptor fd = try_connect(*one, deadline, why);
      if (!fd) continue;
      send_at_once(fd);
      return fd;
    }
    const auto pause = std::chrono::milliseconds(50);
    if (std::chrono::steady_clock::now() + pause >= deadline)
      throw RunError(fmt::format("rank 0 cannot be reached at {}, port {}: {}", host, port, why),
                     "does it run, and does a firewall let its port through?");
    std::this_thread::sleep_for(pause);
  }
}

std::string own_address_to(const std::string& host) {
  constexpr int kAnyPort = 9;  // a datagram socket sends nothing when it is connected
  std::string why;
  const Addresses all = addresses_of(host, kAnyPort, why);
  for (const addrinfo* one = all.get(); one != nullptr; one = one->ai_next) {
    const base::Descriptor fd(socket(one->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    sockaddr_storage own{};
    socklen_t size = sizeof own;
    std::array<char, NI_MAXHOST> text{};
    if (fd && connect(fd.get(), one->ai_addr, one->ai_addrlen) == 0 &&
        getsockname(fd.get(), reinterpret_cast<sockaddr*>(&own), &size) == 0 &&
        getnameinfo(reinterpret_cast<const sockaddr*>(&own), size, text.data(), text.size(),
                    nullptr, 0, NI_NUMERICHOST) == 0)
      return text.data();
  }
  return {};
}

bool wait_readable(const base::Descriptor& socket, Time deadline) {
  return wait_for(socket, POLLIN, deadline);
}

}  // namespace millrace::train
