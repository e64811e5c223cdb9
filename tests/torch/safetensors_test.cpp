// safetensors: written files read back unchanged; damaged ones are rejected; a full disk leaves
// nothing.
#include "models/safetensors.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <array>
#include <csignal>
#include <cstring>
#include <fstream>
#include <random>

#include "millrace/error.h"
#include "tests/torch/temp_folder.h"

namespace millrace::train::safetensors {
namespace {

using test::TempFolder;

std::vector<std::byte> bytes_of(const std::string& text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

/// Returns a file with this header before `data` zero bytes.
std::vector<std::byte> file_of(const std::string& header, std::size_t data) {
  std::string text(8, '\0');
  for (std::size_t i = 0; i < 8; ++i) text[i] = static_cast<char>(header.size() >> (8 * i));
  return bytes_of(text + header + std::string(data, '\0'));
}

/// Returns the message with which the bytes are rejected; empty if they are accepted.
std::string refusal(std::vector<std::byte> bytes) {
  try {
    File::parse(std::move(bytes), "w.safetensors");
    return {};
  } catch (const DataError& error) {
    return error.what();
  }
}

const std::array<float, 6> kFloats{1.5f, -2, 0, 3e38f, -0.f, 6};
const std::array<std::int64_t, 1> kSteps{41};

std::vector<Tensor> two_tensors() {
  return {{"fc.weight", "F32", {2, 3}, std::as_bytes(std::span(kFloats))},
          {"steps", "I64", {}, std::as_bytes(std::span(kSteps))}};
}

std::vector<std::byte> contents(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return bytes_of({std::istreambuf_iterator<char>(in), {}});
}

/// Returns `shape`'s elements 0, 1, 2, ... in row-major order, laid out with `strides`.
template <class Element>
std::vector<Element> laid_out(const std::vector<std::int64_t>& shape,
                              const std::vector<std::int64_t>& strides) {
  std::int64_t count = 1;
  for (const std::int64_t side : shape) count *= side;
  std::vector<Element> memory(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) {
    std::int64_t rest = i;
    std::int64_t at = 0;
    for (std::size_t d = shape.size(); d-- > 0; rest /= shape[d])
      at += rest % shape[d] * strides[d];
    memory[static_cast<std::size_t>(at)] = static_cast<Element>(i);
  }
  return memory;
}

template <class Element>
void expect_row_major(const char* dtype, const std::vector<std::int64_t>& shape,
                      const std::vector<std::int64_t>& strides) {
  const TempFolder folder;
  const std::vector<Element> memory = laid_out<Element>(shape, strides);
  const Tensor tensor{.name = "t",
                      .dtype = dtype,
                      .shape = shape,
                      .bytes = std::as_bytes(std::span(memory)),
                      .strides = strides};
  write(folder / "w.safetensors", {tensor});
  const File file = File::read(folder / "w.safetensors");
  const std::span<const std::byte> bytes = file.tensors().at(0).bytes;
  ASSERT_EQ(bytes.size(), memory.size() * sizeof(Element));
  EXPECT_EQ(file.tensors()[0].shape, shape);
  for (std::size_t i = 0; i < memory.size(); ++i) {
    Element value;
    std::memcpy(&value, bytes.data() + i * sizeof value, sizeof value);
    ASSERT_EQ(value, static_cast<Element>(i)) << dtype << " element " << i;
  }
}

TEST(Safetensors, WritesAnyLayoutRowMajor) {
  const std::vector<std::int64_t> shape{4, 3, 5, 2};
  const std::vector<std::int64_t> pixels{30, 1, 6, 3};  // channels_last
  expect_row_major<std::uint8_t>("U8", shape, pixels);
  expect_row_major<std::uint16_t>("F16", shape, pixels);
  expect_row_major<std::uint32_t>("I32", shape, pixels);
  expect_row_major<std::uint64_t>("I64", shape, pixels);
  expect_row_major<std::uint32_t>("I32", shape, {30, 10, 2, 1});
  expect_row_major<std::uint32_t>("I32", {7, 9}, {1, 7});
  expect_row_major<std::uint32_t>("I32", {7, 1, 3}, {3, 99, 1});  // a side of 1 has no stride
  expect_row_major<std::uint32_t>("I32", {}, {});
  expect_row_major<std::uint32_t>("I32", {2, 0, 3}, {0, 3, 1});
}

TEST(Safetensors, ReadsBackWhatWasWritten) {
  const TempFolder folder;
  write(folder / "w.safetensors", two_tensors(), {{"format", "pt"}});
  const File file = File::read(folder / "w.safetensors");
  ASSERT_EQ(file.tensors().size(), 2u);
  const Tensor& weight = file.tensors()[0];
  EXPECT_EQ(weight.name, "fc.weight");
  EXPECT_EQ(weight.dtype, "F32");
  EXPECT_EQ(weight.shape, (std::vector<std::int64_t>{2, 3}));
  ASSERT_EQ(weight.bytes.size(), sizeof kFloats);
  EXPECT_EQ(std::memcmp(weight.bytes.data(), kFloats.data(), sizeof kFloats), 0);
  EXPECT_TRUE(file.tensors()[1].shape.empty());
  EXPECT_EQ(file.metadata().at("format"), "pt");
  EXPECT_EQ(folder.files(), 1u);
}

TEST(Safetensors, WideElementsComeFirstSoThatAllAreAligned) {
  const TempFolder folder;
  const std::array<std::byte, 3> odd{};
  auto tensors = two_tensors();
  tensors.push_back({"a.mask", "U8", {3}, odd});
  write(folder / "w.safetensors", tensors);
  const File file = File::read(folder / "w.safetensors");
  for (const Tensor& tensor : file.tensors())
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(tensor.bytes.data()) % dtype_size(tensor.dtype), 0u)
        << tensor.name;
}

TEST(Safetensors, EveryCutIsRefused) {
  const TempFolder folder;
  write(folder / "w.safetensors", two_tensors());
  const auto whole = contents(folder / "w.safetensors");
  EXPECT_EQ(refusal(whole), "");
  for (std::size_t length = 0; length < whole.size(); ++length)
    EXPECT_NE(refusal({whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(length)}), "")
        << "cut to " << length;
}

TEST(Safetensors, DamageIsRefusedOrHarmless) {
  const TempFolder folder;
  write(folder / "w.safetensors", two_tensors(), {{"format", "pt"}});
  const auto whole = contents(folder / "w.safetensors");
  std::mt19937 random(7);
  int refused = 0;
  for (int i = 0; i < 20'000; ++i) {
    auto damaged = whole;
    for (unsigned hits = 1 + random() % 3; hits > 0; --hits)
      damaged[random() % damaged.size()] = static_cast<std::byte>(random());
    try {
      const File file = File::parse(damaged, "damaged");
      for (const Tensor& tensor : file.tensors()) {
        std::size_t size = dtype_size(tensor.dtype);
        for (const std::int64_t side : tensor.shape) size *= static_cast<std::size_t>(side);
        ASSERT_EQ(size, tensor.bytes.size());
        unsigned sum = 0;  // reads every byte, which sanitizers watch
        for (const std::byte byte : tensor.bytes) sum += std::to_integer<unsigned>(byte);
        ASSERT_LE(sum, 255 * tensor.bytes.size());
      }
    } catch (const DataError&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 10'000);
}

TEST(Safetensors, SaysWhatIsWrong) {
  const auto expect = [](const std::string& header, std::size_t data, const std::string& words) {
    EXPECT_NE(refusal(file_of(header, data)).find(words), std::string::npos)
        << header << ": " << refusal(file_of(header, data));
  };
  const std::string a = R"("a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]})";
  EXPECT_EQ(refusal(file_of("{" + a + "}", 4)), "");
  expect("[]", 0, "not a JSON object");
  expect("{" + a, 4, "not a JSON object");
  expect("{" + a + "}", 5, "last 1 bytes belong to no tensor");
  expect("{" + a + "}", 3, "cut short");
  expect("{" + a + "," + a + "}", 4, "holds 'a' twice");
  expect("{" + a + R"(,"b":{"dtype":"F32","shape":[1],"data_offsets":[2,6]}})", 6, "overlap");
  expect("{" + a + R"(,"b":{"dtype":"F32","shape":[1],"data_offsets":[6,10]}})", 10, "a gap");
  expect(R"({"a":{"dtype":"F99","shape":[1],"data_offsets":[0,4]}})", 4, "unknown dtype \"F99\"");
  expect(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", 4,
         "4 bytes where its shape asks for 8");
  expect(R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", 4, "not a whole number");
  expect(R"({"a":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,0]}})", 0,
         "impossibly large");
  expect(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}})", 4, "lies at [4, 0)");
  expect(R"({"a":{"dtype":"F32","shape":[1]}})", 4, "lacks dtype, shape or data_offsets");
  expect(R"({"__metadata__":{"k":1}})", 0, "metadata 'k' is not text");
  std::vector<std::byte> huge(16, std::byte{0xFF});
  EXPECT_NE(refusal(huge).find("header says it has 18446744073709551615 bytes"), std::string::npos);
}

