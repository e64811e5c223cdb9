// Declares the recipe keys of sweeps.
#include "study/sweep/sweep_keys.h"

namespace millrace::study {

std::vector<Param> sweep_keys() {
  return {
      Param::number("sweep.margin", 0.03, 1e-6, 1,
                    "relative differences up to this count as no difference: 0.03 is 3%"),
      Param::number("sweep.share_margin", 0.005, 1e-6, 1,
                    "same for accuracies and other fractions: 0.005 is half a percentage point"),
      Param::integer("sweep.folds", 0, 0, kMaxFolds,
                     "number of cross-validation folds: repeat K trains without fold K and is "
                     "evaluated on it (data.fold); accuracies are then compared for shared "
                     "training samples; 0: none"),
      Param::integer("sweep.most_repeats", 30, 5, 10'000, "upper limit of --repeats auto")
          .in("repeats"),
  };
}

}  // namespace millrace::study
