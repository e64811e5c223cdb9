// Files that `plugins new` starts from: plugins/templates/, embedded by the build.
#pragma once

#include <span>
#include <string_view>

namespace millrace::tools {

struct Template {
  std::string_view name;  ///< "pixel.cpp", "pixel_test.cpp", "CMakeLists.txt", "README.md"
  std::string_view text;
};

extern const std::span<const Template> kTemplates;

}  // namespace millrace::tools
