// Samples of a data set, packed in several ways, so that a profile can predict and measure what
// packing the whole set would give.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "millrace/reader.h"
#include "millrace/recipe.h"
#include "study/analysis/whatif.h"

namespace millrace::tools {

/// Some samples in an unnamed file, read as from an archive.
class PackedSamples {
 public:
  /// Takes up to `most` samples, spread evenly over the set, and packs them in each of `ways`.
  /// Leaves out samples that cannot be read or decoded, and ways that leave the others as they are.
  /// Sets Packing::bytes.
  PackedSamples(const Reader& set, std::vector<study::Packing> ways, std::uint64_t most = kMax);

  static constexpr std::uint64_t kMax = 128;

  const std::vector<study::Packing>& ways() const { return ways_; }
  /// Returns the samples as they are.
  std::shared_ptr<const Reader> plain() const { return plain_; }
  /// Returns the samples packed in ways()[i].
  std::shared_ptr<const Reader> packed(std::size_t i) const { return packed_[i]; }

 private:
  std::vector<study::Packing> ways_;
  std::shared_ptr<const Reader> plain_;
  std::vector<std::shared_ptr<const Reader>> packed_;
};

/// Cost of samples that a server is asked for one by one.
struct RequestCost {
  double first_byte_s = 0;  ///< per sample, over one connection
  double transfer_s = 0;    ///< per sample, over one connection
  double local_read_s = 0;  ///< CPU time to read a sample from the page cache instead
};

/// Measures that with some of the samples in `some`, which lie in memory, and in `set`.
RequestCost request_cost(const Reader& set, const Reader& some);

/// Returns whether `data pack` takes the set, and could convert its images.
bool can_be_packed(const DatasetInfo& info);

/// A folder for sets that are packed to be measured. Removed with everything in it.
class PackedFolder {
 public:
  PackedFolder();
  ~PackedFolder();
  PackedFolder(const PackedFolder&) = delete;
  PackedFolder& operator=(const PackedFolder&) = delete;

  /// Packs up to `most` samples of the recipe's set, spread evenly. Returns the overrides with
  /// which a run reads them. Throws what pack() throws, and Error if the user interrupts it.
  std::vector<std::string> pack(const Recipe& recipe, const study::Packing& way,
                                std::uint64_t most) const;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace millrace::tools
