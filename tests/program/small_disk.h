// A file system that is really full, or really read-only.
#pragma once

#include <filesystem>
#include <string>

namespace millrace::program_test {

/// A tmpfs that only this process and its children see. It is gone with the object.
class SmallDisk {
 public:
  /// Returns why none can be mounted here; empty if one can. Call it before a thread starts.
  static const std::string& refusal();

  /// `options` are those of tmpfs, such as "size=200k".
  SmallDisk(const std::filesystem::path& folder, const std::string& options);
  ~SmallDisk();
  SmallDisk(const SmallDisk&) = delete;
  SmallDisk& operator=(const SmallDisk&) = delete;

  /// Sets options anew; its files stay.
  void change(const std::string& options, bool read_only = false);

 private:
  std::filesystem::path folder_;
};

/// First statement of a test that needs one.
#define MILLRACE_NEEDS_SMALL_DISK()                                                          \
  if (!SmallDisk::refusal().empty())                                                         \
  GTEST_SKIP() << "A DISK THAT IS REALLY FULL IS NOT TESTED: no tmpfs can be mounted here (" \
               << SmallDisk::refusal() << "); run as root, or where users may make namespaces"

}  // namespace millrace::program_test
