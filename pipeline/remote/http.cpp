// Makes HTTP requests with libcurl.
#include "pipeline/remote/http.h"

#include <fmt/core.h>
#include <time.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <exception>

#include "base/clock.h"
#include "base/text.h"
#include "millrace/error.h"
#include "pipeline/remote/libraries.h"

namespace millrace::pipeline {

// Reads header lines.
namespace {

char lower_of(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; }

bool equals_ignoring_case(std::string_view one, std::string_view two) {
  return std::equal(one.begin(), one.end(), two.begin(), two.end(),
                    [](char a, char b) { return lower_of(a) == lower_of(b); });
}

std::string_view trimmed(std::string_view text) {
  const auto blank = [](char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; };
  while (!text.empty() && blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && blank(text.back())) text.remove_suffix(1);
  return text;
}

std::optional<std::uint64_t> whole_number(std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || status != std::errc() || end != text.data() + text.size())
    return std::nullopt;
  return value;
}

std::optional<ContentRange> range_of(std::string_view text) {
  constexpr std::string_view kUnit = "bytes ";
  const std::size_t dash = text.find('-');
  const std::size_t slash = text.find('/');
  if (!text.starts_with(kUnit) || dash == text.npos || slash == text.npos || slash < dash)
    return std::nullopt;
  const auto first = whole_number(text.substr(kUnit.size(), dash - kUnit.size()));
  const auto last = whole_number(text.substr(dash + 1, slash - dash - 1));
  const std::string_view total = text.substr(slash + 1);
  ContentRange range;
  if (total != "*") range.total = whole_number(total);
  if (!first || !last || *last < *first || (total != "*" && !range.total) ||
      (range.total && *last >= *range.total))
    return std::nullopt;
  range.first = *first;
  range.last = *last;
  return range;
}

/// Returns the status of "HTTP/1.1 206 Partial Content", or none for another line.
std::optional<int> status_of(std::string_view line) {
  if (!line.starts_with("HTTP/")) return std::nullopt;
  const std::size_t space = line.find(' ');
  if (space == line.npos) return std::nullopt;
  const auto status = whole_number(line.substr(space + 1, 3));
  return status && *status < 1000 ? std::optional<int>(static_cast<int>(*status)) : std::nullopt;
}

}  // namespace

bool HttpHeader::has_strong_etag() const {
  return etag.size() > 2 && etag.front() == '"' && etag.back() == '"';
}

void add_header_line(HttpHeader& header, std::string_view line) {
  line = trimmed(line);
  if (const auto status = status_of(line)) {
    header = {};
    header.status = *status;
    return;
  }
  const std::size_t colon = line.find(':');
  if (colon == line.npos) return;
  const std::string_view name = trimmed(line.substr(0, colon));
  const std::string_view value = trimmed(line.substr(colon + 1));
  const auto is = [&](std::string_view other) { return equals_ignoring_case(name, other); };
  if (is("Content-Length")) {
    header.length = whole_number(value);
  } else if (is("Content-Range")) {
    header.range = range_of(value);
    header.odd_range = !header.range;
  } else if (is("Transfer-Encoding")) {
    header.chunked = true;
  } else if (is("ETag")) {
    header.etag = value;
  } else if (is("Last-Modified")) {
    header.modified = value;
  } else if (is("Content-Encoding")) {
    header.encoding = value;
  } else if (is("Location")) {
    header.location = value;
  } else if (is("Retry-After")) {
    header.retry_after = value;
  } else if (is("Date")) {
    header.date = value;
  } else if (is("x-amz-bucket-region")) {
    header.region = value;
  }
}

std::optional<std::int64_t> http_date(std::string_view text) {
  tm parts{};
  const std::string copy(text);
  const char* end = strptime(copy.c_str(), "%a, %d %b %Y %H:%M:%S GMT", &parts);
  if (end == nullptr || *end != '\0') return std::nullopt;
  return timegm(&parts);
}

std::optional<double> retry_after_s(std::string_view text, std::int64_t now) {
  if (const auto seconds = whole_number(text)) return static_cast<double>(*seconds);
  if (const auto date = http_date(text))
    return std::max(0.0, static_cast<double>(*date) - static_cast<double>(now));
  return std::nullopt;
}

