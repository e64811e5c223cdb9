// The interface between the loader and augmentation: a Transform turns one image into one sample at
// its final place in the batch (zero-copy contract). millrace/plan.h compiles a chain into a
// Transform.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "millrace/annotations.h"
#include "millrace/image.h"

namespace millrace {

/// Identifies one sample in a run. Random draws depend on it and on the op alone (determinism
/// contract).
struct SampleKey {
  std::uint64_t seed = 0;
  std::uint32_t epoch = 0;
  std::uint64_t sample = 0;  ///< index in the data set; only the lower 48 bits are used
};

/// Type of a batch's elements.
enum class DType { f32 = MILLRACE_F32, u8 = MILLRACE_U8, f16 = MILLRACE_F16, bf16 = MILLRACE_BF16 };
/// Layout of a sample: channels x height x width, or height x width x channels.
enum class Layout { chw = MILLRACE_CHW, hwc = MILLRACE_HWC };

/// Returns the size of one element in bytes.
constexpr std::size_t size_of(DType dtype) {
  return dtype == DType::f32 ? 4 : dtype == DType::u8 ? 1 : 2;
}
constexpr std::string_view name_of(DType dtype) {
  constexpr std::string_view kNames[] = {"f32", "u8", "f16", "bf16"};
  return kNames[static_cast<std::size_t>(dtype)];
}

/// Shape and type of one sample of a batch.
struct SampleSpec {
  Size size;
  int channels = 0;
  DType dtype = DType::f32;
  Layout layout = Layout::chw;

  std::size_t elements() const {
    return static_cast<std::size_t>(size.width) * static_cast<std::size_t>(size.height) *
           static_cast<std::size_t>(channels);
  }
  std::size_t bytes() const { return elements() * size_of(dtype); }
};

/// Delivers one sample's pixels on demand: a transform asks only for the region that it will read.
class PixelSource {
 public:
  virtual ~PixelSource() = default;
  /// Returns the size of the whole image, upright (EXIF orientation applied).
  virtual Size size() const = 0;
  /// Returns a bit mask: with bit n set, pixels() can deliver 1 / 2^n of each side.
  virtual std::uint32_t scales() const { return 1; }
  /// Returns whether pixels() does less work for a smaller region.
  virtual bool serves_regions() const { return false; }
  /// Returns a view of the whole image at 1 / 2^scale of each side, rounded up. Only pixels inside
  /// `region` of it may be read. The view is valid until the next call. Throws DataError.
  virtual ImageView pixels(const Rect& region, int scale) = 0;
};

/// Serves an image that is already in memory. Does not own the pixels.
class WholeImage final : public PixelSource {
 public:
  explicit WholeImage(const ImageView& image) : image_(image) {}
  Size size() const override { return image_.size(); }
  ImageView pixels(const Rect&, int) override { return image_; }

 private:
  ImageView image_;
};

/// The warps that a transform applied to one sample, in order, by which targets follow its pixels.
struct Trail {
  std::vector<millrace_warp> warps;
  bool lost = false;  ///< an op moved pixels as no homography does, or in an unknown way
};

/// Is told what Transform::mix() does to samples, and lends it their objects.
class MixObserver {
 public:
  virtual ~MixObserver() = default;
  /// Returns the objects of the samples in Neighbours as they are before the next op: edges in
  /// pixels, and masks if the data set has them. Valid until the op is reported.
  virtual const Objects& objects() const = 0;
  /// An op has put samples together of parts, ascending by `to`; both positions are those in
  /// Neighbours. A sample that has none is unchanged.
  virtual void mixed(std::span<const millrace_part> parts) = 0;
  /// An op has pasted those of the objects() whose place in `picked` is not 0, by their masks and
  /// where they lie, from each part's sample `from` onto `to`, which has one part.
  virtual void pasted(std::span<const millrace_part> parts,
                      std::span<const std::uint8_t> picked) = 0;
};

/// Neighbouring samples of a batch, or of a rank's slice of it, that Transform::mix() changes in
/// place.
struct Neighbours {
  std::byte* samples = nullptr;  ///< count x output().bytes() bytes
  float* labels = nullptr;       ///< count x soft_classes() probabilities
  std::size_t count = 0;
  std::span<const std::int64_t> missing{};  ///< positions of samples that failed, ascending
  std::uint8_t* masks = nullptr;            ///< count x output().size class ids; null: none
  MixObserver* observer = nullptr;          ///< null: nobody asks, and no object is pasted
};

/// A compiled chain of augmentations. Immutable: run() and mix() may be called from many threads,
/// each with a scratch of its own.
class Transform {
 public:
  /// Working memory of one thread.
  class Scratch {
   public:
    virtual ~Scratch() = default;
    /// Frees every buffer larger than `most` bytes.
    virtual void trim(std::size_t /*most*/) {}
  };

