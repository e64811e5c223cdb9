// Fetches objects over HTTP until they are there: tries again after failures that may pass,
// continues a broken transfer where that is safe, and compares every answer with what is known.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/private_api.h"
#include "millrace/error.h"
#include "pipeline/readers/shard_index.h"
#include "pipeline/remote/http.h"
#include "pipeline/remote/retry.h"

namespace millrace::pipeline {

/// An object that could not be fetched. It is a RunError, because loader.on_error covers samples
/// and not archives: skipping what a server did not deliver would make batches depend on the
/// network.
struct MILLRACE_PRIVATE_API FetchError : RunError {
  enum class Kind {
    missing,     ///< the server has no such object
    denied,      ///< credentials are missing, wrong or not sufficient
    wrong,       ///< what the server sends is not what is expected
    unreachable  ///< it failed again and again until the deadline
  };
  FetchError(Kind kind_, const std::string& what, const std::string& hint)
      : RunError(what, hint), kind(kind_) {}
  ~FetchError() override;
  Kind kind;
};

/// Adds to requests what a server wants to see: credentials, signatures.
class MILLRACE_PRIVATE_API Access {
 public:
  virtual ~Access();
  /// Completes a request to the host that the user named; never called for another host.
  virtual void authorize(HttpRequest& request) = 0;
  /// Returns what to do about an answer 401 or 403.
  virtual std::string hint() const = 0;
};

/// Returns the access of plain HTTP: sends MILLRACE_REMOTE_AUTHORIZATION as Authorization header,
/// and MILLRACE_REMOTE_QUERY as query, where these are set.
MILLRACE_PRIVATE_API std::unique_ptr<Access> plain_access();

/// Where an object's bytes go.
class MILLRACE_PRIVATE_API FetchTarget {
 public:
  virtual ~FetchTarget();
  /// Forgets all bytes.
  virtual void restart() = 0;
  virtual void append(const char* bytes, std::size_t size) = 0;
};

struct FetchWanted {
  Url url;
  std::optional<std::uint64_t> size{};  ///< if it is known
  std::optional<Sha256> sha256{};       ///< if it is known
  std::uint64_t most = UINT64_MAX;      ///< longest object that is accepted
};

struct FetchOptions {
  RetryOptions retry{};
  std::chrono::milliseconds stall{30'000};  ///< as HttpRequest's
  const std::atomic<bool>* stop = nullptr;  ///< ends a fetch soon after it is set; may be null
  /// Receives a warning at the first failure of a process. May be empty.
  std::function<void(const std::string&)> warn{};
};

/// Sums over all fetches of one Fetcher.
struct FetchTotals {
  std::uint64_t requests = 0;
  std::uint64_t failures = 0;  ///< requests that had to be repeated
  std::uint64_t bytes = 0;     ///< of bodies, repeated ones included
};

/// May be called from many threads.
class MILLRACE_PRIVATE_API Fetcher {
 public:
  Fetcher(FetchOptions options, std::unique_ptr<Access> access,
          RetryClock& clock = RetryClock::system());

  /// Writes an object to `target` and returns its final header. Throws FetchError, what `target`
  /// throws, and Error with Exit::interrupted once it is stopped.
  HttpHeader fetch(const FetchWanted& wanted, FetchTarget& target);
  /// Returns a small object. Throws as fetch(), also for one of more than `most` bytes.
  std::string fetch_text(const Url& url, std::uint64_t most);
  /// Returns an object's header.
  HttpHeader head(const Url& url);

  FetchTotals totals() const;
  const FetchOptions& options() const { return options_; }
  RetryClock& clock() { return clock_; }

 private:
  friend class Fetch;

  const FetchOptions options_;
  const std::unique_ptr<Access> access_;
  RetryClock& clock_;
  HttpClient client_;
  HostBudget budget_;
  std::atomic<bool> reached_{false};  ///< a server has answered
  std::atomic<bool> warned_{false};
  std::atomic<std::uint64_t> requests_{0}, failures_{0}, bytes_{0};
};

}  // namespace millrace::pipeline
