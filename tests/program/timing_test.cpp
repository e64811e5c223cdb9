// What the records say about time, against planted delays and against this process's own clock.
// A shared machine may stop a run for a moment; each test may therefore take the better of a few
// runs. What it asks of a run is not loosened.
#include <algorithm>
#include <cmath>
#include <functional>

#include "tests/program/program.h"

namespace millrace::program_test {
namespace {

constexpr int kAttempts = 4;

class Timing : public ProgramTest {
 protected:
  struct Timed {
    Json summary;
    double wall_s;
  };

  /// Runs until `complaint` of a run is empty; the test fails with the last complaint.
  void expect_once(const std::function<Arguments(const std::string&)>& arguments,
                   const std::function<std::string(const Timed&)>& complaint) {
    std::string last;
    for (int attempt = 1; attempt <= kAttempts; ++attempt) {
      const std::string name = "run" + std::to_string(attempt);
      const Result result = run(arguments(name));
      ASSERT_TRUE(succeeded(result));
      last = complaint({summary(name), result.wall_s});
      if (last.empty()) return;
    }
    ADD_FAILURE() << "in the last of " << kAttempts << " runs: " << last;
  }
  /// Empty where `value` is `expected` but for `part` of it.
  static std::string near(const std::string& what, double value, double expected, double part) {
    if (std::abs(value - expected) <= part * expected) return "";
    return what + " is " + std::to_string(value) + ", expected " + std::to_string(expected) + "; ";
  }
  static double span(const Timed& timed, const char* name) { return timed.summary["spans"][name]; }

