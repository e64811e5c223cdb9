// Tests generated sets: equal bytes for equal seeds, never half written, never over other files.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <map>
#include <vector>

#include "millrace/loader.h"
#include "millrace/plan.h"
#include "millrace/reader.h"
#include "tests/data/support.h"
#include "tests/generated_cases.h"
#include "tools/data/data.h"

namespace millrace::pipeline {
namespace {

namespace fs = test::fs;
using test::Bytes;
using test::expect_error;
using test::read_bytes;
using test::TempFolder;

/// Returns the files' contents by relative name.
std::map<std::string, Bytes> contents(const std::string& folder) {
  std::map<std::string, Bytes> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    if (entry.is_regular_file())
      files[entry.path().lexically_relative(folder).string()] = read_bytes(entry.path().string());
  return files;
}

tools::DigitsOptions digits(const std::string& path, std::uint32_t train = 300,
                            std::uint32_t test = 100) {
  tools::DigitsOptions options;
  options.path = path;
  options.train = train;
  options.test = test;
  return options;
}

tools::PhotosOptions photos(const std::string& path) {
  tools::PhotosOptions options;
  options.path = path;
  options.count = 12;
  options.classes = 3;
  return options;
}

tools::ObjectsOptions objects(const std::string& path, std::uint32_t train = 302,
                              std::uint32_t test = 100) {
  tools::ObjectsOptions options;
  options.path = path;
  options.train = train;
  options.test = test;
  return options;
}

std::unique_ptr<Reader> open_split(const std::string& path, const std::string& split,
                                   const std::string& reader = "idx") {
  return open_reader({reader, path, split, 10});
}

// ---- digits

TEST(MakeDigits, IsAnIdxSetOfTheShapeOfMnist) {
  const TempFolder folder;
  std::uint64_t last = 0;
  tools::DigitsOptions options = digits(folder.path("new/digits"));
  options.progress = [&](std::uint64_t done, std::uint64_t total) {
    EXPECT_GT(done, last);
    EXPECT_EQ(total, 400u);
    last = done;
  };
  tools::make_digits(options);
  EXPECT_EQ(last, 400u);
  EXPECT_EQ(contents(options.path).size(), 4u);
  const auto train = open_split(options.path, "train"), test = open_split(options.path, "test");
  EXPECT_EQ(train->info().count, 300u);
  EXPECT_EQ(test->info().count, 100u);
  EXPECT_EQ(train->info().size, (Size{28, 28}));
}

TEST(MakeDigits, SameBytesOnEveryMachineAndForAnyNumberOfThreads) {
  const TempFolder one, two, other;
  tools::DigitsOptions options = digits(one.path(), 1200);
  options.threads = 1;
  tools::make_digits(options);
  options.path = two.path();
  options.threads = 3;
  tools::make_digits(options);
  EXPECT_EQ(contents(one.path()), contents(two.path()));
  // Pinned: a change here changes all users' generated data.
  EXPECT_EQ(open_split(one.path(), "train")->info().fingerprint, 1384802647261879101u);

  options.path = other.path();
  options.seed = 1;
  tools::make_digits(options);
  EXPECT_NE(contents(one.path()), contents(other.path()));
}

/// Returns the fraction of `test` whose nearest class mean of `train` is the right one.
double nearest_mean_accuracy(const Reader& train, const Reader& test) {
  const std::size_t pixels = train.info().bytes / train.info().count;
  std::vector<std::vector<double>> means(10, std::vector<double>(pixels));
  std::array<double, 10> counts{};
  Buffer scratch;
  for (std::uint64_t i = 0; i < train.info().count; ++i) {
    const Sample sample = train.read(i, scratch);
    const auto label = static_cast<std::size_t>(sample.label);
    ++counts[label];
    for (std::size_t p = 0; p < pixels; ++p) means[label][p] += sample.bytes[p];
  }
  int right = 0;
  for (std::uint64_t i = 0; i < test.info().count; ++i) {
    const Sample sample = test.read(i, scratch);
    std::array<double, 10> distance{};
    for (std::size_t label = 0; label < 10; ++label)
      for (std::size_t p = 0; p < pixels; ++p) {
        const double difference = sample.bytes[p] - means[label][p] / counts[label];
        distance[label] += difference * difference;
      }
    right += std::min_element(distance.begin(), distance.end()) - distance.begin() == sample.label;
  }
  return right / static_cast<double>(test.info().count);
}

TEST(MakeDigits, CanBeLearntButNotAtAGlance) {
  const TempFolder folder;
  tools::make_digits(digits(folder.path(), 3000, 500));
  const double accuracy = nearest_mean_accuracy(*open_split(folder.path(), "train"),
                                                *open_split(folder.path(), "test"));
  EXPECT_GT(accuracy, .5);  // MNIST: 0.82
  EXPECT_LT(accuracy, .9);
}

TEST(MakeDigits, SecondRunFindsItsOwnFilesAndLeavesThem) {
  const TempFolder folder;
  tools::make_digits(digits(folder.path()));
  const auto written = fs::last_write_time(folder.path("train-images-idx3-ubyte"));
  fs::remove(folder.path("t10k-labels-idx1-ubyte"));
  folder.write(".t10k-labels-idx1-ubyte.partial", {1});  // from an interrupted run
  tools::make_digits(digits(folder.path()));
  EXPECT_EQ(fs::last_write_time(folder.path("train-images-idx3-ubyte")), written);
  EXPECT_EQ(contents(folder.path()).size(), 4u);
}

TEST(MakeDigits, DoesNotWriteOverOtherFiles) {
  const TempFolder folder;
  tools::make_digits(digits(folder.path()));
  const auto before = contents(folder.path());
  tools::DigitsOptions options = digits(folder.path());
  options.seed = 1;
  expect_error(Exit::failed, {"-idx3-ubyte", "already exists with other contents"},
               [&] { tools::make_digits(options); });
  EXPECT_EQ(contents(folder.path()), before);
  options.force = true;
  tools::make_digits(options);
  EXPECT_NE(contents(folder.path()), before);

  const TempFolder mine;
  mine.write("thesis/chapter1.tex", {1});
  expect_error(Exit::failed, {"already holds other files: thesis/chapter1.tex"},
               [&] { tools::make_digits(digits(mine.path())); });
  EXPECT_EQ(contents(mine.path()).size(), 1u);
  expect_error(Exit::failed, {"chapter1.tex: already exists and is not a folder"},
               [&] { tools::make_digits(digits(mine.path("thesis/chapter1.tex"))); });
  expect_error(Exit::failed, {"cannot be created"},
               [&] { tools::make_digits(digits(mine.path("thesis/chapter1.tex/x"))); });
  expect_error(Exit::usage, {"at least one image"},
               [&] { tools::make_digits(digits(mine.path(), 0)); });
}

/// Stands for a full disk: no file may grow beyond `bytes`.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{bytes, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;

