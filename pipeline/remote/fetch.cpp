// Fetches objects, with retries.
#include "pipeline/remote/fetch.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <exception>
#include <functional>

#include "base/printable.h"
#include "pipeline/remote/sha256.h"

namespace millrace::pipeline {

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
    if (!query_.empty()) request.url.query = query_;
  }
  std::string hint() const override {
    return authorization_.empty() && query_.empty()
               ? fmt::format("set {} or {} to what the server asks for", kAuthorization, kQuery)
               : fmt::format("check {} and {}", kAuthorization, kQuery);
  }

 private:
  std::string authorization_, query_;
};

}  // namespace

std::unique_ptr<Access> plain_access() { return std::make_unique<PlainAccess>(); }

// Fetches one object.

class Fetch {
 public:
  Fetch(Fetcher& fetcher, const FetchWanted& wanted, FetchTarget& target)
      : fetcher_(fetcher),
        wanted_(wanted),
        target_(target),
        retry_(fetcher.options_.retry, fetcher.clock_,
               std::hash<std::string>()(wanted.url.text())) {}

  HttpHeader run(bool head) {
    head_ = head;
    while (true) {
      verdict_ = {};
      const HttpResult result = ask();
      if (error_) std::rethrow_exception(error_);
      judge(result);
      if (verdict_.kind == Verdict::Kind::done) {
        fetcher_.budget_.succeeded();
        return header_;
      }
      if (verdict_.kind == Verdict::Kind::failed)
        throw FetchError(verdict_.error, shown() + ": " + verdict_.reason, verdict_.hint);
      pause(result.header);
    }
  }

 private:
  static constexpr int kMostRedirects = 5;
  /// Bytes after which the deadline begins anew.
  static constexpr std::uint64_t kProgress = 64 * 1024;
  static constexpr std::size_t kMostOfError = 4096;
  /// Times that a wrong content is taken for damage on the way.
  static constexpr int kAccidents = 2;

  struct Verdict {
    enum class Kind {
      open,     ///< nothing is wrong with the header
      done,     ///< the object is there
      passing,  ///< ask again later
      failed    ///< give up
    };
    Kind kind = Kind::open;
    std::string reason, hint;
    FetchError::Kind error = FetchError::Kind::wrong;
  };

  std::string shown() const { return wanted_.url.text(); }

  void fail(FetchError::Kind kind, std::string reason, std::string hint) {
    verdict_ = {Verdict::Kind::failed, std::move(reason), std::move(hint), kind};
  }
  void fail_wrong(std::string reason) {
    fail(FetchError::Kind::wrong, std::move(reason),
         "check the address, and that set.index belongs to these archives: "
         "millrace data index FOLDER, where they were made");
  }
  void pass(std::string reason) {
    verdict_.kind = Verdict::Kind::passing;
    verdict_.reason = std::move(reason);
  }
  /// Begins the object anew with the next request.
  void pass_and_restart(std::string reason) {
    restart();
    pass(std::move(reason));
  }
  void restart() {
    if (got_ > 0) target_.restart();
    hash_.reset();
    got_ = 0;  // bytes that come again are no progress, so marked_ stays
    etag_.clear();
  }

  /// Makes a request, and those that redirections lead to.
  HttpResult ask() {
    HttpRequest request{wanted_.url};
    request.head = head_;
    request.stall = fetcher_.options_.stall;
    request.stop = fetcher_.options_.stop;
    if (got_ > 0 && etag_.empty())
      restart();  // only a strong ETag proves that bytes belong together
    if (got_ > 0) {
      request.ranged = true;
      request.first = got_;
      request.headers.emplace_back("If-Match", etag_);
    }
    const auto own_headers = request.headers;
    fetcher_.access_->authorize(request);
    const std::string home = request.url.endpoint();
    for (int hop = 0;; ++hop) {
      asked_from_ = request.first;
      text_.clear();
      fetcher_.requests_.fetch_add(1, std::memory_order_relaxed);
      HttpResult result = fetcher_.client_.perform(
          request, {[&](const HttpHeader& header) { return begin(header); },
                    [&](const char* bytes, std::size_t size) { return take(bytes, size); }});
      const int status = result.header.status;
      const bool moved =
          status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
      const bool whole =
          result.kind == HttpResult::Kind::done || result.kind == HttpResult::Kind::refused;
      if (!whole || !moved || result.header.location.empty()) return result;
      if (hop == kMostRedirects) {
        fail_wrong("the server redirects again and again");
        return result;
      }
      Url next;
      try {
        next = request.url.redirected(result.header.location);
      } catch (const DataError&) {
        fail_wrong("the server redirects to something that is no address");
        return result;
      }
      if (request.url.scheme == "https" && next.scheme != "https") {
        fail_wrong(fmt::format("the server redirects from https to {}, which is refused",
                               next.endpoint()));
        return result;
      }
      // Another host must not see what this one is entitled to.
      request.url = next;
      request.headers = own_headers;
      if (next.endpoint() == home) fetcher_.access_->authorize(request);
      if (!next.query.empty()) request.url.query = next.query;
    }
  }

