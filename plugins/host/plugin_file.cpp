// Checks plugin files and their tables, and loads them.
#include <dlfcn.h>
#include <elf.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <set>
#include <vector>

#include "base/open_file.h"
#include "millrace/error.h"
#include "plugins/host/registry.h"
#include "plugins/host/unit.h"

namespace millrace::plugins {
namespace {

#if defined(__x86_64__)
constexpr Elf64_Half kMachine = EM_X86_64;
#elif defined(__aarch64__)
constexpr Elf64_Half kMachine = EM_AARCH64;
#else
#error "which machine is this? see elf.h"
#endif

constexpr std::array<std::string_view, 7> kKindNames{"reader", "decoder", "geometric", "pixel",
                                                     "filter", "choice",  "batch"};

/// Sizes of the tables of batch and pixel units in interface 1.0.
constexpr std::size_t kFirstBatch = offsetof(millrace_batch, group);
constexpr std::size_t kFirstPixel = offsetof(millrace_pixel, apply_floats);

[[noreturn]] void refuse(const std::string& file, const std::string& reason,
                         const std::string& hint =
                             "rebuild the plugin against this millrace's "
                             "millrace.h") {
  throw DataError(fmt::format("{}: plugin refused: {}", file, reason), hint);
}

bool is_name(const char* text) {
  if (text == nullptr || *text == '\0') return false;
  const std::string_view name(text);
  return std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
  });
}

/// A table of functions, and those that it must contain.
struct Functions {
  const char* kind;
  const void* table;
  std::size_t size;  ///< size of the struct according to the plugin
  std::size_t need;  ///< size of the struct in this millrace
  struct Function {
    const char* name;
    bool there;
  };
  std::array<Function, 6> required;  ///< ended by a null name
};

template <class Table>
std::size_t size_of(const Table* table) {
  return table == nullptr ? 0 : table->struct_size;
}

std::array<Functions, 7> functions_of(const millrace_unit& u) {
  const auto* g = u.geometric;
  const auto* p = u.pixel;
  const auto* f = u.filter;
  const auto* c = u.choice;
  const auto* b = u.batch;
  const auto* d = u.decoder;
  const auto* r = u.reader;
  // Reads no function from a struct that is too short to hold it; the caller rejects it.
  const auto has_from = [](std::size_t size, const auto* table, auto member) {
    return table != nullptr && table->struct_size >= size && table->*member != nullptr;
  };
  const auto has = [&](const auto* table, auto member) {
    return has_from(sizeof(*table), table, member);
  };
  const bool changes_pixels = has_from(kFirstPixel, p, &millrace_pixel::apply) ||
                              has_from(kFirstPixel, p, &millrace_pixel::levels);
  const bool batches = b != nullptr && b->struct_size >= kFirstBatch &&
                       (b->pair != nullptr || mix_of(*b) != nullptr || parts_of(*b) != nullptr);
  return {{{"reader",
            r,
            size_of(r),
            sizeof(millrace_reader),
            {{{"dataset", has(r, &millrace_reader::dataset)},
              {"borrow", has(r, &millrace_reader::borrow)},
              {"name", has(r, &millrace_reader::name)}}}},
           {"decoder",
            d,
            size_of(d),
            sizeof(millrace_decoder),
            {{{"sniff", has(d, &millrace_decoder::sniff)},
              {"open", has(d, &millrace_decoder::open)},
              {"close", has(d, &millrace_decoder::close)},
              {"header", has(d, &millrace_decoder::header)},
              {"decode", has(d, &millrace_decoder::decode)}}}},
           {"geometric",
            g,
            size_of(g),
            sizeof(millrace_geometric),
            {{{"warp", has(g, &millrace_geometric::warp)}}}},
           {"pixel", p, size_of(p), kFirstPixel, {{{"apply or levels", changes_pixels}}}},
           {"filter",
            f,
            size_of(f),
            sizeof(millrace_filter),
            {{{"apply", has(f, &millrace_filter::apply)}}}},
           {"choice",
            c,
            size_of(c),
            sizeof(millrace_choice),
            {{{"choose", has(c, &millrace_choice::choose)}}}},
           {"batch", b, size_of(b), kFirstBatch, {{{"pair, mix or parts", batches}}}}}};
}

