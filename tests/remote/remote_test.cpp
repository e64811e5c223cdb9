// Tests of remote data: addresses, headers, and retries against a server that misbehaves.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <functional>

#include "base/rng.h"
#include "millrace/error.h"
#include "pipeline/readers/url.h"
#include "pipeline/remote/fetch.h"
#include "pipeline/remote/sha256.h"
#include "tests/remote/fake_clock.h"
#include "tests/remote/fault_server.h"

namespace millrace::pipeline {
namespace {

using test::FakeClock;
using test::Fault;
using test::FaultServer;

TEST(RemoteUrl, SecretsAreNeitherAcceptedNorPrinted) {
  for (const char* path : {"http://me:canary@host/a/", "https://host/a?sig=canary",
                           "http://me:can/ary@host/a", "s3://me:canary@bucket/a"}) {
    EXPECT_EQ(redacted(path).find("canary"), std::string::npos) << redacted(path);
    EXPECT_EQ(redacted(path).find("ary@"), std::string::npos) << redacted(path);
  }
  try {
    Url::parse("http://me:canary@host/a/");
    ADD_FAILURE() << "accepted";
  } catch (const DataError& error) {
    EXPECT_EQ(std::string(error.what()).find("canary"), std::string::npos) << error.what();
  }
  EXPECT_EQ(Url::parse("https://host/a?sig=canary").text(), "https://host/a");
}

TEST(RemoteUrl, NamesAreEncoded) {
  EXPECT_EQ(Url::parse("http://Host:80/a b").file("t=1+2 \xc3\xa9.tar").text(),
            "http://host:80/a%20b/t%3D1%2B2%20%C3%A9.tar");
  EXPECT_EQ(percent_decoded("a%20b%zz%4"), "a b%zz%4");
  EXPECT_FALSE(is_remote("data/http://x"));
  EXPECT_TRUE(is_remote("HTTPS://x"));
  EXPECT_TRUE(is_remote("s3://bucket/a"));
  EXPECT_THROW(Url::parse("s3:///a"), DataError);
  EXPECT_THROW(Url::parse("ftp://host/"), DataError);
  EXPECT_THROW(Url::parse("http:///a"), DataError);
}

TEST(RemoteUrl, RedirectsAreResolved) {
  const Url url = Url::parse("http://host/a/b?secret=1");
  EXPECT_EQ(url.redirected("c").request(), "http://host/a/c");
  EXPECT_EQ(url.redirected("/c?x=1").request(), "http://host/c?x=1");
  EXPECT_EQ(url.redirected("//other/c").request(), "http://other/c");
  EXPECT_THROW(url.redirected("file:///etc/passwd"), DataError);
}

TEST(RemoteHeader, LinesAreReadAndOddOnesNoticed) {
  HttpHeader header;
  for (const char* line : {"HTTP/1.1 100 Continue\r\n", "ETag: \"old\"\r\n", "HTTP/2 206\r\n",
                           "content-range: bytes 5-9/10\r\n", "CONTENT-LENGTH: 5\r\n",
                           "etag: W/\"x\"\r\n", "no colon\r\n"})
    add_header_line(header, line);
  EXPECT_EQ(header.status, 206);
  EXPECT_EQ(header.length, 5u);
  EXPECT_EQ(header.range, (ContentRange{5, 9, 10}));
  EXPECT_FALSE(header.has_strong_etag());
  for (const char* odd : {"bytes 9-5/10", "bytes 5-10/10", "bytes -5/10", "5-9/10", "bytes 5-9"}) {
    add_header_line(header, std::string("Content-Range: ") + odd);
    EXPECT_TRUE(header.odd_range) << odd;
  }
}

TEST(RemoteHeader, RetryAfterIsANumberOrADate) {
  EXPECT_EQ(retry_after_s("7", 0), 7);
  EXPECT_EQ(retry_after_s("Sun, 06 Nov 1994 08:49:37 GMT", 784111770), 7);
  EXPECT_EQ(retry_after_s("Sun, 06 Nov 1994 08:49:37 GMT", 884111770), 0);
  EXPECT_EQ(retry_after_s("soon", 0), std::nullopt);
  EXPECT_EQ(retry_after_s("", 0), std::nullopt);
}

TEST(RemoteHash, EqualsPublishedValues) {
  // FIPS 180-4's example, and RFC 4231, cases 2 and 6.
  EXPECT_EQ(hex_of(sha256_of("abc")),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(hex_of(hmac_sha256("Jefe", "what do ya want for nothing?")),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  EXPECT_EQ(hex_of(hmac_sha256(std::string(131, '\xaa'),
                               "Test Using Larger Than Block-Size Key - Hash Key First")),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

TEST(RemoteRetry, WaitsGrowAndEndAtTheDeadline) {
  FakeClock clock;
  RetryOptions options;
  options.deadline_s = 5;
  options.first_wait_s = 0.25;
  options.longest_wait_s = 1;
  Retry retry(options, clock, 1);
  double nominal = 0.25, sum = 0;
  while (const auto wait = retry.failed({})) {
    EXPECT_GE(*wait, nominal / 2);
    EXPECT_LE(*wait, nominal);
    nominal = std::min(nominal * 2, 1.0);
    sum += *wait;
    clock.sleep(*wait, nullptr);
  }
  EXPECT_GT(sum, 3.9);
  EXPECT_LE(sum, 5);
  retry.progressed();
  EXPECT_EQ(retry.failed(3), 3);
  EXPECT_EQ(retry.failed(6), std::nullopt);
}

TEST(RemoteRetry, AHostThatAnswersNothingIsLeftAlone) {
  HostBudget budget;
  for (int i = 0; i < HostBudget::kMax; ++i) ASSERT_TRUE(budget.failed()) << i;
  EXPECT_FALSE(budget.failed());
  budget.succeeded();
  EXPECT_TRUE(budget.failed());
}

TEST(RemoteRetry, ProcessesWaitForDifferentTimes) {
  FakeClock clock;
  const auto first_wait = [&](std::uint64_t seed) {
    RetryOptions options;
    options.seed = seed;
    return Retry(options, clock, 1).failed({});
  };
  EXPECT_EQ(first_wait(1), first_wait(1));
  EXPECT_NE(first_wait(1), first_wait(2));
}

class TextTarget final : public FetchTarget {
 public:
  void restart() override { text.clear(); }
  void append(const char* bytes, std::size_t size) override { text.append(bytes, size); }
  std::string text;
};

std::string content_of(std::uint64_t seed, std::size_t size) {
  std::string text(size, '\0');
  for (std::size_t i = 0; i < size; ++i)
    text[i] = static_cast<char>(base::mix64(seed * 1'000'003 + i) & 0xff);
  return text;
}

/// `stall` is far longer than any answer takes, unless a test has one in it.
FetchOptions short_waits(std::chrono::milliseconds stall = std::chrono::seconds(30)) {
  FetchOptions options;
  options.retry.deadline_s = 5;
  options.retry.first_wait_s = 0.02;
  options.retry.longest_wait_s = 0.5;
  options.stall = stall;
  return options;
}

/// Fetches an object past the faults of one seed. Returns true if it arrived.
void fetch_past_faults(std::uint64_t seed, bool recoverable) {
  FaultServer server;
  const std::string content = content_of(seed, 40'000 + base::mix64(seed) % 60'000);
  server.put("/a", content);
  // Faults that may pass; behind the second list, no request is answered in full.
  constexpr auto kKinds = static_cast<std::uint64_t>(Fault::last_recoverable);
  constexpr Fault kUnanswered[] = {Fault::reset,      Fault::cut,        Fault::status_429,
                                   Fault::status_500, Fault::status_503, Fault::garbage,
                                   Fault::no_etag};
  std::vector<Fault> faults;
  std::uint64_t draw = base::mix64(seed);
  for (int left = 1 + static_cast<int>(seed % 4); left > 0; --left) {
    draw = base::mix64(draw);
    auto fault = recoverable ? static_cast<Fault>(1 + draw % kKinds)
                             : kUnanswered[draw % std::size(kUnanswered)];
    // More than two mismatches are not damage in transit.
    if (fault == Fault::flipped && std::count(faults.begin(), faults.end(), fault) > 1)
      fault = Fault::cut;
    // A stall costs the time until it is noticed.
    if (fault == Fault::stall && seed % 8 != 0) fault = Fault::cut;
    faults.push_back(fault);
  }
  constexpr Fault kFatal[] = {Fault::longer,     Fault::encoded,   Fault::missing, Fault::denied,
                              Fault::to_nowhere, Fault::weak_etag, Fault::reset,   Fault::flipped};
  const Fault fatal = kFatal[seed % std::size(kFatal)];
  if (!recoverable) faults.push_back(fatal);
  server.fail("/a", faults, !recoverable);
  FakeClock clock;
  const bool stalls = std::count(faults.begin(), faults.end(), Fault::stall) > 0;
  Fetcher fetcher(stalls ? short_waits(std::chrono::seconds(1)) : short_waits(), plain_access(),
                  clock);
  FetchWanted wanted{Url::parse(server.url() + "/a")};
  wanted.size = content.size();
  wanted.sha256 = sha256_of(content);
  TextTarget target;
  try {
    fetcher.fetch(wanted, target);
    EXPECT_TRUE(recoverable) << "seed " << seed << " arrived";
    EXPECT_TRUE(target.text == content) << "seed " << seed;
  } catch (const FetchError& error) {
    ASSERT_FALSE(recoverable) << "seed " << seed << ": " << error.what();
    const FetchError::Kind expected = fatal == Fault::missing  ? FetchError::Kind::missing
                                      : fatal == Fault::denied ? FetchError::Kind::denied
                                      : fatal == Fault::weak_etag || fatal == Fault::reset
                                          ? FetchError::Kind::unreachable
                                          : FetchError::Kind::wrong;
    EXPECT_EQ(error.kind, expected) << "seed " << seed << ": " << error.what();
    EXPECT_NE(std::string(error.what()).find(wanted.url.text()), std::string::npos);
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
    EXPECT_FALSE(error.hint().empty());
  }
}

/// A clock that moves on whenever somebody looks at it.
class TickingClock final : public RetryClock {
 public:
  double now_s() override { return now_ += 0.001; }
  void sleep(double seconds, const std::atomic<bool>*) override { now_ += seconds; }

 private:
  double now_ = 0;
};

TEST(RemoteFetch, TimeIsFirstByteTransferOrRetry) {
  FaultServer server;
  server.put("/a", "content");
  TickingClock clock;
  Fetcher fetcher(short_waits(), plain_access(), clock);
  const FetchTimes before = fetch_times_of_thread();
  EXPECT_EQ(fetcher.fetch_text(Url::parse(server.url() + "/a"), 100), "content");
  const FetchTimes smooth = fetch_times_of_thread();
  EXPECT_GT(smooth.first_byte_s, before.first_byte_s);
  EXPECT_GT(smooth.transfer_s, before.transfer_s);
  EXPECT_EQ(smooth.retry_s, before.retry_s);
  server.fail("/a", {Fault::status_429});  // which asks for a wait of 1 s
  EXPECT_EQ(fetcher.fetch_text(Url::parse(server.url() + "/a"), 100), "content");
  const FetchTimes rough = fetch_times_of_thread();
  EXPECT_GT(rough.retry_s, smooth.retry_s + 1);
  EXPECT_LT(rough.first_byte_s + rough.transfer_s, smooth.first_byte_s + smooth.transfer_s + 1);
  EXPECT_GE(remote_counts().totals.requests, 3u);
}

TEST(RemoteFetch, PassingFaultsOf140SeedsEndWithTheSameBytes) {
  for (std::uint64_t seed = 0; seed < 140; ++seed) fetch_past_faults(seed, true);
}

TEST(RemoteFetch, LastingFaultsOf60SeedsEndInTheirErrors) {
  for (std::uint64_t seed = 140; seed < 200; ++seed) fetch_past_faults(seed, false);
}

TEST(RemoteFetch, ABrokenTransferIsContinuedOnlyBehindAStrongETag) {
  FaultServer server;
  const std::string content = content_of(1, 50'000);
  server.put("/a", content);
  FakeClock clock;
  for (const Fault fault : {Fault::cut, Fault::weak_etag, Fault::no_etag}) {
    server.fail("/a", {fault});
    Fetcher fetcher(short_waits(), plain_access(), clock);
    TextTarget target;
    fetcher.fetch({Url::parse(server.url() + "/a"), content.size()}, target);
    EXPECT_TRUE(target.text == content);
    EXPECT_EQ(server.requests().back().find("Range: bytes=25000-") != std::string::npos,
              fault == Fault::cut);
  }
}

TEST(RemoteFetch, APartIsThatOfTheObjectWhateverTheServerDoes) {
  FaultServer server;
  const std::string content = content_of(7, 5000);
  server.put("/a", content);
  constexpr Fault kFaults[] = {Fault::reset,      Fault::cut,           Fault::status_500,
                               Fault::status_503, Fault::garbage,       Fault::changed_etag,
                               Fault::no_etag,    Fault::weak_etag,     Fault::redirect,
                               Fault::other_part, Fault::ignored_range, Fault::none};
  FakeClock clock;
  Fetcher fetcher({}, plain_access(), clock);
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    const std::uint64_t draw = base::mix64(seed);
    FetchWanted wanted{Url::parse(server.url() + "/a")};
    wanted.size = content.size();
    wanted.part = FetchPart{draw % 4000, 1 + (draw >> 20) % 1000, seed % 2 == 0 ? "" : "\"one\""};
    server.fail("/a", {kFaults[(draw >> 32) % std::size(kFaults)],
                       kFaults[(draw >> 40) % std::size(kFaults)]});
    TextTarget target;
    const HttpHeader header = fetcher.fetch(wanted, target);
    EXPECT_TRUE(target.text == content.substr(wanted.part->first, wanted.part->count)) << seed;
    EXPECT_EQ(header.etag, "\"one\"");
  }
}

TEST(RemoteFetch, APartOfAChangedObjectIsRefused) {
  for (const Fault fault : {Fault::changed_etag, Fault::ignored_range, Fault::other_part}) {
    FaultServer server;
    server.put("/a", std::string(100, 'a'));
    server.fail("/a", {fault}, true);
    FakeClock clock;
    Fetcher fetcher({}, plain_access(), clock);
    FetchWanted wanted{Url::parse(server.url() + "/a")};
    wanted.size = 100;
    wanted.part = FetchPart{10, 20, "\"one\""};
    TextTarget target;
    try {
      fetcher.fetch(wanted, target);
      ADD_FAILURE() << "accepted";
    } catch (const FetchError& error) {
      EXPECT_EQ(error.kind, FetchError::Kind::wrong) << error.what();
    }
    wanted.size = 99;  // another length than is listed
    server.fail("/a", {Fault::none});
    EXPECT_THROW(fetcher.fetch(wanted, target), FetchError);
  }
}

TEST(RemoteFetch, BytesThatComeAgainAreNoProgress) {
  FaultServer server;
  const std::string content = content_of(2, 300'000);
  server.put("/a", content);
  server.fail("/a", {Fault::no_etag}, true);  // half of it, and the next request begins anew
  FakeClock clock;
  Fetcher fetcher(short_waits(), plain_access(), clock);
  TextTarget target;
  try {
    fetcher.fetch({Url::parse(server.url() + "/a"), content.size()}, target);
    ADD_FAILURE() << "arrived";
  } catch (const FetchError& error) {
    EXPECT_EQ(error.kind, FetchError::Kind::unreachable) << error.what();
  }
  // Waits grow, so that few of them pass the deadline.
  EXPECT_LT(server.requests().size(), 64u);
}

/// libcurl ends at 300 KB of header lines, after a minute here.
TEST(RemoteFetch, AHeaderThatDoesNotEndIsNoProgress) {
  FaultServer server;
  server.put("/a", "content");
  server.fail("/a", {Fault::hints}, true);
  FakeClock clock;
  FetchOptions options = short_waits(std::chrono::milliseconds(300));
  options.retry.deadline_s = 0.1;
  Fetcher fetcher(options, plain_access(), clock);
  TextTarget target;
  const auto begin = std::chrono::steady_clock::now();
  try {
    fetcher.fetch({Url::parse(server.url() + "/a")}, target);
    ADD_FAILURE() << "arrived";
  } catch (const FetchError& error) {
    EXPECT_EQ(error.kind, FetchError::Kind::unreachable);
    EXPECT_NE(std::string(error.what()).find("the answer's header had not ended after 0.3 s"),
              std::string::npos)
        << error.what();
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
}

TEST(RemoteFetch, AFetchThatNobodyWaitsForGoesOnOnlyWithProgress) {
  FaultServer server;
  const std::string content = content_of(3, 300'000);
  server.put("/a", content);
  FakeClock clock;
  FetchWanted wanted{Url::parse(server.url() + "/a"), content.size()};
  wanted.once = true;
  {
    server.fail("/a", {Fault::cut});
    Fetcher fetcher(short_waits(), plain_access(), clock);
    TextTarget target;
    fetcher.fetch(wanted, target);
    EXPECT_TRUE(target.text == content);
    EXPECT_EQ(fetcher.totals().requests, 2u);
    EXPECT_EQ(fetcher.totals().bytes, content.size()) << "no byte comes twice";
  }
  // Nothing came, or what came would have to come again.
  for (const Fault fault : {Fault::reset, Fault::status_503, Fault::weak_etag, Fault::no_etag}) {
    server.fail("/a", {fault});
    Fetcher fetcher(short_waits(), plain_access(), clock);
    TextTarget target;
    EXPECT_THROW(fetcher.fetch(wanted, target), FetchError);
    EXPECT_EQ(fetcher.totals().requests, 1u);
  }
}

/// Calls a function when the first bytes come.
class WatchedTarget final : public FetchTarget {
 public:
  explicit WatchedTarget(std::function<void()> begun) : begun_(std::move(begun)) {}
  void restart() override {}
  void append(const char*, std::size_t) override { begun_(); }

 private:
  std::function<void()> begun_;
};

TEST(RemoteFetch, AStopEndsATransferThatIsUnderWay) {
  FaultServer server;
  const std::string content = content_of(3, 100'000);
  server.put("/a", content);
  server.fail("/a", {Fault::stall});
  std::atomic<bool> stop{false};
  FetchOptions options = short_waits();
  options.stop = &stop;
  Fetcher fetcher(options, plain_access());
  WatchedTarget target([&] { stop.store(true); });
  try {
    fetcher.fetch({Url::parse(server.url() + "/a"), content.size()}, target);
    ADD_FAILURE() << "arrived";
  } catch (const Error& error) {
    EXPECT_EQ(error.exit(), Exit::interrupted) << error.what();
  }
  EXPECT_EQ(fetcher.totals().failures, 0u) << "stopped only once the request had failed";
}

TEST(RemoteFetch, AStopThatWaitsForFailuresLetsATransferEndAndNoFailureRepeat) {
  FaultServer server;
  const std::string content = content_of(3, 100'000);
  server.put("/a", content);
  std::atomic<bool> stop{true};
  FetchOptions options = short_waits();
  options.stop = &stop;
  options.stop_at = StopAt::failure;
  Fetcher fetcher(options, plain_access());
  TextTarget target;
  fetcher.fetch({Url::parse(server.url() + "/a"), content.size()}, target);
  EXPECT_EQ(target.text, content);
  server.fail("/a", {Fault::status_500, Fault::status_500});
  try {
    fetcher.fetch({Url::parse(server.url() + "/a"), content.size()}, target);
    ADD_FAILURE() << "arrived";
  } catch (const Error& error) {
    EXPECT_EQ(error.exit(), Exit::interrupted) << error.what();
  }
  EXPECT_EQ(fetcher.totals().failures, 1u);
}

TEST(RemoteFetch, AWrongContentThatTookLongIsFetchedAgain) {
  FaultServer server;
  const std::string content = content_of(4, 1000);
  server.put("/a", content);
  server.fail("/a", {Fault::flipped, Fault::flipped});
  FakeClock clock;
  const FetchOptions options = short_waits();
  Fetcher fetcher(options, plain_access(), clock);
  FetchWanted wanted{Url::parse(server.url() + "/a"), content.size(), sha256_of(content)};
  WatchedTarget target([&] { clock.sleep(2 * options.retry.deadline_s, nullptr); });
  EXPECT_NO_THROW(fetcher.fetch(wanted, target));
  EXPECT_EQ(server.requests().size(), 3u);
}

TEST(RemoteFetch, AnotherHostSeesNoCredentials) {
  FaultServer far, near;
  far.put("/b", "content");
  // 127.0.0.1 by another port is another host.
  setenv("MILLRACE_REMOTE_AUTHORIZATION", "Bearer canary", 1);
  setenv("MILLRACE_REMOTE_QUERY", "sig=canary", 1);
  Fetcher fetcher(short_waits(), plain_access());
  unsetenv("MILLRACE_REMOTE_AUTHORIZATION");
  unsetenv("MILLRACE_REMOTE_QUERY");
  near.put("/a", "");
  near.redirect("/a", far.url() + "/b");
  EXPECT_EQ(fetcher.fetch_text(Url::parse(near.url() + "/a"), 100), "content");
  ASSERT_EQ(near.requests().size(), 1u);
  EXPECT_NE(near.requests()[0].find("Bearer canary"), std::string::npos);
  EXPECT_NE(near.requests()[0].find("sig=canary"), std::string::npos);
  ASSERT_EQ(far.requests().size(), 1u);
  EXPECT_EQ(far.requests()[0].find("canary"), std::string::npos) << far.requests()[0];
}

}  // namespace
}  // namespace millrace::pipeline
