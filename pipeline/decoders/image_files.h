// Names and beginnings of image files, by format.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/private_api.h"

namespace millrace::pipeline {

/// Returns the names of the formats that need no plugin of the user's: "JPEG, PNG and TIFF".
MILLRACE_PRIVATE_API std::string image_format_names();
/// Returns the endings of their files' names: ".jpg .jpeg .png".
std::string image_endings();

/// Returns true if the ending belongs to an image format that the decoders read, in any case; a
/// plugin's decoder "qoi" reads .qoi. NumPy arrays, which often lie beside images, count with
/// `arrays` only.
MILLRACE_PRIVATE_API bool has_image_ending(std::string_view name, bool arrays = false);

/// Returns a number that identifies the endings which plugins' decoders add to has_image_ending();
/// 0 if they add none.
MILLRACE_PRIVATE_API std::uint64_t image_formats();

/// Returns the ending of the name under which an image is packed: "jpg"; empty if nothing reads it.
/// That of a raw image begins with its size, so that the size is part of the set's fingerprint.
MILLRACE_PRIVATE_API std::string image_ending(std::span<const std::uint8_t> bytes);

}  // namespace millrace::pipeline
