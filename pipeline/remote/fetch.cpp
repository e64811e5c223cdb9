// Computes waits between attempts, and fetches objects.

#include "pipeline/remote/fetch.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <ctime>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

#include "base/clock.h"
#include "base/rng.h"
#include "base/text.h"
#include "pipeline/remote/sha256.h"
#include "pipeline/remote/xml.h"

namespace millrace::pipeline {
namespace {

class SteadyClock final : public RetryClock {
 public:
  double now_s() override { return static_cast<double>(base::Clock::steady_ns()) * 1e-9; }
  void sleep(double seconds, const std::atomic<bool>* stop) override {
    constexpr double kPiece_s = 0.05;
    for (const double end = now_s() + seconds; now_s() < end;) {
      if (stop != nullptr && stop->load(std::memory_order_relaxed)) return;
      std::this_thread::sleep_for(
          std::chrono::duration<double>(std::clamp(end - now_s(), 0.0, kPiece_s)));
    }
  }
};

}  // namespace

RetryClock::~RetryClock() = default;

RetryClock& RetryClock::system() {
  static SteadyClock clock;
  return clock;
}

Retry::Retry(const RetryOptions& options, RetryClock& clock, std::uint64_t object)
    : options_(options),
      clock_(clock),
      draw_(base::mix64(options.seed ^ base::mix64(object))),
      since_s_(clock.now_s()) {}

std::optional<double> Retry::failed(std::optional<double> asked_s) {
  ++attempts_;
  const double longest = std::min(options_.longest_wait_s,
                                  options_.first_wait_s * std::exp2(std::min(failures_++, 30)));
  draw_ = base::mix64(draw_);
  const double part = static_cast<double>(draw_ >> 11) * 0x1p-53;
  const double wait = std::max(longest * (0.5 + 0.5 * part), asked_s.value_or(0));
  if (clock_.now_s() + wait - since_s_ > options_.deadline_s) return std::nullopt;
  return wait;
}

void Retry::progressed() {
  since_s_ = clock_.now_s();
  failures_ = 0;
}

FetchError::~FetchError() = default;
Access::~Access() = default;
FetchTarget::~FetchTarget() = default;

// Sends credentials from the environment.
namespace {

constexpr const char* kAuthorization = "MILLRACE_REMOTE_AUTHORIZATION";
constexpr const char* kQuery = "MILLRACE_REMOTE_QUERY";

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

class PlainAccess final : public Access {
 public:
  PlainAccess() : authorization_(variable(kAuthorization)), query_(variable(kQuery)) {
    if (authorization_.find_first_of("\r\n") != std::string::npos)
      throw UsageError(fmt::format("{} holds a line end", kAuthorization),
                       "set it to one line, for example \"Bearer ...\"");
    if (query_.starts_with('?')) query_.erase(0, 1);
  }
  void authorize(HttpRequest& request) override {
    if (!authorization_.empty()) request.headers.emplace_back("Authorization", authorization_);
    if (request.url.query.empty()) request.url.query = query_;
  }
  std::string hint(std::string_view) const override {
    return authorization_.empty() && query_.empty()
               ? fmt::format("set {} or {} to what the server asks for", kAuthorization, kQuery)
               : fmt::format("check {} and {}", kAuthorization, kQuery);
  }

 private:
  std::string authorization_, query_;
};

}  // namespace

std::unique_ptr<Access> plain_access() { return std::make_unique<PlainAccess>(); }

// Adds up what fetches cost.
namespace {

struct Sums {
  std::atomic<std::uint64_t> requests{0}, failures{0}, bytes{0};
  std::mutex mutex;
  FetchTimes read;  ///< guarded by mutex
};

Sums& sums() {
  static Sums* const all = new Sums;  // a thread left behind may use it at the exit
  return *all;
}

void count(std::atomic<std::uint64_t>& own, std::atomic<std::uint64_t>& all,
           std::uint64_t more = 1) {
  own.fetch_add(more, std::memory_order_relaxed);
  all.fetch_add(more, std::memory_order_relaxed);
}

thread_local FetchTimes of_thread;

}  // namespace

RemoteCounts remote_counts() {
  Sums& all = sums();
  const std::lock_guard lock(all.mutex);
  return {{all.requests.load(std::memory_order_relaxed),
           all.failures.load(std::memory_order_relaxed), all.bytes.load(std::memory_order_relaxed)},
          all.read};
}

FetchTimes fetch_times_of_thread() { return of_thread; }

void count_read(const FetchTimes& times) {
  Sums& all = sums();
  const std::lock_guard lock(all.mutex);
  all.read.first_byte_s += times.first_byte_s;
  all.read.transfer_s += times.transfer_s;
  all.read.retry_s += times.retry_s;
}

/// Fetches one object.
class Fetch {
 public:
  Fetch(Fetcher& fetcher, const FetchWanted& wanted, FetchTarget& target)
      : fetcher_(fetcher),
        wanted_(wanted),
        target_(target),
        retry_(fetcher.options_.retry, fetcher.clock_, std::hash<std::string>()(wanted.url.text())),
        etag_(wanted.part ? wanted.part->etag : std::string()) {}

