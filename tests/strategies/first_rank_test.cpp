// Work of rank 0 that outlasts the other ranks' time-out, and its errors.
#include "strategies/trainer/first_rank.h"

#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>

#include "millrace/error.h"

namespace millrace::train {
namespace {

using namespace std::chrono_literals;

/// Texts of two ranks. Waiting for one fails after `patience`, as in c10d's store.
class Store {
 public:
  explicit Store(std::chrono::milliseconds patience) : patience_(patience) {}
  Gather of(int rank) {
    return [this, rank, round = 0](const std::string& mine) mutable {
      std::unique_lock lock(mutex_);
      texts_[{round, rank}] = mine;
      changed_.notify_all();
      std::vector<std::string> all;
      for (int other = 0; other < 2; ++other) {
        if (!changed_.wait_for(lock, patience_, [&] { return texts_.contains({round, other}); }))
          throw RunError("no answer");
        all.push_back(texts_.at({round, other}));
      }
      ++round;
      return all;
    };
  }
  std::chrono::milliseconds patience() const { return patience_; }
  int rounds() const { return static_cast<int>(texts_.size()) / 2; }

 private:
  std::chrono::milliseconds patience_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::pair<int, int>, std::string> texts_;
};

/// Runs `work` on rank 0, and returns what each rank throws: exit code, message and hint.
std::vector<std::string> errors_of(Store& store, const std::function<void()>& work) {
  std::vector<std::string> errors(2);
  const auto rank = [&](int number) {
    try {
      do_on_first_rank(number == 0, store.patience(), store.of(number), work);
    } catch (const Error& error) {
      errors[static_cast<std::size_t>(number)] =
          std::to_string(static_cast<int>(error.exit())) + " " + error.what() + " " + error.hint();
    }
  };
  std::thread other(rank, 1);
  rank(0);
  other.join();
  return errors;
}

TEST(FirstRank, TheOthersWaitLongerThanTheirTimeOut) {
  Store store(3s);
  int done = 0;
  EXPECT_EQ(errors_of(store,
                      [&] {
                        std::this_thread::sleep_for(4s);
                        ++done;
                      }),
            (std::vector<std::string>{"", ""}));
  EXPECT_EQ(done, 1) << "rank 0 alone does it";
  EXPECT_GT(store.rounds(), 3);
  EXPECT_LT(store.rounds(), 10) << "signs of life, every 3/4 s";
}

TEST(FirstRank, ItsErrorIsThatOfAllRanks) {
  Store store(10s);
  const std::string expected = "2 shard 3 differs restore it";
  EXPECT_EQ(errors_of(store, [] { throw UsageError("shard 3 differs", "restore it"); }),
            (std::vector<std::string>{expected, expected}));
  Store other(10s);
  EXPECT_EQ(errors_of(other, [] { throw std::bad_alloc(); })[1].substr(0, 1), "1");
}

}  // namespace
}  // namespace millrace::train
