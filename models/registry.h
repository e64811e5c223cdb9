// Models by name. To add one, write a class like that in lenet.h, a line in registry.cpp, and its
// name in models/names.h.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "models/classifier.h"
#include "models/options.h"

namespace millrace::train {

/// Returns every name that make_model() takes.
std::vector<std::string> registered_models();

/// Builds the model `name`, initialised from torch's current generator. Throws UsageError for an
/// unknown name, a shape that the model cannot take, or an option that it does not have.
std::shared_ptr<Classifier> make_model(const std::string& name, const ModelShape& shape,
                                       const ModelOptions& options = {});

}  // namespace millrace::train
