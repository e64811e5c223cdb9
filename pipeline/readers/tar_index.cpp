// Groups an archive's members into samples and reads their labels.
#include "pipeline/readers/tar_index.h"

#include <fmt/core.h>
#include <xxhash.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <unordered_map>

#include "base/ascii.h"
#include "base/located_sample.h"
#include "base/text.h"
#include "millrace/error.h"
#include "pipeline/decoders/image_files.h"
#include "pipeline/decoders/raw_image.h"
#include "pipeline/readers/data_set.h"
#include "pipeline/readers/folder.h"

namespace millrace::pipeline {
namespace {

/// Bytes of an archive after which IndexTarOptions::passed is called.
constexpr std::uint64_t kPiece = std::uint64_t{64} << 20;

/// Longest .cls or .json that is read.
constexpr std::uint64_t kMaxLabelBytes = 1 << 24;

/// Collects the members of one key after the other.
class Indexer {
 public:
  Indexer(std::string_view file, TarMembers& members, const IndexTarOptions& options)
      : file_(file), members_(members), options_(options) {}

  TarIndex run() {
    for (TarMember member; members_.next(member);) {
      add(member);
      if (member.data - passed_ < kPiece) continue;
      passed_ = member.data;
      if (options_.passed) options_.passed();
    }
    close_group();
    check_keys();
    if (index_.samples.empty())
      throw DataError(
          fmt::format("{}: the archive holds no image", file_),
          fmt::format("a sample is an image ({} {}) with its .cls", image_endings(), kRawEnding));
    index_.fingerprint = fingerprint_.value();
    index_.samples.shrink_to_fit();
    index_.formats = image_formats();
    return std::move(index_);
  }

 private:
  struct Group {
    std::string key;
    std::string name;  ///< the image's, if names are kept
    std::uint64_t start = 0;
    std::optional<TarIndex::Entry> image;
    int images = 0;
    bool exact = false;  ///< the image's ending is KEY.jpg, not KEY.more.jpg
    std::int64_t label = -1;
    std::uint64_t label_at = 0;
    bool has_json = false;
  };

  [[noreturn]] void fail(std::uint64_t at, const std::string& reason,
                         const std::string& hint) const {
    throw DataError(fmt::format("{}: at byte {}: {}", file_, at, reason), hint);
  }

  void add(const TarMember& member) {
    const NameParts parts = parts_of(member.name);
    if (parts.hidden) return;
    const std::string ending = base::lower(parts.ending);
    const bool image = has_image_ending(member.name);
    const bool label = ending == "cls" || ending == "json";
    if (member.odd != nullptr) {
      if (!image && !label) return;
      fail(member.start,
           fmt::format("'{}' is {}, not a file", base::printable(member.name), member.odd),
           "make the archive with --dereference --hard-dereference");
    }
    fingerprint_.add(member.name);
    fingerprint_.add(member.size);
    if (!image && !label) return;
    if (!open_ || parts.key != group_.key) {
      close_group();
      group_.key = parts.key;
      group_.start = member.start;
      open_ = true;
    }
    if (image) {
      add_image(member, parts, has_image_ending("x." + ending) && ending.find('.') == ending.npos);
    } else {
      add_label(member, ending);
    }
  }

  void add_image(const TarMember& member, const NameParts& parts, bool exact) {
    if (exact == group_.exact && group_.images > 0) {
      ++group_.images;
      return;
    }
    if (group_.exact) return;  // KEY.more.jpg beside KEY.jpg is not the image
    group_.exact = exact;
    group_.images = 1;
    group_.image = {member.data, base::listed_size(member.size),
                    static_cast<std::uint32_t>(member.data - member.start), -1,
                    folder(parts.folder)};
    if (options_.names) group_.name = member.name;
  }

  std::uint32_t folder(std::string_view name) {
    if (!index_.folders.empty() && index_.folders[last_folder_] == name) return last_folder_;
    const auto [found, added] = folder_ids_.try_emplace(
        std::string(name), static_cast<std::uint32_t>(index_.folders.size()));
    if (added) index_.folders.emplace_back(name);
    return last_folder_ = found->second;
  }

  void add_label(const TarMember& member, const std::string& ending) {
    if (member.size > kMaxLabelBytes)
      fail(member.start,
           fmt::format("'{}': {} bytes is too long for a label", base::printable(member.name),
                       member.size),
           "a .cls holds one number");
    const auto bytes = members_.contents(member);
    const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    std::optional<std::int64_t> label;
    if (ending == "cls") {
      label = parse_label(text);
      if (!label)
        fail(member.start,
             fmt::format("'{}': '{}' is not a label: a whole number from 0 on",
                         base::printable(member.name), base::printable(text.substr(0, 24))),
             "a .cls holds the class's number as text");
    } else {
      group_.has_json = true;
      label = label_in(member, text);
      if (!label) return;
    }
    if (*label >= kMaxClasses)
      fail(member.start,
           fmt::format("'{}': label {} is not below {}", base::printable(member.name), *label,
                       kMaxClasses),
           "labels count classes from 0");
    if (group_.label >= 0 && group_.label != *label)
      fail(member.start,
           fmt::format("'{}': label {} where another member of the sample says {}",
                       base::printable(member.name), *label, group_.label),
           "one sample has one label");
    group_.label = *label;
    group_.label_at = member.start;
  }

