// Declares the recipe keys of bench.
#include "tools/commands/bench_keys.h"

#include <limits>

namespace millrace::tools {

std::vector<Param> bench_keys() {
  constexpr double kMax = std::numeric_limits<std::int32_t>::max();
  return {
      Param::integer("bench.epochs", 1, 1, kMax,
                     "epochs to run, if neither bench.batches nor bench.seconds ends the run")
          .in("epochs"),
      Param::integer("bench.batches", 0, 0, kMax,
                     "end after this many batches, over as many epochs as that takes; 0: no limit")
          .in("batches"),
      Param::number(
          "bench.seconds", 0, 0, 1e6,
          "end after this time, without the warm-up, over as many epochs as that takes; 0: "
          "no limit")
          .in("s"),
      Param::integer("bench.warmup", -1, -1, kMax,
                     "batches at the start that the figures leave out; -1: loader.prefetch + 1 if "
                     "bench.batches or bench.seconds ends a run of at least twice as many, else 0")
          .in("batches"),
      Param::integer("bench.first_batch", 0, 0, 0x1p53,
                     "index of the first batch, counted over all epochs"),
      Param::integer("bench.world", 1, 1, kMax,
                     "number of ranks to emulate: bench makes the batches of one of them; "
                     "loader.batch is the global batch size")
          .in("ranks"),
      Param::integer("bench.rank", 0, 0, kMax, "which of bench.world ranks, from 0"),
  };
}

}  // namespace millrace::tools
