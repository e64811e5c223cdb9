// Data sets as millrace data handles them: detects, makes, indexes, packs and verifies them.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/rng.h"
#include "millrace/image.h"
#include "millrace/limits.h"
#include "millrace/millrace.hpp"
#include "pipeline/readers/set_index.h"

namespace millrace::tools {

/// Called now and then from any thread, one call at a time, with the items done and their total.
using Progress = std::function<void(std::uint64_t done, std::uint64_t total)>;

/// Calls body(begin, end) for pieces of 0 .. count-1, in any order. `threads` 0: one per core.
/// After an exception starts no further piece, and rethrows it.
void parallel_for(std::uint64_t count, std::uint64_t piece, int threads, const Progress& progress,
                  const std::function<void(std::uint64_t begin, std::uint64_t end)>& body);

// Writes a data set's file atomically: under a temporary name, then renamed.

/// Returns the temporary name of a file while it is written; hidden, so that readers skip it.
std::string partial_name(const std::string& file_name);

/// Writes `bytes` to `path`. Throws RunError with the file and the system's reason, and then leaves
/// nothing behind.
void write_file(const std::string& path, std::span<const std::uint8_t> bytes);

/// Like write_file(), but keeps an existing file that holds exactly these bytes. Unless `force`,
/// throws RunError for one that differs.
void write_or_match(const std::string& path, std::span<const std::uint8_t> bytes, bool force);

/// Makes a folder and its parents. Throws RunError.
void make_folder(const std::string& path);

/// Makes the folder, or checks that an existing one holds only files of these relative names (from
/// an earlier, perhaps interrupted run). Unless `force`, throws RunError with anything else in it.
void prepare_folder(const std::string& path, const std::vector<std::string>& names, bool force);

/// Encodes interleaved RGB as baseline JPEG with 4:2:0 chroma; `quality` 1 to 100. Throws RunError.
std::vector<std::uint8_t> encode_jpeg(std::span<const std::uint8_t> pixels, Size size, int quality);

/// Chooses the reader for a path when none is named: returns "idx", "cifar", "tar", "manifest", or
/// "folder" for anything else.
std::string detect_reader(const std::string& path);

inline constexpr int kDigitSide = 28;  ///< in pixels, as in MNIST
inline constexpr int kDigitPixels = kDigitSide * kDigitSide;

/// Draws digit `label` (0 to 9) white on black, varied by `draw`, as if written by hand: smooth
/// curves, jittered and slanted, with a soft pen. Uses only + - * / and sqrt on doubles, so that
/// every machine draws equal bytes.
void draw_digit(int label, Draw& draw, std::span<std::uint8_t, kDigitPixels> pixels);

// Generated replacement for MNIST: the same files and shapes, with digits that a LeNet learns,
// though not at once. Equal seeds give equal bytes on every machine.

struct DigitsOptions {
  std::string path;              ///< folder, created if necessary
  std::uint32_t train = 60'000;  ///< number of images
  std::uint32_t test = 10'000;
  std::uint64_t seed = 0;
  int threads = 0;     ///< 0: one per core
  bool force = false;  ///< overwrite existing files
  Progress progress;
};

/// Writes four plain IDX files. Keeps an existing file if it is identical; otherwise, without
/// `force`, throws RunError with the file in the way. Throws RunError for a full disk too.
void make_digits(const DigitsOptions& options);

inline constexpr int kObjectSide = 32;
inline constexpr std::size_t kObjectPixels = std::size_t{3} * kObjectSide * kObjectSide;

/// Class names; a label is an index into the list.
inline constexpr std::array<const char*, 10> kObjectNames{
    "disc", "square", "triangle", "ring", "cross", "bars", "moon", "star", "frame", "dots"};

/// Draws a thumbnail of a coloured object on a background, as planar RGB (CIFAR's order). A network
/// for CIFAR-10 can learn it by shape only, because colours are independent of the class. `draw`
/// decides position, size, angle, colours and noise.
void draw_object(int label, Draw& draw, std::span<std::uint8_t, kObjectPixels> pixels);

// Generated replacement for CIFAR-10: the same binary files and shapes, with drawn objects that a
// network learns, though not at once. Equal seeds give equal bytes on every machine.

struct ObjectsOptions {
  std::string path;              ///< folder, created if necessary
  std::uint32_t train = 50'000;  ///< number of images, at least five: they fill five files
  std::uint32_t test = 10'000;
  std::uint64_t seed = 0;
  int threads = 0;     ///< 0: one per core
  bool force = false;  ///< overwrite existing files
  Progress progress;
};

/// Writes data_batch_1.bin to data_batch_5.bin, test_batch.bin and batches.meta.txt. Keeps an
/// existing file if it is identical; otherwise, without `force`, throws RunError with the file in
/// the way. Throws RunError for a full disk too.
void make_objects(const ObjectsOptions& options);

struct Photo {
  Size size;
  std::vector<std::uint8_t> pixels;  ///< interleaved RGB
};

/// Draws a photograph-like image: sky-like gradients, noise on every scale and lit shapes, with as
/// much detail as a camera's picture, so that decoding costs as much. `label` of `classes` decides
/// the main colour, the kind of shapes and the grain; `draw` decides the rest. About 500x375, with
/// sides from 300 to 640 pixels.
Photo draw_photo(int label, int classes, Draw& draw);

// Generated image folder: JPEGs of a camera's size and detail, as decoding work.

struct PhotosOptions {
  std::string path;           ///< folder, created if necessary
  std::uint32_t count = 256;  ///< images of both splits together
  int classes = 8;            ///< 1 to 1000; every split has an image of each
  std::uint64_t seed = 0;
  int quality = 90;    ///< JPEG quality, 4:2:0
  int threads = 0;     ///< 0: one per core
  bool force = false;  ///< overwrite existing files
  Progress progress;
};

/// Writes train/CLASS/*.jpg and test/CLASS/*.jpg, one image in five for test. Keeps an existing
/// file if it is identical; otherwise, without `force`, throws RunError with the file in the way.
/// Throws RunError for a full disk too.
void make_photos(const PhotosOptions& options);

// Generated set for detectors: scenes of shapes, with their boxes in COCO's and in YOLO's format.

inline constexpr std::array<const char*, 3> kShapeNames{"rectangle", "ellipse", "triangle"};

struct BoxesOptions {
  std::string path;           ///< folder, created if necessary
  std::uint32_t train = 512;  ///< number of images
  std::uint32_t test = 128;
  std::uint64_t seed = 0;
  int threads = 0;     ///< 0: one per core
  bool force = false;  ///< overwrite existing files
  Progress progress;
  bool masks = false;  ///< masks are written too
};

/// Writes images/SPLIT/*.jpg, annotations/instances_SPLIT.json, labels/SPLIT/*.txt and classes.txt:
/// images of 320x240 with 1 to 6 shapes that hide nothing of each other. Masks are
/// masks/SPLIT/*.png: palette images whose indices are 0 for the ground and 1 + index into
/// kShapeNames, and annotations then have outlines. Keeps an existing file if it is identical;
/// otherwise, without `force`, throws RunError with the file in the way. Throws RunError for a full
/// disk too.
void make_boxes(const BoxesOptions& options);

// Makes and checks the indexes of archives.

struct IndexReport {
  std::vector<std::string> files;  ///< the archives, in the order of set.shards
  pipeline::SetIndex set;          ///< what was found in them
  std::string set_file;            ///< empty: not written, because a file or a pattern was given
};

/// Returns the archives that `path` means: a file, a pattern, or all splits of a folder.
std::vector<std::string> archives_of(const std::string& path);

/// Writes an index next to each archive of `path`, and one of the whole set if it is a folder.
/// Throws DataError for an archive that is damaged or changes meanwhile, and RunError for an index
/// that cannot be written. `progress` counts archives. `check` is called every few MiB, from any
/// thread, and may throw to abort; either may be empty.
IndexReport make_indexes(const std::string& path, const Progress& progress,
                         const std::function<void()>& check = {});

/// Brings a folder's set index up to date after the archives `changed`, which have indexes, were
/// replaced or added: takes over what it says of others, and indexes those that it does not list.
/// Does nothing for a folder without one. Throws as make_indexes().
void refresh_set_index(const std::string& folder, const std::vector<std::string>& changed,
                       const std::function<void()>& check = {});

/// Returns one line for each index of `path` that is damaged, stale, or does not describe the
/// content of its archive (SHA-256), and for a set index that does not list the archives.
std::vector<std::string> check_indexes(const std::string& path);

// Converts encoded images for `data pack`: makes them smaller, or stores their pixels.

struct ShrinkOptions {
  int short_side = 0;  ///< shorter side after packing, in pixels; 0: any
  int max_side = 0;    ///< longer side after packing, in pixels; 0: any
  int quality = 90;    ///< of the JPEG that is written, 1 to 100
  bool raw = false;    ///< pixels are written instead of JPEGs

