// Signs, locates and lists objects of S3.
#include "pipeline/remote/s3.h"

#include <fmt/core.h>
#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <ctime>
#include <mutex>
#include <optional>
#include <unordered_set>
#include <utility>

#include "base/text.h"
#include "millrace/error.h"
#include "pipeline/remote/sha256.h"
#include "pipeline/remote/xml.h"

namespace millrace::pipeline {

// Signs requests.
namespace {

constexpr const char* kAlgorithm = "AWS4-HMAC-SHA256";
/// SHA-256 of nothing, the body of all requests.
constexpr const char* kNoBody = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

std::string_view bytes_of(const Sha256& hash) {
  return {reinterpret_cast<const char*>(hash.data()), hash.size()};
}

std::string canonical(std::string_view text, bool keep_slashes) {
  return percent_encoded(percent_decoded(text), keep_slashes);
}

/// Returns a query with its parameters encoded and sorted.
std::string canonical_query(std::string_view query) {
  std::vector<std::pair<std::string, std::string>> all;
  while (!query.empty()) {
    const std::size_t end = std::min(query.find('&'), query.size());
    const std::string_view one = query.substr(0, end);
    query.remove_prefix(std::min(end + 1, query.size()));
    const std::size_t equals = std::min(one.find('='), one.size());
    const std::string_view value = one.substr(std::min(equals + 1, one.size()));
    if (!one.empty())
      all.emplace_back(canonical(one.substr(0, equals), false), canonical(value, false));
  }
  std::sort(all.begin(), all.end());
  std::string out;
  for (const auto& [name, value] : all) out += (out.empty() ? "" : "&") + name + "=" + value;
  return out;
}

}  // namespace

std::string sigv4_authorization(const SignedParts& parts, const SigningScope& scope,
                                const Credentials& credentials) {
  std::string headers, names;
  for (const auto& [name, value] : parts.headers) {
    headers += name + ":" + value + "\n";
    names += (names.empty() ? "" : ";") + name;
  }
  const std::string request = parts.method + "\n" + canonical(parts.path, true) + "\n" +
                              canonical_query(parts.query) + "\n" + headers + "\n" + names + "\n" +
                              parts.body_hash;
  const std::string day = scope.time.substr(0, 8);
  const std::string where = fmt::format("{}/{}/{}/aws4_request", day, scope.region, scope.service);
  const std::string to_sign =
      fmt::format("{}\n{}\n{}\n{}", kAlgorithm, scope.time, where, hex_of(sha256_of(request)));
  Sha256 key = hmac_sha256("AWS4" + credentials.secret, day);
  for (const std::string_view part :
       {std::string_view(scope.region), std::string_view(scope.service),
        std::string_view("aws4_request"), std::string_view(to_sign)})
    key = hmac_sha256(bytes_of(key), part);
  return fmt::format("{} Credential={}/{}, SignedHeaders={}, Signature={}", kAlgorithm,
                     credentials.id, where, names, hex_of(key));
}

std::string sigv4_time(std::int64_t seconds) {
  const std::time_t time = seconds;
  tm parts{};
  gmtime_r(&time, &parts);
  char text[32];
  const std::size_t size = strftime(text, sizeof text, "%Y%m%dT%H%M%SZ", &parts);
  return {text, size};
}

// Locates objects, and keeps credentials, region and clock.
namespace {

/// Seconds before their end at which credentials are renewed.
constexpr std::int64_t kRenew_s = 300;
/// Seconds between two attempts to renew them.
constexpr std::int64_t kRenewAgain_s = 60;
/// Difference of clocks, in seconds, that is worth a correction. Servers allow 15 minutes.
constexpr std::int64_t kSkew_s = 60;

/// Returns whether a bucket's name may be part of a host's name under a certificate for
/// *.s3.REGION.amazonaws.com.
bool fits_host(const std::string& bucket) {
  return std::all_of(bucket.begin(), bucket.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
  });
}

bool is_one_of(std::string_view code, std::initializer_list<std::string_view> codes) {
  return std::find(codes.begin(), codes.end(), code) != codes.end();
}

class S3Access final : public Access {
 public:
  explicit S3Access(S3Options options)
      : options_(std::move(options)), region_(options_.settings.region) {}