// Performs a request.
namespace {

/// Fewest bytes of a body per HttpRequest::stall. Lines of the header are no progress: a server may
/// send interim answers (1xx) without end.
constexpr std::uint64_t kLeastBytes = 1024;
/// Longest wait between two looks at `stop`.
constexpr int kPoll_ms = 50;

/// Hosts that a proxy is never asked for: the environment's, and this machine.
std::string without_proxy() {
  std::string hosts = "localhost,127.0.0.1,::1";
  for (const char* name : {"no_proxy", "NO_PROXY"})
    if (const char* more = std::getenv(name); more != nullptr && *more != '\0')
      return hosts + "," + more;
  return hosts;
}

/// Returns the file of trusted certificates that the user names, as for the program curl, or null.
const char* authorities() {
  for (const char* name : {"CURL_CA_BUNDLE", "SSL_CERT_FILE"})
    if (const char* file = std::getenv(name); file != nullptr && *file != '\0') return file;
  return nullptr;
}

HttpResult::Kind kind_of(CURLcode code) {
  switch (code) {
    case CURLE_OK:
      return HttpResult::Kind::done;
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_RESOLVE_PROXY:
      return HttpResult::Kind::no_host;
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_ISSUER_ERROR:
      return HttpResult::Kind::no_trust;
    case CURLE_URL_MALFORMAT:
    case CURLE_FAILED_INIT:
    case CURLE_NOT_BUILT_IN:
      return HttpResult::Kind::misused;
    case CURLE_OPERATION_TIMEDOUT:
      return HttpResult::Kind::stalled;
    default:
      return HttpResult::Kind::broken;
  }
}

/// State that the callbacks of one request share.
struct Transfer {
  const HttpSink& sink;
  HttpHeader header{};
  bool begun = false;          ///< the sink has seen the header
  bool accepted = true;        ///< the sink has not ended the request
  bool in_header = false;      ///< lines have come, the last one not yet
  std::uint64_t bytes = 0;     ///< of the body
  std::exception_ptr error{};  ///< kept from passing through libcurl

  bool begin() {
    if (!begun) {
      begun = true;
      accepted = !sink.header || sink.header(header);
    }
    return accepted;
  }
};

std::size_t on_header(char* line, std::size_t size, std::size_t count, void* data) {
  auto& transfer = *static_cast<Transfer*>(data);
  try {
    const std::string_view text(line, size * count);
    add_header_line(transfer.header, text);
    transfer.in_header = text != "\r\n" || transfer.header.status < 200;
  } catch (...) {
    transfer.error = std::current_exception();
    return 0;
  }
  return size * count;
}

std::size_t on_body(char* bytes, std::size_t size, std::size_t count, void* data) {
  auto& transfer = *static_cast<Transfer*>(data);
  transfer.bytes += size * count;
  if (!transfer.begin()) return 0;
  transfer.accepted = transfer.sink.body(bytes, size * count);
  return transfer.accepted ? size * count : 0;
}

struct HeaderList {
  curl_slist* list = nullptr;
  ~HeaderList() {  // NOLINT(bugprone-exception-escape): add() has opened the library
    if (list != nullptr) curl().slist_free_all(list);
  }
  void add(const std::string& line) {
    curl_slist* longer = curl().slist_append(list, line.c_str());
    if (longer == nullptr) throw std::bad_alloc();
    list = longer;
  }
};

}  // namespace

struct HttpClient::Connection {
  CURL* easy = nullptr;
  CURLM* multi = nullptr;

  Connection() {
    easy = pipeline::curl().easy_init();
    multi = pipeline::curl().multi_init();
    if (easy == nullptr || multi == nullptr)
      throw RunError("libcurl cannot open a connection", "this machine may be out of memory");
  }
  ~Connection() {  // NOLINT(bugprone-exception-escape): the constructor has opened the library
    if (easy != nullptr) pipeline::curl().easy_cleanup(easy);
    if (multi != nullptr) pipeline::curl().multi_cleanup(multi);
  }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  template <class Value>
  void set(CURLoption option, Value value) {
    pipeline::curl().easy_setopt(easy, option, value);
  }

