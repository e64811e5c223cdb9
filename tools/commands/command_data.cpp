// millrace data: makes, packs and verifies data sets.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/printable.h"
#include "study/records/run_directory.h"
#include "tools/commands/commands.h"
#include "tools/data/make_digits.h"
#include "tools/data/make_objects.h"
#include "tools/data/make_photos.h"
#include "tools/data/pack.h"
#include "tools/data/verify.h"
#include "tools/terminal/console.h"
#include "tools/terminal/interrupt.h"
#include "tools/terminal/output.h"

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
    print("{}: {} + {} images in {:.1f} s\nnext: {}\n", path,
          with_commas(static_cast<double>(train)), with_commas(static_cast<double>(test)), seconds,
          next);
  }
  return Exit::done;
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
                     "millrace train mnist-lenet data.path=" + options.path);
}

Exit objects(ObjectsOptions options) {
  ProgressLine line;
  const std::int64_t begin = base::Clock::steady_ns();
  options.progress = progress_to(line, "objects");
  make_objects(options);
  line.clear();
  return report_made("objects", options.path, options.train, options.test, seconds_since(begin),
                     "millrace train cifar10-lenet data.path=" + options.path);
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
                     "millrace bench data.reader=folder data.path=" + options.path +
                         " 'augment+=random_crop{size=224,pad_if_needed=true}'");
}

Exit pack_set(PackOptions options) {
  ProgressLine line;
  const std::int64_t begin = base::Clock::steady_ns();
  const Progress show = progress_to(line, "pack");
  options.progress = [&](std::uint64_t done, std::uint64_t total) {
    if (interrupted())
      throw Error(Exit::interrupted, "interrupted: nothing was written to " + options.target);
    show(done, total);
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
    print("{}: {} images in {} archive{}, {:.1f} MB, read back and compared\n", split.name,
          with_commas(static_cast<double>(split.count)), split.files.size(),
          split.files.size() == 1 ? "" : "s", static_cast<double>(split.bytes) / 1e6);
  print("{:.1f} s\nnext: millrace bench data.reader=tar 'data.path={}'\n", seconds, options.target);
  return Exit::done;
}

Exit verify(VerifyOptions options) {
  ProgressLine line;
  options.progress = progress_to(line, "verify");
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
    print("{}: {}\n", options.path,
          report.kind.empty() ? "not a known kind of data set" : report.kind);
    for (const VerifySplit& split : report.splits) {
      print("  {}: {} images in {} classes, ", split.name,
            with_commas(static_cast<double>(split.count)), split.class_counts.size());
      if (split.smallest == split.largest)
        print("{}x{}", split.largest.width, split.largest.height);
      else
        print("{}x{} to {}x{}", split.smallest.width, split.smallest.height, split.largest.width,
              split.largest.height);
      print(", fingerprint {:016x}\n", split.fingerprint);
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
  if (!verbosity().json) print("  sound\n");
  return Exit::done;
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
  command->footer(fmt::format("Example:\n  millrace data make {0} data/{0}", kind));
  add_common(*command);
  command->callback([options, action, &chosen] {
    chosen = [options, action](const ProgramStart&) { return action(*options); };
  });
}

}  // namespace

void add_data(CLI::App& app, Command& chosen) {
  auto* data = app.add_subcommand("data", "make, verify or pack a data set");
  data->require_subcommand(0, 1);  // main() reports a missing one after it has checked the options
  data->footer("Example:\n  millrace data make digits data/digits");
  add_common(*data);

  auto* make = data->add_subcommand("make", "generate a data set: digits, objects or photos");
  make->require_subcommand(0, 1);
  add_common(*make);
  make->footer("Example:\n  millrace data make photos data/photos --count 512");

  add_make(*make, "digits", "an MNIST-shaped, learnable IDX set", digits, chosen);
  add_make(*make, "objects", "a learnable data set in the format of CIFAR-10", objects, chosen);

  auto* make_photos_command =
      make->add_subcommand("photos", "a folder of JPEGs with the size and detail of a camera's");
  auto photos_options = std::make_shared<PhotosOptions>();
  make_photos_command->add_option("dir", photos_options->path, "folder to write to")->required();
  make_photos_command
      ->add_option("--count", photos_options->count, "images of both splits together (256)")
      ->check(CLI::PositiveNumber);
  make_photos_command->add_option("--classes", photos_options->classes, "classes (8)")
      ->check(CLI::Range(1, 1000));
  make_photos_command->add_option("--quality", photos_options->quality, "JPEG quality (90)")
      ->check(CLI::Range(1, 100));
  make_photos_command->add_option("--seed", photos_options->seed,
                                  "the same seed gives the same images (0)");
  make_photos_command->add_flag("--force", photos_options->force,
                                "overwrite another data set with these file names");
  make_photos_command->footer("Example:\n  millrace data make photos data/photos --count 512");
  add_common(*make_photos_command);
  make_photos_command->callback([photos_options, &chosen] {
    chosen = [photos_options](const ProgramStart&) { return photos(*photos_options); };
  });

  auto* verify_command =
      data->add_subcommand("verify", "list the content of a data set and what is wrong with it");
  auto verify_options = std::make_shared<VerifyOptions>();
  verify_command->add_option("path", verify_options->path, "folder, archive or manifest")
      ->required();
  verify_command
      ->add_option("--classes", verify_options->classes,
                   "number of classes: every label must be below it")
      ->check(CLI::PositiveNumber);
  verify_command
      ->add_option("--max-pixels", verify_options->max_pixels,
                   fmt::format("largest allowed image, as data.max_pixels ({})", kMaxPixels))
      ->check(CLI::PositiveNumber);
  verify_command->footer("Example:\n  millrace data verify data/digits --classes 10");
  add_common(*verify_command);
  verify_command->callback([verify_options, &chosen] {
    chosen = [verify_options](const ProgramStart&) { return verify(*verify_options); };
  });

  auto* pack_command =
      data->add_subcommand("pack", "pack encoded images into archives (WebDataset shards)");
  auto pack_options = std::make_shared<PackOptions>();
  pack_command->add_option("source", pack_options->source, "folder, archive or manifest")
      ->required();
  pack_command
      ->add_option("target", pack_options->target,
                   "folder for train-000000.tar, test-000000.tar, ...; or NAME.tar or "
                   "NAME-{000..003}.tar for one split")
      ->required();
  pack_command->add_option("--reader", pack_options->reader,
                           "folder, tar or manifest (default: detected)");
  pack_command->add_option("--split", pack_options->split, "the split that NAME.tar gets (train)")
      ->check(CLI::IsMember({"train", "test"}));
  auto* shards = pack_command->add_option("--shards", pack_options->shards, "archives per split")
                     ->check(CLI::Range(1, 1'000'000));
  auto megabytes = std::make_shared<double>(0);
  pack_command->add_option("--shard-size", *megabytes, "largest size of an archive in MB (1000)")
      ->check(CLI::PositiveNumber)
      ->excludes(shards);
  pack_command->add_flag("--force", pack_options->force, "overwrite existing archives");
  pack_command->footer(
      "Example:\n  millrace data pack data/photos data/photos-tar --shard-size 256");
  add_common(*pack_command);
  pack_command->callback([pack_options, megabytes, &chosen] {
    pack_options->shard_bytes = static_cast<std::uint64_t>(*megabytes * 1e6);
    chosen = [pack_options](const ProgramStart&) { return pack_set(*pack_options); };
  });
}

}  // namespace millrace::tools
