// Fetches objects over HTTP, and decides which failures to retry and when.
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
#include "millrace/reader.h"
#include "pipeline/readers/shard_index.h"
#include "pipeline/remote/http.h"

namespace millrace::pipeline {

// When to try a failed request again: jittered exponential waits, a deadline per object, and a
// budget per host.

/// Time as retries see it, so that tests need not wait.
class MILLRACE_PRIVATE_API RetryClock {
 public:
  virtual ~RetryClock();
  virtual double now_s() = 0;
  /// Sleeps, or returns soon after `stop` is set; it may be null.
  virtual void sleep(double seconds, const std::atomic<bool>* stop) = 0;

  /// Returns the steady clock.
  static RetryClock& system();
};

struct RetryOptions {
  double deadline_s = 120;     ///< longest time without progress
  double first_wait_s = 0.25;  ///< doubled with every failure
  double longest_wait_s = 10;
  std::uint64_t seed = 0;  ///< of the jitter; ranks differ in it
};

/// Failures of one host in a row, over all threads: a host that keeps failing is given up.
class HostBudget {
 public:
  static constexpr int kMax = 256;
  void succeeded() { failures_.store(0, std::memory_order_relaxed); }
  /// Returns false once the budget is spent.
  bool failed() { return failures_.fetch_add(1, std::memory_order_relaxed) < kMax; }

 private:
  std::atomic<int> failures_{0};
};

/// Failures of one object.
class MILLRACE_PRIVATE_API Retry {
 public:
  Retry(const RetryOptions& options, RetryClock& clock, std::uint64_t object);

  /// Returns how long to wait before the next attempt: half of the exponential wait and a random
  /// part of the other half, at least `asked_s` (Retry-After). Returns none if that would pass the
  /// deadline.
  std::optional<double> failed(std::optional<double> asked_s);
  /// Restarts the deadline and the waits, because bytes have arrived.
  void progressed();
  int attempts() const { return attempts_; }

 private:
  const RetryOptions options_;
  RetryClock& clock_;
  std::uint64_t draw_;
  double since_s_;
  int failures_ = 0;  ///< since the last progress
  int attempts_ = 0;
};

// Fetches objects over HTTP: retries failures that may be temporary, resumes a broken transfer
// where that is safe, and checks every answer against what is known of the object.

/// An object that could not be fetched. It is a RunError, because loader.on_error covers samples
/// and not archives: skipping what a server did not deliver would make batches depend on the
/// network.
struct MILLRACE_PRIVATE_API FetchError : RunError {
  enum class Kind {
    missing,     ///< the server has no such object
    denied,      ///< credentials are missing, wrong or not sufficient
    wrong,       ///< what the server sends is not what is expected
    unreachable  ///< every attempt failed until the deadline
  };
  FetchError(Kind kind_, const std::string& what, const std::string& hint)
      : RunError(what, hint), kind(kind_) {}
  ~FetchError() override;
  Kind kind;
};

/// Authorizes requests: adds credentials or signatures.
class MILLRACE_PRIVATE_API Access {
 public:
  virtual ~Access();
  /// Completes a request to the host that the user named; never called for another host. May
  /// replace the address by the one where the object lies.
  virtual void authorize(HttpRequest& request) = 0;
  /// Takes region, clock or new credentials from that host's answer to `sent`, which is neither 200
  /// nor 206; `text` is the beginning of its body. Returns whether authorizing the request again
  /// may make it succeed.
  virtual bool reauthorize(const HttpRequest& /*sent*/, const HttpHeader&,
                           const std::string& /*text*/) {
    return false;
  }
  /// Returns what to do about an answer 401 or 403, or one with the S3 code NoSuchBucket. `code` is
  /// the answer's S3 code, or empty.
  virtual std::string hint(std::string_view code) const = 0;
  /// Returns what, together with its path, names an object for the cache.
  virtual std::string place(const Url& url) const { return url.endpoint(); }
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

/// Bytes of an object.
struct FetchPart {
  std::uint64_t first = 0;
  std::uint64_t count = 0;  ///< at least 1
  std::string etag{};       ///< strong one of the object, if it is known
};

struct FetchWanted {
  Url url;
  std::optional<std::uint64_t> size{};  ///< of the object, if it is known
  std::optional<Sha256> sha256{};       ///< if it is known
  std::uint64_t most = UINT64_MAX;      ///< longest object that is accepted
  std::optional<FetchPart> part{};      ///< none: all of it
  bool once = false;                    ///< a prefetch: ends at the first failure without progress
};

struct FetchOptions {
  RetryOptions retry{};
  std::chrono::milliseconds stall{30'000};  ///< as HttpRequest's
  const std::atomic<bool>* stop = nullptr;  ///< ends a fetch soon after it is set; may be null
  StopAt stop_at = StopAt::once;
  /// Ends a transfer soon after it is set; may be null.
  const std::atomic<bool>* closing = nullptr;
  /// Receives a warning at the first failure of a process. May be empty.
  std::function<void(const std::string&)> warn{};
};

/// Sums over all fetches of one Fetcher.
struct FetchTotals {
  std::uint64_t requests = 0;
  std::uint64_t failures = 0;  ///< requests that had to be repeated
  std::uint64_t bytes = 0;     ///< of bodies, repeated ones included
};

/// Where the time of fetches went, in seconds of the threads that waited for them.
struct FetchTimes {
  double first_byte_s = 0;  ///< from a request to the first byte of its answer
  double transfer_s = 0;    ///< from there to its end
  double retry_s = 0;       ///< in attempts that failed, and between attempts
  FetchTimes operator-(const FetchTimes& earlier) const {
    return {first_byte_s - earlier.first_byte_s, transfer_s - earlier.transfer_s,
            retry_s - earlier.retry_s};
  }
};

/// Totals of all fetches of this process.
struct RemoteCounts {
  FetchTotals totals{};
  FetchTimes read{};  ///< of archives that samples were read from
};
MILLRACE_PRIVATE_API RemoteCounts remote_counts();
/// Returns the times of all fetches of the calling thread.
FetchTimes fetch_times_of_thread();
/// Adds a thread's wait for an archive to remote_counts().
void count_read(const FetchTimes& times);

/// May be called from many threads.
class MILLRACE_PRIVATE_API Fetcher {
 public:
  Fetcher(FetchOptions options, std::unique_ptr<Access> access,
          RetryClock& clock = RetryClock::system());

  /// Writes an object to `target` and returns its final header. Throws FetchError, what `target`
  /// throws, and Error with Exit::interrupted once it is stopped.
  /// A part that does not belong to the object of `wanted.size` bytes and its ETag is wrong.
  HttpHeader fetch(const FetchWanted& wanted, FetchTarget& target);
  /// Returns a small object. Throws as fetch(), also for one of more than `most` bytes.
  std::string fetch_text(const Url& url, std::uint64_t most);
  /// Returns an object's header.
  HttpHeader head(const Url& url);

  FetchTotals totals() const;
  const FetchOptions& options() const { return options_; }
  const Access& access() const { return *access_; }
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