  void prepare(const HttpRequest& request, const HeaderList& headers, Transfer& transfer) {
    pipeline::curl().easy_reset(easy);
    set(CURLOPT_URL, request.url.request().c_str());
    set(CURLOPT_FOLLOWLOCATION, 0L);
    set(CURLOPT_PATH_AS_IS, 1L);
    set(CURLOPT_NOSIGNAL, 1L);
    set(CURLOPT_NOBODY, request.head ? 1L : 0L);
    if (!request.method.empty()) set(CURLOPT_CUSTOMREQUEST, request.method.c_str());
    set(CURLOPT_NOPROXY, request.direct ? "*" : without_proxy().c_str());
    if (const char* file = authorities()) set(CURLOPT_CAINFO, file);
    set(CURLOPT_USERAGENT, "millrace");
    set(CURLOPT_HTTPHEADER, headers.list);
    set(CURLOPT_BUFFERSIZE, 256L * 1024);
    set(CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(request.stall.count()));
    set(CURLOPT_HEADERFUNCTION, &on_header);
    set(CURLOPT_HEADERDATA, &transfer);
    set(CURLOPT_WRITEFUNCTION, &on_body);
    set(CURLOPT_WRITEDATA, &transfer);
  }

  /// Runs the request until it ends, stalls or is stopped. Returns true if it ended.
  bool run(const HttpRequest& request, const Transfer& transfer, HttpResult& result) {
    const std::int64_t window = std::chrono::nanoseconds(request.stall).count();
    std::int64_t since = base::Clock::steady_ns();
    std::uint64_t bytes = 0;
    while (true) {
      int running = 0, ready = 0;
      if (pipeline::curl().multi_perform(multi, &running) != CURLM_OK)
        throw RunError("libcurl cannot go on with a request", "this machine may be out of memory");
      if (running == 0) return true;
      for (const std::atomic<bool>* stop : {request.stop, request.closing}) {
        if (stop == nullptr || !stop->load(std::memory_order_relaxed)) continue;
        result.kind = HttpResult::Kind::stopped;
        return false;
      }
      const std::int64_t now = base::Clock::steady_ns();
      if (transfer.bytes >= bytes + kLeastBytes) {
        bytes = transfer.bytes;
        since = now;
      } else if (now - since > window) {
        result.kind = HttpResult::Kind::stalled;
        return false;
      }
      pipeline::curl().multi_poll(multi, nullptr, 0, kPoll_ms, &ready);
    }
  }
};

HttpClient::HttpClient() { curl(); }
HttpClient::~HttpClient() = default;

std::unique_ptr<HttpClient::Connection> HttpClient::take() {
  {
    const std::lock_guard lock(mutex_);
    if (!idle_.empty()) {
      auto connection = std::move(idle_.back());
      idle_.pop_back();
      return connection;
    }
  }
  return std::make_unique<Connection>();
}

void HttpClient::give_back(std::unique_ptr<Connection> connection) {
  const std::lock_guard lock(mutex_);
  idle_.push_back(std::move(connection));
}

HttpResult HttpClient::perform(const HttpRequest& request, const HttpSink& sink) {
  HeaderList headers;
  headers.add("Accept-Encoding: identity");
  if (request.ranged)
    headers.add(fmt::format("Range: bytes={}-{}", request.first,
                            request.last ? std::to_string(*request.last) : std::string()));
  for (const auto& [name, value] : request.headers) headers.add(name + ": " + value);

  auto connection = take();
  Transfer transfer{sink};
  HttpResult result;
  connection->prepare(request, headers, transfer);
  if (curl().multi_add_handle(connection->multi, connection->easy) != CURLM_OK)
    throw RunError("libcurl cannot begin a request", "this machine may be out of memory");
  CURLcode code = CURLE_OK;
  if (connection->run(request, transfer, result)) {
    int left = 0;
    while (const CURLMsg* message = curl().multi_info_read(connection->multi, &left))
      if (message->msg == CURLMSG_DONE) code = message->data.result;
    result.kind = kind_of(code);
    if (code != CURLE_OK) result.reason = curl().easy_strerror(code);
    if (code == CURLE_OK) transfer.begin();  // an answer without a body
    if (!transfer.accepted) result.kind = HttpResult::Kind::refused;
  } else if (result.kind == HttpResult::Kind::stalled) {
    const double seconds = static_cast<double>(request.stall.count()) * 1e-3;
    result.reason =
        transfer.in_header
            ? fmt::format("the answer's header had not ended after {:.3g} s", seconds)
            : fmt::format("less than {} bytes came within {:.3g} s", kLeastBytes, seconds);
  }
  curl().multi_remove_handle(connection->multi, connection->easy);
  if (transfer.error) std::rethrow_exception(transfer.error);
  result.header = std::move(transfer.header);
  give_back(std::move(connection));
  return result;
}

}  // namespace millrace::pipeline
