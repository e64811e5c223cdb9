// Reads what `millrace eval --predictions` wrote.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace millrace::study {

/// An image that the model took for another class.
struct WrongImage {
  std::string name, label, predicted;
  double probability = 0;  ///< of `predicted`
  std::uint64_t row = 0;   ///< from 0; images that could not be loaded have no row
};

struct Predictions {
  std::uint64_t images = 0;
  std::uint64_t wrong = 0;
  std::vector<WrongImage> confident;  ///< wrong ones, the highest probability first
};

/// Reads all rows and keeps the `most` most confidently wrong images. Throws DataError with the row
/// that is damaged, or if the file is no table of predictions.
Predictions read_predictions(const std::filesystem::path& file, std::size_t most);

}  // namespace millrace::study
