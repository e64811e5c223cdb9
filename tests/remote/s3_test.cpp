// Tests of S3: signatures, credentials, lists, and what happens when a server refuses a request.
#include "pipeline/remote/s3.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <optional>

#include "millrace/error.h"
#include "millrace/reader.h"
#include "pipeline/remote/credentials.h"
#include "pipeline/remote/fetch.h"
#include "pipeline/remote/xml.h"
#include "tests/data/support.h"
#include "tests/data/tar_builder.h"
#include "tests/remote/aws_home.h"
#include "tests/remote/fault_server.h"

namespace millrace::pipeline {
namespace {

using test::FaultServer;
using test::Home;
using test::TempFolder;
using test::Variable;

// Signatures: the results that AWS publishes.

constexpr const char* kNothing = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

std::string signature_of(const std::string& authorization) {
  constexpr std::string_view kName = "Signature=";
  return authorization.substr(authorization.find(kName) + kName.size());
}

/// Signs as the test suite of Signature Version 4 does.
std::string suite_signature(const std::string& path, const std::string& query,
                            const std::string& method = "GET") {
  const Credentials keys{"AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"};
  const SigningScope scope{"us-east-1", "service", "20150830T123600Z"};
  return signature_of(
      sigv4_authorization({method,
                           path,
                           query,
                           {{"host", "example.amazonaws.com"}, {"x-amz-date", scope.time}},
                           kNothing},
                          scope, keys));
}

TEST(S3Signature, EqualsThoseOfTheTestSuite) {
  EXPECT_EQ(suite_signature("/", ""),  // get-vanilla
            "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31");
  EXPECT_EQ(suite_signature("/", "Param2=value2&Param1=value1"),  // ...-query-order-key-case
            "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500");
  EXPECT_EQ(suite_signature("/", "Param1=value1"),  // ...-empty-query-key
            "a67d582fa61cc504c4bae71f336f98b97f1ea3c7a6bfe1b6e45aec72011b9aeb");
  const std::string unreserved =
      "-._~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
  EXPECT_EQ(suite_signature("/" + unreserved, ""),  // get-unreserved
            "07ef7494c76fa4850883e2b006601f940f8a34d404d0cfa977f52a65bbf5f24f");
  EXPECT_EQ(suite_signature("/", unreserved + "=" + unreserved),  // ...-query-unreserved
            "9c3e54bfcdf0b19771a7f523ee5669cdf59bc7cc0884027167c21bb143a40197");
  EXPECT_EQ(suite_signature("/\xe1\x88\xb4", ""),  // get-utf8
            "8318018e0b0f223aa2bbf98705b62bb787dc9c0e678f255a891fd03141be5d85");
  EXPECT_EQ(suite_signature("/", "", "POST"),  // post-vanilla
            "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b");
}

TEST(S3Signature, EqualsThoseOfTheManualOfS3) {
  const Credentials keys{"AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"};
  const SigningScope scope{"us-east-1", "s3", sigv4_time(1369353600)};
  EXPECT_EQ(scope.time, "20130524T000000Z");
  std::map<std::string, std::string> headers{{"host", "examplebucket.s3.amazonaws.com"},
                                             {"x-amz-content-sha256", kNothing},
                                             {"x-amz-date", scope.time}};
  EXPECT_EQ(
      sigv4_authorization({"GET", "/", "max-keys=2&prefix=J", headers, kNothing}, scope, keys),
      "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request, "
      "SignedHeaders=host;x-amz-content-sha256;x-amz-date, "
      "Signature=34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7");
  EXPECT_EQ(
      signature_of(sigv4_authorization({"GET", "/", "lifecycle", headers, kNothing}, scope, keys)),
      "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543");
  headers["range"] = "bytes=0-9";
  EXPECT_EQ(
      signature_of(sigv4_authorization({"GET", "/test.txt", "", headers, kNothing}, scope, keys)),
      "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41");
}

TEST(S3Signature, EncodesOnceWhateverTheAddressHolds) {
  EXPECT_EQ(suite_signature("/a=b+c d", "x=a/b"), suite_signature("/a%3Db%2Bc%20d", "x=a%2Fb"));
  EXPECT_NE(suite_signature("/a+b", ""), suite_signature("/a%20b", ""));
}

// Requests.

/// Credentials and a clock that a test turns.
struct Turned {
  std::int64_t now = 1'700'000'000;
  std::optional<Credentials> found = Credentials{"key", "canary", "", 0, "a test"};
  int asked = 0;
  std::vector<std::string> warnings{};

