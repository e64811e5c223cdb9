// Models by name. To add one: a class beside lenet.h, a line here in registry.cpp, its name in
// names.h.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "models/classifier.h"
#include "models/options.h"

namespace millrace::train {

/// Every name that make_model() takes.
std::vector<std::string> registered_models();

/// Builds and initialises (from torch's current generator) the model called `name`. Throws
/// UsageError for an unknown name, a shape that the model cannot take, or an option that it does
/// not have.
std::shared_ptr<Classifier> make_model(const std::string& name, const ModelShape& shape,
                                       const ModelOptions& options = {});

}  // namespace millrace::train
