// Declares the recipe keys of the pipeline.
#include "pipeline/setup/pipeline_keys.h"

#include <algorithm>
#include <iterator>
#include <limits>

#include "millrace/limits.h"

namespace millrace::pipeline {
namespace {

constexpr double kMax = std::numeric_limits<std::int32_t>::max();

std::vector<Param> general_keys() {
  return {
      Param::text("recipe", "custom", "name of the recipe that this one is based on"),
      Param::integer("seed", 0, 0, 0x1p53,
                     "random seed for shuffling, augmentation and weight initialisation"),
      Param::text("plugins.path", "",
                  "plugin files or folders that hold plugins, separated by ':'"),
  };
}

std::vector<Param> data_keys() {
  return {
      Param::choice(
          "data.reader", "idx",
          {"idx", "cifar", "folder", "tar", "manifest", "coco", "yolo", "synthetic"},
          "idx (MNIST's files), cifar (binary), folder (one folder per class), tar (WebDataset "
          "or an archived folder), manifest (CSV or JSONL), coco (boxes and key points), yolo "
          "(boxes in text files), synthetic (generated); plugins.path adds more"),
      Param::text("data.path", "",
                  "folder of the data set; tar, manifest and coco also take a file, tar also "
                  "shard-{000..003}.tar, http://HOST/FOLDER/ and s3://BUCKET/FOLDER/"),
      Param::text("data.masks", "",
                  "masks for segmentation, 8-bit gray or palette PNGs whose pixels are class ids; "
                  "data.reader=folder: their folder, MASKS/SPLIT/.../NAME.png beside "
                  "DIR/SPLIT/.../NAME.jpg; manifest: the column of their paths; tar: the ending of "
                  "a member, such as seg.png"),
      Param::text("data.members", "",
                  "data.reader=tar: other members of each sample to include in batches, by "
                  "extension, such as txt,json"),
      Param::boolean("data.instance_masks", false,
                     "true: data.reader=coco hands out a mask of each object, from its outline"),
      Param::choice("data.split", "train", {"train", "test"}, "split for train and bench"),
      Param::text("data.fold", "",
                  "K/N, such as 2/5: divide split train into N parts, stratified by class; split "
                  "test becomes part K, split train the other parts"),
      Param::text("data.subset", "",
                  "text file with one sample index per line: split train keeps only these"),
      Param::number(
          "data.fraction", 1, 1e-9, 1,
          "fraction of each class that split train keeps; it does not depend on the seed"),
      Param::integer("data.max_pixels", static_cast<std::int64_t>(kMaxPixels), 1, kMax,
                     "largest image; one with more pixels is rejected before it is decoded")
          .in("pixels"),
      Param::choice(
          "data.cache", "os", {"os", "ram", "cold"},
          "os: the page cache of the operating system; ram: keep all files in memory after their "
          "first read; cold: every read comes from storage, which is checked"),
      Param::choice("data.index", "auto", {"auto", "require", "off"},
                    "auto: archives are opened through their index files where these fit; "
                    "require: every archive needs one; off: every archive is walked"),
      Param::choice("data.remote.fetch", "auto", {"auto", "shards", "ranges"},
                    "shards: whole archives, into data.remote.cache; ranges: the bytes of each "
                    "sample, by the archives' indexes; auto: ranges if loader.shuffle=global and "
                    "the set is larger than data.remote.cache_bytes"),
      Param::text("data.remote.cache", "",
                  "folder that keeps fetched archives, shared by all processes; empty: "
                  "millrace/shards in the user's cache directory"),
      Param::integer("data.remote.cache_bytes", 0, 0, 0x1p53,
                     "limit of data.remote.cache; archives that were not used lately are removed; "
                     "0: no limit")
          .in("bytes"),
      Param::number("data.remote.deadline", 120, 1, 86'400,
                    "time without progress, over all attempts, after which fetching a remote "
                    "archive fails and the run ends")
          .in("s"),
      Param::number("data.storage.bandwidth", 0, 0, 1e9,
                    "bandwidth of the emulated storage; 0: no limit")
          .in("MB/s"),
      Param::number("data.storage.latency", 0, 0, 1e6,
                    "latency of each read from the emulated storage")
          .in("ms"),
      Param::number("data.storage.iops", 0, 0, 1e12,
                    "reads per second of the emulated storage; 0: no limit")
          .in("reads/s"),
      Param::integer("data.synthetic.count", 60'000, 1, 0x1p40,
                     "number of images that the synthetic reader generates")
          .in("images"),
      Param::integer("data.synthetic.width", 32, 1, 16'384, "width of each image").in("pixels"),
      Param::integer("data.synthetic.height", 32, 1, 16'384, "height of each image").in("pixels"),
      Param::integer("data.synthetic.channels", 3, 1, 3, "channels per image: 1 (gray) or 3 (RGB)"),
      Param::integer("data.synthetic.classes", 10, 1, 1'000'000,
                     "number of classes; labels are assigned in turn"),
      Param::choice(
          "decode.depth", "8", {"8", "16", "float"},
          "8: images of 8 bits, gray or RGB; 16: 16 bits too, as fractions of full scale; "
          "float: floats too, as they are; these two keep all channels of the file"),
      Param::choice(
          "decode.scale", "exact", {"exact", "dct"},
          "dct: decode a JPEG that is reduced later at 1/2, 1/4 or 1/8 of its size (approximate)"),
      Param::choice("decode.jpeg", "auto", {"auto", "libjpeg"},
                    "JPEG Huffman decoder: auto: millrace's own where possible (faster); libjpeg: "
                    "always libjpeg-turbo; the pixels are the same"),
      Param::choice(
          "decode.region", "on", {"on", "off"},
          "on: decode only the region that the first pass reads; the pixels are the same"),
  };
}

std::vector<Param> loader_keys() {
  return {
      Param::choice("loader.mode", "normal", {"normal", "synthetic", "cached"},
                    "synthetic: batches of noise, without any loading; cached: repeat the first "
                    "batches"),
      Param::integer("loader.workers", 2, 0, 256,
                     "worker threads; 0: load in the trainer's thread; auto: as many as the first "
                     "steps of the run need")
          .or_word("auto")
          .in("threads"),
      Param::integer("loader.batch", 64, 1, kMax,
                     "global batch size: samples per step, over all ranks")
          .in("samples"),
      Param::integer("loader.batch_per_rank", 0, 0, kMax,
                     "batch size per rank; replaces loader.batch; 0: use loader.batch")
          .in("samples"),
      Param::integer("loader.prefetch", 4, 1, 4096, "batches prepared ahead, over all workers")
          .in("batches"),
      Param::text("loader.shuffle", "global",
                  "global, window:N (within windows of N samples) or none"),
      Param::boolean("loader.drop_last", false,
                     "drop the last batch of an epoch if it is incomplete"),
      Param::choice("loader.on_error", "fail", {"fail", "skip", "replace"},
                    "if a sample fails: stop the run, skip the sample, or draw another one"),
      Param::integer("loader.io_threads", -1, -1, 256,
                     "threads that read files ahead of the workers; 0: the workers read; -1: 4 for "
                     "cold or emulated storage, else 0")
          .in("threads"),
      Param::integer(
          "loader.max_bytes", static_cast<std::int64_t>(kMaxBytes), 1, 0x1p53,
          "memory, over all workers, for decoding images that need more than 16 MiB each; an image "
          "waits until it fits")
          .in("bytes"),
      Param::integer("loader.grain", 0, 0, kMax,
                     "samples per task; 0: from the measured cost per sample")
          .in("samples"),
  };
}

std::vector<Param> sampler_keys() {
  return {
      Param::choice(
          "sampler.kind", "shuffle", {"shuffle", "sequential", "weighted", "balanced", "repeat"},
          "shuffle: each sample once, in the order of loader.shuffle; sequential: as "
          "loader.shuffle=none; weighted: each draw by its weight; balanced: batches of equally "
          "many samples of each of their classes; repeat: each sample several times in a row"),
      Param::text("sampler.weights", "",
                  "weighted: text file of the samples' weights, one per line, in the data set's "
                  "order; empty: every class is drawn equally often"),
      Param::boolean("sampler.replacement", true,
                     "weighted: false: no sample comes twice in an epoch"),
      Param::integer("sampler.per_class", 4, 1, kMax,
                     "balanced: samples of each class in a batch; it has loader.batch / "
                     "sampler.per_class classes")
          .in("samples"),
      Param::integer("sampler.repeats", 3, 1, 1000,
                     "repeat: how often a sample comes in a row, each time augmented in another "
                     "way"),
      Param::integer("sampler.samples", 0, 0, 0x1p40,
                     "samples per epoch; 0: as many as the data set has")
          .in("samples"),
  };
}

std::vector<Param> target_keys() {
  return {
      Param::choice("targets.format", "xyxy", {"xyxy", "xywh", "cxcywh"},
                    "numbers of a box: xyxy: left, top, right, bottom; xywh: left, top, width, "
                    "height; cxcywh: centre, width, height"),
      Param::boolean("targets.relative", false,
                     "true: positions are fractions of the image's width and height"),
      Param::number("targets.min_area", 1, 0, kMax,
                    "smallest box, after it has been moved and clipped; smaller ones are left out")
          .in("pixels"),
      Param::number("targets.min_visibility", 0, 0, 1,
                    "part of a box's area that must be left after clipping, or it is left out"),
      Param::text("targets.flip_pairs", "",
                  "pairs of key points to swap when an image is mirrored, numbered from 0: "
                  "1-2,3-4"),
      Param::integer("targets.mask_fill", 255, 0, 255,
                     "class id of a mask's pixels that lie outside its image"),
  };
}

}  // namespace

std::vector<Param> pipeline_keys() {
  std::vector<Param> keys = general_keys();
  for (std::vector<Param> more : {data_keys(), loader_keys(), sampler_keys(), target_keys()})
    std::ranges::move(more, std::back_inserter(keys));
  return keys;
}

}  // namespace millrace::pipeline