  HttpHeader run(bool head) {
    head_ = head;
    while (true) {
      answer_ = {};
      const double begin = fetcher_.clock_.now_s();
      first_byte_s_ = begin;
      const HttpResult result = ask();
      if (error_) std::rethrow_exception(error_);
      classify(result);
      if (answer_.kind == Classification::Kind::done) {
        of_thread.first_byte_s += first_byte_s_ - begin;
        of_thread.transfer_s += fetcher_.clock_.now_s() - first_byte_s_;
        fetcher_.budget_.succeeded();
        return header_;
      }
      if (answer_.kind == Classification::Kind::failed)
        throw FetchError(answer_.error, shown() + ": " + answer_.reason, answer_.hint);
      pause(result.header);
      of_thread.retry_s += fetcher_.clock_.now_s() - begin;
    }
  }

 private:
  static constexpr int kMaxRedirects = 5;
  /// Times that one request is authorized again after a refusal.
  static constexpr int kMaxReauthorizations = 3;
  /// Bytes of progress that restart the deadline.
  static constexpr std::uint64_t kProgress = 64 * 1024;
  static constexpr std::size_t kMaxErrorText = 4096;
  /// Mismatches that are treated as damage in transit, and retried.
  static constexpr int kMaxCorruptions = 2;

  struct Classification {
    enum class Kind {
      open,       ///< nothing is wrong with the header
      done,       ///< the object is complete
      retryable,  ///< ask again later
      failed      ///< give up
    };
    Kind kind = Kind::open;
    std::string reason, hint;
    FetchError::Kind error = FetchError::Kind::wrong;
  };

  std::string shown() const { return wanted_.url.text(); }

  void fail(FetchError::Kind kind, std::string reason, std::string hint) {
    answer_ = {Classification::Kind::failed, std::move(reason), std::move(hint), kind};
  }
  void fail_wrong(std::string reason) {
    fail(FetchError::Kind::wrong, std::move(reason),
         "check the address, and that set.index belongs to these archives: "
         "millrace data index FOLDER, where they were made");
  }
  void retryable(std::string reason) {
    answer_.kind = Classification::Kind::retryable;
    answer_.reason = std::move(reason);
  }
  void restart() {
    if (got_ > 0) target_.restart();
    hash_.reset();
    got_ = 0;  // bytes received again are not progress, so marked_ stays
    etag_ = wanted_.part ? wanted_.part->etag : std::string();
  }
  /// Restarts a part whose answer contradicts what is known. A part has no checksum, so repeated
  /// contradictions are an error.
  void corrupted(std::string reason) {
    restart();
    if (!wanted_.part || ++corruptions_ <= kMaxCorruptions) return retryable(std::move(reason));
    fail(FetchError::Kind::wrong, std::move(reason),
         "leave the set alone while it is used; data.remote.fetch=shards needs no ranges");
  }

  HttpRequest plain_request() const {
    HttpRequest request{wanted_.url};
    request.head = head_;
    request.stall = fetcher_.options_.stall;
    if (fetcher_.options_.stop_at == StopAt::once) request.stop = fetcher_.options_.stop;
    request.closing = fetcher_.options_.closing;
    if (wanted_.part) {
      request.ranged = true;
      request.first = wanted_.part->first + got_;
      request.last = wanted_.part->first + wanted_.part->count - 1;
    } else if (got_ > 0) {
      request.ranged = true;
      request.first = got_;
    }
    if (request.ranged && !etag_.empty()) request.headers.emplace_back("If-Match", etag_);
    return request;
  }

