// The plugin interface in C++. Write a class and list it in MILLRACE_PLUGIN; the header makes the
// tables of millrace.h from it. The functions of the class decide the kind of unit:
//
//   Warp warp(Size input[, Call&]) const                       geometric: maps positions, no pixels
//   void apply(Image image[, Call&]) const                     pixel: changes an image in place
//   void levels(Levels levels[, Call&]) const                  pixel: changes a table per channel
//   void apply_floats(FloatImage image[, Call&]) const         pixel: beside one of these two, for
//                                                              recipes with decode.depth
//   void apply(ConstImage from, Image to[, Call&]) const       filter: writes a new image
//   void choose(Chosen& chosen, Call&) const                   choice: draws children for a sample
//   void pair(const Pair& pair, Call&) const                   batch: changes two neighbours
//   void mix(const Group& group, Call&) const                  batch: changes kGroup neighbours
//   void parts(const millrace_sample&, Parts&, Call&) const    batch: says which parts of each
//                                                              other kGroup neighbours show
//   sniff, header, decode                                      decoder (see Decoder below)
//   dataset, borrow, name                                      reader (see Reader below)
//
// A function that takes the Call may draw random numbers, so its unit counts as random, unless
// `static constexpr bool kRandom = false` overrides that. The other members:
//
//   static constexpr const char* kName, *kHelp                 name in recipes, line in lists
//   static constexpr Parameter kParams[]                       parameters, if any
//   explicit T(const Values&)  or  T(const Values&, Children&) made once, shared by all threads
//   Size output(Size input) const                              output size (geometric, filter)
//   static constexpr int kGroup                                samples per call of mix() or
//   parts(),
//                                                              or MILLRACE_WHOLE_BATCH
//   static constexpr Reach kReach                              reach, if not pointwise (pixel)
//   std::size_t scratch(Size, int channels) const              bytes behind call.scratch()
//
// Report errors by throwing BadUse for parameters or images that do not fit, and BadData for
// damaged data. Member functions are const and run on many threads at once.
#pragma once

#include "millrace/call.hpp"
#include "millrace/math.hpp"
#include "millrace/millrace.h"
#include "millrace/pixels.hpp"
#include "millrace/tables.hpp"
#include "millrace/values.hpp"

namespace millrace {
inline namespace plugin_v1 {

/// The unit of a class.
template <class T>
inline constexpr millrace_unit kUnit = detail::make_unit<T>();

/// A plugin's table of the listed classes.
template <class... Units>
struct Plugin {
  static constexpr const millrace_unit* kUnits[] = {&kUnit<Units>...};
  static constexpr millrace_plugin_table table(const char* id, const char* version,
                                               const char* licence) {
    return {MILLRACE_MAGIC,
            MILLRACE_ABI_MAJOR,
            MILLRACE_ABI_MINOR,
            sizeof(millrace_plugin_table),
            id,
            version,
            licence,
            kUnits,
            sizeof...(Units)};
  }
};

}  // namespace plugin_v1
}  // namespace millrace

/// Exports the table; use it once per plugin: MILLRACE_PLUGIN("id", "1.0", "MIT", ClassA, ClassB).
#define MILLRACE_PLUGIN(id, version, licence, ...)        \
  extern "C" __attribute__((visibility("default"), used)) \
  const millrace_plugin_table millrace_plugin =           \
      ::millrace::Plugin<__VA_ARGS__>::table(id, version, licence)