  void authorize(HttpRequest& request) override {
    std::string region;
    std::int64_t skew = 0;
    {
      const std::lock_guard lock(mutex_);
      region = region_;
      skew = skew_;
      request.authorized_by = state_;
    }
    if (request.url.is_bucket()) request.url = located(request.url, region);
    request.url.path = canonical(request.url.path, true);
    request.url.query = canonical_query(request.url.query);
    if (options_.settings.anonymous) return;
    const Credentials credentials = current();
    const SigningScope scope{region, "s3", sigv4_time(options_.now() + skew)};
    SignedParts parts{
        request.head ? "HEAD" : "GET", request.url.path, request.url.query, {}, kNoBody};
    parts.headers = {
        {"host", request.url.host}, {"x-amz-content-sha256", kNoBody}, {"x-amz-date", scope.time}};
    if (!credentials.token.empty()) parts.headers["x-amz-security-token"] = credentials.token;
    request.headers.emplace_back("Authorization", sigv4_authorization(parts, scope, credentials));
    for (const auto& [name, value] : parts.headers)
      if (name != "host") request.headers.emplace_back(name, value);
  }

  bool reauthorize(const HttpRequest& sent, const HttpHeader& header,
                   const std::string& text) override {
    if (changed_since(sent)) return true;  // by another thread's answer
    const std::string code = xml_text(text, "/Error/Code").value_or("");
    std::string region = header.region;
    if (region.empty()) region = xml_text(text, "/Error/Region").value_or("");
    if (is_region(region) && take_region(region)) return true;
    if (options_.settings.anonymous) return false;
    // An answer to HEAD has no text.
    const bool unsaid = sent.head && text.empty() && (header.status == 403 || header.status == 400);
    if ((code == "RequestTimeTooSkewed" || unsaid) && take_time(header.date)) return true;
    if (is_one_of(code, {"ExpiredToken", "ExpiredTokenException", "InvalidToken",
                         "TokenRefreshRequired", "InvalidAccessKeyId"}) ||
        unsaid)
      return renew_refused(sent);
    return false;
  }

  std::string place(const Url& url) const override {
    if (options_.settings.endpoint.empty()) return url.endpoint();
    return url.endpoint() + " at " + options_.settings.endpoint;
  }

  std::string hint(std::string_view code) const override {
    const std::string source = source_of_credentials();
    if (code == "NoSuchBucket") return "check the bucket's name in data.path, and the endpoint";
    if (options_.settings.anonymous)
      return "the bucket is not public: give credentials, and unset MILLRACE_S3_ANONYMOUS";
    if (is_one_of(code, {"ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired"}))
      return fmt::format("renew the credentials ({}) and start again", source);
    if (code == "SignatureDoesNotMatch") return fmt::format("check the secret key ({})", source);
    if (is_one_of(code, {"InvalidAccessKeyId", "InvalidToken"}))
      return fmt::format("the server does not know this key ({}): check it, and the endpoint",
                         source);
    if (code == "RequestTimeTooSkewed") return "set this machine's clock";
    return fmt::format(
        "check what the bucket grants to these credentials ({}): reading, and "
        "listing where there is no set.index",
        source);
  }

 private:
  std::string source_of_credentials() const {
    const std::lock_guard lock(mutex_);
    return credentials_.source.empty() ? "none" : credentials_.source;
  }

  Url located(const Url& logical, const std::string& region) const {
    const std::string& bucket = logical.host;
    Url url = logical;
    std::string server = options_.settings.endpoint;
    bool in_host = options_.settings.in_host;
    if (server.empty()) {
      const bool china = region.starts_with("cn-");
      server = fmt::format("https://s3.{}.amazonaws.com{}", region, china ? ".cn" : "");
      in_host = fits_host(bucket);
    }
    const std::size_t slashes = server.find("://");
    url.scheme = server.substr(0, slashes);
    url.host = server.substr(slashes + 3);
    if (in_host) {
      url.host = bucket + "." + url.host;
    } else {
      url.path = "/" + percent_encoded(bucket) + logical.path;
    }
    return url;
  }

