// An HTTP server on 127.0.0.1 that misbehaves on purpose: each request for an object takes the next
// fault of a list, and the requests after the list are answered properly. The kernel chooses the
// port; the server ends with its object.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace millrace::test {

enum class Fault {
  none,
  reset,       ///< closes before a byte of the answer
  cut,         ///< closes in the middle of the body
  stall,       ///< sends half of the body, then nothing until the client leaves
  status_429,  ///< with Retry-After
  status_500,
  status_503,
  garbage,        ///< sends no HTTP
  flipped,        ///< sends one wrong byte
  ignored_range,  ///< answers a range with the whole object
  other_part,     ///< answers with another part than was asked for
  unasked_part,   ///< answers 206 to a request without a range
  changed_etag,   ///< answers with another ETag
  no_etag,        ///< cuts, and sends no ETag
  weak_etag,      ///< cuts, and sends a weak ETag
  redirect,       ///< 302 to the same host
  last_recoverable = redirect,
  longer,      ///< announces more bytes than there are
  encoded,     ///< Content-Encoding: gzip
  missing,     ///< 404
  denied,      ///< 403
  to_nowhere,  ///< redirects in a circle
  hints        ///< sends interim answers, 5 KB/s, until the client leaves
};

class FaultServer {
 public:
  FaultServer();
  ~FaultServer();
  FaultServer(const FaultServer&) = delete;
  FaultServer& operator=(const FaultServer&) = delete;

  /// Returns "http://127.0.0.1:PORT".
  std::string url() const;
  void put(const std::string& path, std::string content);
  void remove(const std::string& path);
  /// Answers every request that much later.
  void delay(std::chrono::milliseconds time) { delay_.store(time); }
  /// Sends bodies in pieces of that many bytes, one per millisecond.
  void drip(std::size_t bytes) { piece_.store(bytes); }
  /// Answers requests for `path` with a redirection.
  void redirect(const std::string& path, const std::string& location);
  /// Lets a function answer: it receives each request's header and returns the whole answer, or
  /// nothing to leave it to the objects. Set it before the first request.
  void script(std::function<std::string(const std::string& request)> answer);
  /// Sets the faults of the next requests for `path`. `forever` repeats the last one.
  void fail(const std::string& path, std::vector<Fault> faults, bool forever = false);
  /// Returns all headers that were received, in order.
  std::vector<std::string> requests() const;
  /// Returns how many bytes of bodies were sent.
  std::uint64_t sent() const { return sent_.load(); }
  /// Returns how many connections were accepted.
  int connections() const { return connections_.load(); }

 private:
  struct Object {
    std::string content;
    std::string location;  ///< of a redirection; empty: none
    std::vector<Fault> faults;
    bool forever = false;
  };
  void accept_all();
  void serve(int client);
  bool answer(int client, const std::string& request);
  bool send_object(int client, const std::string& request, const std::string& path,
                   const Object& object, Fault fault);
  void wait_for_end(int client) const;

  int listener_ = -1;
  int port_ = 0;
  std::atomic<bool> stop_{false};
  std::atomic<std::chrono::milliseconds> delay_{};
  std::atomic<std::size_t> piece_{0};  ///< 0: bodies are sent at once
  std::atomic<std::uint64_t> sent_{0};
  std::atomic<int> connections_{0};
  mutable std::mutex mutex_;
  std::map<std::string, Object> objects_;
  std::function<std::string(const std::string&)> script_;
  std::vector<std::string> requests_;
  std::vector<std::thread> clients_;
  std::thread thread_;
};

}  // namespace millrace::test
