// The models there are, by the names that `model.name` takes. Free of LibTorch, so that a recipe is
// checked without loading it; a test holds this list equal to the registry's.
#pragma once

#include <array>
#include <string_view>

namespace millrace {

inline constexpr std::array<std::string_view, 3> kModelNames{
    "lenet5",        // 5x5 convolutions, the first padded
    "lenet5_plain",  // 3x3 convolutions, no padding (study S0)
    "lenet5_cifar",  // 3x3 convolutions, padded (study S1)
};

}  // namespace millrace
