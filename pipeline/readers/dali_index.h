// Index files that DALI's wds2idx writes for WebDataset archives: one line of text per sample, with
// the offset, size and name of each of its members. They hold no labels.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/private_api.h"
#include "pipeline/readers/tar_index.h"

namespace millrace::pipeline {

// Format, as DALI's tools/wds2idx.py writes it: the first line is "v1.2 SAMPLES". Each further line
// is a sample, "ENDING OFFSET SIZE NAME" for each of its members, where ENDING begins behind the
// first dot of the last part of NAME. Version v1.1 lacks the names.

struct DaliIndex {
  struct Member {
    std::uint64_t data = 0;  ///< offset of its bytes in the archive
    std::uint64_t size = 0;
    std::string_view name;    ///< as in the file; empty in version v1.1
    std::string_view ending;  ///< of its name
  };
  std::vector<Member> members;  ///< in the file's order
};

/// Parses such a file; `file` is for messages. Names and endings point into `text`. Throws
/// DataError for text that is no index, truncated, of another version, or whose members overlap.
MILLRACE_PRIVATE_API DaliIndex parse_dali_index(std::string_view file, std::string_view text);

/// Returns where wds2idx writes the index of NAME.tar by default: NAME.idx.
MILLRACE_PRIVATE_API std::string dali_index_path(const std::string& shard);

/// Headers of an archive that are compared with its index. Those of labels and of names that cannot
/// be taken as they are always are.
enum class DaliCheck {
  some,  ///< the first, the last and about 64 between them
  all,
};

/// Lists an archive by its index. The result is that of index_tar(). Reads labels, and what lies
/// between the members that the index lists. Throws DataError if the index is damaged or differs
/// from the archive, and as index_tar().
MILLRACE_PRIVATE_API TarIndex list_by_dali_index(const std::string& shard, DaliCheck check,
                                                 const IndexTarOptions& options = {});
/// Lists an archive by the text of an index; `path` is for messages.
MILLRACE_PRIVATE_API TarIndex list_by_dali_index(const std::string& shard, const std::string& path,
                                                 std::string_view text, DaliCheck check,
                                                 const IndexTarOptions& options = {});

}  // namespace millrace::pipeline
