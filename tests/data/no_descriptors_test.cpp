// Tests a process that may open no more files: its data is not at fault, so no sample is left out.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include "augment/plan/plan.h"
#include "base/open_file.h"
#include "millrace/error.h"
#include "millrace/loader.h"
#include "tests/data/support.h"
#include "tools/data/data.h"

namespace millrace::pipeline {
namespace {

/// While it lives, no file can be opened.
class NoDescriptors {
 public:
  NoDescriptors() {
    getrlimit(RLIMIT_NOFILE, &before_);
    const rlimit none{0, before_.rlim_max};
    setrlimit(RLIMIT_NOFILE, &none);
  }
  ~NoDescriptors() { setrlimit(RLIMIT_NOFILE, &before_); }
  NoDescriptors(const NoDescriptors&) = delete;
  NoDescriptors& operator=(const NoDescriptors&) = delete;

 private:
  rlimit before_{};
};

template <class Call>
void expect_run_error(const std::string& named, const Call& call) {
  try {
    const NoDescriptors none;
    call();
  } catch (const RunError& error) {
    EXPECT_NE(std::string(error.what()).find(named), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("Too many open files"), std::string::npos);
    EXPECT_EQ(error.hint(), "allow more open files: ulimit -n");
    return;
  }
  FAIL() << "no RunError for " << named;
}

TEST(NoDescriptors, AreNoFaultOfTheData) {
  const test::TempFolder folder;
  const test::Bytes image = tools::encode_jpeg(test::Bytes(3 * 16 * 16, 100), {16, 16}, 80);
  const std::string file = folder.write("train/a/1.jpg", image);
  folder.write("train/a/2.jpg", image);
  expect_run_error(file, [&] { base::open_regular(file); });
  expect_run_error(folder.path(), [&] { test::open(folder, "folder"); });

  const std::shared_ptr<const Reader> reader = open_reader({"folder", folder.path(), "train", 0});
  LoaderOptions options;
  options.workers = 0;
  options.batch = 2;
  options.on_error = OnError::skip;
  const auto plan = std::make_shared<augment::Plan>(std::vector<OpSpec>{}, Source{{16, 16}, 3},
                                                    OutputOptions{DType::u8, Layout::chw, {0}, {1}},
                                                    Resample::once);
  Loader loader(reader, plan, options);
  expect_run_error("1.jpg", [&] { loader.next(); });
}

}  // namespace
}  // namespace millrace::pipeline
