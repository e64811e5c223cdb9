// Tests of the reader of remote archives.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <thread>
#include <vector>

#include "millrace/error.h"
#include "millrace/reader.h"
#include "pipeline/readers/set_index.h"
#include "pipeline/readers/tar.h"
#include "pipeline/readers/url.h"
#include "pipeline/remote/sha256.h"
#include "tests/data/support.h"
#include "tests/data/tar_builder.h"
#include "tests/remote/fault_server.h"

namespace millrace::pipeline {
namespace {

using test::Fault;
using test::FaultServer;
using test::TempFolder;

test::Bytes archive(int shard) {
  test::TarBuilder tar;
  for (int i = 0; i < 5; ++i) {
    const std::string name = std::to_string(shard) + "-" + std::to_string(i);
    tar.add(name + ".jpg", test::Bytes(static_cast<std::size_t>(20 + i),
                                       static_cast<std::uint8_t>(shard * 16 + i)));
    tar.add(name + ".cls", std::to_string((shard + i) % 3));
    if (i != 2) tar.add(name + ".txt", "caption of " + name);
  }
  return tar.end();
}

std::string text_of(const test::Bytes& bytes) { return {bytes.begin(), bytes.end()}; }

/// Archives on a disk and on a server, with a set.index there.
struct Served {
  explicit Served(int archives = 3) {
    for (int i = 0; i < archives; ++i) {
      const std::string name = "train 0=" + std::to_string(i) + ".tar";
      const test::Bytes bytes = archive(i);
      local.write("set/" + name, bytes);
      server.put("/set/" + percent_encoded(name), text_of(bytes));
      IndexTarOptions with_names;
      with_names.names = true;
      const TarIndex index = index_tar(name, bytes, with_names);
      SetIndex::Shard shard;
      shard.name = name;
      shard.size = bytes.size();
      shard.samples = index.samples.size();
      shard.fingerprint = index.fingerprint;
      shard.largest_label = 2;
      shard.folders = index.folders;
      shard.sha256 = sha256_of(text_of(bytes));
      for (const TarIndex::Entry& entry : index.samples) shard.image_bytes += entry.size;
      ShardIndex own;
      own.shard = name;
      own.stamp.size = bytes.size();
      own.sha256 = shard.sha256;
      own.tar = index;
      const auto own_bytes = to_bytes(own);
      shard.index_size = own_bytes.size();
      server.put("/set/" + percent_encoded(name) + ".index",
                 {reinterpret_cast<const char*>(own_bytes.data()), own_bytes.size()});
      set.shards.push_back(shard);
    }
    publish();
  }
  void publish() {
    const auto bytes = to_bytes(set);
    server.put("/set/set.index", {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  }
  std::unique_ptr<Reader> open(const std::string& path = "/set/", std::uint64_t limit = 0,
                               const std::string& cache = {},
                               RemoteFetch fetch = RemoteFetch::automatic,
                               const std::vector<std::string>& members = {},
                               const std::string& masks = {}) {
    DataOptions options;
    options.members = members;
    options.masks = masks;
    options.remote.fetch = fetch;
    options.reader = "tar";
    options.path = server.url() + path;
    options.remote.cache = cache.empty() ? local.path("cache") : cache;
    options.remote.cache_bytes = limit;
    options.remote.deadline_s = 120;
    options.remote.connections = connections;
    return open_reader(options);
  }
  TempFolder local;
  FaultServer server;
  SetIndex set;
  int connections = 4;  ///< of readers that are opened later
};

void expect_same(const Reader& one, const Reader& two) {
  ASSERT_EQ(one.info().count, two.info().count);
  EXPECT_EQ(one.info().fingerprint, two.info().fingerprint);
  EXPECT_EQ(one.info().classes, two.info().classes);
  EXPECT_EQ(one.info().bytes, two.info().bytes);
  Buffer first, second;
  for (std::uint64_t i = 0; i < one.info().count; ++i) {
    const Sample a = one.read(i, first), b = two.read(i, second);
    EXPECT_EQ(a.label, b.label);
    EXPECT_TRUE(std::equal(a.bytes.begin(), a.bytes.end(), b.bytes.begin(), b.bytes.end())) << i;
  }
}

TEST(RemoteReader, HasTheSamplesOfTheLocalSetColdWarmAndByBraces) {
  Served served;
  const auto local = open_reader({"tar", served.local.path("set")});
  auto remote = served.open();
  EXPECT_EQ(served.server.requests().size(), 1u);  // set.index opens the set
  expect_same(*local, *remote);
  EXPECT_EQ(served.server.requests().size(), 4u);  // each archive is fetched once
  remote = served.open();
  expect_same(*local, *remote);
  EXPECT_EQ(served.server.requests().size(), 5u);  // nothing is fetched again
  EXPECT_EQ(remote->name(6).find(served.server.url()), 0u);
  expect_same(*local, *served.open("/set/train 0={0..2}.tar"));
}

TEST(RemoteReader, MembersComeWithTheirImageByArchiveAndByRanges) {
  Served served;
  const auto local = open_reader({"tar", served.local.path("set")});
  for (const RemoteFetch fetch : {RemoteFetch::shards, RemoteFetch::ranges}) {
    const auto remote = served.open("/set/", 0, {}, fetch, {"txt", "cls"});
    expect_same(*local, *remote);
    const auto requests = served.server.requests().size();
    Buffer scratch;
    for (std::uint64_t i = 0; i < remote->info().count; ++i) {
      const Sample sample = remote->read(i, scratch);
      ASSERT_EQ(sample.members.size(), 2u);
      const std::string name = std::to_string(i / 5) + "-" + std::to_string(i % 5);
      ASSERT_EQ(sample.members[0].has_value(), i % 5 != 2) << name;
      if (const Member& text = sample.members[0]) {
        EXPECT_EQ(std::string(text->begin(), text->end()), "caption of " + name);
      }
      ASSERT_TRUE(sample.members[1]);
      EXPECT_EQ(sample.members[1]->front(), '0' + sample.label);
    }
    // An image and its members are one request.
    EXPECT_EQ(served.server.requests().size() - requests,
              fetch == RemoteFetch::ranges ? remote->info().count : 0);
  }
}

TEST(RemoteReader, AMaskComesWithItsImage) {
  Served served;
  for (const RemoteFetch fetch : {RemoteFetch::shards, RemoteFetch::ranges}) {
    const auto remote = served.open("/set/", 0, {}, fetch, {}, "cls");
    EXPECT_TRUE(remote->info().masks);
    Buffer scratch;
    const Sample sample = remote->read(3, scratch);
    EXPECT_TRUE(sample.members.empty());
    ASSERT_EQ(sample.mask.size(), 1u) << "its pixels do not matter here";
    EXPECT_EQ(sample.mask.front(), '0' + sample.label);
    EXPECT_EQ(remote->mask(3, scratch).front(), '0' + sample.label);
  }
}

TEST(RemoteReader, ReadsThroughACacheOfOneArchive) {
  Served served;
  const auto local = open_reader({"tar", served.local.path("set")});
  expect_same(*local, *served.open("/set/", served.set.shards[0].size));
}

TEST(RemoteReader, ReadsSamplesByRanges) {
  Served served;
  const auto local = open_reader({"tar", served.local.path("set")});
  const auto remote = served.open("/set/", 0, {}, RemoteFetch::ranges);
  expect_same(*local, *remote);
  EXPECT_EQ(served.server.requests().size(), 1u + 3 + 15);  // set.index, indexes, samples
  EXPECT_NE(remote->name(6).find("member 1-1.jpg"), std::string::npos) << remote->name(6);
  // The archive is replaced while it is read.
  served.server.fail("/set/" + percent_encoded(served.set.shards[1].name), {Fault::changed_etag},
                     true);
  Buffer scratch;
  EXPECT_THROW(remote->read(7, scratch), RunError);
  EXPECT_THROW(served.open("/set/train 0={0..2}.tar", 0, {}, RemoteFetch::ranges), UsageError);
}

TEST(RemoteReader, FirstRangesOfTwoVersionsAreNotMixed) {
  bool met = false;  // no request knew the other's ETag
  for (int attempt = 0; attempt < 5 && !met; ++attempt) {
    Served served;
    std::atomic<int> ranges{0}, conditional{0};
    served.server.script([&](const std::string& request) -> std::string {
      const std::size_t range = request.find("Range: bytes=");
      if (range == std::string::npos) return {};
      if (request.find("If-Match: ") != std::string::npos) {
        ++conditional;
        return "HTTP/1.1 412 Precondition Failed\r\nContent-Length: 0\r\n\r\n";
      }
      const std::string text = request.substr(range + 13);
      const std::uint64_t first = std::stoull(text);
      const std::uint64_t last = std::stoull(text.substr(text.find('-') + 1));
      return "HTTP/1.1 206 Partial Content\r\nETag: \"" + std::to_string(++ranges) +
             "\"\r\nContent-Range: bytes " + std::to_string(first) + "-" + std::to_string(last) +
             "/" + std::to_string(served.set.shards[0].size) +
             "\r\nContent-Length: " + std::to_string(last - first + 1) + "\r\n\r\n" +
             std::string(last - first + 1, 'x');
    });
    const auto remote = served.open("/set/", 0, {}, RemoteFetch::ranges);
    served.server.delay(std::chrono::milliseconds(200));
    std::atomic<int> refused{0};
    std::vector<std::thread> threads;
    for (std::uint64_t i = 0; i < 2; ++i)
      threads.emplace_back([&, i] {
        Buffer scratch;
        try {
          remote->read(i, scratch);
        } catch (const RunError& error) {
          EXPECT_NE(std::string(error.what()).find("changed while"), std::string::npos)
              << error.what();
          ++refused;
        }
      });
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(refused, 1);
    met = conditional == 0;
  }
  EXPECT_TRUE(met) << "the threads never asked at the same time";
}

/// Waits until the server has received so many requests.
void wait_for_requests(const FaultServer& server, std::size_t count) {
  for (int left = 6000; left > 0 && server.requests().size() < count; --left)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  ASSERT_EQ(server.requests().size(), count);
}

TEST(RemoteReader, FetchesWhatIsExpectedBeforeItIsRead) {
  Served served;
  const auto local = open_reader({"tar", served.local.path("set")});
  const auto remote = served.open();
  EXPECT_GE(remote->lookahead(), 10u);
  // The first attempt at one of them fails, and the read repeats it.
  served.server.fail("/set/" + percent_encoded(served.set.shards[1].name), {Fault::status_503});
  for (std::uint64_t i = 0; i < 15; ++i) remote->expect(i);
  wait_for_requests(served.server, 4);
  expect_same(*local, *remote);
  EXPECT_EQ(served.server.requests().size(), 5u);
  EXPECT_EQ(served.open("/set/", 3 * served.set.shards[0].size - 1)->lookahead(), 0u);
}

TEST(RemoteReader, RequestsShareConnections) {
  constexpr int kArchives = 12;
  const std::vector<std::string> all = [] {
    std::vector<std::string> names{"GET /set/set.index HTTP/1.1"};
    for (int i = 0; i < kArchives; ++i)
      names.push_back("GET /set/train%200%3D" + std::to_string(i) + ".tar HTTP/1.1");
    std::sort(names.begin(), names.end());
    return names;
  }();
  const auto asked = [](const FaultServer& server) {
    std::vector<std::string> lines;
    for (const std::string& request : server.requests())
      lines.push_back(request.substr(0, request.find('\r')));
    std::sort(lines.begin(), lines.end());
    return lines;
  };
  Buffer scratch;
  {
    Served served(kArchives);
    const auto remote = served.open();
    for (std::uint64_t i = 0; i < remote->info().count; ++i) remote->read(i, scratch);
    EXPECT_EQ(asked(served.server), all);
    EXPECT_EQ(served.server.connections(), 1);
  }
  {
    Served served(kArchives);
    served.connections = 3;
    const auto remote = served.open();
    for (std::uint64_t i = 0; i < remote->info().count; ++i) remote->expect(i);
    wait_for_requests(served.server, all.size());
    EXPECT_EQ(asked(served.server), all);
    EXPECT_LE(served.server.connections(), 3);
    EXPECT_GE(served.server.connections(), 1);
  }
  Served served(kArchives);
  const auto remote = served.open("/set/", 0, {}, RemoteFetch::ranges);
  std::vector<std::thread> threads;
  for (std::uint64_t first = 0; first < 2; ++first)
    threads.emplace_back([&, first] {
      Buffer own;
      for (std::uint64_t i = first; i < remote->info().count; i += 2) remote->read(i, own);
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(served.server.requests().size(), 1u + kArchives + 5 * kArchives);
  EXPECT_LE(served.server.connections(), 2);
}

TEST(RemoteReader, EndsWhileAnArchiveIsFetchedAhead) {
  Served served;
  auto remote = served.open();
  served.server.fail("/set/" + percent_encoded(served.set.shards[2].name), {Fault::stall});
  remote->expect(12);
  wait_for_requests(served.server, 2);
  const auto begin = std::chrono::steady_clock::now();
  remote.reset();  // the transfer would stall for 30 s
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
  for (const auto& entry : std::filesystem::directory_iterator(served.local.path("cache")))
    EXPECT_NE(entry.path().extension(), ".tar");
}

TEST(RemoteReader, TwoReadersShareACacheThatOneOfThemFills) {
  Served train, eval;
  const std::uint64_t limit = 3 * train.set.shards[0].size;
  const std::string cache = train.local.path("cache");
  const auto local = open_reader({"tar", train.local.path("set")});
  const auto first = train.open("/set/", limit, cache);
  const auto second = eval.open("/set/", limit, cache);
  for (int epoch = 0; epoch < 2; ++epoch) {
    expect_same(*local, *first);  // leaves all of its archives open
    expect_same(*local, *second);
  }
}

TEST(RemoteReader, RefusesACacheThatTheOrderOverruns) {
  Served served;
  DataOptions options;
  options.reader = "tar";
  options.path = served.server.url() + "/set/";
  options.remote.cache = served.local.path("cache");
  options.remote.cache_bytes = 3 * served.set.shards[0].size - 1;
  options.remote.reach = UINT64_MAX;
  EXPECT_EQ(open_reader(options)->info().count, 15u);  // by ranges
  options.remote.fetch = RemoteFetch::shards;
  try {
    open_reader(options);
    ADD_FAILURE() << "accepted";
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.hint()).find("window:N"), std::string::npos) << error.hint();
  }
  options.remote.reach = 4;  // two archives at once
  EXPECT_EQ(open_reader(options)->info().count, 15u);
}

TEST(RemoteReader, AMissingOrWrongArchiveEndsTheRun) {
  Served served;
  served.server.remove("/set/" + percent_encoded(served.set.shards[1].name));
  auto remote = served.open();
  Buffer scratch;
  remote->read(0, scratch);
  EXPECT_THROW(remote->read(5, scratch), RunError);  // on_error does not skip it
  served.set.shards[2].fingerprint ^= 1;
  served.publish();
  remote = served.open();
  EXPECT_THROW(remote->read(10, scratch), RunError);
  served.server.remove("/set/set.index");
  EXPECT_THROW(served.open(), DataError);
}

TEST(RemoteReader, AnArchiveWithOtherLabelsThanListedEndsTheRun) {
  Buffer scratch;
  for (const int largest : {1, 3}) {
    Served served;
    served.set.shards[1].largest_label = largest;
    served.publish();
    EXPECT_THROW(served.open()->read(5, scratch), RunError);
  }
  Served served;
  for (SetIndex::Shard& shard : served.set.shards) shard.unlabelled = shard.samples;
  served.publish();
  EXPECT_THROW(served.open()->read(5, scratch), RunError);
}

TEST(RemoteReader, AnArchiveThatIsNoneEndsTheRun) {
  Served served;
  SetIndex::Shard& shard = served.set.shards[1];
  const std::string garbage(shard.size, 'g');
  served.server.put("/set/" + percent_encoded(shard.name), garbage);
  shard.sha256 = sha256_of(garbage);
  served.publish();
  Buffer scratch;
  EXPECT_THROW(served.open()->read(5, scratch), RunError);  // on_error does not skip it
}

}  // namespace
}  // namespace millrace::pipeline
