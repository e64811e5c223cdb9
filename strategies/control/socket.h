// TCP sockets for the control channel: non-blocking, closed by their owner.
#pragma once

#include <chrono>
#include <string>
#include <utility>

namespace millrace::train {

/// Owns a file descriptor and closes it. -1: none.
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
  /// Gives up ownership and returns the descriptor.
  int release() { return std::exchange(fd_, -1); }
  explicit operator bool() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

/// Listens at `address` (empty: all addresses of the host). Port 0: the kernel chooses. Throws
/// RunError.
Fd listen_on(const std::string& address, int port = 0);
/// Returns the port that a socket is bound to.
int port_of(const Fd& socket);
/// Returns the next pending connection, or an empty descriptor if there is none.
Fd accept_from(const Fd& listener);

/// Connects, retrying until `deadline` because rank 0 may not listen yet. Throws RunError with the
/// reason.
Fd connect_to(const std::string& host, int port, std::chrono::steady_clock::time_point deadline);

/// Waits until the socket is readable. Returns false at `deadline`.
bool wait_readable(const Fd& socket, std::chrono::steady_clock::time_point deadline);

}  // namespace millrace::train
