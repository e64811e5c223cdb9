// Makes and keeps the user's key, and signs files with it.

#include "study/records/signature.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <optional>
#include <system_error>
#include <vector>

#include "base/descriptor.h"
#include "millrace/error.h"
#include "pipeline/remote/sha256.h"
#include "study/records/run_directory.h"
#include "study/records/run_files.h"

namespace millrace::study {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr std::size_t kDigits = 64;
constexpr int kFormat = 1;
/// Signatures that a file has: that of its present text, and that of the text before. A process
/// killed between writing the signature and writing the file leaves the latter.
constexpr std::size_t kSignatures = 2;

bool is_key(std::string_view text) {
  return text.size() == kDigits && text.find_first_not_of("0123456789abcdef") == text.npos;
}

/// Reads the key's file. Empty unless it is a regular file of this user that nobody else can read:
/// another's key would make his runs this user's own.
std::string read_key(const fs::path& file) {
  const base::Descriptor in(
      open(file.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | O_NOCTTY));
  struct stat status {};
  if (!in || fstat(in.get(), &status) != 0 || !S_ISREG(status.st_mode) ||
      status.st_uid != geteuid() || (status.st_mode & 077) != 0)
    return {};
  std::array<char, kDigits> text{};
  if (pread(in.get(), text.data(), text.size(), 0) != static_cast<ssize_t>(text.size())) return {};
  const std::string key(text.data(), text.size());
  return is_key(key) ? key : "";
}

std::string random_key() {
  std::array<unsigned char, kDigits / 2> bytes{};
  if (getentropy(bytes.data(), bytes.size()) != 0) return {};
  std::string key;
  for (const unsigned char byte : bytes) key += fmt::format("{:02x}", byte);
  return key;
}

/// Writes a new key, unless another process is faster. The file appears complete.
void make_key_file(const fs::path& file) {
  std::error_code error;
  fs::create_directories(file.parent_path().parent_path(), error);
  mkdir(file.parent_path().c_str(), 0700);
  const std::string draft = fmt::format("{}.tmp-{}", file.string(), getpid());
  const std::string key = random_key() + "\n";
  base::Descriptor out(
      open(draft.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!out) return;
  const bool whole = write(out.get(), key.data(), key.size()) == static_cast<ssize_t>(key.size()) &&
                     fsync(out.get()) == 0;
  if (whole) static_cast<void>(!link(draft.c_str(), file.c_str()));
  unlink(draft.c_str());
}

/// Key of this process and its children alone, where none can be kept.
std::string& passing_key() {
  static std::string key;
  return key;
}

std::string key_of_environment() {
  const char* const text = std::getenv(kRunKeyVariable);
  return text != nullptr && is_key(text) ? text : "";
}

/// Returns the keys that this process may know, the one to sign with first; `make`: at least one.
std::vector<std::string> keys(bool make) {
  std::vector<std::string> all;
  const auto add = [&](std::string key) {
    if (!key.empty()) all.push_back(std::move(key));
  };
  const fs::path file = run_key_file();
  if (!file.empty()) {
    std::string key = read_key(file);
    if (key.empty() && make) {
      make_key_file(file);
      key = read_key(file);
    }
    add(std::move(key));
  }
  add(key_of_environment());
  if (all.empty() && make && passing_key().empty()) passing_key() = random_key();
  add(passing_key());
  return all;
}

std::string signature_of(const std::string& key, const std::string& name, std::string_view text) {
  std::string message = "millrace " + name;
  message += '\0';
  message += text;
  return pipeline::hex_of(pipeline::hmac_sha256(key, message));
}

/// Returns the signatures of the files in a folder, by name; nothing if they are damaged.
Json signatures_in(const fs::path& folder) {
  try {
    Json json = read_json(folder / kSignatureFile);
    if (json.is_object() && json.contains("files") && json["files"].is_object())
      return json["files"];
  } catch (const Error&) {  // as good as none
  }
  return Json::object();
}

/// Returns the signatures of one file.
std::vector<std::string> signatures_of(const Json& files, const std::string& name) {
  std::vector<std::string> all;
  const auto found = files.find(name);
  if (found != files.end() && found->is_array())
    for (const Json& one : *found)
      if (one.is_string()) all.push_back(one);
  return all;
}

}  // namespace

fs::path run_key_file() {
  const char* const state = std::getenv("XDG_STATE_HOME");
  const char* const home = std::getenv("HOME");
  fs::path folder;
  if (state != nullptr && *state == '/')  // the XDG standard ignores relative paths
    folder = state;
  else if (home != nullptr && *home == '/')
    folder = fs::path(home) / ".local" / "state";
  return folder.empty() ? folder : folder / "millrace" / "run-key";
}

void write_signed(const fs::path& folder, const std::string& name, const std::string& text) {
  if (const auto known = keys(/*make=*/true); !known.empty()) {
    Json files = signatures_in(folder);
    std::vector<std::string> all = signatures_of(files, name);
    const std::string own = signature_of(known.front(), name, text);
    std::erase(all, own);
    all.insert(all.begin(), own);
    all.resize(std::min(all.size(), kSignatures));
    files[name] = all;
    write_file(folder / kSignatureFile,
               to_text(Json{{"format", kFormat}, {"files", std::move(files)}}, 2) + "\n");
  }
  write_file(folder / name, text);
}

bool is_signed(const fs::path& folder, const std::string& name, std::string_view text) {
  const std::vector<std::string> all = signatures_of(signatures_in(folder), name);
  if (all.empty()) return false;
  const std::vector<std::string> known = keys(/*make=*/false);
  return std::any_of(known.begin(), known.end(), [&](const std::string& key) {
    return std::find(all.begin(), all.end(), signature_of(key, name, text)) != all.end();
  });
}

void share_run_key_with_children() {
  if (const auto known = keys(/*make=*/false); !known.empty())
    setenv(kRunKeyVariable, known.front().c_str(), /*overwrite=*/1);
}

}  // namespace millrace::study