  virtual ~Transform() = default;
  /// Returns new working memory for one thread, for use with this transform only.
  virtual std::unique_ptr<Scratch> make_scratch() const = 0;
  /// Returns the shape and type that run() writes; valid as long as the transform.
  virtual const SampleSpec& output() const = 0;
  /// Returns the largest depth of the images that it takes. With u16 and f32, images keep the depth
  /// and the channels of their files.
  virtual Depth depth() const { return Depth::u8; }
  /// Returns the transform that makes the samples of an epoch. Only their size may differ from
  /// output()'s, and they are no larger. Valid as long as this; takes the working memory of this.
  virtual const Transform& at(std::uint32_t /*epoch*/) const { return *this; }
  /// Returns how many images of the source's size run() may keep besides the source.
  virtual int full_copies() const { return 0; }
  /// Makes the draws for `key` and writes the sample to `out`, which holds output().bytes() bytes.
  /// Throws DataError for an image that an op cannot process, and UsageError if the chain gives
  /// this image another size than output()'s.
  virtual void run(const SampleKey& key, PixelSource& source, std::byte* out,
                   Scratch& scratch) const = 0;
  /// Makes the same sample as run(), and leaves in `trail` where its pixels went.
  virtual void run_tracked(const SampleKey& key, PixelSource& source, std::byte* out,
                           Scratch& scratch, Trail& trail) const {
    run(key, source, out, scratch);
    trail.warps.clear();
    trail.lost = true;
  }
  /// Moves the mask of a sample's image along the trail of run_tracked(), by nearest neighbour, and
  /// writes its output().size levels to `out`, row by row. `fill` stands where the trail shows
  /// nothing of the image. Call it only if untracked_op() is "". Throws what `mask` throws.
  virtual void move_mask(const Trail& /*trail*/, PixelSource& /*mask*/, std::uint8_t /*fill*/,
                         std::uint8_t* /*out*/, Scratch& /*scratch*/) const {}
  /// Returns the name of an op whose trails or parts may be lost, or "" if there is none.
  virtual std::string untracked_op() const { return "the transform"; }
  /// Returns the name of an op of mix() that masks cannot follow, because it may blend samples, or
  /// "" if there is none.
  virtual std::string blending_op() const { return {}; }
  /// Returns the name of an op of mix() that needs masks of objects, or "" if there is none.
  virtual std::string pasting_op() const { return {}; }

  /// Returns the number of classes of the label probabilities that mix() changes, or 0 if labels
  /// stay integers.
  virtual int soft_classes() const { return 0; }
  /// Returns the number g of neighbouring samples that mix() takes together, so that a batch may be
  /// divided at multiples of g only. 1 if it mixes none; MILLRACE_WHOLE_BATCH if a batch may not be
  /// divided.
  virtual int group() const { return 1; }
  /// Mixes the samples, their labels and their masks in place, op by op, and group by group from
  /// the first one on. The last ones, too few for a group, stay as they are, and so does a group
  /// that misses a sample. `key` belongs to the first sample, and its member `sample` is that one's
  /// position in the epoch. Does nothing if group() is 1.
  virtual void mix(const SampleKey& /*key*/, const Neighbours& /*batch*/,
                   Scratch& /*scratch*/) const {}
};

}  // namespace millrace
