// A profile of a run that an emulated disk limits. Sleeps limit its speed, so that a busy machine
// changes little.
#pragma once

#include "tests/program/program.h"

namespace millrace::program_test {

inline RunOptions patient(double seconds) {
  RunOptions options;
  options.timeout_s = seconds;
  return options;
}

class Profile : public ProgramTest {
 protected:
  /// Reads of 4 ms on 4 threads: 1,000 images/s. The device takes a batch of 20 in 10 ms: 2,000
  /// images/s.
  Arguments slow_storage(const Arguments& more = {}) {
    return Arguments{"profile",
                     "mnist-lenet",
                     "data.path=" + data(),
                     "train.device=simulated",
                     "simulated.update_ms=10",
                     "loader.batch=20",
                     "data.storage.latency=4",
                     "--run",
                     in("profile").string(),
                     "--given",
                     "--json",
                     "-q"} +
           more;
  }
};

inline const Json& change_of(const Json& profile, const std::string& first) {
  for (const Json& one : profile["what_if"])
    if (one["change"][0] == first) return one;
  ADD_FAILURE() << first << " is not in the table";
  return profile["what_if"][0];
}

}  // namespace millrace::program_test