  std::unique_ptr<Access> access(const std::string& endpoint = {}) {
    S3Options options;
    options.settings.endpoint = endpoint;
    options.now = [this] { return now; };
    options.find = [this] {
      ++asked;
      if (!found) throw RunError("the service is away");
      return *found;
    };
    options.warn = [this](const std::string& text) { warnings.push_back(text); };
    return s3_access(std::move(options));
  }
};

HttpRequest asked(Access& access, const std::string& address = "s3://set/a b/train=0.tar") {
  HttpRequest request{Url::parse(address)};
  access.authorize(request);
  return request;
}

std::string header_of(const HttpRequest& request, const std::string& name) {
  for (const auto& [key, value] : request.headers)
    if (key == name) return value;
  return {};
}

HttpHeader refusal(int status) {
  HttpHeader header;
  header.status = status;
  return header;
}

std::string error_of(const std::string& code, const std::string& more = {}) {
  return "<?xml version=\"1.0\"?><Error><Code>" + code + "</Code>" + more + "</Error>";
}

TEST(S3Address, IsInTheHostAtAwsAndInThePathElsewhere) {
  Turned turned;
  EXPECT_EQ(asked(*turned.access()).url.request(),
            "https://set.s3.us-east-1.amazonaws.com/a%20b/train%3D0.tar");
  EXPECT_EQ(asked(*turned.access(), "s3://a.b/c").url.request(),
            "https://s3.us-east-1.amazonaws.com/a.b/c");
  EXPECT_EQ(asked(*turned.access("http://127.0.0.1:9000")).url.request(),
            "http://127.0.0.1:9000/set/a%20b/train%3D0.tar");
  EXPECT_EQ(Url::parse("s3://set/a b/t=1+%20\xc3\xa9").text(), "s3://set/a b/t=1+%20\xc3\xa9");
  EXPECT_EQ(parsed_endpoint("https://Host:443/", "X"), "https://host");
  for (const char* bad : {"host", "http://host/path", "s3://bucket", "http://me:canary@host"})
    EXPECT_THROW(parsed_endpoint(bad, "X"), UsageError) << bad;
}

TEST(S3Address, FollowsTheBucketToItsRegionAndNowhereElse) {
  Turned turned;
  const auto access = turned.access();
  asked(*access);
  HttpHeader header = refusal(301);
  header.region = "eu-west-1";
  EXPECT_TRUE(access->reauthorize(asked(*access), header, ""));
  HttpRequest request = asked(*access);
  EXPECT_EQ(request.url.endpoint(), "https://set.s3.eu-west-1.amazonaws.com");
  EXPECT_NE(header_of(request, "Authorization").find("/eu-west-1/s3/"), std::string::npos);
  EXPECT_FALSE(access->reauthorize(asked(*access), header, "")) << "it would be asked for ever";
  EXPECT_TRUE(
      access->reauthorize(asked(*access), refusal(400),
                          error_of("AuthorizationHeaderMalformed", "<Region>ap-south-1</Region>")));
  EXPECT_EQ(asked(*access).url.endpoint(), "https://set.s3.ap-south-1.amazonaws.com");
  header.region = "evil.example/";
  EXPECT_FALSE(access->reauthorize(asked(*access), header, ""));
  EXPECT_EQ(asked(*access).url.endpoint(), "https://set.s3.ap-south-1.amazonaws.com");
}

TEST(S3Clock, IsCorrectedByTheServers) {
  Turned turned;
  turned.now = 784111777 - 3600;
  const auto access = turned.access();
  EXPECT_EQ(header_of(asked(*access), "x-amz-date"), "19941106T074937Z");
  HttpHeader header = refusal(403);
  header.date = "Sun, 06 Nov 1994 08:49:37 GMT";
  EXPECT_TRUE(access->reauthorize(asked(*access), header, error_of("RequestTimeTooSkewed")));
  EXPECT_EQ(header_of(asked(*access), "x-amz-date"), "19941106T084937Z");
  EXPECT_FALSE(access->reauthorize(asked(*access), header, error_of("RequestTimeTooSkewed")));
}

TEST(S3Credentials, AreRenewedBeforeTheyEndAndKeptWhenThatFails) {
  Turned turned;
  turned.found = Credentials{"key", "secret", "token1", turned.now + 3600, "a test"};
  const auto access = turned.access();
  const auto token = [&] { return header_of(asked(*access), "x-amz-security-token"); };
  EXPECT_EQ(token(), "token1");
  turned.now += 3200;
  EXPECT_EQ(token(), "token1");
  EXPECT_EQ(turned.asked, 1);
  turned.now += 200;
  turned.found.reset();
  EXPECT_EQ(token(), "token1") << "a failure keeps the old ones";
  EXPECT_EQ(token(), "token1");
  EXPECT_EQ(turned.asked, 2) << "not with every request";
  EXPECT_EQ(turned.warnings.size(), 1u);
  turned.found = Credentials{"key", "secret", "token2", turned.now + 7200, "a test"};
  turned.now += 60;
  EXPECT_EQ(token(), "token2");
  EXPECT_EQ(turned.asked, 3);
}

TEST(S3Credentials, AreRenewedWhenTheServerSaysThatTheyHaveExpired) {
  Turned turned;
  const auto access = turned.access();
  asked(*access);
  EXPECT_FALSE(access->reauthorize(asked(*access), refusal(400), error_of("ExpiredToken")))
      << "there are no others";
  turned.found->token = "new";
  EXPECT_TRUE(access->reauthorize(asked(*access), refusal(400), error_of("ExpiredToken")));
  EXPECT_EQ(header_of(asked(*access), "x-amz-security-token"), "new");
  EXPECT_FALSE(access->reauthorize(asked(*access), refusal(403), error_of("AccessDenied")));
  EXPECT_EQ(turned.asked, 3) << "what is denied is not asked for again";
}

TEST(S3Credentials, OneAnswerServesAllRequestsThatWereSignedBefore) {
  Turned turned;
  const auto access = turned.access();
  asked(*access);
  const HttpRequest first = asked(*access), second = asked(*access);
  turned.found->token = "new";
  EXPECT_TRUE(access->reauthorize(first, refusal(400), error_of("ExpiredToken")));
  EXPECT_TRUE(access->reauthorize(second, refusal(400), error_of("ExpiredToken")));
  EXPECT_EQ(turned.asked, 2) << "the second request is signed with what the first one brought";
  HttpHeader header = refusal(301);
  header.region = "eu-west-1";
  const HttpRequest third = asked(*access);
  EXPECT_TRUE(access->reauthorize(third, header, ""));
  EXPECT_TRUE(access->reauthorize(third, header, ""));
  EXPECT_FALSE(access->reauthorize(asked(*access), header, ""));
}

TEST(S3Credentials, AnExpiredTokenIsAnsweredToHeadWithoutText) {
  Turned turned;
  const auto access = turned.access();
  HttpRequest request = asked(*access);
  turned.found->token = "new";
  EXPECT_FALSE(access->reauthorize(request, refusal(400), ""));
  request.head = true;
  EXPECT_TRUE(access->reauthorize(request, refusal(400), ""));
}

TEST(S3Credentials, AreMissingInOneClearLine) {
  Turned turned;
  turned.found = Credentials{};
  EXPECT_THROW(asked(*turned.access()), UsageError);
}

// Through the network.

Fetcher fetcher_to(std::unique_ptr<Access> access) { return {FetchOptions{}, std::move(access)}; }

std::string answer(const std::string& status, const std::string& body,
                   const std::string& more = {}) {
  return fmt::format("HTTP/1.1 {}\r\n{}Content-Length: {}\r\n\r\n{}", status, more, body.size(),
                     body);
}

TEST(S3Fetch, IsSignedAgainWhenTheServerNamesAnotherRegion) {
  FaultServer server;
  server.put("/set/x", "content");
  server.script([](const std::string& request) {
    if (request.find("/eu-west-1/s3/") != std::string::npos) return std::string();
    return answer("301 Moved Permanently", error_of("PermanentRedirect"),
                  "x-amz-bucket-region: eu-west-1\r\n");
  });
  Turned turned;
  Fetcher fetcher = fetcher_to(turned.access(server.url()));
  EXPECT_EQ(fetcher.fetch_text(Url::parse("s3://set/x"), 100), "content");
  EXPECT_EQ(server.requests().size(), 2u);
}

TEST(S3Fetch, AnotherHostGetsNoCredentials) {
  FaultServer server, other;
  other.put("/x", "content");
  server.redirect("/set/x", other.url() + "/x");
  Turned turned;
  turned.found->token = "canary";
  Fetcher fetcher = fetcher_to(turned.access(server.url()));
  EXPECT_EQ(fetcher.fetch_text(Url::parse("s3://set/x"), 100), "content");
  ASSERT_EQ(other.requests().size(), 1u);
  const std::string request = other.requests()[0];
  EXPECT_EQ(request.find("uthorization"), std::string::npos) << request;
  EXPECT_EQ(request.find("x-amz"), std::string::npos) << request;
  EXPECT_NE(server.requests()[0].find("x-amz-security-token: canary"), std::string::npos);
}

TEST(S3Fetch, RefusalsNameWhatToDoAndNoSecret) {
  FaultServer server;
  std::string body;
  std::string status = "403 Forbidden";
  server.script([&](const std::string&) { return answer(status, body); });
  Turned turned;
  turned.found->token = "canary";
  const struct {
    const char *status, *code, *hint;
    FetchError::Kind kind;
  } cases[] = {
      {"403 Forbidden", "AccessDenied", "grants", FetchError::Kind::denied},
      {"403 Forbidden", "SignatureDoesNotMatch", "secret key", FetchError::Kind::denied},
      {"403 Forbidden", "InvalidAccessKeyId", "does not know", FetchError::Kind::denied},
      {"400 Bad Request", "ExpiredToken", "renew", FetchError::Kind::denied},
      {"404 Not Found", "NoSuchBucket", "bucket's name", FetchError::Kind::wrong},
      {"404 Not Found", "NoSuchKey", "uploaded", FetchError::Kind::missing},
  };
  for (const auto& one : cases) {
    status = one.status;
    body = error_of(one.code, "<Message>canary</Message>");
    Fetcher fetcher = fetcher_to(turned.access(server.url()));
    try {
      fetcher.fetch_text(Url::parse("s3://set/x"), 100);
      ADD_FAILURE() << one.code << " passed";
    } catch (const FetchError& error) {
      EXPECT_EQ(error.kind, one.kind) << one.code;
      const std::string text = std::string(error.what()) + error.hint();
      EXPECT_NE(text.find(one.code), std::string::npos) << text;
      EXPECT_NE(text.find(one.hint), std::string::npos) << text;
      EXPECT_EQ(text.find("canary"), std::string::npos) << text;
    }
  }
}

// Lists.

TEST(S3List, IsParsedStrictly) {
  const S3Page page = parse_s3_page(
      "<?xml version='1.0'?><ListBucketResult xmlns=\"x\"><Prefix>a/</Prefix><IsTruncated>true"
      "</IsTruncated><NextContinuationToken>n&amp;1</NextContinuationToken><Contents><Key>a/x &lt;"
      "&#233;&#x2B;.tar</Key><Size>7</Size><ETag>&quot;e&quot;</ETag><Owner><ID/></Owner>"
      "</Contents><CommonPrefixes><Prefix>a/train/</Prefix></CommonPrefixes></ListBucketResult>");
  EXPECT_EQ(page.next, "n&1");
  ASSERT_EQ(page.objects.size(), 1u);
  EXPECT_EQ(page.objects[0].name, "a/x <\xc3\xa9+.tar");
  EXPECT_EQ(page.objects[0].size, 7u);
  EXPECT_EQ(page.objects[0].etag, "\"e\"");
  EXPECT_EQ(page.folders, std::vector<std::string>{"a/train/"});
  for (const char* bad :
       {"", "text", "<ListBucketResult>", "<a></b>", "<html></html>", "<!DOCTYPE x><a/>",
        "<ListBucketResult><IsTruncated>true</IsTruncated></ListBucketResult>",
        "<ListBucketResult><Contents><Size>1</Size></Contents></ListBucketResult>",
        "<ListBucketResult><Contents><Key>x</Key><Size>-1</Size></Contents></ListBucketResult>",
        "<a>&own;</a>", "<a>&#0;</a>", "<a/><a/>", "<a x=\">\"/>", "<a/>text"})
    EXPECT_THROW(parse_s3_page(bad), DataError) << bad;
}

/// Answers lists of a bucket in pages of `per_page` objects, and objects themselves.
class Bucket {
 public:
  explicit Bucket(std::size_t per_page) : per_page_(per_page) {
    server.script([this](const std::string& request) { return list(request); });
  }
  void put(const std::string& key, const std::string& content) {
    keys_[key] = content.size();
    server.put("/set/" + percent_encoded(key), content);
  }
  FaultServer server;

