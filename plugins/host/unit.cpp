// Makes instances, and turns what calls return or throw into errors.
#include "plugins/host/unit.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <mutex>
#include <optional>

#include "plugins/host/registry.h"

namespace millrace::plugins {
namespace {

std::vector<std::string> split_choices(const char* text) {
  std::vector<std::string> choices;
  for (std::string_view rest(text); !rest.empty();) {
    const std::size_t bar = std::min(rest.find('|'), rest.size());
    choices.emplace_back(rest.substr(0, bar));
    rest.remove_prefix(std::min(bar + 1, rest.size()));
  }
  return choices;
}

Param::Type type_of(const millrace_param& param) {
  switch (param.type) {
    case MILLRACE_BOOLEAN:
      return Param::Type::boolean;
    case MILLRACE_INTEGER:
      return Param::Type::integer;
    case MILLRACE_NUMBER:
      return Param::Type::number;
    case MILLRACE_TEXT:
      return Param::Type::text;
    case MILLRACE_CHOICE:
      return Param::Type::choice;
    case MILLRACE_NUMBERS:
    case MILLRACE_INTEGERS:
      return Param::Type::numbers;
    default:
      throw UsageError(fmt::format("parameter '{}' is of unknown type {}", param.name, param.type));
  }
}

millrace_value to_value(const Param& param, const Value& value) {
  millrace_value out{};
  switch (param.type) {
    case Param::Type::boolean:
      out.integer = std::get<bool>(value) ? 1 : 0;
      break;
    case Param::Type::integer:
      out.integer = std::get<std::int64_t>(value);
      out.number = static_cast<double>(out.integer);
      break;
    case Param::Type::number:
      out.number = std::get<double>(value);
      break;
    case Param::Type::numbers: {
      const auto& numbers = std::get<std::vector<double>>(value);
      out.numbers = numbers.data();
      out.count = numbers.size();
      break;
    }
    case Param::Type::choice:
      out.integer =
          std::find(param.choices.begin(), param.choices.end(), std::get<std::string>(value)) -
          param.choices.begin();
      [[fallthrough]];
    case Param::Type::text:
      out.text = std::get<std::string>(value).c_str();
      break;
  }
  return out;
}

}  // namespace

Param to_param(const millrace_param& declared) {
  Param param;
  param.name = declared.name;
  param.help = declared.help;
  param.type = type_of(declared);
  if (!(declared.min <= declared.max))
    throw UsageError(fmt::format("parameter '{}': its range is empty", param.name));
  param.min = declared.min;
  param.max = declared.max;
  param.whole = declared.type == MILLRACE_INTEGERS;
  for (std::size_t n = 0; n < 32; ++n)
    if ((declared.lengths >> n & 1) != 0) param.lengths.push_back(n);
  if (param.type == Param::Type::choice) {
    if (declared.choices == nullptr)
      throw UsageError(fmt::format("parameter '{}' has no choices", param.name));
    param.choices = split_choices(declared.choices);
  }
  if (declared.fallback == nullptr)
    throw UsageError(fmt::format("parameter '{}' has no default", param.name));
  param.fallback =
      parse_value(param, declared.fallback,
                  fmt::format("parameter '{}', default {}", param.name, declared.fallback));
  return param;
}

const millrace_param& param_of(const millrace_unit& unit, std::size_t i) {
  return *reinterpret_cast<const millrace_param*>(reinterpret_cast<const char*>(unit.params) +
                                                  i * unit.param_size);
}

OpDeclaration to_declaration(const millrace_unit& unit) {
  OpDeclaration declaration{unit.name, unit.help, unit.random != 0, {}};
  for (std::size_t i = 0; i < unit.param_count; ++i)
    declaration.params.push_back(to_param(param_of(unit, i)));
  return declaration;
}

namespace {

/// Returns whether a batch unit's table has the members that came with interface 1.1.
bool has_groups(const millrace_batch& batch) {
  return batch.struct_size >= offsetof(millrace_batch, parts);
}

}  // namespace

std::int32_t group_of(const millrace_unit& unit) {
  const millrace_batch& batch = *unit.batch;
  return has_groups(batch) && batch.group != 0 ? batch.group : 2;
}

FloatsFunction floats_of(const millrace_pixel& pixel) {
  return pixel.struct_size >= sizeof(millrace_pixel) ? pixel.apply_floats : nullptr;
}

MixFunction mix_of(const millrace_batch& batch) { return has_groups(batch) ? batch.mix : nullptr; }

PartsFunction parts_of(const millrace_batch& batch) {
  return batch.struct_size >= sizeof(millrace_batch) ? batch.parts : nullptr;
}

bool changes_samples(const millrace_batch& batch) {
  return batch.pair != nullptr || mix_of(batch) != nullptr;
}

millrace_status mix_group(const Unit& unit, const millrace_sample& sample, void* const* samples,
                          float* const* labels, std::size_t count, millrace_call& call) {
  const millrace_batch& batch = *unit.table().batch;
  if (const MixFunction mix = mix_of(batch))
    return mix(unit.self(), &sample, samples, labels, count, &call);
  return batch.pair(unit.self(), &sample, samples[0], samples[1], labels[0], labels[1], &call);
}

std::size_t write_parts(const Unit& unit, const millrace_sample& sample, std::size_t samples,
                        std::span<millrace_part> parts, millrace_call& call) {
  const millrace_batch& batch = *unit.table().batch;
  const PartsFunction function = parts_of(batch);
  std::size_t count = 0;
  checked_call(unit.table(), call, [&] {
    return function(unit.self(), &sample, samples, parts.data(), &count, &call);
  });
  const auto wrong = [&](const std::string& what) {
    throw DataError(fmt::format("{}: its parts() {}", unit.table().name, what),
                    "correct the plugin, or leave the op out");
  };
  if (count > MILLRACE_MOST_PARTS * samples)
    wrong(fmt::format("wrote {} parts for {} samples, more than {} each", count, samples,
                      MILLRACE_MOST_PARTS));
  const auto is_sample = [samples](std::int32_t place) {
    return place >= 0 && static_cast<std::size_t>(place) < samples;
  };
  const auto is_inside = [&sample](const millrace_rect& r, std::int64_t dx, std::int64_t dy) {
    return r.x0 - dx >= 0 && r.y0 - dy >= 0 && r.x0 <= r.x1 && r.y0 <= r.y1 &&
           r.x1 - dx <= sample.size.width && r.y1 - dy <= sample.size.height;
  };
  for (std::size_t i = 0; i < count; ++i) {
    const millrace_part& part = parts[i];
    if (!is_sample(part.to) || !is_sample(part.from))
      wrong(fmt::format("shows sample {} in {} of {}", part.from, part.to, samples));
    if (i > 0 && part.to < parts[i - 1].to)
      wrong(fmt::format("names sample {} behind {}", part.to, parts[i - 1].to));
    if (!is_inside(part.window, 0, 0) || !is_inside(part.window, part.dx, part.dy))
      wrong("has a part that lies outside of its sample");
    if (!(part.weight >= 0 && part.weight <= 1))
      wrong(fmt::format("gives a part the weight {}", part.weight));
    if (part.weight != 1 && !changes_samples(batch))
      wrong(fmt::format("gives a part the weight {}, which only pair() or mix() can do",
                        part.weight));
  }
  return count;
}

CallContext::CallContext() {
  call.struct_size = sizeof call;
  call.error = error_.data();
  call.error_size = error_.size();
}

void throw_status(const std::string& unit, millrace_status status, const char* error) {
  std::string what = error;
  std::string hint;
  if (const std::size_t line = what.find('\n'); line != std::string::npos) {
    hint = what.substr(line + 1);
    what.resize(line);
  }
  if (what.empty()) what = fmt::format("failed with status {}", status);
  if (!what.starts_with(unit)) what = fmt::format("{}: {}", unit, what);
  if (status == MILLRACE_BAD_USE) throw UsageError(what, hint);
  if (hint.empty()) hint = "repair the data or fetch it again, or set loader.on_error=skip";
  throw DataError(what, hint);
}

void throw_exception(const millrace_unit& unit, const char* function) {
  const std::string who = *function == '\0' ? "it" : function;
  const std::string file = file_of(unit);
  throw DataError(
      fmt::format("{}{}: {} threw an exception{}", file.empty() ? "" : fmt::format("{}: ", file),
                  unit.name, who, thrown_text()),
      "report it to the plugin's author: a C interface may not throw");
}

namespace {

struct LateException {
  std::mutex mutex;
  std::optional<DataError> first;
};

LateException& late_exception() {
  static auto* one = new LateException;  // outlives every thread
  return *one;
}

}  // namespace

void last_call(const millrace_unit& unit, const char* name,
               const std::function<void()>& function) noexcept {
  const UnitScope inside(unit);
  try {
    try {
      function();
    } catch (...) {
      throw_exception(unit, name);
    }
  } catch (const DataError& error) {
    LateException& late = late_exception();
    const std::lock_guard lock(late.mutex);
    if (!late.first) late.first = error;
  }
}

void throw_late_exception() {
  LateException& late = late_exception();
  const std::lock_guard lock(late.mutex);
  if (late.first) throw DataError(*late.first);
}

std::int32_t Unit::add_child(const millrace_create* create, const char* text) {
  auto& self = *static_cast<Unit*>(create->host);
  try {
    if (self.depth_ == kDeepest)
      throw UsageError(fmt::format("choices nested more than {} deep", kDeepest),
                       "flatten them: list their ops in one choice");
    Recipe recipe(op_declarations());
    recipe.set(std::string("augment+=") + text);
    const OpSpec& spec = recipe.augment().front();
    auto child = std::make_unique<Unit>(augmentation(spec.op), spec.params, "", "",
                                        std::span(create->mean, create->mean_count),
                                        std::span(create->std, create->std_count), self.depth_ + 1);
    if (child->table().batch != nullptr)
      throw UsageError(fmt::format("{} works on batches: it cannot be chosen", spec.op));
    child->text_ = text;
    self.children_.push_back(std::move(child));
    return static_cast<std::int32_t>(self.children_.size() - 1);
  } catch (const Error& error) {
    fmt::format_to_n(create->error, create->error_size - 1, "{}\n{}", error.what(), error.hint())
        .out[0] = '\0';
    return -1;
  }
}

Unit::Unit(const millrace_unit& unit, const Params& params, const std::string& path,
           const std::string& split, std::span<const double> mean, std::span<const double> std,
           int depth)
    : unit_(unit), text_(unit.name), depth_(depth) {
  std::vector<millrace_value> values;
  const std::vector<Param> declared = to_declaration(unit).params;
  for (const Param& param : declared) values.push_back(to_value(param, params.at(param.name)));
  std::array<char, 512> error{};
  const millrace_create create{sizeof create, this,         values.data(), values.size(),
                               error.data(),  error.size(), &add_child,    path.c_str(),
                               split.c_str(), mean.data(),  mean.size(),   std.data(),
                               std.size()};
  millrace_status status = MILLRACE_OK;
  try {
    const UnitScope inside(unit);
    status = unit.create(&create, &self_);
  } catch (...) {
    throw_exception(unit, "create()");
  }
  // Blame parameters that do not fit on the recipe, whatever status the plugin returns. A reader's
  // data may be at fault as well.
  if (status != MILLRACE_OK)
    throw_status(unit.name, unit.reader != nullptr ? status : MILLRACE_BAD_USE, error.data());
}

Unit::~Unit() {
  last_call(unit_, "destroy()", [this] { unit_.destroy(self_); });
}

}  // namespace millrace::plugins
