// millrace report --live: a page that follows a run and is whole at any moment.
#include <sys/resource.h>

#include <csignal>
#include <set>

#include "tests/program/browser.h"
#include "tests/program/program.h"

namespace millrace::program_test {
namespace {

namespace fs = std::filesystem;

double cpu_s_of_children() {
  rusage usage{};
  getrusage(RUSAGE_CHILDREN, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

class LiveReport : public ProgramTest {
 protected:
  Arguments live(const Arguments& more = {}, const char* interval = "1") {
    return Arguments{"report", "--live", in("run").string(), "--interval", interval} + more;
  }
  /// Returns a training that goes on until it is ended.
  Arguments endless() { return simulated("run", {"train.epochs=100000", "simulated.update_ms=2"}); }
  std::string page() { return read_file(in("run/report.html")); }
  /// Waits for the page. Returns false if it does not come.
  bool has_page() {
    for (int i = 0; i < 600 && !fs::exists(in("run/report.html")); ++i) sleep_ms(50);
    return fs::exists(in("run/report.html"));
  }
  /// Expects the page that a report on the run as it is now would have.
  void expect_final() {
    const std::string last = page();
    EXPECT_EQ(last.find("<body data-reload"), std::string::npos);
    ASSERT_TRUE(succeeded(run({"report", in("run").string(), "--html", in("once.html").string()})));
    EXPECT_EQ(last, read_file(in("once.html")));
    EXPECT_TRUE(no_temporaries(in("run")));
  }
};

TEST_F(LiveReport, FollowsARunToItsEndAndIsWholeAtAnyMoment) {
  Child training(endless());
  ASSERT_TRUE(training.says("epoch 1/"));
  Child report(live());
  ASSERT_TRUE(has_page());
  std::set<std::string> pages;
  for (int i = 0; i < 400 && pages.size() < 3; ++i) {
    const std::string now = page();
    ASSERT_TRUE(now.starts_with("<!DOCTYPE html>") && now.ends_with("</html>\n"));
    ASSERT_NE(now.find("<body data-reload=\"1\">"), std::string::npos);
    const std::size_t at = now.find("<dt>steps</dt><dd>");
    ASSERT_NE(at, std::string::npos);
    pages.insert(now.substr(at, now.find("</dd>", at) - at));
    sleep_ms(25);
  }
  EXPECT_GE(pages.size(), 3u) << "the steps go on";
  EXPECT_TRUE(listens_at(report.pid()).empty());
  training.send(SIGTERM);
  EXPECT_EQ(training.wait().exit_code, 130);
  const double before = cpu_s_of_children();
  const Result result = report.wait();
  ASSERT_TRUE(succeeded(result));
  EXPECT_NE(result.err.find("report.html: written every 1 s"), std::string::npos) << result.err;
  EXPECT_NE(result.out.find("complete; the run: interrupted after step"), std::string::npos)
      << result.out;
  EXPECT_LT(cpu_s_of_children() - before, static_cast<double>(pages.size()))
      << "at most 1 s of CPU per page";
  expect_final();
}

TEST_F(LiveReport, OfAFinishedRunIsAReport) {
  ASSERT_TRUE(succeeded(run(simulated("run", {"train.epochs=2"}))));
  const Result result = run(live());
  ASSERT_TRUE(succeeded(result));
  EXPECT_NE(result.out.find("complete; the run: finished"), std::string::npos) << result.out;
  expect_final();
  ASSERT_TRUE(succeeded(run(live({"--html", in("other/page.html").string()}))));
  EXPECT_EQ(read_file(in("other/page.html")), page());
}

TEST_F(LiveReport, EndsWithAKilledRun) {
  Child training(endless());
  ASSERT_TRUE(training.says("epoch 1/"));
  Child report(live());
  ASSERT_TRUE(has_page());
  training.send(SIGKILL);
  training.wait();
  const Result result = report.wait();
  ASSERT_TRUE(succeeded(result));
  EXPECT_NE(result.out.find("was killed"), std::string::npos) << result.out;
  expect_final();
}

TEST_F(LiveReport, CtrlCLeavesAPageThatStays) {
  Child training(endless());
  ASSERT_TRUE(training.says("epoch 1/"));
  Child report(live({}, "600"));
  ASSERT_TRUE(has_page());
  report.send(SIGINT);
  const Result result = report.wait();
  EXPECT_EQ(result.exit_code, 130);
  EXPECT_NE(result.err.find("report.html stays as it is"), std::string::npos) << result.err;
  EXPECT_EQ(page().find("<body data-reload"), std::string::npos);
  EXPECT_NE(page().find("nothing updates the page any more"), std::string::npos);
  EXPECT_TRUE(training.running()) << "the run itself goes on";
}

TEST_F(LiveReport, ThePageIsSoundInABrowser) {
  MILLRACE_NEEDS_BROWSER();
  Child training(endless());
  ASSERT_TRUE(training.says("epoch 3/"));
  Child report(live({}, "600"));
  ASSERT_TRUE(has_page());
  for (const int width : {1280, 400}) {
    const Json seen = look_at(in("run/report.html"), {.width = width});
    ASSERT_TRUE(seen.is_object());
    EXPECT_EQ(seen["errors"], Json::array());
    EXPECT_EQ(seen["requests"], 0);
    EXPECT_EQ(seen["overflow"], 0);
    EXPECT_GE(seen["charts"].size(), 4u);
  }
}

TEST_F(LiveReport, RefusesWhatItCannotFollow) {
  ASSERT_TRUE(succeeded(run(simulated("run"))));
  EXPECT_TRUE(refused(run({"report", "--live", in("data").string()}), 2, {"is not a run"}));
  EXPECT_TRUE(refused(run({"report", "--live", in("").string()}), 2, {"--live follows a run"}));
  EXPECT_TRUE(refused(run(live({in("run").string()})), 2, {"one run, not 2"}));
  EXPECT_TRUE(refused(run(live({"--md"})), 2, {"--live", "--md"}));
  EXPECT_TRUE(refused(run(live({"--csv"})), 2, {"--live", "--csv"}));
  EXPECT_TRUE(refused(run(live({"--json"})), 2, {"--live", "--json"}));
  EXPECT_TRUE(refused(run({"report", "--live", in("run").string(), "--interval", "0.5"}), 2,
                      {"--interval 0.5", "1 to 3600"}));
  EXPECT_TRUE(
      refused(run({"report", in("run").string(), "--interval", "5"}), 2, {"--interval", "--live"}));
  EXPECT_FALSE(fs::exists(in("run/report.html")));
}

}  // namespace
}  // namespace millrace::program_test