  HttpResult perform(const HttpRequest& request) {
    asked_ = request.ranged;
    text_.clear();
    count(fetcher_.requests_, sums().requests);
    return fetcher_.client_.perform(
        request, {[&](const HttpHeader& header) { return begin(header); },
                  [&](const char* bytes, std::size_t size) { return take(bytes, size); }});
  }

  /// Makes a request, again if the server has said how, and those that redirections lead to.
  HttpResult ask() {
    if (got_ > 0 && etag_.empty())
      restart();  // only a strong ETag proves that bytes belong together
    const HttpRequest plain = plain_request();
    HttpRequest request = plain;
    fetcher_.access_->authorize(request);
    std::string home = request.url.endpoint();
    int reauthorizations = 0;
    for (int hop = 0;;) {
      HttpResult result = perform(request);
      const int status = result.header.status;
      const bool moved =
          status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
      const bool whole =
          result.kind == HttpResult::Kind::done || result.kind == HttpResult::Kind::refused;
      const bool refused = moved || status == 400 || status == 401 || status == 403;
      if (whole && refused && request.url.endpoint() == home &&
          reauthorizations < kMaxReauthorizations &&
          fetcher_.access_->reauthorize(request, result.header, text_)) {
        ++reauthorizations;
        request = plain;
        fetcher_.access_->authorize(request);
        home = request.url.endpoint();
        continue;
      }
      if (!whole || !moved || result.header.location.empty()) return result;
      if (!redirect(request, plain, result.header.location, hop++, home)) return result;
    }
  }

  /// Moves a request to where the server says. Returns false, with the reason, if it must not go
  /// there.
  bool redirect(HttpRequest& request, const HttpRequest& plain, const std::string& location,
                int hop, const std::string& home) {
    if (hop == kMaxRedirects) {
      fail_wrong("the server redirects more than 5 times");
      return false;
    }
    Url next;
    try {
      next = request.url.redirected(location);
    } catch (const DataError&) {
      fail_wrong("the server redirects to a malformed address");
      return false;
    }
    const bool web = next.scheme == "https" || next.scheme == "http";
    if (!web || (request.url.scheme == "https" && next.scheme != "https")) {
      fail_wrong(fmt::format("the server redirects from {} to {}, which is not allowed",
                             request.url.scheme, next.endpoint()));
      return false;
    }
    // Another host must not see what this one is entitled to.
    request.url = next;
    request.headers = plain.headers;
    if (next.endpoint() != home) return true;
    fetcher_.access_->authorize(request);
    return true;
  }

  // Looks at an answer while it comes. Nothing may be thrown through libcurl.

  bool begin(const HttpHeader& header) {
    fetcher_.reached_.store(true, std::memory_order_relaxed);
    first_byte_s_ = fetcher_.clock_.now_s();
    try {
      header_ = header;
      if (head_ || (header.status != 200 && header.status != 206)) return true;
      check(header);
    } catch (...) {
      error_ = std::current_exception();
      return false;
    }
    return answer_.kind == Classification::Kind::open;
  }

  void check(const HttpHeader& header) {
    if (!header.encoding.empty() && header.encoding != "identity")
      return fail_wrong(
          fmt::format("the server sends it with Content-Encoding '{}', which is "
                      "refused",
                      base::printable(header.encoding)));
    // Some servers send a part with 200 (rclone).
    if (header.status == 206 || (asked_ && header.range)) return check_part(header);
    if (wanted_.part)
      return corrupted("the server sent the whole object instead of the requested part");
    restart();
    if (!header.length && !header.chunked && !wanted_.size)
      return fail_wrong("the server does not say how long it is");
    end_ = wanted_.size ? wanted_.size : header.length;
    if (header.length && end_ != header.length)
      return fail_wrong(fmt::format("{} bytes, but {} are listed", *header.length, *end_));
    if (end_ && *end_ > wanted_.most)
      return fail_wrong(fmt::format("{} bytes, more than {}", *end_, wanted_.most));
    if (header.has_strong_etag()) etag_ = header.etag;
  }