/// Throws if the size of a batch unit's groups and its function do not fit together.
void check_group(const millrace_unit& unit, const std::string& file) {
  const millrace_batch& batch = *unit.batch;
  const std::int32_t group = batch.pair != nullptr ? group_of(unit) : batch.group;
  const auto wrong = [&](const std::string& what) {
    refuse(file, fmt::format("batch '{}' {}", unit.name, what),
           fmt::format("its group is 2 with pair(); otherwise 2 to {}, or MILLRACE_WHOLE_BATCH",
                       MILLRACE_LARGEST_GROUP));
  };
  if (batch.pair != nullptr && mix_of(batch) != nullptr) wrong("has both pair() and mix()");
  if (batch.pair != nullptr && group != 2)
    wrong(fmt::format("declares groups of {}, and its function is pair()", group));
  if (group != MILLRACE_WHOLE_BATCH && (group < 2 || group > MILLRACE_LARGEST_GROUP))
    wrong(fmt::format("declares groups of {}", group));
}

void check_param(const millrace_param& param, const std::string& unit, const std::string& file) {
  if (!is_name(param.name))
    refuse(file, fmt::format("unit '{}': a parameter without a name of a-z, 0-9, _", unit));
  if (param.help == nullptr || *param.help == '\0')
    refuse(file, fmt::format("unit '{}': parameter '{}' has no help", unit, param.name));
  try {
    to_param(param);
  } catch (const Error& error) {
    refuse(file, fmt::format("unit '{}': {}", unit, error.what()),
           "correct the parameter's declaration");
  }
}

void check_unit(const millrace_unit* unit, std::size_t index, const std::string& file) {
  if (unit == nullptr) refuse(file, fmt::format("unit {} is null", index));
  if (unit->struct_size < sizeof(millrace_unit))
    refuse(file, fmt::format("unit {}: struct of {} bytes, this millrace needs {}", index,
                             unit->struct_size, sizeof(millrace_unit)));
  if (!is_name(unit->name)) refuse(file, fmt::format("unit {} has no name of a-z, 0-9, _", index));
  const std::string name = unit->name;
  if (unit->help == nullptr || *unit->help == '\0')
    refuse(file, fmt::format("unit '{}' has no help", name));
  if (unit->create == nullptr || unit->destroy == nullptr)
    refuse(file, fmt::format("unit '{}' has no function {}", name,
                             unit->create == nullptr ? "create" : "destroy"));
  int kinds = 0;
  for (const Functions& functions : functions_of(*unit)) {
    if (functions.table == nullptr) continue;
    ++kinds;
    if (functions.size < functions.need)
      refuse(file, fmt::format("unit '{}': {} struct of {} bytes, this millrace needs {}", name,
                               functions.kind, functions.size, functions.need));
    for (const auto& function : functions.required)
      if (function.name != nullptr && !function.there)
        refuse(file,
               fmt::format("{} '{}' has no function {}", functions.kind, name, function.name));
  }
  if (kinds != 1)
    refuse(file, fmt::format("unit '{}' is of {} kinds: exactly one table of functions counts",
                             name, kinds));
  if (unit->batch != nullptr) check_group(*unit, file);
  if (unit->param_count > 0 && unit->params == nullptr)
    refuse(file,
           fmt::format("unit '{}': {} parameters announced, none given", name, unit->param_count));
  if (unit->param_count > 0 && unit->param_size < sizeof(millrace_param))
    refuse(file, fmt::format("unit '{}': parameters of {} bytes, this millrace needs {}", name,
                             unit->param_size, sizeof(millrace_param)));
  std::set<std::string> names;
  for (std::size_t i = 0; i < unit->param_count; ++i) {
    const millrace_param& param = param_of(*unit, i);
    check_param(param, name, file);
    if (!names.insert(param.name).second)
      refuse(file, fmt::format("unit '{}': two parameters '{}'", name, param.name));
  }
}

}  // namespace

UnitKind kind_of(const millrace_unit& unit) {
  return unit.reader != nullptr      ? UnitKind::reader
         : unit.decoder != nullptr   ? UnitKind::decoder
         : unit.geometric != nullptr ? UnitKind::geometric
         : unit.pixel != nullptr     ? UnitKind::pixel
         : unit.filter != nullptr    ? UnitKind::filter
         : unit.choice != nullptr    ? UnitKind::choice
                                     : UnitKind::batch;
}

std::string_view name_of(UnitKind kind) { return kKindNames[static_cast<std::size_t>(kind)]; }