  static std::string clock_complaint(const Timed& timed) {
    const double wall = timed.summary["wall_s"];
    const double unaccounted = timed.summary["unaccounted_s"];
    std::string text;
    if (std::abs(unaccounted) > 0.001 * wall)
      text += "unaccounted " + std::to_string(unaccounted) + " of " + std::to_string(wall) + "; ";
    if (wall > timed.wall_s)
      text += "the run says it took " + std::to_string(wall) +
              ", longer than the parent saw: " + std::to_string(timed.wall_s) + "; ";
    if (std::abs(timed.wall_s - wall) > 0.01 * timed.wall_s + 0.05)
      text += "wall_s " + std::to_string(wall) + ", the parent saw " +
              std::to_string(timed.wall_s) + "; ";
    return text;
  }
};

TEST_F(Timing, WallIsWhatTheParentMeasures) {
  expect_once([&](const std::string& name) { return simulated(name, {"train.epochs=3"}); },
              clock_complaint);
}

TEST_F(Timing, WallIsWhatTheParentMeasuresWithAModel) {
  MILLRACE_NEEDS_TORCH();
  expect_once([&](const std::string& name) { return training(name, {"train.epochs=2"}); },
              clock_complaint);
}

TEST_F(Timing, PlantedDelaysLandInTheirOwnSpans) {
  // Four different delays in one run: none could pass for another. 40 steps, 2 evaluations.
  const auto arguments = [&](const std::string& name) {
    return simulated(
        name, {"loader.batch=10", "train.epochs=2", "debug.next_ms=10", "debug.forward_ms=14",
               "debug.log_ms=18", "debug.evaluate_ms=220", "simulated.update_ms=6"});
  };
  expect_once(arguments, [](const Timed& timed) {
    return near("load", span(timed, "load") + span(timed, "first_batch"), 40 * 0.010, 0.02) +
           near("forward", span(timed, "forward"), 40 * 0.014, 0.02) +
           near("log", span(timed, "log"), 40 * 0.018, 0.02) +
           near("evaluate", span(timed, "evaluate"), 2 * 0.220, 0.02) +
           near("device_wait", span(timed, "device_wait"), 40 * 0.006, 0.02) +
           near("update", timed.summary["update_s"], 40 * 0.020, 0.02) + clock_complaint(timed);
  });
}

TEST_F(Timing, ADelayAloneMovesItsOwnSpanAlone) {
  for (const auto& [key, name] : std::map<std::string, std::string>{
           {"debug.next_ms", "load"}, {"debug.forward_ms", "forward"}, {"debug.log_ms", "log"}}) {
    const auto arguments = [&, setting = key + "=20"](const std::string& run_name) {
      return simulated(run_name, {"loader.batch=5", setting});
    };
    expect_once(arguments, [&, span_name = name](const Timed& timed) {
      std::string text;
      for (const auto& [other, seconds] : timed.summary["spans"].items()) {
        const bool is_load = other == "load" || other == "first_batch";
        const bool own = other == span_name || (span_name == "load" && is_load);
        const double expected = other == "device_wait" ? 40 * 0.001 : 0;
        if (!own && seconds.get<double>() > expected + 0.03)
          text += span_name + "'s delay: " + other + " took " + seconds.dump() + "; ";
      }
      const double own = span_name == "load" ? timed.summary["load_s"].get<double>()
                                             : timed.summary["spans"][span_name].get<double>();
      return text + near(span_name, own, 40 * 0.020, 0.02);
    });
  }
}

TEST_F(Timing, DelaysLandInTheirSpansWithAModelToo) {
  MILLRACE_NEEDS_TORCH();
  const auto arguments = [&](const std::string& name) {
    return training(name, {"debug.next_ms=40", "debug.log_ms=60", "debug.evaluate_ms=500"});
  };
  expect_once(arguments, [](const Timed& timed) {
    std::string text = near("load", timed.summary["load_s"], 10 * 0.040, 0.02) +
                       near("log", span(timed, "log"), 10 * 0.060, 0.02);
    if (span(timed, "evaluate") < 0.5) text += "evaluate lacks its delay; ";
    return text + clock_complaint(timed);
  });
}

TEST_F(Timing, SimulatedDeviceTakesItsTime) {
  for (const char* workers : {"0", "1"}) {
    const auto arguments = [&](const std::string& name) {
      return simulated(name, {"simulated.update_ms=5", "train.epochs=8", "loader.batch=20",
                              std::string("loader.workers=") + workers});
    };
    expect_once(arguments, [&](const Timed& timed) {
      return near("update a step", timed.summary["update_s_per_step"], 0.005, 0.02) +
             clock_complaint(timed);
    });
  }
}

TEST_F(Timing, NothingIsWaitedForButTheWork) {
  // Ten batches of 20 small images are some 1 ms of work.
  double least = 1;
  for (int attempt = 1; attempt <= kAttempts; ++attempt) {
    const Result result = run(bench({"loader.batch=20", "loader.workers=1", "--json"}));
    ASSERT_TRUE(succeeded(result));
    least = std::min(least, parse_json(result.out)["wall_s"].get<double>());
  }
  EXPECT_LT(least, 0.01) << "the pipeline stands still for a while";
}

TEST_F(Timing, LoadHidesBehindAnAcceleratorThatIsSlower) {
  // Inline, the wait for a batch is the work itself; with a worker it goes on during the step.
  const Arguments both{"loader.batch=100", "train.epochs=20", "simulated.update_ms=5"};
  std::string last;
  for (int attempt = 1; attempt <= kAttempts; ++attempt) {
    const std::string number = std::to_string(attempt);
    ASSERT_TRUE(succeeded(run(simulated("inline" + number, both + Arguments{"loader.workers=0"}))));
    ASSERT_TRUE(succeeded(run(simulated("worker" + number, both + Arguments{"loader.workers=1"}))));
    const double alone = summary("inline" + number)["spans"]["load"];
    const double hidden = summary("worker" + number)["spans"]["load"];
    if (hidden < 0.5 * alone) return;
    last =
        std::to_string(hidden) + " s of load with a worker, " + std::to_string(alone) + " inline";
  }
  ADD_FAILURE() << last;
}

}  // namespace
}  // namespace millrace::program_test