  // Looks at an answer while it comes. Nothing may be thrown through libcurl.

  bool begin(const HttpHeader& header) {
    fetcher_.reached_.store(true, std::memory_order_relaxed);
    try {
      header_ = header;
      if (head_ || (header.status != 200 && header.status != 206)) return true;
      check(header);
    } catch (...) {
      error_ = std::current_exception();
      return false;
    }
    return verdict_.kind == Verdict::Kind::open;
  }

  void check(const HttpHeader& header) {
    if (!header.encoding.empty() && header.encoding != "identity")
      return fail_wrong(
          fmt::format("the server sends it with Content-Encoding '{}', which is "
                      "refused",
                      base::printable(header.encoding)));
    if (header.status == 206) return check_part(header);
    restart();
    if (!header.length && !header.chunked && !wanted_.size)
      return fail_wrong("the server does not say how long it is");
    end_ = wanted_.size ? wanted_.size : header.length;
    if (header.length && end_ != header.length)
      return fail_wrong(fmt::format("{} bytes where {} are listed", *header.length, *end_));
    if (end_ && *end_ > wanted_.most)
      return fail_wrong(fmt::format("{} bytes, more than {}", *end_, wanted_.most));
    if (header.has_strong_etag()) etag_ = header.etag;
  }

  /// Checks that a part continues what came before.
  void check_part(const HttpHeader& header) {
    if (asked_from_ == 0) return pass_and_restart("the server sent a part that was not asked for");
    if (!header.range || header.range->first != got_)
      return pass_and_restart("the server sent another part than was asked for");
    if (header.etag != etag_) return pass_and_restart("the object changed while it was fetched");
    if (header.length && *header.length != header.range->last - header.range->first + 1)
      return pass_and_restart("the server sent a part whose length contradicts itself");
    if (end_ && header.range->total && header.range->total != end_)
      return pass_and_restart("the object changed while it was fetched");
    if (!end_) end_ = header.range->total;
  }

  bool take(const char* bytes, std::size_t size) {
    try {
      if (header_.status != 200 && header_.status != 206) {
        const std::size_t room = kMostOfError - text_.size();
        text_.append(bytes, std::min(size, room));
        return text_.size() < kMostOfError;
      }
      const std::uint64_t most = std::min(end_.value_or(UINT64_MAX), wanted_.most);
      if (size > most - got_) {
        fail_wrong(fmt::format("the server sends more than {} bytes", most));
        return false;
      }
      target_.append(bytes, size);
      if (wanted_.sha256) hash_.add(bytes, size);
      got_ += size;
      fetcher_.bytes_.fetch_add(size, std::memory_order_relaxed);
      return true;
    } catch (...) {
      error_ = std::current_exception();
      return false;
    }
  }

  // Judges a complete answer.

  void judge(const HttpResult& result) {
    if (verdict_.kind != Verdict::Kind::open) return;
    const std::string hint = "check the address and the network";
    switch (result.kind) {
      case HttpResult::Kind::done:
      case HttpResult::Kind::refused:  // a long text of an error
        return judge_status(result.header);
      case HttpResult::Kind::no_host:
        if (fetcher_.reached_.load(std::memory_order_relaxed)) return pass(result.reason);
        return fail(FetchError::Kind::unreachable, result.reason, "check the host's name");
      case HttpResult::Kind::no_trust:
        return fail(FetchError::Kind::denied, result.reason,
                    "the server's certificate is not trusted here; install its authority's");
      case HttpResult::Kind::misused:
        return fail(FetchError::Kind::wrong, result.reason, hint);
      case HttpResult::Kind::stopped:
        throw Error(Exit::interrupted, fmt::format("interrupted while {} was fetched", shown()));
      case HttpResult::Kind::stalled:
      case HttpResult::Kind::broken:
        return pass(result.reason.empty() ? "the connection broke" : result.reason);
    }
  }