  /// Checks that a part continues what came before.
  void check_part(const HttpHeader& header) {
    if (!asked_) return corrupted("the server sent a part that was not requested");
    const std::uint64_t from = wanted_.part ? wanted_.part->first : 0;
    if (!header.range || header.range->first != from + got_)
      return corrupted("the server sent a different part than was requested");
    if ((got_ > 0 || !etag_.empty()) && header.etag != etag_)
      return corrupted("the object changed while it was fetched");
    if (header.length && *header.length != header.range->last - header.range->first + 1)
      return corrupted("the server sent a part whose length does not match its range");
    const auto total = wanted_.part ? wanted_.size : end_;
    if (total && header.range->total && header.range->total != total)
      return corrupted("the object changed while it was fetched");
    if (wanted_.part) {
      end_ = wanted_.part->count;
      if (header.range->last - from >= *end_)
        return corrupted("the server sent more than the requested part");
      if (header.has_strong_etag()) etag_ = header.etag;
    }
    if (!end_) end_ = header.range->total;
  }

  bool take(const char* bytes, std::size_t size) {
    try {
      if (header_.status != 200 && header_.status != 206) {
        const std::size_t room = kMaxErrorText - text_.size();
        text_.append(bytes, std::min(size, room));
        return text_.size() < kMaxErrorText;
      }
      const std::uint64_t most = std::min(end_.value_or(UINT64_MAX), wanted_.most);
      if (size > most - got_) {
        fail_wrong(fmt::format("the server sends more than {} bytes", most));
        return false;
      }
      target_.append(bytes, size);
      if (wanted_.sha256) hash_.add(bytes, size);
      got_ += size;
      count(fetcher_.bytes_, sums().bytes, size);
      return true;
    } catch (...) {
      error_ = std::current_exception();
      return false;
    }
  }

  // Classifies a complete answer.

  void classify(const HttpResult& result) {
    if (answer_.kind != Classification::Kind::open) return;
    const std::string hint = "check the address and the network";
    switch (result.kind) {
      case HttpResult::Kind::done:
      case HttpResult::Kind::refused:  // a long text of an error
        return classify_status(result.header);
      case HttpResult::Kind::no_host:
        if (fetcher_.reached_.load(std::memory_order_relaxed)) return retryable(result.reason);
        return fail(FetchError::Kind::unreachable, result.reason, "check the host's name");
      case HttpResult::Kind::no_trust:
        return fail(
            FetchError::Kind::denied, result.reason,
            "the server's certificate is not trusted here; set SSL_CERT_FILE to its authority's");
      case HttpResult::Kind::misused:
        return fail(FetchError::Kind::wrong, result.reason, hint);
      case HttpResult::Kind::stopped:
        throw Error(Exit::interrupted, fmt::format("interrupted while {} was fetched", shown()));
      case HttpResult::Kind::stalled:
      case HttpResult::Kind::broken:
        return retryable(result.reason.empty() ? "the connection broke" : result.reason);
    }
  }

  void classify_status(const HttpHeader& header) {
    const int status = header.status;
    if (status == 200 || status == 206) return classify_content();
    const std::string code = code_in(text_);
    const std::string said =
        fmt::format("the server answers {}{}", status, code.empty() ? "" : " (" + code + ")");
    if (status == 412 || status == 416) return corrupted("the object changed while it was fetched");
    if (status == 408 || status == 425 || status == 429 || (status >= 500 && status != 501) ||
        code == "RequestTimeout")
      return retryable(said);
    if (code == "NoSuchBucket")
      return fail(FetchError::Kind::wrong, said, fetcher_.access_->hint(code));
    // Sent with 400; an answer to HEAD has no text.
    const bool token = code == "ExpiredToken" || code == "InvalidToken" || (head_ && status == 400);
    if (status == 401 || status == 403 || token)
      return fail(FetchError::Kind::denied, said, fetcher_.access_->hint(code));
    if (status == 404 || status == 410)
      return fail(FetchError::Kind::missing, said,
                  "check data.path, and that everything that set.index lists was uploaded");
    fail_wrong(said);
  }

