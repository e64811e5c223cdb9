// npy: a reader of NumPy arrays (format 1.0 to 3.0, numpy.lib.format). SPLIT_images.npy holds
// unsigned bytes, count x height x width [x channels]; SPLIT_labels.npy holds integers. The files
// are mapped and never copied.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <millrace/millrace.hpp>
#include <vector>

namespace {

/// A mapped file, with 64 readable bytes behind it.
class Mapped {
 public:
  explicit Mapped(const std::string& path) {
    const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat status {};
    if (file >= 0 && fstat(file, &status) == 0 && S_ISREG(status.st_mode) && status.st_size > 0) {
      size_ = static_cast<std::size_t>(status.st_size);
      void* room = mmap(nullptr, size_ + 64, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      if (room != MAP_FAILED &&
          mmap(room, size_, PROT_READ, MAP_PRIVATE | MAP_FIXED, file, 0) == room)
        data_ = static_cast<const std::uint8_t*>(room);
    }
    if (file >= 0) close(file);
    if (data_ == nullptr)
      throw millrace::BadData(path + " cannot be read", "check data.path and data.split");
  }
  ~Mapped() { munmap(const_cast<std::uint8_t*>(data_), size_ + 64); }
  Mapped(const Mapped&) = delete;
  Mapped& operator=(const Mapped&) = delete;
  const std::uint8_t* data() const { return data_; }
  std::size_t size() const { return size_; }

 private:
  const std::uint8_t* data_ = nullptr;
  std::size_t size_ = 0;
};

/// Header of a file: type, shape and the offset of the elements.
struct Array {
  explicit Array(const std::string& path) : file(path) {
    const std::uint8_t* b = file.data();
    const auto refuse = [&](const char* why) {
      throw millrace::BadData(path + ": " + why, "save it with numpy.save, in C order");
    };
    if (file.size() < 12 || std::memcmp(b, "\x93NUMPY", 6) != 0) refuse("no .npy file");
    const bool long_header = b[6] > 1;
    begin = long_header ? 12 + (b[8] | b[9] << 8 | b[10] << 16 | std::size_t{b[11]} << 24)
                        : 10u + static_cast<std::size_t>(b[8] | b[9] << 8);
    if (begin > file.size()) refuse("cut short within its header");
    const std::string text(reinterpret_cast<const char*>(b), begin);
    const std::size_t descr = text.find("'descr': '"), tuple = text.find("'shape': (");
    if (descr == text.npos || tuple == text.npos) refuse("its header says no type or shape");
    if (text.find("'fortran_order': False") == text.npos) refuse("it is in Fortran order");
    type = text.substr(descr + 10, text.find('\'', descr + 10) - descr - 10);
    item = type.size() == 3 ? static_cast<std::size_t>(type[2] - '0') : 0;
    std::size_t bytes = item;
    for (const char* p = text.c_str() + tuple + 10; *p >= '0' && *p <= '9';) {
      char* end = nullptr;
      shape.push_back(std::strtoull(p, &end, 10));
      if (__builtin_mul_overflow(bytes, shape.back(), &bytes)) refuse("its shape is too large");
      for (p = end; *p == ',' || *p == ' ';) ++p;
    }
    if (shape.empty() || bytes == 0 || bytes != file.size() - begin)
      refuse("its shape and the file's length don't fit");
  }
  const std::uint8_t* at(std::size_t offset) const { return file.data() + begin + offset; }

  Mapped file;
  std::size_t begin = 0, item = 0;
  std::string type;
  std::vector<std::size_t> shape;
};

class Npy {
 public:
  static constexpr const char* kName = "npy";
  static constexpr const char* kHelp = "NumPy arrays: SPLIT_images.npy and SPLIT_labels.npy";
  static constexpr millrace::Parameter kParams[] = {millrace::choice(
      "layout", "hwc", "hwc|chw", "order of an image's dimensions, where it has 3")};

  explicit Npy(const millrace::Values& values)
      : images_(file(values, "_images.npy")),
        labels_(file(values, "_labels.npy")),
        name_(file(values, "_images.npy")) {
    const std::vector<std::size_t>& shape = images_.shape;
    const bool planar = shape.size() == 4 && std::strcmp(values.text("layout"), "chw") == 0;
    if (images_.type != "|u1" || shape.size() < 3 || shape.size() > 4 ||
        *std::max_element(shape.begin() + 1, shape.end()) > 32768)
      throw millrace::BadData(name_ + ": not unsigned bytes, count x height x width [x channels]");
    if ((labels_.type[1] != 'i' && labels_.type[1] != 'u') || labels_.type[0] == '>' ||
        labels_.shape != std::vector{shape[0]})
      throw millrace::BadData(file(values, "_labels.npy") + ": not one integer an image");
    const std::size_t first = planar ? 2 : 1;
    set_.count = shape[0];
    set_.size = {static_cast<int>(shape[first + 1]), static_cast<int>(shape[first])};
    set_.channels = shape.size() == 3 ? 1 : static_cast<int>(shape[planar ? 1 : 3]);
    set_.planar = planar;
    set_.seekable = 1;
    bytes_ = (images_.file.size() - images_.begin) / shape[0];
    std::int64_t most = 0;
    for (std::size_t i = 0; i < shape[0]; ++i) most = std::max(most, label(i));
    if (most > 65535) throw millrace::BadData("labels of more than 65536 classes");
    for (std::int64_t i = 0; i <= most; ++i) names_.push_back(std::to_string(i));
    for (const std::string& name : names_) classes_.push_back(name.c_str());
    set_.classes = classes_.data();
    set_.class_count = classes_.size();
    set_.fingerprint = 14695981039346656037u;  // FNV-1a, eight bytes at a time
    for (const Array* array : {&images_, &labels_})
      for (std::size_t at = 0; at < array->file.size(); at += 8) {
        std::uint64_t word = 0;
        std::memcpy(&word, array->file.data() + at,
                    std::min<std::size_t>(8, array->file.size() - at));
        set_.fingerprint = (set_.fingerprint ^ word) * 1099511628211u;
      }
  }

  const millrace_dataset& dataset() const { return set_; }
  millrace_bytes borrow(std::uint64_t index, millrace::Call&) const {
    return {images_.at(index * bytes_), bytes_, label(index), nullptr};
  }
  std::string name(std::uint64_t index) const { return name_ + " image " + std::to_string(index); }

 private:
  static std::string file(const millrace::Values& values, const char* ending) {
    return std::string(values.path()) + "/" + values.split() + ending;
  }
  /// Returns a label, stored little endian in 1, 2, 4 or 8 bytes.
  std::int64_t label(std::size_t i) const {
    std::int64_t value = 0;
    std::memcpy(&value, labels_.at(i * labels_.item), labels_.item);
    return value;
  }

  Array images_, labels_;
  std::string name_;
  std::size_t bytes_ = 0;
  std::vector<std::string> names_;
  std::vector<const char*> classes_;
  millrace_dataset set_{};
};

}  // namespace

MILLRACE_PLUGIN("npy", "1.0", "MIT", Npy);
