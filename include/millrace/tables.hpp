// Turns a class into the tables of millrace.h. Part of millrace.hpp, which documents the classes;
// plugins use nothing else of this header.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <iterator>
#include <new>
#include <string>
#include <type_traits>

#include "millrace/call.hpp"
#include "millrace/millrace.h"
#include "millrace/pixels.hpp"
#include "millrace/values.hpp"

namespace millrace {
inline namespace plugin_v1 {

namespace detail {

/// Runs a C++ function behind a C interface: turns what it throws into a status and lines of text.
template <class Function>
millrace_status guarded(char* error, std::size_t size, const Function& function) noexcept {
  const auto say = [&](const char* what, const std::string& hint) {
    if (size == 0) return;
    const std::size_t most = size - 1;
    std::size_t n = std::strlen(what);
    n = n < most ? n : most;
    std::memcpy(error, what, n);
    if (!hint.empty() && n + 1 + hint.size() <= most) {
      error[n++] = '\n';
      std::memcpy(error + n, hint.data(), hint.size());
      n += hint.size();
    }
    error[n] = '\0';
  };
  try {
    function();
    return MILLRACE_OK;
  } catch (const BadUse& bad) {
    say(bad.what(), bad.hint);
    return MILLRACE_BAD_USE;
  } catch (const BadData& bad) {
    say(bad.what(), bad.hint);
    return MILLRACE_BAD_DATA;
  } catch (const std::bad_alloc&) {
    say("out of memory", {});
  } catch (const std::exception& other) {
    say(other.what(), {});
  } catch (...) {
    say("an exception of unknown type", {});
  }
  return MILLRACE_BAD_DATA;
}

template <class T>
const T& at(const void* self) {
  return *static_cast<const T*>(self);
}

template <class T>
concept Geometric = requires(const T& t, Size s, Call& c) {
  t.warp(s, c);
}
|| requires(const T& t, Size s) { t.warp(s); };
template <class T>
concept AppliesInPlace = requires(const T& t, Image i, Call& c) {
  t.apply(i, c);
}
|| requires(const T& t, Image i) { t.apply(i); };
template <class T>
concept SetsLevels = requires(const T& t, Levels l, Call& c) {
  t.levels(l, c);
}
|| requires(const T& t, Levels l) { t.levels(l); };
template <class T>
concept Filters = requires(const T& t, ConstImage f, Image i, Call& c) {
  t.apply(f, i, c);
}
|| requires(const T& t, ConstImage f, Image i) { t.apply(f, i); };
template <class T>
concept Chooses = requires(const T& t, Chosen& chosen, Call& c) {
  t.choose(chosen, c);
};
template <class T>
concept Pairs = requires(const T& t, const Pair& pair, Call& c) {
  t.pair(pair, c);
};
template <class T>
concept Mixes = requires(const T& t, const Group& group, Call& c) {
  t.mix(group, c);
};
template <class T>
concept HasParts = requires(const T& t, const millrace_sample& sample, Parts& parts, Call& c) {
  t.parts(sample, parts, c);
};
template <class T>
concept Decodes = requires {
  &T::sniff;
};
template <class T>
concept Reads = requires {
  &T::borrow;
};

template <class T>
constexpr bool is_random() {
  if constexpr (requires { T::kRandom; })
    return T::kRandom;
  else
    return requires(const T& t, Size s, Call& c) { t.warp(s, c); }
  || requires(const T& t, Image i, Call& c) { t.apply(i, c); }
  || requires(const T& t, Levels l, Call& c) { t.levels(l, c); }
  || requires(const T& t, ConstImage f, Image i, Call& c) { t.apply(f, i, c); }
  || Chooses<T> || Pairs<T> || Mixes<T> || HasParts<T>;
}

template <class T>
millrace_status create(const millrace_create* create, void** self) {
  return guarded(create->error, create->error_size, [&] {
    const Parameter* params = nullptr;
    if constexpr (requires { T::kParams; }) params = T::kParams;
    const Values values(*create, params);
    if constexpr (std::is_constructible_v<T, const Values&, Children&>) {
      Children children(*create);
      *self = new T(values, children);
    } else if constexpr (std::is_constructible_v<T, const Values&>) {
      *self = new T(values);
    } else {
      *self = new T();
    }
  });
}

template <class T>
void destroy(void* self) {
  delete static_cast<T*>(self);
}

template <class T>
millrace_status output(const void* self, Size input, Size* size, millrace_call* call) {
  return guarded(call->error, call->error_size, [&] { *size = at<T>(self).output(input); });
}
template <class T>
constexpr auto output_or_null() {
  if constexpr (requires(const T& t, Size s) { t.output(s); })
    return &output<T>;
  else
    return static_cast<decltype(&output<T>)>(nullptr);
}

template <class T>
std::size_t scratch(const void* self, Size size, std::int32_t channels) {
  return at<T>(self).scratch(size, channels);
}
template <class T>
constexpr auto scratch_or_null() {
  if constexpr (requires(const T& t, Size s) { t.scratch(s, 3); })
    return &scratch<T>;
  else
    return static_cast<std::size_t (*)(const void*, Size, std::int32_t)>(nullptr);
}

template <class T>
millrace_status warp(const void* self, Size input, millrace_warp* warp, millrace_call* raw) {
  return guarded(raw->error, raw->error_size, [&] {
    if constexpr (requires(const T& t, Call& c) { t.warp(input, c); }) {
      Call call(raw);
      *warp = at<T>(self).warp(input, call);
    } else {
      *warp = at<T>(self).warp(input);
    }
  });
}

template <class T>
millrace_status apply(const void* self, const Image* image, millrace_call* raw) {
  return guarded(raw->error, raw->error_size, [&] {
    if constexpr (requires(const T& t, Call& c) { t.apply(*image, c); }) {
      Call call(raw);
      at<T>(self).apply(*image, call);
    } else {
      at<T>(self).apply(*image);
    }
  });
}

template <class T>
millrace_status apply_floats(const void* self, const FloatImage* image, millrace_call* raw) {
  return guarded(raw->error, raw->error_size, [&] {
    if constexpr (requires(const T& t, Call& c) { t.apply_floats(*image, c); }) {
      Call call(raw);
      at<T>(self).apply_floats(*image, call);
    } else {
      at<T>(self).apply_floats(*image);
    }
  });
}
template <class T>
constexpr auto apply_floats_or_null() {
  if constexpr (
      requires(const T& t, FloatImage i, Call& c) { t.apply_floats(i, c); } ||
      requires(const T& t, FloatImage i) { t.apply_floats(i); })
    return &apply_floats<T>;
  else
    return static_cast<decltype(&apply_floats<T>)>(nullptr);
}

template <class T>
millrace_status levels(const void* self, std::uint8_t (*table)[256], std::int32_t channels,
                       millrace_call* raw) {
  return guarded(raw->error, raw->error_size, [&] {
    const Levels all{table, channels};
    if constexpr (requires(const T& t, Call& c) { t.levels(all, c); }) {
      Call call(raw);
      at<T>(self).levels(all, call);
    } else {
      at<T>(self).levels(all);
    }
  });
}

template <class T>
millrace_status filter(const void* self, const Image* from, const Image* to, millrace_call* raw) {
  return guarded(raw->error, raw->error_size, [&] {
    const ConstImage source{from->data, from->width, from->height, from->channels, from->row};
    if constexpr (requires(const T& t, Call& c) { t.apply(source, *to, c); }) {
      Call call(raw);
      at<T>(self).apply(source, *to, call);
    } else {
      at<T>(self).apply(source, *to);
    }
  });
}

template <class T>
millrace_status choose(const void* self, std::uint32_t* places, std::size_t* count,
                       millrace_call* raw) {
  return guarded(raw->error, raw->error_size, [&] {
    Call call(raw);
    Chosen chosen(places);
    at<T>(self).choose(chosen, call);
    *count = chosen.count();
  });
}

template <class T>
millrace_status pair(const void* self, const millrace_sample* sample, void* first, void* second,
                     float* first_labels, float* second_labels, millrace_call* raw) {
  return guarded(raw->error, raw->error_size, [&] {
    Call call(raw);
    at<T>(self).pair({*sample, first, second, first_labels, second_labels}, call);
  });
}

template <class T>
millrace_status mix(const void* self, const millrace_sample* sample, void* const* samples,
                    float* const* labels, std::size_t count, millrace_call* raw) {
  return guarded(raw->error, raw->error_size, [&] {
    Call call(raw);
    at<T>(self).mix({*sample, samples, labels, count}, call);
  });
}
template <class T>
millrace_status parts(const void* self, const millrace_sample* sample, std::size_t samples,
                      millrace_part* parts, std::size_t* count, millrace_call* raw) {
  return guarded(raw->error, raw->error_size, [&] {
    Call call(raw);
    Parts all(parts, samples);
    at<T>(self).parts(*sample, all, call);
    *count = all.count();
  });
}
template <class T>
constexpr auto parts_or_null() {
  if constexpr (HasParts<T>)
    return &parts<T>;
  else
    return static_cast<decltype(millrace_batch::parts)>(nullptr);
}
/// Returns the class's kGroup. A class without one does not compile.
template <class T>
constexpr std::int32_t group_of() {
  static_assert(
      requires { T::kGroup; }, "a class with mix() or parts() has a kGroup: samples per call");
  static_assert(
      T::kGroup == MILLRACE_WHOLE_BATCH || (T::kGroup >= 2 && T::kGroup <= MILLRACE_LARGEST_GROUP),
      "kGroup is 2 to MILLRACE_LARGEST_GROUP, or MILLRACE_WHOLE_BATCH");
  return T::kGroup;
}

}  // namespace detail

/// A decoder class. One object is the working memory of one thread, made by T().
///   static bool sniff(const std::uint8_t* bytes, std::size_t size)
///   millrace_image_header header(const std::uint8_t* bytes, std::size_t size)
///   void decode(const std::uint8_t* bytes, std::size_t size, const millrace_decode& request,
///               std::uint8_t* pixels, std::size_t row_bytes)
///   void region(millrace_decode& request)   if it can decode less than the whole image
namespace detail {

template <class T>
int sniff(const std::uint8_t* bytes, std::size_t size) {
  return T::sniff(bytes, size) ? 1 : 0;
}
template <class T>
void* open(const void*) {
  try {
    return new T();
  } catch (...) {
    return nullptr;
  }
}
template <class T>
millrace_status header(void* context, const std::uint8_t* bytes, std::size_t size,
                       millrace_image_header* header, millrace_call* call) {
  return guarded(call->error, call->error_size,
                 [&] { *header = static_cast<T*>(context)->header(bytes, size); });
}
template <class T>
void region(void* context, millrace_decode* request) {
  static_cast<T*>(context)->region(*request);
}
template <class T>
constexpr auto region_or_null() {
  if constexpr (requires(T & t, millrace_decode & d) { t.region(d); })
    return &region<T>;
  else
    return static_cast<void (*)(void*, millrace_decode*)>(nullptr);
}
template <class T>
millrace_status decode(void* context, const std::uint8_t* bytes, std::size_t size,
                       const millrace_decode* request, std::uint8_t* pixels, std::size_t row_bytes,
                       millrace_call* call) {
  return guarded(call->error, call->error_size, [&] {
    static_cast<T*>(context)->decode(bytes, size, *request, pixels, row_bytes);
  });
}

/// Makes no instance: a decoder's unit has no parameters.
inline millrace_status create_nothing(const millrace_create*, void** self) {
  static char nothing;
  *self = &nothing;
  return MILLRACE_OK;
}
inline void destroy_nothing(void*) {}

}  // namespace detail

/// A reader class, made by T(const Values&) with values.path() and values.split(). Its functions
/// run on many threads at once.
///   const millrace_dataset& dataset() const
///   millrace_bytes borrow(std::uint64_t index, Call& call) const
///   std::string name(std::uint64_t index) const
///   void release(millrace_bytes& bytes) const   if borrowed bytes must be returned
namespace detail {

template <class T>
millrace_status dataset(const void* self, millrace_dataset* dataset) {
  *dataset = at<T>(self).dataset();
  return MILLRACE_OK;
}
template <class T>
millrace_status borrow(const void* self, std::uint64_t index, millrace_bytes* bytes,
                       millrace_call* raw) {
  return guarded(raw->error, raw->error_size, [&] {
    Call call(raw);
    *bytes = at<T>(self).borrow(index, call);
  });
}
template <class T>
void release(const void* self, millrace_bytes* bytes) {
  at<T>(self).release(*bytes);
}
template <class T>
constexpr auto release_or_null() {
  if constexpr (requires(const T& t, millrace_bytes& b) { t.release(b); })
    return &release<T>;
  else
    return static_cast<void (*)(const void*, millrace_bytes*)>(nullptr);
}
template <class T>
void name(const void* self, std::uint64_t index, char* text, std::size_t size) {
  const std::string name = at<T>(self).name(index);
  const std::size_t n = name.size() < size ? name.size() : size - 1;
  std::memcpy(text, name.data(), n);
  text[n] = '\0';
}

/// The tables of one class, in static memory.
template <class T>
struct Tables {
  static constexpr millrace_geometric geometric() {
    if constexpr (Geometric<T>)
      return {sizeof(millrace_geometric), output_or_null<T>(), &warp<T>};
    else
      return {};
  }
  static constexpr millrace_pixel pixel() {
    Reach reach;
    if constexpr (requires { T::kReach; }) reach = T::kReach;
    if constexpr (SetsLevels<T>)
      return {sizeof(millrace_pixel),   reach.kind, reach.halo, nullptr, nullptr, &levels<T>,
              apply_floats_or_null<T>()};
    else if constexpr (AppliesInPlace<T>)
      return {sizeof(millrace_pixel),   reach.kind, reach.halo,
              scratch_or_null<T>(),     &apply<T>,  nullptr,
              apply_floats_or_null<T>()};
    else
      return {};
  }
  static constexpr millrace_filter filter() {
    if constexpr (Filters<T>)
      return {sizeof(millrace_filter), output_or_null<T>(), scratch_or_null<T>(),
              &detail::filter<T>};
    else
      return {};
  }
  static constexpr millrace_choice choice() {
    if constexpr (Chooses<T>)
      return {sizeof(millrace_choice), &choose<T>};
    else
      return {};
  }
  static constexpr millrace_batch batch() {
    if constexpr (Pairs<T>)
      return {sizeof(millrace_batch), &pair<T>, 2, nullptr, parts_or_null<T>()};
    else if constexpr (Mixes<T>)
      return {sizeof(millrace_batch), nullptr, group_of<T>(), &detail::mix<T>, parts_or_null<T>()};
    else if constexpr (HasParts<T>)
      return {sizeof(millrace_batch), nullptr, group_of<T>(), nullptr, &parts<T>};
    else
      return {};
  }
  static constexpr millrace_decoder decoder() {
    if constexpr (Decodes<T>)
      return {sizeof(millrace_decoder), &sniff<T>, &open<T>, &destroy<T>, &header<T>,
              region_or_null<T>(),      &decode<T>};
    else
      return {};
  }
  static constexpr millrace_reader reader() {
    if constexpr (Reads<T>)
      return {sizeof(millrace_reader), &dataset<T>, &borrow<T>, release_or_null<T>(),
              &detail::name<T>};
    else
      return {};
  }
  static constexpr millrace_geometric kGeometric = geometric();
  static constexpr millrace_pixel kPixel = pixel();
  static constexpr millrace_filter kFilter = filter();
  static constexpr millrace_choice kChoice = choice();
  static constexpr millrace_batch kBatch = batch();
  static constexpr millrace_decoder kDecoder = decoder();
  static constexpr millrace_reader kReader = reader();
};

template <class T>
constexpr millrace_unit make_unit() {
  static_assert(Geometric<T> || AppliesInPlace<T> || SetsLevels<T> || Filters<T> || Chooses<T> ||
                    Pairs<T> || Mixes<T> || HasParts<T> || Decodes<T> || Reads<T>,
                "a unit has one of the functions listed at the top of millrace.hpp");
  millrace_unit unit{};
  unit.struct_size = sizeof(millrace_unit);
  unit.name = T::kName;
  unit.help = T::kHelp;
  unit.random = is_random<T>() ? 1 : 0;
  unit.param_size = sizeof(millrace_param);
  if constexpr (requires { T::kParams; }) {
    unit.params = T::kParams;
    unit.param_count = std::size(T::kParams);
  }
  if constexpr (Decodes<T>) {
    unit.create = create_nothing;
    unit.destroy = destroy_nothing;
    unit.decoder = &Tables<T>::kDecoder;
  } else {
    unit.create = create<T>;
    unit.destroy = destroy<T>;
  }
  if constexpr (Geometric<T>) unit.geometric = &Tables<T>::kGeometric;
  if constexpr (AppliesInPlace<T> || SetsLevels<T>) unit.pixel = &Tables<T>::kPixel;
  if constexpr (Filters<T>) unit.filter = &Tables<T>::kFilter;
  if constexpr (Chooses<T>) unit.choice = &Tables<T>::kChoice;
  static_assert(!(Pairs<T> && Mixes<T>), "a batch unit has pair() or mix(), not both");
  if constexpr (Pairs<T> || Mixes<T> || HasParts<T>) unit.batch = &Tables<T>::kBatch;
  if constexpr (Reads<T>) unit.reader = &Tables<T>::kReader;
  return unit;
}

}  // namespace detail

}  // namespace plugin_v1
}  // namespace millrace