  bool resizes() const { return short_side > 0 || max_side > 0; }
  bool wanted() const { return resizes() || raw; }
};

/// Warns that resizing is lossy, with what it cost where it was measured
/// (docs/results/2026-11-23-pack.md, "Accuracy").
inline constexpr const char* kLossyPacking =
    "resizing is lossy and changes batches: LeNet-5 on CIFAR-10 lost 3.0 points of top-1 when "
    "packed at 7/8 of its sides, 3.6 at 3/4 and 5.9 at 1/2; compare the accuracy on your set first "
    "(millrace sweep)";

// Converts images on one thread.
class Shrinker {
 public:
  explicit Shrinker(const ShrinkOptions& options);
  ~Shrinker();
  Shrinker(const Shrinker&) = delete;
  Shrinker& operator=(const Shrinker&) = delete;

  /// Returns the image decoded, turned upright, resized (bilinear, widened where it shrinks, as the
  /// op `resize`) and encoded: with three channels as JPEG, or with its own as a raw image. Without
  /// `raw`, returns the bytes as they are if the image is small enough. Throws DataError for an
  /// image that cannot be decoded.
  std::vector<std::uint8_t> run(std::span<const std::uint8_t> bytes);

 private:
  struct State;
  ShrinkOptions options_;
  std::unique_ptr<State> state_;
};

// Packs a data set into archives: WebDataset's shards (KEY.jpg, KEY.cls) from any source, with
// their indexes.

struct PackOptions {
  std::string source;  ///< a set of encoded images: folder, tar, manifest
  std::string reader;  ///< empty: detected
  /// A folder, which receives SPLIT-000000.tar, ... of every split, and classes.txt; or a name that
  /// ends in .tar, with {000..003} for several, which receives `split` alone.
  std::string target;
  std::string split = "train";
  std::uint64_t shards = 0;          ///< number per split; 0: by size
  std::uint64_t shard_bytes = 0;     ///< most bytes per shard; 0: 1 GB
  bool force = false;                ///< overwrite existing files
  std::uint64_t most = 0;            ///< most samples per split, spread evenly; 0: all
  ShrinkOptions shrink;              ///< converts images
  std::vector<std::string> members;  ///< of the source's archives that are kept (DataOptions)
  std::string masks{};               ///< DataOptions::masks; packed as members .seg.png
  bool arrays = false;               ///< DataOptions::arrays; packed as pixels
  Progress progress;                 ///< counts samples written and read back; may throw to abort
  /// Called now and then, from any thread, while the indexes are written and the archives are in
  /// place already. May throw to abort; may be empty.
  std::function<void()> indexing;
};

struct PackedSplit {
  std::string name;
  std::uint64_t count = 0;         ///< number of samples
  std::uint64_t bytes = 0;         ///< size of the archives
  std::vector<std::string> files;  ///< full paths
};

/// Writes under temporary names, reads everything back, compares count, labels, class names and
/// every byte, and then moves the archives to their places. Equal sets give equal bytes. Throws
/// DataError for a source that cannot be read or a class name of more than one line, UsageError for
/// a source without encoded images, RunError for a target that holds something else (unless
/// `force`), cannot be written or reads back differently.
std::vector<PackedSplit> pack(const PackOptions& options);

// Recognises a data set and finds everything wrong with it: headers, counts, labels, and every
// image decoded.

struct VerifyOptions {
  std::string path;
  int classes = 0;  ///< labels must be less than this; 0: as the set says
  std::uint64_t max_pixels = kMaxPixels;
  int threads = 0;  ///< 0: one per core
  Progress progress;
  std::string masks{};  ///< DataOptions::masks; empty: none
  bool arrays = false;  ///< DataOptions::arrays
};

struct VerifyProblem {
  std::string where;  ///< a file, or a file and a position in it; empty if `what` names it
  std::string what;
};

struct VerifySplit {
  std::string name;                         ///< "train", "test"
  std::uint64_t count = 0;                  ///< number of samples
  std::vector<std::string> classes;         ///< class names
  std::vector<std::uint64_t> class_counts;  ///< number of samples per class
  Size smallest, largest;                   ///< minimum and maximum of width and of height
  std::uint64_t fingerprint = 0;
};

struct VerifyReport {
  std::string kind;  ///< "idx", "cifar", "folder", "tar", "manifest"
  std::vector<VerifySplit> splits;
  std::vector<VerifyProblem> problems;  ///< all of them; empty: the set is sound
};

/// Verifies a data set. Continues after a problem, except in an archive or a manifest. Throws
/// DataError only if `path` does not exist, and UsageError for masks of a set that has none.
VerifyReport verify_data(const VerifyOptions& options);

}  // namespace millrace::tools
