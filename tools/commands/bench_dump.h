// File of bench --dump.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "millrace/loader.h"

namespace millrace::tools {

/// Writes the first epoch's bytes as they are in the batches, then its labels: one byte each if all
/// of them fit, else 8 bytes, little-endian. The file gets its name when it is complete.
class BenchDump {
 public:
  /// Opens the file for labels of `classes` classes. Throws RunError.
  BenchDump(std::string path, std::size_t classes);
  ~BenchDump();
  BenchDump(const BenchDump&) = delete;
  BenchDump& operator=(const BenchDump&) = delete;

  void add(const Batch& batch);
  /// Writes the labels and names the file. Throws RunError.
  void finish();

 private:
  void put(const void* data, std::size_t size);
  [[noreturn]] void fail() const;

  std::string path_;
  bool narrow_;
  std::string target_;
  std::FILE* file_ = nullptr;
  std::vector<std::int64_t> labels_;
};

}  // namespace millrace::tools
