// Captions of samples, and the module that draws them.
#include "tools/inspect/contact_sheet.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "base/simd.h"
#include "millrace/error.h"
#include "tools/inspect/sheet.h"

namespace millrace::tools {
namespace {

/// Loads the drawing module from the folder of the pipeline's library.
decltype(&millrace_make_sheet) load_sheet() {
  Dl_info self{};
  std::filesystem::path folder = "lib";
  if (dladdr(reinterpret_cast<void*>(&base::simd_level), &self) != 0 && self.dli_fname != nullptr)
    folder = std::filesystem::path(self.dli_fname).parent_path();
  const std::string file = (folder / "millrace_sheet.so").string();
  void* library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr)
    throw DeviceError(fmt::format("contact sheets need OpenCV: {}", dlerror()),
                      "install libopencv-imgcodecs and build all of millrace");
  return reinterpret_cast<decltype(&millrace_make_sheet)>(dlsym(library, "millrace_make_sheet"));
}

/// Returns name and label, then the draws, several per line.
std::vector<std::string> lines_of(const Inspected& sample) {
  std::vector<std::string> lines{
      std::filesystem::path(sample.name).filename().string(),
      fmt::format("{}, {}x{}", sample.label, sample.size.width, sample.size.height)};
  std::string op;
  for (const augment::Trace::Drawn& drawn : sample.trace.drawn) {
    const std::string value = fmt::format("{}={:.4g}", drawn.name, drawn.value);
    if (drawn.op == op && lines.back().size() + value.size() < 30) {
      lines.back() += " " + value;
    } else {
      lines.push_back(drawn.op == op ? "  " + value : drawn.op + ": " + value);
      op = drawn.op;
    }
  }
  return lines;
}

}  // namespace

ContactSheet contact_sheet(std::vector<std::string> words, std::uint32_t epoch, bool eval,
                           std::size_t count, int columns, Plugins plugins) {
  // Samples as the store receives them, before normalisation.
  for (const char* key : {"output.dtype=u8", "output.normalize=loader", "output.layout=hwc"})
    words.emplace_back(key);
  Inspection inspection(load_recipe(words, plugins), epoch, eval);
  count = static_cast<std::size_t>(std::min<std::uint64_t>(inspection.count(), count));
  ContactSheet sheet{.samples = {}, .png = {}, .spec = inspection.plan().output()};
  std::vector<std::vector<std::string>> texts;
  for (std::size_t i = 0; i < count; ++i) {
    sheet.samples.push_back(inspection(i));
    texts.push_back(lines_of(sheet.samples.back()));
  }
  std::vector<std::vector<const char*>> lines(count);
  std::vector<millrace_tile> tiles;
  for (std::size_t i = 0; i < count; ++i) {
    for (const std::string& line : texts[i]) lines[i].push_back(line.c_str());
    tiles.push_back({sheet.samples[i].pixels.data(), sheet.spec.size.width, sheet.spec.size.height,
                     sheet.spec.channels, lines[i].data(), lines[i].size()});
  }
  char error[256] = {};
  const auto write = [](void* to, const std::uint8_t* bytes, std::size_t size) {
    static_cast<std::string*>(to)->assign(reinterpret_cast<const char*>(bytes), size);
  };
  if (load_sheet()(tiles.data(), tiles.size(), std::min(columns, static_cast<int>(count)), write,
                   &sheet.png, error, sizeof error) != 0)
    throw RunError(fmt::format("the contact sheet could not be drawn: {}", error));
  return sheet;
}

}  // namespace millrace::tools