 private:
  rlimit before_{};
  void (*handler_)(int);
};

TEST(MakeDigits, FullDiskLeavesNothingBehind) {
  const TempFolder folder;
  const FileSizeLimit full(100'000);
  expect_error(Exit::failed, {"train-images-idx3-ubyte: cannot be written: File too large"},
               [&] { tools::make_digits(digits(folder.path())); });
  EXPECT_TRUE(contents(folder.path()).empty());
}

// ---- objects

TEST(MakeObjects, IsASetOfTheShapeOfCifar10) {
  const TempFolder folder;
  std::uint64_t last = 0;
  tools::ObjectsOptions options = objects(folder.path("new/objects"));
  options.progress = [&](std::uint64_t done, std::uint64_t total) {
    EXPECT_GT(done, last);
    EXPECT_EQ(total, 402u);
    last = done;
  };
  tools::make_objects(options);
  EXPECT_EQ(last, 402u);
  const auto files = contents(options.path);
  EXPECT_EQ(files.size(), 7u);
  EXPECT_EQ(files.at("data_batch_1.bin").size(), 60u * 3073);
  EXPECT_EQ(files.at("data_batch_5.bin").size(), 61u * 3073) << "302 images over five files";
  const auto train = open_split(options.path, "train", "cifar");
  EXPECT_EQ(train->info().count, 302u);
  EXPECT_EQ(open_split(options.path, "test", "cifar")->info().count, 100u);
  EXPECT_EQ(train->info().classes.at(2), "triangle");
  const tools::VerifyReport report = tools::verify_data({options.path, 10, 1'000'000, 2, {}});
  EXPECT_TRUE(report.problems.empty());
  EXPECT_EQ(report.kind, "cifar");
}

TEST(MakeObjects, SameBytesOnEveryMachineAndForAnyNumberOfThreads) {
  const TempFolder one, two, other;
  constexpr int kImages = test::generated_cases(6000);
  tools::ObjectsOptions options = objects(one.path(), kImages);
  options.threads = 1;
  tools::make_objects(options);
  options.path = two.path();
  options.threads = 3;
  tools::make_objects(options);
  EXPECT_EQ(contents(one.path()), contents(two.path()));
  // Pinned: a change here changes all users' generated data.
  if (kImages == 6000) {
    EXPECT_EQ(open_split(one.path(), "train", "cifar")->info().fingerprint, 15047375946266967106u);
  }

  options.path = other.path();
  options.seed = 1;
  tools::make_objects(options);
  EXPECT_NE(contents(one.path()), contents(other.path()));
}

TEST(MakeObjects, CannotBeLearntAtAGlance) {
  const TempFolder folder;
  tools::make_objects(objects(folder.path(), 3000, 500));
  const double accuracy = nearest_mean_accuracy(*open_split(folder.path(), "train", "cifar"),
                                                *open_split(folder.path(), "test", "cifar"));
  EXPECT_LT(accuracy, .35);  // chance: 0.1; colours and positions carry no information
}

TEST(MakeObjects, AnotherSetIsNotWrittenOver) {
  const TempFolder folder;
  tools::make_objects(objects(folder.path()));
  const auto before = contents(folder.path());
  tools::make_objects(objects(folder.path()));  // finds its own files
  tools::ObjectsOptions options = objects(folder.path());
  options.seed = 1;
  expect_error(Exit::failed, {"data_batch_1.bin: already exists with other contents"},
               [&] { tools::make_objects(options); });
  EXPECT_EQ(contents(folder.path()), before);
  options.force = true;
  tools::make_objects(options);
  EXPECT_NE(contents(folder.path()), before);
  expect_error(Exit::usage, {"at least five training images"},
               [&] { tools::make_objects(objects(folder.path("new"), 4)); });
}

// ---- photos

TEST(MakePhotos, IsAFolderOfPicturesThatDecode) {
  const TempFolder folder;
  tools::make_photos(photos(folder.path()));
  const tools::VerifyReport report = tools::verify_data({folder.path(), 3, 1'000'000, 2, {}});
  EXPECT_TRUE(report.problems.empty());
  EXPECT_EQ(report.kind, "folder");
  ASSERT_EQ(report.splits.size(), 2u);
  EXPECT_EQ(report.splits[0].class_counts, (std::vector<std::uint64_t>{3, 3, 3}));
  EXPECT_EQ(report.splits[1].class_counts, (std::vector<std::uint64_t>{1, 1, 1}));
  EXPECT_GE(report.splits[0].smallest.width, 260);
  EXPECT_LE(report.splits[0].largest.width, 600);
  EXPECT_NE(report.splits[0].smallest, report.splits[0].largest);
  for (const auto& [name, bytes] : contents(folder.path())) {
    EXPECT_GT(bytes.size(), 20'000u) << name;
    EXPECT_LT(bytes.size(), 110'000u) << name;
  }
}

TEST(MakePhotos, SameBytesForAnyNumberOfThreads) {
  const TempFolder one, two;
  tools::PhotosOptions options = photos(one.path());
  options.threads = 1;
  tools::make_photos(options);
  options.path = two.path();
  options.threads = 3;
  tools::make_photos(options);
  EXPECT_EQ(contents(one.path()), contents(two.path()));
  tools::make_photos(options);  // finds its own files
  options.seed = 1;
  expect_error(Exit::failed, {".jpg: already exists with other contents"},
               [&] { tools::make_photos(options); });
  EXPECT_EQ(contents(one.path()), contents(two.path()));
}

TEST(MakePhotos, BadOptions) {
  const TempFolder folder;
  tools::PhotosOptions options = photos(folder.path());
  options.count = 5;
  expect_error(Exit::usage, {"5 images are too few for 3 classes"},
               [&] { tools::make_photos(options); });
  options.classes = 0;
  expect_error(Exit::usage, {"classes=0"}, [&] { tools::make_photos(options); });
  options = photos(folder.path());
  options.quality = 101;
  expect_error(Exit::usage, {"quality=101"}, [&] { tools::make_photos(options); });
  options = photos("");
  expect_error(Exit::usage, {"no folder given"}, [&] { tools::make_photos(options); });
}

TEST(MakePhotos, FullDiskLeavesNoPartOfAPicture) {
  const TempFolder folder;
  const FileSizeLimit full(10'000);
  expect_error(Exit::failed, {".jpg: cannot be written: File too large"},
               [&] { tools::make_photos(photos(folder.path())); });
  EXPECT_TRUE(contents(folder.path()).empty());
}

// ---- boxes

TEST(MakeBoxes, EachBoxHoldsAShapeThatTouchesItsEdges) {
  const TempFolder folder;
  tools::BoxesOptions options{.path = folder.path(), .train = 12, .test = 3, .progress = {}};
  tools::make_boxes(options);
  const std::shared_ptr<const Reader> reader = open_reader({"coco", folder.path(), "train", 0});
  ASSERT_EQ(reader->info().count, 12u);
  EXPECT_EQ(reader->info().classes, (std::vector<std::string>{"rectangle", "ellipse", "triangle"}));
  EXPECT_EQ(open_reader({"coco", folder.path(), "test", 0})->info().count, 3u);
  EXPECT_EQ(tools::detect_reader(folder.path()), "coco");

  const auto labelled = open_reader({"yolo", folder.path(), "train", 0});
  EXPECT_EQ(labelled->info().classes, reader->info().classes);
  const Annotations& fractions = *labelled->annotations();
  const Annotations& pixels = *reader->annotations();
  EXPECT_EQ(fractions.ends, pixels.ends);
  EXPECT_EQ(fractions.classes, pixels.classes);
  for (std::size_t i = 0; i < std::min(fractions.boxes.size(), pixels.boxes.size()); ++i) {
    EXPECT_NEAR(fractions.boxes[i].x0 * 320, pixels.boxes[i].x0, 1e-4);
    EXPECT_NEAR(fractions.boxes[i].y1 * 240, pixels.boxes[i].y1, 1e-4);
  }

  LoaderOptions loader_options;
  loader_options.workers = 0;
  loader_options.batch = 12;
  Loader loader(reader, compile_plan({}, {{320, 240}, 3}, {DType::u8, Layout::chw}),
                loader_options);
  const Batch batch = loader.next();
  const Objects& objects = batch.objects();
  EXPECT_GT(objects.classes.size(), 20u);
  for (std::size_t i = 0; i < 12; ++i)
    for (auto row = static_cast<std::size_t>(objects.offsets[i]);
         row < static_cast<std::size_t>(objects.offsets[i + 1]); ++row) {
      // Shapes are light on dark. A line of pixels inside each edge meets the shape.
      const float* const box = &objects.boxes[4 * row];
      const auto meets = [&](float x0, float y0, float x1, float y1) {
        for (int y = static_cast<int>(y0); y < static_cast<int>(y1); ++y)
          for (int x = static_cast<int>(x0); x < static_cast<int>(x1); ++x)
            if (std::to_integer<int>(
                    batch.data()[(i * 3 * 240 + static_cast<std::size_t>(y)) * 320 +
                                 static_cast<std::size_t>(x)]) > 105)
              return true;
        return false;
      };
      EXPECT_TRUE(meets(box[0], box[1], box[2], box[1] + 2));
      EXPECT_TRUE(meets(box[0], box[3] - 2, box[2], box[3]));
      EXPECT_TRUE(meets(box[0], box[1], box[0] + 2, box[3]));
      EXPECT_TRUE(meets(box[2] - 2, box[1], box[2], box[3]));
    }
}

TEST(MakeBoxes, MasksHaveTheShapesWhereTheBoxesSay) {
  const TempFolder folder;
  tools::BoxesOptions options{
      .path = folder.path(), .train = 12, .test = 3, .progress = {}, .masks = true};
  tools::make_boxes(options);
  DataOptions data{"folder", folder.path("images"), "train", 0};
  data.masks = folder.path("masks");
  const std::shared_ptr<const Reader> reader = open_reader(data);
  DataOptions coco{"coco", folder.path(), "train", 0};
  coco.instance_masks = true;
  const std::shared_ptr<const Reader> boxes = open_reader(coco);
  const Annotations& annotations = *boxes->annotations();
  LoaderOptions loader_options;
  loader_options.workers = 0;
  loader_options.batch = 12;
  loader_options.shuffle = {Shuffle::Kind::none, 0};
  const auto plan = compile_plan({}, {{320, 240}, 3}, {DType::u8, Layout::chw});
  Loader loader(reader, plan, loader_options);
  const Batch batch = loader.next();
  Loader object_loader(boxes, plan, loader_options);
  const Batch objects = object_loader.next();
  for (std::uint64_t i = 0; i < 12; ++i) {
    const auto mask = batch.masks().subspan(i * 320 * 240, std::size_t{320} * 240);
    std::vector<std::int64_t> seen(4), inside(4);
    for (const std::uint8_t id : mask) ++seen.at(id);
    for (std::size_t at = annotations.begin(i); at < annotations.ends[i]; ++at) {
      const Box& box = annotations.boxes[at];
      const auto id = static_cast<std::size_t>(annotations.classes[at] + 1);
      for (auto y = static_cast<std::size_t>(box.y0); y < static_cast<std::size_t>(box.y1); ++y)
        for (auto x = static_cast<std::size_t>(box.x0); x < static_cast<std::size_t>(box.x1); ++x)
          inside[id] += mask[y * 320 + x] == id;
    }
    std::vector<std::uint8_t> together(mask.size());
    for (auto row = static_cast<std::size_t>(objects.objects().offsets[i]);
         row < static_cast<std::size_t>(objects.objects().offsets[i + 1]); ++row)
      for (std::size_t at = 0; at < mask.size(); ++at)
        if (objects.objects().masks[row * mask.size() + at] == 1)
          together[at] = static_cast<std::uint8_t>(objects.objects().classes[row] + 1);
    EXPECT_TRUE(std::equal(mask.begin(), mask.end(), together.begin())) << "image " << i;
    inside[0] = seen[0];
    EXPECT_EQ(seen, inside) << "image " << i;
    EXPECT_LT(seen[0], 320 * 240 - 100);
  }
}

TEST(MakeBoxes, SameBytesForAnyNumberOfThreads) {
  const TempFolder one, two;
  tools::BoxesOptions options{
      .path = one.path(), .train = 5, .test = 2, .threads = 1, .progress = {}, .masks = true};
  tools::make_boxes(options);
  options.path = two.path();
  options.threads = 3;
  tools::make_boxes(options);
  EXPECT_EQ(contents(one.path()), contents(two.path()));
  options.test = 0;
  expect_error(Exit::usage, {"a training image and a test image"},
               [&] { tools::make_boxes(options); });
}

}  // namespace
}  // namespace millrace::pipeline