  /// Returns whether a request signed now would differ in region, clock or credentials.
  bool changed_since(const HttpRequest& sent) const {
    const std::lock_guard lock(mutex_);
    return sent.authorized_by != state_;
  }

  bool take_region(const std::string& region) {
    const std::lock_guard lock(mutex_);
    if (region == region_) return false;
    region_ = region;
    ++state_;
    return true;
  }

  bool take_time(const std::string& date) {
    const auto server = http_date(date);
    if (!server) return false;
    const std::lock_guard lock(mutex_);
    const std::int64_t now = options_.now();
    if (std::abs(*server - (now + skew_)) <= kSkew_s) return false;
    skew_ = *server - now;
    ++state_;
    return true;
  }

  // Credentials. One thread renews them while others use the old ones.

  bool due(const Credentials& credentials, std::int64_t now) const {
    return credentials.expires != 0 && now >= credentials.expires - kRenew_s && now >= next_try_;
  }

  Credentials current() {
    const std::int64_t now = options_.now();
    bool needed = false;
    {
      const std::lock_guard lock(mutex_);
      needed = credentials_.id.empty();
      if (!needed && !due(credentials_, now)) return credentials_;
    }
    std::unique_lock renewing(renewing_, std::defer_lock);
    if (needed) {
      renewing.lock();
    } else if (!renewing.try_lock()) {
      const std::lock_guard lock(mutex_);
      return credentials_;
    }
    {
      const std::lock_guard lock(mutex_);
      if (!credentials_.id.empty() && !due(credentials_, now)) return credentials_;
    }
    renew(now);
    const std::lock_guard lock(mutex_);
    return credentials_;
  }

  /// Finds credentials anew. Keeps the old ones, if there are any, when that fails. Called by the
  /// thread that holds renewing_.
  void renew(std::int64_t now) {
    Credentials found;
    std::string reason = "no credentials are found any more";
    try {
      found = options_.find();
    } catch (const Error& error) {
      const std::lock_guard lock(mutex_);
      if (credentials_.id.empty() || error.exit() == Exit::interrupted) throw;
      reason = error.what();
    }
    const std::lock_guard lock(mutex_);
    if (!found.id.empty()) {
      if (!credentials_.id.empty() && credentials_ != found) ++state_;
      credentials_ = std::move(found);
      if (due(credentials_, now)) next_try_ = now + kRenewAgain_s;
      return;
    }
    if (credentials_.id.empty())
      throw UsageError(
          "no credentials for the bucket: neither the environment, nor a profile, nor "
          "this machine has any",
          "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE; for a "
          "public bucket, MILLRACE_S3_ANONYMOUS=1");
    next_try_ = now + kRenewAgain_s;
    if (options_.warn && !std::exchange(warned_, true))
      options_.warn(
          fmt::format("the credentials of {} could not be renewed ({}); the old ones are "
                      "used",
                      credentials_.source, reason));
  }

  /// Renews credentials that the server refuses. Returns whether there are others now.
  bool renew_refused(const HttpRequest& sent) {
    const std::lock_guard renewing(renewing_);
    if (changed_since(sent)) return true;
    {
      const std::lock_guard lock(mutex_);
      if (options_.now() < next_try_) return false;
    }
    renew(options_.now());
    return changed_since(sent);
  }

  const S3Options options_;
  mutable std::mutex mutex_;  ///< of what follows, but for renewing_
  std::string region_;
  std::int64_t skew_ = 0;  ///< seconds by which the server is ahead
  Credentials credentials_;
  std::uint64_t state_ = 0;  ///< counts changes of what stands above
  std::int64_t next_try_ = 0;
  bool warned_ = false;
  std::mutex renewing_;  ///< held while credentials are looked for
};

std::int64_t now_of_system() { return static_cast<std::int64_t>(std::time(nullptr)); }

}  // namespace

std::unique_ptr<Access> s3_access(S3Options options) {
  if (!options.now) options.now = now_of_system;
  return std::make_unique<S3Access>(std::move(options));
}

