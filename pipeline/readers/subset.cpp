// Chooses samples of a data set.
#include "pipeline/readers/subset.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <utility>

#include "base/permutation.h"
#include "base/rng.h"
#include "base/text.h"
#include "millrace/error.h"
#include "pipeline/readers/data_set.h"
#include "pipeline/targets/outline.h"

namespace millrace::pipeline {
namespace {

constexpr std::uint64_t kFoldKey = 0x666F6C64;
constexpr std::uint64_t kFractionKey = 0x66726163;

std::optional<std::uint64_t> parse_number(std::string_view text) {
  std::uint64_t number = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (status != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

/// Samples of a data set, by class and in a pseudo-random order within each.
class ByClass {
 public:
  ByClass(const Reader& reader, const std::vector<std::uint64_t>& of, std::uint64_t key)
      : members_(reader.info().classes.size()), key_(key) {
    for (const std::uint64_t index : of)
      members_.at(static_cast<std::size_t>(reader.label(index))).push_back(index);
  }
  /// Calls `visit(place, count, index)` for each sample: its place among the `count` of its class.
  template <class Visit>
  void each(const Visit& visit) const {
    for (std::size_t label = 0; label < members_.size(); ++label) {
      const std::uint64_t count = members_[label].size();
      const base::Permutation order(count, base::mix64(key_ ^ base::mix64(label)));
      for (std::uint64_t place = 0; place < count; ++place)
        visit(place, count, members_[label][order(place)]);
    }
  }

 private:
  std::vector<std::vector<std::uint64_t>> members_;
  std::uint64_t key_;
};

std::vector<std::uint64_t> sorted(std::vector<std::uint64_t> indices) {
  std::sort(indices.begin(), indices.end());
  return indices;
}

/// Returns the samples inside the fold's test part, or those outside. The parts' sizes differ by at
/// most one sample, over all and in each class.
std::vector<std::uint64_t> fold_of(const Reader& reader, const std::vector<std::uint64_t>& all,
                                   const Fold& fold, bool inside) {
  std::vector<std::uint64_t> chosen;
  std::uint64_t dealt = 0;
  ByClass(reader, all, kFoldKey).each([&](std::uint64_t, std::uint64_t, std::uint64_t index) {
    if ((dealt++ % fold.parts == fold.part - 1) == inside) chosen.push_back(index);
  });
  return sorted(std::move(chosen));
}

/// Returns a fraction of each class, at least one sample. A larger fraction holds a smaller one.
std::vector<std::uint64_t> fraction_of(const Reader& reader, const std::vector<std::uint64_t>& all,
                                       double fraction) {
  std::vector<std::uint64_t> chosen;
  ByClass(reader, all, kFractionKey)
      .each([&](std::uint64_t place, std::uint64_t count, std::uint64_t index) {
        const double most = std::max(1.0, std::round(fraction * static_cast<double>(count)));
        if (static_cast<double>(place) < most) chosen.push_back(index);
      });
  return sorted(std::move(chosen));
}

/// Reads a file of one index per line.
std::vector<std::uint64_t> read_list(const std::string& file, std::uint64_t count) {
  std::vector<bool> listed(count);
  read_lines("data.subset", file, [&](const std::string& line, std::uint64_t number) {
    const auto refuse = [&](const std::string& why) {
      throw UsageError(fmt::format("data.subset={}: line {}: {}", file, number, why),
                       fmt::format("each line is an index from 0 to {}, once", count - 1));
    };
    const std::optional<std::uint64_t> index = parse_number(line);
    if (!index) refuse(fmt::format("'{}' is no index", base::printable(line)));
    if (*index >= count) refuse(fmt::format("there is no sample {}", *index));
    if (listed[*index]) refuse(fmt::format("sample {} is listed twice", *index));
    listed[*index] = true;
  });
  std::vector<std::uint64_t> indices;
  for (std::uint64_t index = 0; index < count; ++index)
    if (listed[index]) indices.push_back(index);
  return indices;
}

/// Hands out some samples of another reader.
class SubsetReader final : public Reader {
 public:
  SubsetReader(std::unique_ptr<Reader> whole, std::vector<std::uint64_t> indices,
               const std::string& split)
      : whole_(std::move(whole)), indices_(std::move(indices)) {
    info_ = whole_->info();
    info_.split = split;
    const double share =
        static_cast<double>(indices_.size()) / static_cast<double>(whole_->info().count);
    info_.count = indices_.size();
    info_.bytes = static_cast<std::uint64_t>(static_cast<double>(info_.bytes) * share);
    Fingerprint fingerprint;
    fingerprint.add(info_.fingerprint);
    for (const std::uint64_t index : indices_) fingerprint.add(index);
    info_.fingerprint = fingerprint.value();
    if (const Targets* all = whole_->targets()) targets_ = chosen_from(*all);
    if (const Annotations* all = whole_->annotations()) annotations_ = chosen_from(*all);
  }

  Sample read(std::uint64_t index, Buffer& scratch) const override {
    return whole_->read(indices_[index], scratch);
  }
  std::string name(std::uint64_t index) const override { return whole_->name(indices_[index]); }
  std::int64_t label(std::uint64_t index) const override { return whole_->label(indices_[index]); }
  bool locate(std::uint64_t index, Location& location) const override {
    return whole_->locate(indices_[index], location);
  }
  std::span<const std::uint8_t> mask(std::uint64_t index, Buffer& scratch) const override {
    return whole_->mask(indices_[index], scratch);
  }
  bool locate_mask(std::uint64_t index, Location& location) const override {
    return whole_->locate_mask(indices_[index], location);
  }
  std::uint64_t lookahead() const override { return whole_->lookahead(); }
  void expect(std::uint64_t index) const override { whole_->expect(indices_[index]); }
  const Targets* targets() const override { return targets_ ? &*targets_ : nullptr; }
  const Annotations* annotations() const override {
    return annotations_ ? &*annotations_ : nullptr;
  }
  ColdCounts cold() const override { return whole_->cold(); }

 private:
  Annotations chosen_from(const Annotations& all) const {
    Annotations chosen;
    chosen.points = all.points;
    chosen.flip_pairs = all.flip_pairs;
    chosen.relative = all.relative;
    chosen.has_outlines = all.has_outlines;
    const auto copy = [](const auto& from, auto& to, std::size_t begin, std::size_t end) {
      const auto at = [&](std::size_t i) { return from.begin() + static_cast<std::ptrdiff_t>(i); };
      to.insert(to.end(), at(begin), at(end));
    };
    for (const std::uint64_t index : indices_) {
      const std::size_t begin = all.begin(index), end = all.ends[index];
      copy(all.boxes, chosen.boxes, begin, end);
      for (std::size_t i = begin; i < end && all.has_outlines; ++i)
        append_outline(all.outlines, i, chosen.outlines);
      copy(all.classes, chosen.classes, begin, end);
      copy(all.key_points, chosen.key_points, begin * all.points, end * all.points);
      chosen.ends.push_back(chosen.boxes.size());
      if (!all.relative) chosen.sizes.push_back(all.sizes[index]);
      chosen.image_ids.push_back(all.image_ids[index]);
    }
    return chosen;
  }
  Targets chosen_from(const Targets& all) const {
    Targets chosen{
        .numeric = all.numeric, .width = all.width, .numbers = {}, .text = {}, .ends = {}};
    for (const std::uint64_t index : indices_) {
      if (all.numeric) {
        const auto numbers = all.numbers_of(index);
        chosen.numbers.insert(chosen.numbers.end(), numbers.begin(), numbers.end());
      } else {
        chosen.text += all.json_of(index);
        chosen.ends.push_back(chosen.text.size());
      }
    }
    return chosen;
  }

  std::unique_ptr<Reader> whole_;
  std::vector<std::uint64_t> indices_;
  std::optional<Targets> targets_;
  std::optional<Annotations> annotations_;
};

}  // namespace

Fold parse_fold(const std::string& text) {
  const std::size_t slash = text.find('/');
  if (slash != text.npos) {
    const auto part = parse_number(std::string_view(text).substr(0, slash));
    const auto parts = parse_number(std::string_view(text).substr(slash + 1));
    if (part && parts && *part >= 1 && *part <= *parts && *parts >= 2) return {*part, *parts};
  }
  throw UsageError("data.fold=" + text + " is not a fold",
                   "give K/N: part K of N, such as 2/5; K counts from 1");
}

std::string source_split(const DataOptions& options) {
  return options.fold ? "train" : options.split;
}

std::unique_ptr<Reader> choose_subset(std::unique_ptr<Reader> whole, const DataOptions& options) {
  const bool tests = options.split == "test";
  const bool chooses = !tests && (options.fraction < 1 || !options.listed.empty());
  if (!options.fold && !chooses) return whole;
  std::vector<std::uint64_t> indices;
  if (chooses && !options.listed.empty()) {
    indices = read_list(options.listed, whole->info().count);
  } else {
    indices.resize(whole->info().count);
    for (std::uint64_t i = 0; i < indices.size(); ++i) indices[i] = i;
  }
  if (options.fold) {
    if (options.fold->parts > whole->info().count)
      throw UsageError(fmt::format("data.fold: {} parts of {} samples", options.fold->parts,
                                   whole->info().count),
                       "use fewer parts");
    indices = fold_of(*whole, indices, *options.fold, tests);
  }
  if (chooses && options.fraction < 1) indices = fraction_of(*whole, indices, options.fraction);
  if (indices.empty())
    throw UsageError(fmt::format("no sample of {} is left", whole->info().path),
                     "see data.subset, data.fraction and data.fold");
  return std::make_unique<SubsetReader>(std::move(whole), std::move(indices), options.split);
}

}  // namespace millrace::pipeline
