// Yardstick: libjpeg-turbo's full decode of JPEG files in memory, to RGB with the accurate DCT and
// smooth upsampling, and nothing else.
//
//   build/decode_alone FOLDER|FILE.tar [--passes 4] [--threads 1]
#include <turbojpeg.h>
#include <xxhash.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <span>
#include <thread>

#include "bench/yardstick.h"

namespace {

using namespace millrace::yardstick;

bool is_jpeg(const Bytes& bytes) {
  return bytes.size() > 2 && bytes[0] == 0xff && bytes[1] == 0xd8;
}

std::vector<Bytes> jpegs_of_folder(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder))
    if (entry.is_regular_file()) names.push_back(entry.path());
  std::sort(names.begin(), names.end());
  std::vector<Bytes> images;
  for (const std::string& name : names)
    if (Bytes bytes = contents(name); is_jpeg(bytes)) images.push_back(std::move(bytes));
  return images;
}

/// Returns the members that begin like a JPEG: a header of 512 bytes with the size in octal, the
/// contents, zeros up to the next 512 (POSIX.1-1988, ustar).
std::vector<Bytes> jpegs_of_tar(const std::string& path) {
  constexpr std::size_t kBlock = 512, kSizeAt = 124, kSizeDigits = 12;
  const Bytes tar = contents(path);
  std::vector<Bytes> images;
  for (std::size_t at = 0; at + kBlock <= tar.size() && tar[at] != 0;) {
    const std::string digits(reinterpret_cast<const char*>(&tar[at + kSizeAt]), kSizeDigits);
    const std::size_t size = std::strtoull(digits.c_str(), nullptr, 8);
    at += kBlock;
    if (size > tar.size() - at) stop(path + " ends within a member");
    const auto begin = tar.begin() + static_cast<std::ptrdiff_t>(at);
    if (Bytes bytes(begin, begin + static_cast<std::ptrdiff_t>(size)); is_jpeg(bytes))
      images.push_back(std::move(bytes));
    at += (size + kBlock - 1) / kBlock * kBlock;
  }
  return images;
}

class Decoder {
 public:
  Decoder() : handle_(tjInitDecompress()) {
    if (handle_ == nullptr) stop(tjGetErrorStr2(nullptr));
  }
  ~Decoder() { tjDestroy(handle_); }
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;

  /// Returns the pixels, in a buffer that the next call overwrites.
  std::span<const std::uint8_t> decode(const Bytes& jpeg) {
    int width = 0, height = 0, subsampling = 0, colours = 0;
    const auto size = static_cast<unsigned long>(jpeg.size());
    if (tjDecompressHeader3(handle_, jpeg.data(), size, &width, &height, &subsampling, &colours))
      stop(tjGetErrorStr2(handle_));
    const std::size_t bytes =
        3 * static_cast<std::size_t>(width) * static_cast<std::size_t>(height);
    if (pixels_.size() < bytes) pixels_.resize(bytes);
    // A warning (extra bytes before a marker, in a few files of ImageNet) still yields the picture.
    if (tjDecompress2(handle_, jpeg.data(), size, pixels_.data(), width, 0, height, TJPF_RGB,
                      TJFLAG_ACCURATEDCT) != 0 &&
        tjGetErrorCode(handle_) == TJERR_FATAL)
      stop(tjGetErrorStr2(handle_));
    return {pixels_.data(), bytes};
  }

 private:
  tjhandle handle_;
  Bytes pixels_;
};

}  // namespace

int main(int argc, char** argv) {
  const Options options(argc, argv, "FOLDER|FILE.tar [--passes 4] [--threads 1]");
  const auto passes = static_cast<std::size_t>(options.number("--passes", 4));
  const int threads = options.number("--threads", 1);
  const std::vector<Bytes> images = std::filesystem::is_directory(options.path())
                                        ? jpegs_of_folder(options.path())
                                        : jpegs_of_tar(options.path());
  if (images.empty()) stop(options.path() + " holds no JPEG");

  // An untimed first pass computes the expected checksum and warms up.
  std::uint64_t checksum = 0, expected = 0;
  Decoder first;
  for (const Bytes& image : images) {
    const auto pixels = first.decode(image);
    checksum += XXH3_64bits(pixels.data(), pixels.size());
    expected += passes * pixels[pixels.size() / 2];
  }

  std::atomic<std::size_t> next = 0;
  std::atomic<std::uint64_t> middles = 0;
  const auto work = [&] {
    Decoder decoder;
    std::uint64_t sum = 0;
    for (std::size_t i = next++; i < passes * images.size(); i = next++) {
      const auto pixels = decoder.decode(images[i % images.size()]);
      sum += pixels[pixels.size() / 2];
    }
    middles += sum;
  };

  const Stopwatch watch;
  std::vector<std::thread> others;
  for (int i = 1; i < threads; ++i) others.emplace_back(work);
  work();
  for (std::thread& thread : others) thread.join();
  watch.report(passes * images.size(), checksum);
  if (middles != expected) stop("the timed pictures are not those of the first pass");
}