void check_plugin_table(const millrace_plugin_table& table, const std::string& file) {
  if (table.magic != MILLRACE_MAGIC) refuse(file, fmt::format("wrong magic {:016x}", table.magic));
  // A newer minor version may rely on services that this host lacks.
  if (table.abi_major != MILLRACE_ABI_MAJOR || table.abi_minor > MILLRACE_ABI_MINOR)
    refuse(file,
           fmt::format("built for plugin interface {}.{}, this millrace has {}.{}", table.abi_major,
                       table.abi_minor, MILLRACE_ABI_MAJOR, MILLRACE_ABI_MINOR),
           table.abi_major == MILLRACE_ABI_MAJOR
               ? "use a newer millrace, or rebuild the plugin against this millrace's millrace.h"
               : "rebuild the plugin against this millrace's millrace.h");
  if (table.struct_size < sizeof(millrace_plugin_table))
    refuse(file, fmt::format("table of {} bytes, this millrace needs {}", table.struct_size,
                             sizeof(millrace_plugin_table)));
  if (!is_name(table.id)) refuse(file, "it has no id of a-z, 0-9, _");
  if (table.version == nullptr) refuse(file, "it has no version");
  if (table.licence == nullptr) refuse(file, "it has no licence");
  if (table.unit_count == 0) refuse(file, "it has no units");
  if (table.units == nullptr)
    refuse(file, fmt::format("{} units announced, none given", table.unit_count));
  std::set<std::string> names;
  for (std::size_t index = 0; index < table.unit_count; ++index) {
    check_unit(table.units[index], index, file);
    if (!names.insert(table.units[index]->name).second)
      refuse(file, fmt::format("two units '{}'", table.units[index]->name));
  }
}

void check_plugin_file(const std::string& file) {
  constexpr const char* kHint = "is it a plugin, built for this machine? build or copy it again";
  const auto fail = [&](const std::string& reason) { refuse(file, reason, kHint); };
  base::OpenFile open;
  try {
    open = base::open_regular(file);
  } catch (const DataError& error) {
    throw DataError(fmt::format("plugin cannot be loaded: {}", error.what()), kHint);
  }
  const auto read = [&](void* to, std::size_t size, std::uint64_t offset) {
    return base::read_at(open.descriptor.get(), static_cast<std::uint8_t*>(to), size, offset,
                         file.c_str()) == size;
  };
  Elf64_Ehdr header{};
  if (!read(&header, sizeof header, 0) || std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0)
    fail("it is not a shared object (ELF)");
  if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_ident[EI_DATA] != ELFDATA2LSB ||
      header.e_machine != kMachine)
    fail("it is built for another kind of machine");
  if (header.e_type != ET_DYN || header.e_phnum == 0 || header.e_phentsize != sizeof(Elf64_Phdr))
    fail("it is not a shared object");
  std::vector<Elf64_Phdr> segments(header.e_phnum);
  const std::size_t bytes = segments.size() * sizeof(Elf64_Phdr);
  if (header.e_phoff > open.size || !read(segments.data(), bytes, header.e_phoff))
    fail(fmt::format("it is cut short: its headers end after byte {}", open.size));
  for (const Elf64_Phdr& segment : segments) {
    if (segment.p_type != PT_LOAD && segment.p_type != PT_DYNAMIC) continue;
    if (segment.p_offset > open.size || segment.p_filesz > open.size - segment.p_offset)
      fail(fmt::format("it is cut short: {} bytes, of which a segment of {} begins at byte {}",
                       open.size, segment.p_filesz, segment.p_offset));
  }
}

const millrace_plugin_table& load_plugin(const std::string& file) {
  check_plugin_file(file);
  // Never unloaded: instances and names of units live as long as the program.
  void* library = nullptr;
  // Call dlopen through a volatile pointer: it is declared noexcept, but an initialiser's exception
  // passes through it.
  void* (*volatile open_library)(const char*, int) = dlopen;
  try {
    const LoadingScope inside(file.c_str());
    library = open_library(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  } catch (...) {
    refuse(file, "while it was loaded it threw an exception" + thrown_text(),
           "report it to the plugin's author");
  }
  if (library == nullptr)
    throw DataError(fmt::format("plugin cannot be loaded: {}", dlerror()),
                    "is it a plugin, built for this machine, with all libraries it needs?");
  const auto* table = static_cast<const millrace_plugin_table*>(dlsym(library, "millrace_plugin"));
  if (table == nullptr) refuse(file, "it exports no symbol millrace_plugin");
  check_plugin_table(*table, file);
  remember_plugin(*table, file.c_str());
  return *table;
}

}  // namespace millrace::plugins
