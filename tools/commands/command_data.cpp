// millrace data: makes, packs, indexes and verifies data sets.
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/text.h"
#include "pipeline/readers/listing.h"
#include "pipeline/readers/tar_members.h"
#include "pipeline/remote/sha256.h"
#include "study/records/run_directory.h"
#include "tools/commands/commands.h"
#include "tools/data/data.h"
#include "tools/terminal/program.h"
#include "tools/terminal/terminal.h"
#include "tools/training/setup.h"

namespace millrace::tools {
namespace {

using Json = nlohmann::ordered_json;

/// Most problems printed; --json lists all.
constexpr std::size_t kMaxPrinted = 20;

Progress progress_to(ProgressLine& line, const char* what) {
  return [&line, what](std::uint64_t done, std::uint64_t total) {
    if (line.due())
      line.show(static_cast<double>(done), static_cast<double>(total),
                fmt::format("{} {}/{}", what, done, total));
  };
}

/// Reports what was made, and suggests the next command.
Exit report_made(const std::string& kind, const std::string& path, std::uint64_t train,
                 std::uint64_t test, double seconds, const std::string& next) {
  if (verbosity().json) {
    print("{}\n", study::to_text(Json{{"command", "data make"},
                                      {"kind", kind},
                                      {"path", path},
                                      {"train", train},
                                      {"test", test},
                                      {"wall_s", seconds}},
                                 2));
  } else {
    print_unless_quiet("{}: {} + {} images in {:.1f} s\nnext: {}\n", path,
                       with_commas(static_cast<double>(train)),
                       with_commas(static_cast<double>(test)), seconds, in_own_name(next));
  }
  return Exit::done;
}

/// The default of loader.batch, which a proposed command without a recipe has.
constexpr std::uint64_t kDefaultBatch = 64;
/// Makes samples of one size from photos of any, in a proposed command.
constexpr const char* kCropToOneSize = "'augment+=random_crop{size=224,pad_if_needed=true}'";

/// Returns a batch that a small set can fill, for a proposed command; empty if `batch`, the one
/// that it would have otherwise, is no larger.
std::string batch_for(std::uint64_t samples, std::uint64_t batch) {
  return samples < batch ? fmt::format(" loader.batch={}", samples) : "";
}

/// Returns a command that trains a shipped recipe on a new set of `samples` images. In a program
/// that cannot train, the command measures the recipe's loader.
std::string first_use(const std::string& recipe, const std::string& path, std::uint64_t samples) {
  std::uint64_t batch = kDefaultBatch;
  try {
    batch = static_cast<std::uint64_t>(
        load_recipe({recipe}, pipeline::Plugins::none).integer("loader.batch"));
  } catch (const Error&) {  // a damaged file of that name in this folder; the set is made anyway
  }
  return fmt::format("millrace {} {} {}{}", this_program().trains ? "train" : "bench", recipe,
                     shell_word("data.path=" + path), batch_for(samples, batch));
}

double seconds_since(std::int64_t begin) {
  return static_cast<double>(base::Clock::steady_ns() - begin) * 1e-9;
}

Exit digits(DigitsOptions options) {
  ProgressLine line;
  const std::int64_t begin = base::Clock::steady_ns();
  options.progress = progress_to(line, "digits");
  make_digits(options);
  line.clear();
  return report_made("digits", options.path, options.train, options.test, seconds_since(begin),
                     first_use("mnist-lenet", options.path, options.train));
}

Exit objects(ObjectsOptions options) {
  ProgressLine line;
  const std::int64_t begin = base::Clock::steady_ns();
  options.progress = progress_to(line, "objects");
  make_objects(options);
  line.clear();
  return report_made("objects", options.path, options.train, options.test, seconds_since(begin),
                     first_use("cifar10-lenet", options.path, options.train));
}

Exit boxes(BoxesOptions options) {
  ProgressLine line;
  const std::int64_t begin = base::Clock::steady_ns();
  constexpr std::uint64_t kBatch = 16;  // of both recipes
  options.progress = progress_to(line, "boxes");
  make_boxes(options);
  line.clear();
  return report_made(
      "boxes", options.path, options.train, options.test, seconds_since(begin),
      fmt::format("millrace bench {} {}{}{}",
                  options.masks ? "segmentation-512" : "coco-mosaic-640",
                  shell_word("data.path=" + options.path + (options.masks ? "/images" : "")),
                  options.masks ? " " + shell_word("data.masks=" + options.path + "/masks") : "",
                  batch_for(options.train, kBatch)));
}

Exit photos(PhotosOptions options) {
  ProgressLine line;
  const std::int64_t begin = base::Clock::steady_ns();
  options.progress = progress_to(line, "photos");
  make_photos(options);
  line.clear();
  const VerifyReport report = verify_data({.path = options.path, .progress = {}});
  std::uint64_t train = 0, test = 0;
  for (const VerifySplit& split : report.splits)
    (split.name == "train" ? train : test) += split.count;
  return report_made("photos", options.path, train, test, seconds_since(begin),
                     first_use("imagenet-rrc", options.path, train));
}

Exit pack_set(PackOptions options) {
  if (options.shrink.resizes()) say(std::string("warning: ") + kLossyPacking);
  ProgressLine line;
  const std::int64_t begin = base::Clock::steady_ns();
  const Progress show = progress_to(line, "pack");
  options.progress = [&](std::uint64_t done, std::uint64_t total) {
    if (interrupted())
      throw Error(Exit::interrupted, "interrupted: nothing was written to " + options.target);
    show(done, total);
  };
  options.indexing = [&] {
    if (interrupted())
      throw Error(Exit::interrupted,
                  "interrupted: the archives are complete, their indexes are not",
                  "write them: millrace data index " + shell_word(options.target));
  };
  const std::vector<PackedSplit> packed = pack(options);
  line.clear();
  const double seconds = seconds_since(begin);
  Json json{{"command", "data pack"},
            {"source", options.source},
            {"target", options.target},
            {"wall_s", seconds},
            {"splits", Json::array()}};
  for (const PackedSplit& split : packed)
    json["splits"].push_back({{"name", split.name},
                              {"count", split.count},
                              {"bytes", split.bytes},
                              {"files", split.files}});
  if (verbosity().json) {
    print("{}\n", study::to_text(json, 2));
    return Exit::done;
  }
  for (const PackedSplit& split : packed)
    print_unless_quiet("{}: {} images in {} archive{}, {:.1f} MB, read back and compared\n",
                       split.name, with_commas(static_cast<double>(split.count)),
                       split.files.size(), split.files.size() == 1 ? "" : "s",
                       static_cast<double>(split.bytes) / 1e6);
  // The split of an archive that is named itself is not looked for.
  const bool only_test =
      packed.size() == 1 && packed[0].name == "test" && !options.target.ends_with(".tar");
  print_unless_quiet("{:.1f} s\nnext: {} data.reader=tar {}{}{} {}\n", seconds,
                     in_own_name("millrace bench"), shell_word("data.path=" + options.target),
                     only_test ? " data.split=test" : "", batch_for(packed[0].count, kDefaultBatch),
                     kCropToOneSize);
  return Exit::done;
}

/// Prints existing indexes as one JSON document, archive by archive.
Exit show_indexes(const std::string& path) {
  print("{{\"version\": {}, \"shards\": [", pipeline::ShardIndex::kVersion);
  const char* comma = "";
  for (const std::string& file : archives_of(path)) {
    const pipeline::ShardIndex index = pipeline::read_shard_index(file, true);
    Json json{{"name", index.shard},
              {"bytes", index.stamp.size},
              {"mtime_ns", index.stamp.mtime_ns},
              {"sha256", pipeline::hex_of(index.sha256)},
              {"fingerprint", fmt::format("{:016x}", index.tar.fingerprint)},
              {"folders", index.tar.folders},
              {"samples", Json::array()}};
    for (std::size_t i = 0; i < index.tar.samples.size(); ++i) {
      const pipeline::TarIndex::Entry& sample = index.tar.samples[i];
      json["samples"].push_back({{"name", index.tar.names.c_str() + index.tar.name_at[i]},
                                 {"offset", sample.data},
                                 {"bytes", sample.size},
                                 {"label", sample.label},
                                 {"folder", sample.folder}});
    }
    print("{}\n{}", comma, study::to_text(json, -1));
    comma = ",";
  }
  print("\n]}}\n");
  return Exit::done;
}

Exit index_set(const std::string& path) {
  ProgressLine line;
  const std::int64_t begin = base::Clock::steady_ns();
  const IndexReport report = make_indexes(path, progress_to(line, "index"), [&] {
    if (interrupted())
      throw Error(Exit::interrupted, "interrupted: not every archive has its index",
                  "start again: millrace data index " + shell_word(path));
  });
  line.clear();
  Json json{{"command", "data index"},
            {"path", path},
            {"wall_s", seconds_since(begin)},
            {"set", report.set_file.empty() ? Json(nullptr) : Json(report.set_file)},
            {"shards", Json::array()}};
  std::uint64_t samples = 0, bytes = 0, index_bytes = 0;
  for (std::size_t i = 0; i < report.files.size(); ++i) {
    const pipeline::SetIndex::Shard& shard = report.set.shards[i];
    json["shards"].push_back({{"file", report.files[i]},
                              {"samples", shard.samples},
                              {"bytes", shard.size},
                              {"index_bytes", shard.index_size},
                              {"sha256", pipeline::hex_of(shard.sha256)}});
    samples += shard.samples;
    bytes += shard.size;
    index_bytes += shard.index_size;
  }
  if (verbosity().json) {
    print("{}\n", study::to_text(json, 2));
    return Exit::done;
  }
  print_unless_quiet("{}: {} images in {} archive{} of {:.1f} MB, {:.1f} MB of indexes, {:.1f} s\n",
                     path, with_commas(static_cast<double>(samples)), report.files.size(),
                     report.files.size() == 1 ? "" : "s", static_cast<double>(bytes) / 1e6,
                     static_cast<double>(index_bytes) / 1e6, seconds_since(begin));
  return Exit::done;
}

Exit verify(VerifyOptions options) {
  ProgressLine line;
  const Progress show = progress_to(line, "verify");
  options.progress = [&](std::uint64_t done, std::uint64_t total) {
    if (interrupted()) throw Error(Exit::interrupted, "interrupted: not every image was checked");
    show(done, total);
  };
  const VerifyReport report = verify_data(options);
  line.clear();
  Json json{{"command", "data verify"}, {"path", options.path},
            {"kind", report.kind},      {"sound", report.problems.empty()},
            {"splits", Json::array()},  {"problems", Json::array()}};
  for (const VerifySplit& split : report.splits) {
    Json classes = Json::object();
    for (std::size_t i = 0; i < split.class_counts.size(); ++i)
      classes[i < split.classes.size() ? split.classes[i] : std::to_string(i)] =
          split.class_counts[i];
    json["splits"].push_back({{"name", split.name},
                              {"count", split.count},
                              {"smallest", {split.smallest.width, split.smallest.height}},
                              {"largest", {split.largest.width, split.largest.height}},
                              {"fingerprint", fmt::format("{:016x}", split.fingerprint)},
                              {"classes", std::move(classes)}});
  }
  for (const VerifyProblem& problem : report.problems)
    json["problems"].push_back({{"where", problem.where}, {"what", problem.what}});

  if (verbosity().json) {
    print("{}\n", study::to_text(json, 2));
  } else {
    print_unless_quiet("{}: {}\n", options.path,
                       report.kind.empty() ? "not a known kind of data set" : report.kind);
    for (const VerifySplit& split : report.splits) {
      print_unless_quiet("  {}: {} images in {} classes, ", split.name,
                         with_commas(static_cast<double>(split.count)), split.class_counts.size());
      if (split.smallest == split.largest)
        print_unless_quiet("{}x{}", split.largest.width, split.largest.height);
      else
        print_unless_quiet("{}x{} to {}x{}", split.smallest.width, split.smallest.height,
                           split.largest.width, split.largest.height);
      print_unless_quiet(", fingerprint {:016x}\n", split.fingerprint);
    }
    for (std::size_t i = 0; i < std::min(report.problems.size(), kMaxPrinted); ++i)
      print("  problem: {}{}{}\n", base::printable(report.problems[i].where),
            report.problems[i].where.empty() ? "" : ": ", base::printable(report.problems[i].what));
    if (report.problems.size() > kMaxPrinted)
      print("  ... and {} more (--json lists all)\n", report.problems.size() - kMaxPrinted);
  }
  if (!report.problems.empty())
    throw DataError(fmt::format("{}: {} problem{}", options.path, report.problems.size(),
                                report.problems.size() == 1 ? "" : "s"),
                    "repair or remove the files named above");
  if (!verbosity().json) print_unless_quiet("  sound\n");
  return Exit::done;
}

/// Adds the argument plugins.path=... to a command that decodes images. Returns a function that
/// loads these plugins and those of MILLRACE_PLUGIN_PATH.
std::function<void()> add_plugin_paths(CLI::App& command) {
  auto words = std::make_shared<std::vector<std::string>>();
  command.add_option("plugins", *words, "plugins.path=...: plugins that decode these images");
  return [words, name = command.get_name()] {
    for (const std::string& word : *words)
      if (!word.starts_with("plugins.path="))
        throw UsageError(fmt::format("data {}: '{}' is not expected here", name, word),
                         "recipe keys do not apply; only plugins.path=... may follow");
    load_recipe(*words);
  };
}

/// Adds `data make KIND` for a set of two splits with chosen sizes.
template <typename Options>
void add_make(CLI::App& make, const std::string& kind, const std::string& help,
              Exit (*action)(Options), Command& chosen) {
  auto* command = make.add_subcommand(kind, help);
  auto options = std::make_shared<Options>();
  command->add_option("dir", options->path, "folder to write to")->required();
  command
      ->add_option("--train", options->train, fmt::format("training images ({})", options->train))
      ->check(CLI::PositiveNumber);
  command->add_option("--test", options->test, fmt::format("test images ({})", options->test))
      ->check(CLI::PositiveNumber);
  command->add_option("--seed", options->seed, "the same seed gives the same bytes (0)");
  command->add_flag("--force", options->force, "overwrite another data set with these file names");
  if constexpr (requires(Options & some) { some.masks; })
    command->add_flag("--masks", options->masks, "write masks too: data.masks=DIR/masks");
  command->footer(fmt::format("Example:\n  millrace data make {0} data/{0}", kind));
  add_common(*command);
  command->callback([options, action, &chosen] {
    chosen = [options, action](const ProgramStart&) { return action(*options); };
  });
}

/// Adds `data index`.
void add_index(CLI::App& data, Command& chosen) {
  auto* command = data.add_subcommand(
      "index", "write an index next to each archive, so that a set opens without being walked");
  auto path = std::make_shared<std::string>();
  auto show = std::make_shared<bool>(false);
  command->add_option("path", *path, "folder, archive, or shard-{000..003}.tar")->required();
  command->add_flag("--show", *show, "write nothing; print existing indexes as JSON");
  command->footer("Example:\n  millrace data index data/photos-tar");
  add_common(*command);
  const std::function<void()> load_plugins = add_plugin_paths(*command);
  command->callback([path, show, load_plugins, &chosen] {
    chosen = [path, show, load_plugins](const ProgramStart&) {
      load_plugins();
      return *show ? show_indexes(*path) : index_set(*path);
    };
  });
}

/// Adds `data make photos`.
void add_make_photos(CLI::App& make, Command& chosen) {
  auto* command =
      make.add_subcommand("photos", "a folder of JPEGs with the size and detail of a camera's");
  auto options = std::make_shared<PhotosOptions>();
  command->add_option("dir", options->path, "folder to write to")->required();
  command->add_option("--count", options->count, "images of both splits together (256)")
      ->check(CLI::PositiveNumber);
  command->add_option("--classes", options->classes, "classes (8)")->check(CLI::Range(1, 1000));
  command->add_option("--quality", options->quality, "JPEG quality (90)")
      ->check(CLI::Range(1, 100));
  command->add_option("--seed", options->seed, "the same seed gives the same images (0)");
  command->add_flag("--force", options->force, "overwrite another data set with these file names");
  command->footer("Example:\n  millrace data make photos data/photos --count 512");
  add_common(*command);
  command->callback(
      [options, &chosen] { chosen = [options](const ProgramStart&) { return photos(*options); }; });
}

constexpr const char* kArraysHelp =
    "count a folder's NumPy arrays (.npy) as images, as decode.depth=16 and float do";

/// Adds `data verify`.
void add_verify(CLI::App& data, Command& chosen) {
  auto* command =
      data.add_subcommand("verify", "list the content of a data set and what is wrong with it");
  auto options = std::make_shared<VerifyOptions>();
  command->add_option("path", options->path, "folder, archive or manifest")->required();
  command->add_option(
      "--masks", options->masks,
      "its masks, as data.masks: their folder, a manifest's column, or the ending of "
      "members of archives");
  command->add_flag("--arrays", options->arrays, kArraysHelp);
  command
      ->add_option("--classes", options->classes, "number of classes: every label must be below it")
      ->check(CLI::PositiveNumber);
  command
      ->add_option("--max-pixels", options->max_pixels,
                   fmt::format("largest allowed image, as data.max_pixels ({})", kMaxPixels))
      ->check(CLI::PositiveNumber);
  command->footer("Example:\n  millrace data verify data/digits --classes 10");
  add_common(*command);
  const std::function<void()> load_plugins = add_plugin_paths(*command);
  command->callback([options, load_plugins, &chosen] {
    chosen = [options, load_plugins](const ProgramStart&) {
      load_plugins();
      return verify(*options);
    };
  });
}

/// Adds the options that convert images. Returns --quality, which needs resized JPEGs.
const CLI::Option* add_shrink(CLI::App& command, ShrinkOptions& shrink) {
  command
      .add_option_function<std::string>(
          "--format", [&shrink](const std::string& format) { shrink.raw = format == "raw"; },
          "jpeg, or raw: pixels that need no decoding, and several times the space (jpeg)")
      ->check(CLI::IsMember({"jpeg", "raw"}));
  auto* short_side = command
                         .add_option("--short-side", shrink.short_side,
                                     "resize images until the shorter side has at most this; lossy")
                         ->check(CLI::Range(1, 65'535));
  command
      .add_option("--max-side", shrink.max_side,
                  "resize images until the longer side has at most this; lossy")
      ->check(CLI::Range(1, 65'535))
      ->excludes(short_side);
  return command
      .add_option("--quality", shrink.quality, "JPEG quality of images that are resized (90)")
      ->check(CLI::Range(1, 100));
}

/// Adds `data pack`.
void add_pack(CLI::App& data, Command& chosen) {
  auto* command =
      data.add_subcommand("pack", "pack encoded images into archives (WebDataset shards)");
  auto options = std::make_shared<PackOptions>();
  command->add_option("source", options->source, "folder, archive or manifest")->required();
  command
      ->add_option("target", options->target,
                   "folder for train-000000.tar, test-000000.tar, ...; or NAME.tar or "
                   "NAME-{000..003}.tar for one split")
      ->required();
  command->add_option("--reader", options->reader, "folder, tar or manifest (default: detected)");
  command->add_option("--split", options->split, "the split that NAME.tar gets (train)")
      ->check(CLI::IsMember({"train", "test"}));
  auto* shards = command->add_option("--shards", options->shards, "archives per split")
                     ->check(CLI::Range(1, 1'000'000));
  auto megabytes = std::make_shared<double>(0);
  command->add_option("--shard-size", *megabytes, "largest size of an archive in MB (1000)")
      ->check(CLI::PositiveNumber)
      ->excludes(shards);
  auto members = std::make_shared<std::string>();
  command->add_option(
      "--members", *members,
      "other members of an archive's samples to keep, such as txt,json (data.members)");
  command->add_option("--masks", options->masks,
                      "pack the masks that this names, as data.masks does, as members .seg.png");
  command->add_flag("--arrays", options->arrays, kArraysHelp);
  const CLI::Option* quality = add_shrink(*command, options->shrink);
  command->add_flag("--force", options->force, "overwrite existing archives");
  command->footer("Example:\n  millrace data pack data/photos data/photos-tar --shard-size 256");
  add_common(*command);
  const std::function<void()> load_plugins = add_plugin_paths(*command);
  command->callback([options, megabytes, members, quality, load_plugins, &chosen] {
    options->shard_bytes = static_cast<std::uint64_t>(*megabytes * 1e6);
    const bool has_quality = quality->count() > 0;
    chosen = [options, members, has_quality, load_plugins](const ProgramStart&) {
      options->members = pipeline::parse_members(*members);
      if (has_quality && options->shrink.raw)
        throw UsageError("--quality with --format raw", "pixels are stored without a loss");
      if (has_quality && !options->shrink.resizes())
        throw UsageError("--quality without --short-side or --max-side",
                         "images that are not resized are packed as they are");
      load_plugins();
      return pack_set(*options);
    };
  });
}

}  // namespace

void add_data(CLI::App& app, Command& chosen) {
  auto* data = app.add_subcommand("data", "make, verify, pack or index a data set");
  data->require_subcommand(0, 1);  // main() reports a missing one after it has checked the options
  data->footer("Example:\n  millrace data make digits data/digits");
  add_common(*data);

  auto* make =
      data->add_subcommand("make", "generate a data set: boxes, digits, objects or photos");
  make->require_subcommand(0, 1);
  add_common(*make);
  make->footer("Example:\n  millrace data make photos data/photos --count 512");

  add_make(*make, "boxes", "scenes of shapes, with their boxes in COCO's and YOLO's formats", boxes,
           chosen);
  add_make(*make, "digits", "an MNIST-shaped, learnable IDX set", digits, chosen);
  add_make(*make, "objects", "a learnable data set in the format of CIFAR-10", objects, chosen);
  add_make_photos(*make, chosen);
  add_verify(*data, chosen);
  add_pack(*data, chosen);
  add_index(*data, chosen);
}

}  // namespace millrace::tools
