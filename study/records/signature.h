// Signatures of the files in a run directory that tell a later command what to do.
//
// A run directory may come from a stranger, and `train --resume`, `eval` and `sweep --resume` act
// on what config.toml, design.json and plan.json say. These files are therefore signed:
// signature.json holds an HMAC-SHA256 (RFC 2104) of each, made with a key that only this user has.
// A file without a valid signature may name something outside of its directory only if the command
// line repeats it.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace millrace::study {

/// File of a run directory that holds the signatures.
inline constexpr const char* kSignatureFile = "signature.json";

/// Environment variable that hands the key to processes on hosts which do not share the user's
/// state folder: 64 hexadecimal digits.
inline constexpr const char* kRunKeyVariable = "MILLRACE_RUN_KEY";

/// Returns the file of the key: $XDG_STATE_HOME/millrace/run-key, by default below ~/.local/state.
/// Empty if neither variable is set.
std::filesystem::path run_key_file();

/// Writes `folder`/`name` atomically, after its signature. The key is made when it is first needed.
/// Where no key can be kept, because there is no home or its file system has no modes, the file has
/// no signature that outlives this process and its children. Throws RunError.
void write_signed(const std::filesystem::path& folder, const std::string& name,
                  const std::string& text);

/// Returns whether `text` is what write_signed() has written to `folder`/`name` with this user's
/// key. Throws nothing: a damaged signature is none.
bool is_signed(const std::filesystem::path& folder, const std::string& name, std::string_view text);

/// Puts the key, if there is one, into the environment of programs that are started from now on.
/// Call it while no other thread reads the environment.
void share_run_key_with_children();

}  // namespace millrace::study
