// Fuzzes recipes: TOML, then a line "---", then one override per line. An accepted recipe must be
// equal after it is written and loaded again; its augmentations are made, with the ops inside their
// parameters.
#include "millrace/recipe.h"

#include <sys/mman.h>
#include <unistd.h>

#include <system_error>

#include "plugins/host/registry.h"
#include "plugins/host/unit.h"
#include "tests/fuzz/target.h"

namespace millrace::fuzz {
namespace {

constexpr std::string_view kSeparator = "---\n";
/// Ends of an override: a text from a command line contains no 0.
constexpr std::string_view kEnds("\n\0", 2);

/// A file in memory, overwritten for each input.
class MemoryFile {
 public:
  MemoryFile() : file_(memfd_create("recipe", 0)) {
    if (file_ < 0) throw std::system_error(errno, std::generic_category(), "memfd_create");
  }
  std::string holding(std::string_view text) const {
    if (ftruncate(file_, 0) != 0 ||
        pwrite(file_, text.data(), text.size(), 0) != static_cast<ssize_t>(text.size()))
      throw std::system_error(errno, std::generic_category(), "memory file");
    return "/proc/self/fd/" + std::to_string(file_);
  }

 private:
  int file_;
};

Recipe loaded(std::string_view toml, std::span<const std::string> overrides) {
  static const MemoryFile file;
  return Recipe::load(op_declarations(), file.holding(toml), overrides, {});
}

void make_units(const std::vector<OpSpec>& chain) {
  for (const OpSpec& spec : chain)
    accepts(Exit::usage, [&] { plugins::Unit(plugins::augmentation(spec.op), spec.params); });
}

}  // namespace

Corpus corpus() {
  Corpus corpus;
  for (const std::string_view text :
       {"[data]\nreader = \"idx\"\npath = \"d\"\n[loader]\nworkers = 1\nbatch = "
        "256\n[output]\nmean = "
        "[0.4914, 0.4822, 0.4465]\nstd = 0.3\n[[augment]]\nop = \"random_affine\"\ndegrees = "
        "15\nscale = "
        "[0.8, 1.2]\n[[eval.augment]]\nop = \"resize\"\nid = \"r\"\nenabled = false\nsize = 256\n",
        "---\naugment+=hflip\naugment+=random_apply{p=0.3,ops=posterize{bits=4};hflip}\n"
        "augment+=random_crop{size=4,padding=[1,2],id=c}@before:hflip\naugment.c.enabled=false\n"
        "eval.augment+=resize{size=8}\neval.augment.resize.size=9\nloader.workers=4\n"
        "output.mean=[0.1,0.2,0.3]\n",
        "augment = "
        "[]\n---\naugment+=random_apply{ops=random_apply{ops=random_apply{ops=hflip}}}\n"})
    corpus.seeds.push_back(bytes_of(text));
  for (const OpDeclaration& op : op_declarations()) {
    std::string all = "---\naugment+=" + op.name + "{";
    for (const Param& param : op.params) {
      all += param.name + "=" + to_toml(param.fallback) + ",";
      corpus.tokens.push_back(param.name + "=");
      for (const std::string& choice : param.choices) corpus.tokens.push_back(choice);
    }
    corpus.seeds.push_back(bytes_of(all + "}\n"));
    corpus.tokens.push_back(op.name);
    corpus.tokens.push_back("augment+=" + op.name + "{");
  }
  for (const Param& key : recipe_keys()) corpus.tokens.push_back(key.name + "=");
  corpus.tokens.insert(corpus.tokens.end(), {"---\n",
                                             "[[augment]]\nop = ",
                                             "[[eval.augment]]\n",
                                             "augment.",
                                             "eval.augment+=",
                                             "id=",
                                             "@before:",
                                             "@after:",
                                             "random_apply{ops=",
                                             "{",
                                             "}",
                                             "[",
                                             "]",
                                             ";",
                                             ",",
                                             "=",
                                             "\"",
                                             "'''",
                                             "\"\"\"",
                                             "\\u0000",
                                             "nan",
                                             "inf",
                                             "-1",
                                             "1e308",
                                             "9223372036854775807",
                                             "1979-05-27",
                                             "\x7f",
                                             "\xc3\xa9",
                                             "\xff",
                                             "enabled=",
                                             "enabled = ",
                                             std::string(100, '['),
                                             std::string(100, '{')});
  return corpus;
}

}  // namespace millrace::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace millrace;
  const std::string_view text = fuzz::text_of(data, size);
  std::size_t separator = text.starts_with(fuzz::kSeparator) ? 0 : text.find("\n---\n");
  if (separator != 0 && separator != std::string_view::npos) ++separator;
  const std::string_view toml = text.substr(0, separator);
  std::vector<std::string> overrides;
  if (separator != std::string_view::npos)
    for (std::string_view rest = text.substr(separator + fuzz::kSeparator.size()); !rest.empty();) {
      const std::size_t end = std::min(rest.find_first_of(fuzz::kEnds), rest.size());
      overrides.emplace_back(rest.substr(0, end));
      rest.remove_prefix(std::min(end + 1, rest.size()));
    }
  fuzz::accepts(Exit::usage, [&] {
    const Recipe recipe = fuzz::loaded(toml, overrides);
    const std::string whole = recipe.to_toml();
    std::string again;
    try {
      again = fuzz::loaded(whole, {}).to_toml();
    } catch (const Error& error) {
      fuzz::require(false, std::string("what was written loads: ") + error.what());
    }
    fuzz::require(again == whole, "what was written loads as the same");
    fuzz::make_units(recipe.augment());
    fuzz::make_units(recipe.eval_augment());
  });
  return 0;
}
