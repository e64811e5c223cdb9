// Readers with features that the examples lack: one lends its bytes; one fills the call's memory,
// and has a missing sample and a label out of range.
#include <cstdint>
#include <millrace/millrace.hpp>
#include <string>

namespace {

/// Four samples of 2x2 gray pixels, all equal to the index plus the parameter.
struct Numbers {
  static constexpr millrace::Parameter kParams[] = {
      millrace::integer("add", "0", 0, 100, "to every level"),
      millrace::text("note", "none", "anything")};
  explicit Numbers(const millrace::Values& values) : add(values.integer("add")) {
    if (std::string(values.path()) == "nowhere")
      throw millrace::BadData("nowhere is no place", "go somewhere");
    set.count = 4;
    set.classes = names;
    set.class_count = 2;
    set.size = {2, 2};
    set.channels = 1;
    set.fingerprint = 7;
  }
  const millrace_dataset& dataset() const { return set; }
  std::string name(std::uint64_t index) const { return "number " + std::to_string(index); }
  void fill(std::uint8_t* to, std::uint64_t index) const {
    std::memset(to, static_cast<int>(static_cast<std::int64_t>(index) + add), 4);
  }

  std::int64_t add;
  const char* names[2] = {"even", "odd"};
  millrace_dataset set{};
};

struct LentNumbers : Numbers {
  static constexpr const char* kName = "lent_numbers";
  static constexpr const char* kHelp = "bytes on loan";
  using Numbers::Numbers;
  millrace_bytes borrow(std::uint64_t index, millrace::Call&) const {
    auto* bytes = new std::uint8_t[4 + 64]();
    fill(bytes, index);
    return {bytes, 4, static_cast<std::int64_t>(index % 2), bytes};
  }
  void release(millrace_bytes& bytes) const { delete[] static_cast<std::uint8_t*>(bytes.lease); }
};

struct CopiedNumbers : Numbers {
  static constexpr const char* kName = "copied_numbers";
  static constexpr const char* kHelp = "bytes in the call's memory";
  using Numbers::Numbers;
  millrace_bytes borrow(std::uint64_t index, millrace::Call& call) const {
    std::uint8_t* bytes = call.memory(4);
    fill(bytes, index);
    if (index == 3) throw millrace::BadData("the fourth is missing");
    return {bytes, 4, index == 2 ? 9 : static_cast<std::int64_t>(index % 2), nullptr};
  }
};

}  // namespace

MILLRACE_PLUGIN("odd_units", "1.0", "MIT", LentNumbers, CopiedNumbers);