std::unique_ptr<Access> s3_access(const Url& folder, const std::atomic<bool>* stop,
                                  const std::function<void(const std::string&)>& warn) {
  S3Options options{s3_settings(), {}, {}, warn};
  const bool google = folder.scheme == "gs";
  if (google) {
    constexpr const char* kEndpoint = "CLOUDSDK_API_ENDPOINT_OVERRIDES_STORAGE";
    std::string endpoint = std::getenv(kEndpoint) != nullptr ? std::getenv(kEndpoint) : "";
    if (endpoint.empty()) endpoint = "https://storage.googleapis.com";
    options.settings.endpoint = parsed_endpoint(endpoint, kEndpoint);
    options.settings.region = "auto";
    options.settings.in_host = false;
  }
  const auto client = std::make_shared<HttpClient>();
  // Metadata of Google's machines holds no HMAC keys.
  options.find = [client, google, stop] {
    Credentials found = find_credentials(*client, !google, stop);
    if (google && !found.token.empty())
      throw UsageError(
          fmt::format("gs:// needs an HMAC key of Google, and {} holds a session token of AWS",
                      found.source),
          "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY to the HMAC key, without "
          "AWS_SESSION_TOKEN, or name its profile in AWS_PROFILE");
    return found;
  };
  return s3_access(std::move(options));
}

// Lists folders.
namespace {

// Bounds of a list. S3 puts at most 1000 keys of at most 1024 bytes on a page, and may put fewer.
constexpr std::uint64_t kMaxPageBytes = std::uint64_t{1} << 24;
constexpr std::size_t kMaxNames = 1'000'000;
/// Fewest names per page on average, after the first kFreePages pages.
constexpr std::size_t kNamesPerPage = 100;
constexpr std::size_t kFreePages = 100;
/// Most bytes per name on average, after the first kFreeBytes bytes: a key whose characters are all
/// escaped, and its fields.
constexpr std::uint64_t kBytesPerName = 8192;
constexpr std::uint64_t kFreeBytes = std::uint64_t{1} << 26;
constexpr double kLongest_s = 600;

/// Counts what a list costs, and ends one that brings too little for it.
class ListBudget {
 public:
  ListBudget(Fetcher& fetcher, const Url& bucket)
      : fetcher_(fetcher), bucket_(bucket), begin_s_(fetcher.clock().now_s()) {}

  /// Returns whether the name is new.
  bool is_new(const std::string& name) { return names_.insert(name).second; }

  /// Throws FetchError if the list is too long by now.
  void take_page(std::size_t bytes) {
    bytes_ += bytes;
    ++pages_;
    const double spent_s = fetcher_.clock().now_s() - begin_s_;
    if (names_.size() > kMaxNames) end(fmt::format("more than {} names", kMaxNames));
    if (pages_ > kFreePages + names_.size() / kNamesPerPage ||
        bytes_ > kFreeBytes + names_.size() * kBytesPerName)
      end(fmt::format("{} pages of {} bytes for {} names", pages_, bytes_, names_.size()));
    if (spent_s > kLongest_s) end(fmt::format("it took longer than {:g} s", kLongest_s));
  }

  [[noreturn]] void end(const std::string& reason) const {
    throw FetchError(FetchError::Kind::wrong,
                     fmt::format("{}: the bucket's list never ends: {}", bucket_.text(), reason),
                     "make a set.index: millrace data index FOLDER");
  }

 private:
  Fetcher& fetcher_;
  const Url& bucket_;
  double begin_s_;
  std::unordered_set<std::string> names_{};
  std::size_t pages_ = 0;
  std::uint64_t bytes_ = 0;
};

/// Returns what follows `prefix` in `path`, or none.
std::optional<std::string_view> below(std::string_view path, std::string_view prefix) {
  if (!path.starts_with(prefix)) return std::nullopt;
  return path.substr(prefix.size());
}

std::uint64_t size_in(const std::string& text) {
  std::uint64_t size = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), size);
  if (text.empty() || status != std::errc() || end != text.data() + text.size())
    throw DataError("the bucket's list has an object without a size", "check the endpoint");
  return size;
}

