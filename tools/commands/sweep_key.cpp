// Hashes the program, its libraries and data sets.
#include "tools/commands/sweep_key.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <memory>
#include <set>

#include "millrace/error.h"
#include "tools/training/pipeline_setup.h"
#include "tools/training/strategy_setup.h"

namespace millrace::tools {
namespace {

namespace fs = std::filesystem;

/// Returns the program and the files that it loads from beside it: lib/*.so and lib/plugins/*.so.
std::set<fs::path> program_files() {
  std::set<fs::path> files;
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  files.insert(program);
  for (const auto& folder : {program.parent_path() / "lib", program.parent_path() / "lib/plugins",
                             program.parent_path().parent_path() / "lib"}) {
    for (const auto& entry : fs::directory_iterator(folder, error)) {
      const std::string name = entry.path().filename().string();
      const bool ours = folder.filename() == "plugins" || name.find("millrace") != name.npos;
      if (ours && entry.path().extension() == ".so" && entry.is_regular_file(error))
        files.insert(entry.path());
    }
  }
  for (const auto& plugin : plugins_json())
    if (plugin.contains("file") && plugin["file"].is_string())
      files.insert(plugin["file"].get<std::string>());
  return files;
}

std::string hash_of(const std::set<fs::path>& files) {
  const std::unique_ptr<XXH3_state_t, XXH_errorcode (*)(XXH3_state_t*)> state(XXH3_createState(),
                                                                              XXH3_freeState);
  XXH3_128bits_reset(state.get());
  std::vector<char> buffer(1 << 20);
  for (const auto& file : files) {
    std::ifstream in(file, std::ios::binary);
    if (!in) throw RunError(fmt::format("{} cannot be read", file.string()));
    while (in.read(buffer.data(), static_cast<std::streamsize>(buffer.size())), in.gcount() > 0)
      XXH3_128bits_update(state.get(), buffer.data(), static_cast<std::size_t>(in.gcount()));
  }
  const XXH128_hash_t hash = XXH3_128bits_digest(state.get());
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

}  // namespace

SweepKeys::SweepKeys() : binary_(hash_of(program_files())) {}

study::RunIdentity SweepKeys::identity(const Recipe& recipe, std::uint64_t seed) {
  Recipe plain = recipe;
  // The seed is a separate part of the identity, and the sweep's own keys do not change its runs.
  for (const char* same :
       {"seed=0", "sweep.margin=1", "sweep.share_margin=1", "sweep.most_repeats=5"})
    plain.set(same);
  return {plain.to_toml(), binary_, fingerprints(recipe), seed, 0};
}

std::string SweepKeys::fingerprints(const Recipe& recipe) {
  std::string choice = recipe.text("train.device") + "\n" + recipe.value("model.classes") + "\n" +
                       recipe.value("eval.split");
  for (const Param& key : recipe_keys())
    if (key.name.starts_with("data.")) choice += "\n" + recipe.value(key.name);
  std::string& known = fingerprints_[choice];
  if (!known.empty()) return known;
  const auto train = open_data(recipe, recipe.text("data.split"));
  std::string text = fmt::format("{:016x}", train->info().fingerprint);
  if (!is_simulated(recipe))
    text += fmt::format(" {:016x}",
                        open_data(recipe, recipe.text("eval.split"), train->info().classes.size())
                            ->info()
                            .fingerprint);
  return known = text;
}

}  // namespace millrace::tools
