// One HTTP request with libcurl, and what came back of it. It follows no redirect and repeats
// nothing: Fetcher (fetch.h) decides what an answer means.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/private_api.h"
#include "pipeline/readers/url.h"

namespace millrace::pipeline {

/// The header Content-Range of an answer.
struct ContentRange {
  std::uint64_t first = 0;
  std::uint64_t last = 0;
  std::optional<std::uint64_t> total;  ///< size of the whole object; none: the server wrote '*'
  bool operator==(const ContentRange&) const = default;
};

/// Header of an answer.
struct HttpHeader {
  int status = 0;
  std::optional<std::uint64_t> length;  ///< Content-Length
  std::optional<ContentRange> range;    ///< Content-Range
  bool odd_range = false;               ///< a Content-Range that cannot be read
  bool chunked = false;                 ///< the end of the body is marked
  std::string etag;                     ///< as sent, with its quotes; empty: none
  std::string modified;                 ///< Last-Modified
  std::string encoding;                 ///< Content-Encoding
  std::string location;                 ///< Location
  std::string retry_after;              ///< Retry-After, as sent
  std::string date;                     ///< Date, as sent
  std::string region;                   ///< x-amz-bucket-region

  /// Returns whether the ETag names these bytes exactly, so that a later answer with the same one
  /// continues them.
  bool has_strong_etag() const;
};

/// Adds one line of a header. A status line restarts it, as an interim answer (1xx) or a proxy's
/// stands before the real one. Ignores lines that it does not know.
MILLRACE_PRIVATE_API void add_header_line(HttpHeader& header, std::string_view line);

/// Returns the seconds that Retry-After asks for: a number, or a date that is compared with
/// `now`, in seconds since 1970. None for anything else; at least 0.
MILLRACE_PRIVATE_API std::optional<double> retry_after_s(std::string_view text, std::int64_t now);

/// Returns the seconds since 1970 of an HTTP date ("Sun, 06 Nov 1994 08:49:37 GMT"), or none.
MILLRACE_PRIVATE_API std::optional<std::int64_t> http_date(std::string_view text);

/// A request.
struct HttpRequest {
  Url url;
  std::uint64_t first = 0;                                     ///< first byte that is wanted
  bool ranged = false;                                         ///< sends Range: bytes=first-last
  std::optional<std::uint64_t> last{};                         ///< none: to the end
  bool head = false;                                           ///< asks for the header only
  std::string method{};                                        ///< another one than GET or HEAD
  bool direct = false;                                         ///< never through a proxy
  std::vector<std::pair<std::string, std::string>> headers{};  ///< further ones
  std::chrono::milliseconds stall{30'000};     ///< fails if less than 1 KiB of body comes within it
  const std::atomic<bool>* stop = nullptr;     ///< fails soon after it is set; may be null
  const std::atomic<bool>* closing = nullptr;  ///< fails soon after it is set; may be null
  std::uint64_t authorized_by = 0;             ///< state of the Access that completed the request
};

/// Receives an answer. Returning false from either function ends the request.
struct HttpSink {
  std::function<bool(const HttpHeader&)> header;  ///< before the first byte of the body
  std::function<bool(const char* bytes, std::size_t)> body;
};

struct HttpResult {
  enum class Kind {
    done,      ///< the whole answer came, whatever its status
    refused,   ///< the sink ended it
    stopped,   ///< `stop` was set
    stalled,   ///< too few bytes came
    broken,    ///< connection refused, reset or closed early, or no HTTP came back
    no_host,   ///< the host's name is unknown
    no_trust,  ///< the server's certificate is not trusted
    misused,   ///< libcurl rejects the request
  };
  Kind kind = Kind::broken;
  std::string reason;  ///< libcurl's, if the answer is incomplete
  HttpHeader header;   ///< as far as it came
};

/// Makes requests. Keeps connections open between them. May be called from many threads.
class MILLRACE_PRIVATE_API HttpClient {
 public:
  HttpClient();
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  HttpResult perform(const HttpRequest& request, const HttpSink& sink);

 private:
  struct Connection;
  std::unique_ptr<Connection> take();
  void give_back(std::unique_ptr<Connection> connection);

  std::mutex mutex_;
  std::vector<std::unique_ptr<Connection>> idle_;
};

}  // namespace millrace::pipeline
