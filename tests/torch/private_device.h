// A device of LibTorch's type PrivateUse1 in the host's memory, on which code that knows devices by
// c10's streams and events runs without a GPU. Work is queued, and the test decides which streams
// run ahead: a missing wait shows as wrong bytes, in every run.
#pragma once

#include <torch/torch.h>

#include <cstddef>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

namespace millrace::test {

/// The only device of the type in a process. Takes work on a stream in order: at once on a stream
/// that runs ahead, unless it waits for an event; on any other, only when the host waits for it, or
/// a stream that must go on. Copies are asynchronous whatever the host's memory. Freed memory is
/// used again at once by the stream that allocated it, and by no other; as a caching allocator
/// does, it first waits for the streams of record_stream(). One thread uses the device.
class PrivateDevice {
 public:
  using Task = std::function<void()>;

  static PrivateDevice& get();
  static torch::Device device() { return {torch::kPrivateUse1, 0}; }

  /// Drops what is queued and starts anew. Stream n runs ahead if bit n of `ahead` is set: 0 is the
  /// default stream, and streams of the pool count from 1.
  void reset(unsigned ahead);
  /// Queues `run` on the current stream. `what` names it in the log.
  void launch(std::string what, Task run);
  /// Queues work that takes this time on the device's clock. Other work takes none.
  void spend(double ms);
  /// Returns what `launches` would have queued, for replay().
  std::vector<Task> capture(const Task& launches);
  void replay(const std::vector<Task>& captured);

  /// Returns what has happened, a line each: what was queued on a stream (" 1 << record e2.1"),
  /// what a stream has done ("1 >> record e2.1"), and memory that was allocated, freed or reused.
  const std::vector<std::string>& log() const { return log_; }
  /// Returns the number of lines that begin with `prefix`.
  int count(const std::string& prefix) const;

 private:
  friend class Guard;
  friend class Memory;

  /// A record() of an event: one place in one stream.
  struct Record {
    std::string name;
    c10::StreamId stream = 0;
    bool reached = false;
    double at_ms = 0;
  };
  using Place = std::shared_ptr<Record>;
  struct Event {
    int id = 0;
    int records = 0;
    Place last;
  };
  struct Item {
    std::string what;
    Task run;
    Place waits_for;  ///< null: runs as soon as it is first
  };
  struct Block {
    std::unique_ptr<std::byte[]> bytes;
    std::size_t size = 0;
    c10::StreamId stream = 0;         ///< current when it was allocated
    std::set<c10::StreamId> readers;  ///< of record_stream()
    std::vector<Place> ends;          ///< what the next use waits for
    int id = 0;
  };

  Place record(std::string name, c10::StreamId stream);
  void queue(c10::StreamId stream, Item item);
  /// Takes the first item, which must not have to wait.
  void take(c10::StreamId stream);
  /// Takes one item that the stream needs to go on, and lets others run ahead.
  void step(c10::StreamId stream);
  void run_ahead();
  void run_until(const Record& record);
  void note(c10::StreamId stream, const char* verb, const std::string& what);
  Block& allocate(std::size_t size);
  void release(Block& block);

  std::map<c10::StreamId, std::deque<Item>> queues_;
  unsigned ahead_ = 0;
  c10::StreamId current_ = 0;
  c10::StreamId pooled_ = 0;  ///< streams handed out so far
  int events_ = 0;
  double clock_ms_ = 0;
  std::vector<Task>* captured_ = nullptr;
  std::deque<Block> blocks_;  ///< until the process ends: tensors may outlive a test
  std::vector<Block*> free_;  ///< freed last at the end
  std::vector<std::string> log_;
};

}  // namespace millrace::test
