// TCP sockets as the control channel needs them: never blocking, closed with their owner.
#pragma once

#include <chrono>
#include <string>
#include <utility>

namespace millrace::train {

/// A file descriptor that is closed with it; -1: none.
class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    if (this != &other) {
      close();
      fd_ = std::exchange(other.fd_, -1);
    }
    return *this;
  }
  ~Fd() { close(); }

  void close();
  int get() const { return fd_; }
  /// Its owner is somebody else from now on.
  int release() { return std::exchange(fd_, -1); }
  explicit operator bool() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

/// Listens at `address` (empty: at all of the host's), on a port that the kernel chooses where it
/// is 0. Throws RunError.
Fd listen_on(const std::string& address, int port = 0);
/// The port that a socket is bound to.
int port_of(const Fd& socket);
/// The next connection that waits; none: an empty one.
Fd accept_from(const Fd& listener);

/// Tries until `deadline`: rank 0 may not listen yet. Throws RunError that says why it failed.
Fd connect_to(const std::string& host, int port, std::chrono::steady_clock::time_point deadline);

/// Waits until the socket can be read; false at `deadline`.
bool wait_readable(const Fd& socket, std::chrono::steady_clock::time_point deadline);

}  // namespace millrace::train