  std::optional<std::int64_t> label_in(const TarMember& member, std::string_view text) const {
    const auto json = nlohmann::json::parse(text, nullptr, false);
    if (json.is_discarded())
      fail(member.start, fmt::format("'{}': damaged JSON", base::printable(member.name)),
           "repair or remove the member");
    if (!json.is_object()) return std::nullopt;
    for (const char* key : {"label", "cls"}) {
      const auto found = json.find(key);
      if (found == json.end()) continue;
      if (found->is_number_integer() && found->get<std::int64_t>() >= 0)
        return found->get<std::int64_t>();
      fail(member.start,
           fmt::format("'{}': \"{}\" is not a label: a whole number from 0 on",
                       base::printable(member.name), key),
           "write the class's number");
    }
    return std::nullopt;
  }

  void close_group() {
    if (!open_) return;
    if (!group_.image && group_.label >= 0)
      fail(group_.label_at,
           fmt::format("a label for '{}' without an image beside it", base::printable(group_.key)),
           "a sample's members stand side by side: tar --sort=name puts them so");
    if (group_.images > 1)
      fail(group_.start,
           fmt::format("{} images are called '{}'", group_.images, base::printable(group_.key)),
           "a key ends at its first dot and names one image: rename them");
    if (group_.image) {
      group_.image->label = static_cast<std::int32_t>(group_.label);
      if (group_.label < 0) {
        ++index_.unlabelled;
        if (group_.has_json) ++index_.unlabelled_beside;
      }
      fingerprint_.add(static_cast<std::uint64_t>(group_.label));
      keys_.emplace_back(XXH3_64bits(group_.key.data(), group_.key.size()), index_.samples.size());
      index_.samples.push_back(*group_.image);
      if (options_.names) keep_name();
    }
    group_ = {};
    open_ = false;
  }

  void keep_name() {
    if (index_.names.size() > std::numeric_limits<std::uint32_t>::max())
      throw DataError(fmt::format("{}: over 4 GiB of names", file_), "make smaller archives");
    index_.name_at.push_back(static_cast<std::uint32_t>(index_.names.size()));
    index_.names.append(group_.name).push_back('\0');
  }

  /// Rejects a key that comes twice. Compares hashes first, and names only if hashes agree.
  void check_keys() {
    std::sort(keys_.begin(), keys_.end());
    for (std::size_t i = 1; i < keys_.size(); ++i) {
      if (keys_[i].first != keys_[i - 1].first) continue;
      const TarIndex::Entry& one = index_.samples[keys_[i - 1].second];
      const TarIndex::Entry& two = index_.samples[keys_[i].second];
      const std::string first = members_.name(one);
      const std::string second = members_.name(two);
      if (parts_of(first).key == parts_of(second).key)
        fail(two.data - two.back,
             fmt::format("'{}' comes a second time; the first is at byte {}",
                         base::printable(second), one.data - one.back),
             "a key names one sample: make the archive again");
    }
  }

  std::string_view file_;
  TarMembers& members_;
  const IndexTarOptions& options_;
  std::uint64_t passed_ = 0;
  TarIndex index_;
  Group group_;
  bool open_ = false;
  std::uint32_t last_folder_ = 0;
  std::unordered_map<std::string, std::uint32_t> folder_ids_;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> keys_;  ///< hash, sample
  Fingerprint fingerprint_;
};

/// Members of an archive in memory.
class MappedMembers final : public TarMembers {
 public:
  MappedMembers(std::string_view file, std::span<const std::uint8_t> bytes)
      : file_(file), bytes_(bytes), walk_(file, bytes) {}
  bool next(TarMember& member) override { return walk_.next(member); }
  std::span<const std::uint8_t> contents(const TarMember& member) override {
    return bytes_.subspan(member.data, member.size);
  }
  std::string name(const TarIndex::Entry& entry) override { return tar_name(file_, bytes_, entry); }

 private:
  std::string_view file_;
  std::span<const std::uint8_t> bytes_;
  TarWalk walk_;
};

}  // namespace

NameParts parts_of(std::string_view name) {
  const std::size_t slash = name.rfind('/');
  const std::size_t base = slash == std::string_view::npos ? 0 : slash + 1;
  NameParts parts;
  parts.folder = name.substr(0, base == 0 ? 0 : base - 1);
  parts.hidden = base < name.size() && name[base] == '.';
  const std::size_t dot = std::min(name.find('.', base), name.size());
  parts.key = name.substr(0, dot);
  parts.ending = dot < name.size() ? name.substr(dot + 1) : std::string_view();
  return parts;
}

TarIndex index_tar(std::string_view file, std::span<const std::uint8_t> bytes,
                   const IndexTarOptions& options) {
  MappedMembers members(file, bytes);
  return index_members(file, members, options);
}

TarIndex index_members(std::string_view file, TarMembers& members, const IndexTarOptions& options) {
  return Indexer(file, members, options).run();
}

std::string tar_name(std::string_view file, std::span<const std::uint8_t> headers,
                     std::uint64_t size) {
  TarMember member;
  TarWalk walk(file, headers, 0, size);
  walk.next(member);
  return std::string(member.name);
}

std::string tar_name(std::string_view file, std::span<const std::uint8_t> bytes,
                     const TarIndex::Entry& entry) {
  TarMember member;
  TarWalk walk(file, bytes, entry.data - entry.back);
  walk.next(member);
  return std::string(member.name);
}

}  // namespace millrace::pipeline
