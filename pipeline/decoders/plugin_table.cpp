#include "pipeline/decoders/plugin_table.h"

#include <dlfcn.h>
#include <fmt/core.h>

#include "pipeline/error.h"

namespace millrace {
namespace {

[[noreturn]] void refuse(const std::string& file, const std::string& reason) {
  throw DataError(fmt::format("{}: plugin refused: {}", file, reason),
                  "build the plugin against this millrace's plugins/millrace.h");
}

void check_decoder(const millrace_decoder* decoder, std::size_t index, const std::string& file) {
  if (decoder == nullptr) refuse(file, fmt::format("decoder {} is null", index));
  if (decoder->struct_size < sizeof(millrace_decoder))
    refuse(file, fmt::format("decoder {}: struct of {} bytes, this millrace needs {}", index,
                             decoder->struct_size, sizeof(millrace_decoder)));
  if (decoder->name == nullptr || *decoder->name == '\0')
    refuse(file, fmt::format("decoder {} has no name", index));
  const auto require = [&](bool there, const char* function) {
    if (!there)
      refuse(file, fmt::format("decoder '{}' has no function {}", decoder->name, function));
  };
  require(decoder->sniff != nullptr, "sniff");
  require(decoder->create != nullptr, "create");
  require(decoder->destroy != nullptr, "destroy");
  require(decoder->header != nullptr, "header");
  require(decoder->decode != nullptr, "decode");
}

}  // namespace

void check_plugin_table(const millrace_plugin_table& table, const std::string& file) {
  if (table.magic != MILLRACE_MAGIC) refuse(file, fmt::format("wrong magic {:016x}", table.magic));
  if (table.abi_major != MILLRACE_ABI_MAJOR)
    refuse(file, fmt::format("built for ABI {}.{}, this is {}.{}", table.abi_major, table.abi_minor,
                             MILLRACE_ABI_MAJOR, MILLRACE_ABI_MINOR));
  if (table.struct_size < sizeof(millrace_plugin_table))
    refuse(file, fmt::format("table of {} bytes, this millrace needs {}", table.struct_size,
                             sizeof(millrace_plugin_table)));
  if (table.id == nullptr || *table.id == '\0') refuse(file, "it has no id");
  if (table.version == nullptr) refuse(file, "it has no version");
  if (table.licence == nullptr) refuse(file, "it has no licence");
  if (table.decoder_count > 0 && table.decoders == nullptr)
    refuse(file, fmt::format("{} decoders announced, none given", table.decoder_count));
  for (std::size_t index = 0; index < table.decoder_count; ++index)
    check_decoder(table.decoders[index], index, file);
}

const millrace_plugin_table& load_plugin(const std::string& file) {
  void* library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr)
    throw DataError(fmt::format("plugin cannot be loaded: {}", dlerror()),
                    "build millrace whole, and keep lib/plugins/ beside its library");
  const auto* table = static_cast<const millrace_plugin_table*>(dlsym(library, "millrace_plugin"));
  if (table == nullptr) refuse(file, "it exports no symbol millrace_plugin");
  check_plugin_table(*table, file);
  return *table;
}

}  // namespace millrace