void take_field(S3Page& page, bool& truncated, const std::string& path, const std::string& text) {
  constexpr std::string_view kObject = "/ListBucketResult/Contents/";
  if (const auto field = below(path, kObject)) {
    if (page.objects.empty()) return;
    S3Object& object = page.objects.back();
    if (*field == "Key") object.name = text;
    if (*field == "Size") object.size = size_in(text);
    // rclone leaves out the quotes here.
    if (*field == "ETag") object.etag = text.find('"') != text.npos ? text : '"' + text + '"';
  } else if (path == "/ListBucketResult/CommonPrefixes/Prefix") {
    page.folders.push_back(text);
  } else if (path == "/ListBucketResult/NextContinuationToken") {
    page.next = text;
  } else if (path == "/ListBucketResult/Prefix") {
    page.bucket_prefix = text;
  } else if (path == "/ListBucketResult/IsTruncated") {
    truncated = text == "true";
  }
}

}  // namespace

S3Page parse_s3_page(std::string_view xml) {
  S3Page page;
  bool truncated = false, list = false;
  XmlReader reader(xml);
  for (auto event = reader.next(); event != XmlReader::Event::end; event = reader.next()) {
    if (event == XmlReader::Event::close) {
      take_field(page, truncated, reader.path(), reader.text());
      continue;
    }
    list |= reader.path() == "/ListBucketResult";
    if (reader.path() == "/ListBucketResult/Contents") page.objects.emplace_back();
  }
  const bool named = std::none_of(page.objects.begin(), page.objects.end(),
                                  [](const S3Object& one) { return one.name.empty(); });
  if (!list || !named || truncated == page.next.empty())
    throw DataError("the server does not answer with a list of a bucket",
                    "check the endpoint: AWS_ENDPOINT_URL_S3");
  return page;
}

namespace {

void list_one(Fetcher& fetcher, const Url& bucket, const std::string& prefix,
              const std::string& below_of, ListBudget& budget, std::vector<S3Object>& found,
              std::vector<std::string>& folders) {
  std::string token;
  do {
    Url url = bucket;
    url.query = "delimiter=%2F&list-type=2&prefix=" + percent_encoded(prefix, false);
    if (!token.empty()) url.query += "&continuation-token=" + percent_encoded(token, false);
    S3Page page;
    const std::string text = fetcher.fetch_text(url, kMaxPageBytes);
    try {
      page = parse_s3_page(text);
    } catch (const DataError& error) {
      throw FetchError(FetchError::Kind::wrong, bucket.text() + ": " + error.what(), error.hint());
    }
    for (S3Object& one : page.objects) {
      const auto name = below(one.name, below_of);
      if (!name || name->empty() || name->ends_with('/') || !budget.is_new(one.name)) continue;
      one.name = std::string(*name);
      found.push_back(std::move(one));
    }
    for (const std::string& folder : page.folders)
      if (const auto name = below(folder, below_of); name && budget.is_new(folder))
        folders.emplace_back(*name);
    if (!token.empty() && page.next == token) budget.end("a page names itself as the next one");
    if (!page.next.empty()) budget.take_page(text.size());
    token = page.next;
  } while (!token.empty());
}

}  // namespace

std::vector<S3Object> list_s3_folder(Fetcher& fetcher, const Url& folder,
                                     const std::function<bool(const std::string&)>& enter) {
  Url bucket = folder;
  bucket.path = "/";
  std::string prefix = percent_decoded(folder.path.substr(1));
  if (!prefix.empty() && !prefix.ends_with('/')) prefix += '/';
  std::vector<S3Object> found;
  std::vector<std::string> folders, ignored;
  ListBudget budget(fetcher, bucket);
  list_one(fetcher, bucket, prefix, prefix, budget, found, folders);
  for (const std::string& one : folders)
    if (enter(one.substr(0, one.find('/'))))
      list_one(fetcher, bucket, prefix + one, prefix, budget, found, ignored);
  std::sort(found.begin(), found.end(),
            [](const S3Object& a, const S3Object& b) { return a.name < b.name; });
  return found;
}

}  // namespace millrace::pipeline
