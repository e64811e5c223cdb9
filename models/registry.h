// Models by name. To add one: a class beside lenet.h, a line here in registry.cpp, its name in
// names.h.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "models/classifier.h"

namespace millrace {

/// Every name that make_model() takes.
std::vector<std::string> registered_models();

/// Builds and initialises (PyTorch's defaults, from torch's current generator) the model called
/// `name`. Throws UsageError for an unknown name, or a shape that the model cannot take.
std::shared_ptr<Classifier> make_model(const std::string& name, const ModelShape& shape);

}  // namespace millrace
