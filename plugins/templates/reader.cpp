// example_reader: reads SPLIT.bin in the data set's folder: records of a label byte and gray
// pixels.
#include <fstream>
#include <millrace/millrace.hpp>
#include <vector>

namespace {

class ExampleReader {
 public:
  static constexpr const char* kName = "example_reader";
  static constexpr const char* kHelp = "SPLIT.bin: records of a label byte and gray pixels";
  static constexpr millrace::Parameter kParams[] = {
      millrace::integer("side", "28", 1, 4096, "width and height of every image, pixels"),
      millrace::integer("classes", "10", 1, 256, "labels lie below this")};

  explicit ExampleReader(const millrace::Values& values)
      : file_(std::string(values.path()) + "/" + values.split() + ".bin"),
        side_(static_cast<std::size_t>(values.integer("side"))),
        record_(1 + side_ * side_) {
    std::ifstream in(file_, std::ios::binary);
    bytes_.assign(std::istreambuf_iterator<char>(in), {});
    if (bytes_.empty() || bytes_.size() % record_ != 0)
      throw millrace::BadData(
          file_ + ": not a number of records of " + std::to_string(record_) + " bytes",
          "check data.path and data.example_reader.side");
    for (std::int64_t i = 0; i < values.integer("classes"); ++i)
      names_.push_back(std::to_string(i));
    for (const std::string& name : names_) classes_.push_back(name.c_str());
    set_.count = bytes_.size() / record_;
    set_.classes = classes_.data();
    set_.class_count = classes_.size();
    set_.size = {static_cast<int>(side_), static_cast<int>(side_)};
    set_.channels = 1;
    set_.seekable = 1;
    set_.fingerprint = 14695981039346656037u;  // FNV-1a
    for (const char byte : bytes_)
      set_.fingerprint = (set_.fingerprint ^ static_cast<std::uint8_t>(byte)) * 1099511628211u;
    bytes_.resize(bytes_.size() + 64);  // the host may read this far behind the last pixel
  }

  const millrace_dataset& dataset() const { return set_; }
  millrace_bytes borrow(std::uint64_t index, millrace::Call&) const {
    const auto* record = reinterpret_cast<const std::uint8_t*>(bytes_.data()) + index * record_;
    return {record + 1, side_ * side_, record[0], nullptr};
  }
  std::string name(std::uint64_t index) const { return file_ + " record " + std::to_string(index); }

 private:
  std::string file_;
  std::size_t side_, record_;
  std::vector<char> bytes_;
  std::vector<std::string> names_;
  std::vector<const char*> classes_;
  millrace_dataset set_{};
};

}  // namespace

MILLRACE_PLUGIN("example_reader", "0.1", "MIT", ExampleReader);
