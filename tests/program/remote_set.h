// Tests of the program on remote sets: a packed set, and a bench of it from any address.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "tests/program/datasets.h"
#include "tests/program/program.h"

namespace millrace::program_test {

class RemoteSetTest : public ProgramTest {
 protected:
  /// Packs nine photos into the three archives of `set`.
  void pack_photos(const std::filesystem::path& set) {
    write_photos(in("photos"), 9);
    std::filesystem::create_directories(set.parent_path());
    ASSERT_TRUE(succeeded(
        run({"data", "pack", in("photos").string(), set.string(), "--shards", "3", "--quiet"})));
  }
  Arguments bench_of(const std::string& path, const Arguments& more = {}) const {
    return Arguments{"bench",
                     "imagenet-rrc",
                     "data.reader=tar",
                     "data.path=" + path,
                     "augment.random_resized_crop.size=24",
                     "loader.batch=4",
                     "data.remote.cache=" + in("cache").string(),
                     "--hash",
                     "--json"} +
           more;
  }
  /// Returns the hash of a set's batches, read with options_.
  std::string hash(const std::string& path, const Arguments& more = {}) const {
    const Result result = run(bench_of(path, more), options_);
    EXPECT_TRUE(succeeded(result));
    const Json json = parse_json(result.out);
    return json.is_object() ? json["batch_hash"].get<std::string>() : "";
  }

  RunOptions options_;
};

}  // namespace millrace::program_test