TEST(Safetensors, DeeplyNestedHeaderIsRefused) {
  EXPECT_NE(refusal(file_of("{\"a\":" + std::string(1'000'000, '['), 0)), "");
}

TEST(Safetensors, MissingFileIsNamed) {
  const TempFolder folder;
  try {
    File::read(folder / "none.safetensors");
    FAIL();
  } catch (const DataError& error) {
    EXPECT_NE(std::string(error.what()).find("none.safetensors: no such file"), std::string::npos);
  }
}

TEST(Safetensors, MissingFolderIsARunError) {
  const TempFolder folder;
  EXPECT_THROW(write(folder / "none/w.safetensors", two_tensors()), RunError);
}

/// Simulates a full disk: writing past the limit fails with EFBIG.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    getrlimit(RLIMIT_FSIZE, &before_);
    handler_ = std::signal(SIGXFSZ, SIG_IGN);
    const rlimit now{bytes, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &now);
  }
  ~FileSizeLimit() {
    setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }

 private:
  rlimit before_{};
  void (*handler_)(int);
};

TEST(Safetensors, FullDiskLeavesTheFileBeforeItAndNothingElse) {
  const TempFolder folder;
  write(folder / "w.safetensors", two_tensors());
  const auto before = contents(folder / "w.safetensors");
  const std::vector<std::byte> much(100'000);
  const std::vector<Tensor> tensors{{"x", "U8", {100'000}, much}};
  std::string what;
  {
    const FileSizeLimit limit(4'096);
    try {
      write(folder / "w.safetensors", tensors);
    } catch (const RunError& error) {
      what = error.what();
    }
  }
  EXPECT_NE(what.find("w.safetensors cannot be written: File too large"), std::string::npos)
      << what;
  EXPECT_EQ(contents(folder / "w.safetensors"), before);
  EXPECT_EQ(folder.files(), 1u);
}

}  // namespace
}  // namespace millrace::train::safetensors