  void judge_status(const HttpHeader& header) {
    const int status = header.status;
    if (status == 200 || status == 206) return judge_content();
    const std::string said = fmt::format("the server answers {}{}", status, code_in(text_));
    if (status == 412 || status == 416)
      return pass_and_restart("the object changed while it was fetched");
    if (status == 408 || status == 425 || status == 429 || (status >= 500 && status != 501))
      return pass(said);
    if (status == 401 || status == 403)
      return fail(FetchError::Kind::denied, said, fetcher_.access_->hint());
    if (status == 404 || status == 410)
      return fail(FetchError::Kind::missing, said,
                  "check data.path, and that everything that set.index lists was uploaded");
    fail_wrong(said);
  }

  void judge_content() {
    if (head_) {
      verdict_.kind = Verdict::Kind::done;
      return;
    }
    if (end_ && got_ < *end_) return pass("the answer ended early");
    if (wanted_.sha256 && hash_.finish() != *wanted_.sha256) {
      restart();
      if (++accidents_ <= kAccidents) {
        // The whole object came, however long that took.
        marked_ = 0;
        retry_.progressed();
        return pass("the content has another SHA-256 than is listed");
      }
      return fail_wrong("the content has another SHA-256 than set.index lists");
    }
    verdict_.kind = Verdict::Kind::done;
  }

  /// Returns " (NoSuchKey)" for an S3 error, or nothing.
  static std::string code_in(const std::string& text) {
    constexpr std::string_view kOpen = "<Code>";
    const std::size_t begin = text.find(kOpen);
    const std::size_t end = text.find("</Code>");
    if (begin == std::string::npos || end == std::string::npos || end < begin + kOpen.size())
      return {};
    const std::string code = text.substr(begin + kOpen.size(), end - begin - kOpen.size());
    return fmt::format(" ({})", base::printable(code.substr(0, 64)));
  }

  /// Waits before the next attempt, or gives up.
  void pause(const HttpHeader& header) {
    fetcher_.failures_.fetch_add(1, std::memory_order_relaxed);
    if (got_ >= marked_ + kProgress) {
      marked_ = got_;
      retry_.progressed();
    }
    const auto now = static_cast<std::int64_t>(std::time(nullptr));
    const auto asked = retry_after_s(header.retry_after, now);
    const auto wait = retry_.failed(asked);
    if (!wait || !fetcher_.budget_.failed())
      throw FetchError(
          FetchError::Kind::unreachable,
          fmt::format("{}: {} (attempt {}, data.remote.deadline={:g})", shown(), verdict_.reason,
                      retry_.attempts(), fetcher_.options_.retry.deadline_s),
          "start again once the server answers; training continues with --resume");
    if (fetcher_.options_.warn && !fetcher_.warned_.exchange(true))
      fetcher_.options_.warn(
          fmt::format("{}: {}; such requests are repeated", shown(), verdict_.reason));
    fetcher_.clock_.sleep(*wait, fetcher_.options_.stop);
    if (fetcher_.options_.stop != nullptr && fetcher_.options_.stop->load())
      throw Error(Exit::interrupted,
                  fmt::format("interrupted while {} failed: {}", shown(), verdict_.reason));
  }

  Fetcher& fetcher_;
  const FetchWanted& wanted_;
  FetchTarget& target_;
  Retry retry_;
  Sha256Stream hash_;
  bool head_ = false;
  std::uint64_t got_ = 0;               ///< bytes in the target
  std::uint64_t marked_ = 0;            ///< most bytes at which the deadline began anew
  std::uint64_t asked_from_ = 0;        ///< first byte of the request
  std::optional<std::uint64_t> end_{};  ///< length of the object
  std::string etag_;                    ///< strong one of the bytes in the target, or empty
  int accidents_ = 0;
  HttpHeader header_;
  std::string text_;  ///< beginning of an error's body
  Verdict verdict_;
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
