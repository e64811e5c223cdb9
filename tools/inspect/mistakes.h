// Pictures of the images that a model got most confidently wrong. An evaluation keeps them in the
// run, so that a report shows them without opening the data set.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

#include "millrace/recipe.h"
#include "study/report/reports.h"

namespace millrace::tools {

inline constexpr std::size_t kMistakes = 24;  ///< pictures of an evaluation

/// Returns a JPEG in base64 for each image, made by the evaluation's chain of `recipe`. Throws
/// DataError if the data set has no such image, and what opening the data set throws.
std::vector<std::string> draw_mistakes(const std::vector<study::WrongImage>& images, Recipe recipe);

/// Draws the worst mistakes in `predictions`, a file of `millrace eval --predictions`, and keeps
/// them in `run` as mistakes.json. Throws what draw_mistakes() throws, and RunError if the file
/// cannot be written.
void keep_mistakes(const std::filesystem::path& run, const std::filesystem::path& predictions,
                   const Recipe& recipe);

/// Returns the kept pictures of the images, in base64; none if those in the run belong to another
/// file of predictions.
std::vector<std::string> kept_mistakes(const std::filesystem::path& run,
                                       const std::filesystem::path& predictions,
                                       const std::vector<study::WrongImage>& images);

}  // namespace millrace::tools
