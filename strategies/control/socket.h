// TCP sockets for the control channel: non-blocking, closed by their owner.
#pragma once

#include <chrono>
#include <string>

#include "base/descriptor.h"
#include "base/private_api.h"

namespace millrace::train {

/// Listens at `address` (empty: all addresses of the host). Port 0: the kernel chooses. Throws
/// RunError.
MILLRACE_PRIVATE_API base::Descriptor listen_on(const std::string& address, int port = 0);
/// Returns the port that a socket is bound to.
MILLRACE_PRIVATE_API int port_of(const base::Descriptor& socket);
/// Returns the next pending connection, or an empty descriptor if there is none.
base::Descriptor accept_from(const base::Descriptor& listener);

/// Connects, retrying until `deadline` because rank 0 may not listen yet. Throws RunError with the
/// reason.
base::Descriptor connect_to(const std::string& host, int port,
                            std::chrono::steady_clock::time_point deadline);

/// Returns the address of this host, in numbers, that it uses towards `host`; empty if there is no
/// route. Sends nothing.
MILLRACE_PRIVATE_API std::string own_address_to(const std::string& host);

/// Waits until the socket is readable. Returns false at `deadline`.
bool wait_readable(const base::Descriptor& socket, std::chrono::steady_clock::time_point deadline);

}  // namespace millrace::train
