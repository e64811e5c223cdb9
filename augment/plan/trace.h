// A record of one sample's way through a plan, for `inspect`; not used in training.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "millrace/millrace.h"

namespace millrace::augment {

struct Trace {
  /// A value that an op drew.
  struct Drawn {
    std::string op;
    std::string name;
    double value;
  };
  /// One traversal of pixels.
  struct Step {
    std::string what;              ///< "decode", "pass", "levels", an op's name
    std::vector<std::string> ops;  ///< ops folded into it
    std::string detail;            ///< "224x224, reduced by 1.62 x 1.49"
    std::int64_t ns = 0;           ///< its duration
  };

  std::vector<Drawn> drawn;
  std::vector<Step> steps;
};

/// Records the values that an op reports in a call, as long as it exists. Does nothing without a
/// trace.
class DrawListener {
 public:
  DrawListener(Trace* trace, const std::string& op, millrace_call& call)
      : trace_(trace), op_(op), call_(call) {
    if (trace_ == nullptr) return;
    call_.host = this;
    call_.report = [](millrace_call* from, const char* name, double value) {
      const auto& listener = *static_cast<const DrawListener*>(from->host);
      listener.trace_->drawn.push_back({listener.op_, name, value});
    };
  }
  ~DrawListener() { call_.report = nullptr; }
  DrawListener(const DrawListener&) = delete;
  DrawListener& operator=(const DrawListener&) = delete;

 private:
  Trace* trace_;
  const std::string& op_;
  millrace_call& call_;
};

}  // namespace millrace::augment