  void classify_content() {
    if (head_) {
      answer_.kind = Classification::Kind::done;
      return;
    }
    if (end_ && got_ < *end_) return retryable("the answer ended early");
    if (wanted_.sha256 && hash_.finish() != *wanted_.sha256) {
      restart();
      if (++corruptions_ <= kMaxCorruptions) {
        // The whole object came, however long that took.
        marked_ = 0;
        retry_.progressed();
        return retryable("the content does not match its SHA-256");
      }
      return fail_wrong("the content does not match the SHA-256 in set.index");
    }
    answer_.kind = Classification::Kind::done;
  }

  /// Returns "NoSuchKey" for such an S3 error, or nothing. Other text of a server is not repeated.
  static std::string code_in(const std::string& text) {
    constexpr std::size_t kMax = 64;
    const std::string code = xml_text(text, "/Error/Code").value_or("");
    const bool word = std::all_of(code.begin(), code.end(), [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.';
    });
    return word && code.size() <= kMax ? code : std::string();
  }

  /// Waits before the next attempt, or gives up.
  void pause(const HttpHeader& header) {
    count(fetcher_.failures_, sums().failures);
    const bool moved = got_ >= marked_ + kProgress;
    if (moved) {
      marked_ = got_;
      retry_.progressed();
    }
    const auto now = static_cast<std::int64_t>(std::time(nullptr));
    const auto asked = retry_after_s(header.retry_after, now);
    // Gives up only if the bytes received so far could not be continued.
    const bool leave = wanted_.once && !(moved && !etag_.empty() && asked.value_or(0) <= 1);
    const auto wait = leave ? std::nullopt : retry_.failed(asked);
    if (!wait || !fetcher_.budget_.failed())
      throw FetchError(
          FetchError::Kind::unreachable,
          fmt::format("{}: {} (attempt {}, data.remote.deadline={:g})", shown(), answer_.reason,
                      retry_.attempts(), fetcher_.options_.retry.deadline_s),
          "start again once the server answers; training continues with --resume");
    if (fetcher_.options_.warn && !fetcher_.warned_.exchange(true))
      fetcher_.options_.warn(
          fmt::format("{}: {}; such requests are repeated", shown(), answer_.reason));
    fetcher_.clock_.sleep(*wait, fetcher_.options_.stop);
    if (fetcher_.options_.stop != nullptr && fetcher_.options_.stop->load())
      throw Error(Exit::interrupted,
                  fmt::format("interrupted while {} failed: {}", shown(), answer_.reason));
  }

  Fetcher& fetcher_;
  const FetchWanted& wanted_;
  FetchTarget& target_;
  Retry retry_;
  Sha256Stream hash_;
  bool head_ = false;
  double first_byte_s_ = 0;             ///< when the last answer began
  std::uint64_t got_ = 0;               ///< bytes in the target
  std::uint64_t marked_ = 0;            ///< most bytes at which the deadline was restarted
  bool asked_ = false;                  ///< the request asks for a part
  std::optional<std::uint64_t> end_{};  ///< bytes to come to the target
  std::string etag_;                    ///< strong one of the bytes in the target, or empty
  int corruptions_ = 0;
  HttpHeader header_;
  std::string text_;  ///< beginning of an error's body
  Classification answer_;
  std::exception_ptr error_;
};

Fetcher::Fetcher(FetchOptions options, std::unique_ptr<Access> access, RetryClock& clock)
    : options_(std::move(options)), access_(std::move(access)), clock_(clock) {}

HttpHeader Fetcher::fetch(const FetchWanted& wanted, FetchTarget& target) {
  return Fetch(*this, wanted, target).run(false);
}

namespace {

class TextTarget final : public FetchTarget {
 public:
  void restart() override { text.clear(); }
  void append(const char* bytes, std::size_t size) override { text.append(bytes, size); }
  std::string text;
};

}  // namespace

std::string Fetcher::fetch_text(const Url& url, std::uint64_t most) {
  TextTarget target;
  FetchWanted wanted{url};
  wanted.most = most;
  fetch(wanted, target);
  return std::move(target.text);
}

HttpHeader Fetcher::head(const Url& url) {
  TextTarget target;
  return Fetch(*this, FetchWanted{url}, target).run(true);
}

FetchTotals Fetcher::totals() const {
  return {requests_.load(std::memory_order_relaxed), failures_.load(std::memory_order_relaxed),
          bytes_.load(std::memory_order_relaxed)};
}

}  // namespace millrace::pipeline