 private:
  static std::string parameter(const std::string& request, const std::string& name) {
    const std::size_t at = request.find(name + "=");
    if (at == std::string::npos) return {};
    const std::size_t begin = at + name.size() + 1;
    return percent_decoded(request.substr(begin, request.find_first_of("& ", begin) - begin));
  }
  std::string list(const std::string& request) const {
    if (!request.starts_with("GET /set/?")) return {};
    const std::string prefix = parameter(request, "prefix");
    const std::string after = parameter(request, "continuation-token");
    std::string body, next;
    std::size_t count = 0;
    for (const auto& [key, size] : keys_) {
      if (!key.starts_with(prefix) || key <= after || key.find('/', prefix.size()) != key.npos)
        continue;
      if (count++ == per_page_) {
        body += "<IsTruncated>true</IsTruncated><NextContinuationToken>" + next +
                "</NextContinuationToken>";
        break;
      }
      body += fmt::format(
          "<Contents><Key>{}</Key><Size>{}</Size><ETag>&quot;one&quot;</ETag>"
          "</Contents>",
          key, size);
      next = key;
    }
    return answer("200 OK", "<ListBucketResult>" + body + "</ListBucketResult>");
  }

  std::size_t per_page_;
  std::map<std::string, std::size_t> keys_;
};

TEST(S3List, GoesPastAThousandKeys) {
  Bucket bucket(1000);
  for (int i = 0; i < 2500; ++i) bucket.put(fmt::format("a b/x{:05}=+", i), "x");
  bucket.put("other", "x");
  Turned turned;
  Fetcher fetcher = fetcher_to(turned.access(bucket.server.url()));
  const auto all = list_s3_folder(fetcher, Url::parse("s3://set/a b/"),
                                  [](const std::string&) { return false; });
  ASSERT_EQ(all.size(), 2500u);
  EXPECT_EQ(all.back().name, "x02499=+");
  EXPECT_EQ(fetcher.totals().requests, 3u);
  bucket.put("few/one", "x");
  const auto none = [](const std::string&) { return false; };
  EXPECT_EQ(list_s3_folder(fetcher, Url::parse("s3://set/few"), none).size(), 1u);
  EXPECT_EQ(list_s3_folder(fetcher, Url::parse("s3://set/nothing/"), none).size(), 0u);
}

/// A clock that the test moves on.
class MovedClock final : public RetryClock {
 public:
  double now_s() override { return now; }
  void sleep(double, const std::atomic<bool>*) override {}
  std::atomic<double> now = 0;
};

TEST(S3List, ThatNeverEndsIsRefused) {
  const auto key = [](int number) {
    return fmt::format("<Contents><Key>a/{}</Key><Size>1</Size></Contents>", number);
  };
  MovedClock clock;
  struct Server {
    const char* name;
    const char* reason;
    std::function<std::string(int)> fields, token;
  };
  const auto none = [](int) { return std::string(); };
  const auto fresh = [](int page) { return std::to_string(page); };
  const Server servers[] = {
      {"one token", "names itself", none, [](int) { return std::string("x"); }},
      {"two tokens", "for 0 names", none, [](int page) { return std::to_string(page % 2); }},
      {"empty pages", "for 0 names", none, fresh},
      {"the same key", "for 1 names", [&](int) { return key(1); }, fresh},
      {"a key per page", "102 pages", key, fresh},
      {"folders", "pages of",
       [](int page) {
         return fmt::format("<CommonPrefixes><Prefix>a/{}/</Prefix></CommonPrefixes>", page);
       },
       fresh},
      {"padding", "for 0 names", [](int) { return std::string(15'000'000, ' '); }, fresh},
      {"slow", "600 s",
       [&](int page) {
         clock.now = clock.now + 100;
         return key(page);
       },
       fresh}};
  for (const Server& one : servers) {
    int pages = 0;
    FaultServer server;
    server.script([&](const std::string&) {
      ++pages;
      return answer("200 OK", fmt::format("<ListBucketResult><IsTruncated>true</IsTruncated>{}"
                                          "<NextContinuationToken>{}</NextContinuationToken>"
                                          "</ListBucketResult>",
                                          one.fields(pages), one.token(pages)));
    });
    Turned turned;
    Fetcher fetcher(FetchOptions{}, turned.access(server.url()), clock);
    try {
      list_s3_folder(fetcher, Url::parse("s3://set/a/"), [](const std::string&) { return false; });
      ADD_FAILURE() << one.name << " ended";
    } catch (const FetchError& error) {
      const std::string what = error.what();
      EXPECT_NE(what.find("never ends"), std::string::npos) << one.name << ": " << what;
      EXPECT_NE(what.find(one.reason), std::string::npos) << one.name << ": " << what;
    }
    EXPECT_LE(server.requests().size(), 102u) << one.name;
  }
}

TEST(S3List, TakesEachKeyOnce) {
  FaultServer server;
  server.script([](const std::string& request) {
    const bool first = request.find("continuation") == std::string::npos;
    return answer(
        "200 OK",
        fmt::format("<ListBucketResult><IsTruncated>{}</IsTruncated>{}"
                    "<Contents><Key>a/1</Key><Size>1</Size></Contents></ListBucketResult>",
                    first, first ? "<NextContinuationToken>x</NextContinuationToken>" : ""));
  });
  Turned turned;
  Fetcher fetcher = fetcher_to(turned.access(server.url()));
  const auto none = [](const std::string&) { return false; };
  EXPECT_EQ(list_s3_folder(fetcher, Url::parse("s3://set/a/"), none).size(), 1u);
}

TEST(S3Reader, ListsABucketWithoutASetIndex) {
  Home home;
  Bucket bucket(2);
  TempFolder local;
  for (int i = 0; i < 3; ++i) {
    test::TarBuilder tar;
    for (int j = 0; j < 4; ++j) {
      const std::string name = fmt::format("{}-{}", i, j);
      tar.add(name + ".jpg", test::Bytes(10, static_cast<std::uint8_t>(16 * i + j)));
      tar.add(name + ".cls", std::to_string(j % 2));
    }
    const test::Bytes bytes = tar.end();
    const std::string name = fmt::format("train {}=+\xc3\xa9.tar", i);
    local.write("set/" + name, bytes);
    bucket.put("my set/" + name, {bytes.begin(), bytes.end()});
  }
  bucket.put("my set/notes.txt", "x");
  const Variable id("AWS_ACCESS_KEY_ID", "key"), secret("AWS_SECRET_ACCESS_KEY", "secret"),
      endpoint("AWS_ENDPOINT_URL_S3", bucket.server.url());
  DataOptions options;
  options.reader = "tar";
  options.path = "s3://set/my set/";
  options.remote.cache = local.path("cache");
  const auto remote = open_reader(options);
  const auto folder = open_reader({"tar", local.path("set")});
  EXPECT_EQ(remote->info().fingerprint, folder->info().fingerprint);
  ASSERT_EQ(remote->info().count, folder->info().count);
  Buffer one, two;
  for (std::uint64_t i = 0; i < remote->info().count; ++i) {
    const Sample a = remote->read(i, one), b = folder->read(i, two);
    EXPECT_TRUE(std::equal(a.bytes.begin(), a.bytes.end(), b.bytes.begin(), b.bytes.end()));
  }
  EXPECT_TRUE(remote->name(0).starts_with("s3://set/my set/train 0=+\xc3\xa9.tar member"));
  options.index = IndexUse::require;
  EXPECT_THROW(open_reader(options), DataError);
}

}  // namespace
}  // namespace millrace::pipeline
