// The plugin interface in C++. Write a class and list it in MILLRACE_PLUGIN; the header makes the
// tables of millrace.h from it. The functions of the class decide the kind of unit:
//
//   Warp warp(Size input[, Call&]) const                       geometric: maps positions, no pixels
//   void apply(Image image[, Call&]) const                     pixel: changes an image in place
//   void levels(Levels levels[, Call&]) const                  pixel: changes a table per channel
//   void apply(ConstImage from, Image to[, Call&]) const       filter: writes a new image
//   void choose(Chosen& chosen, Call&) const                   choice: draws children for a sample
//   void pair(const Pair& pair, Call&) const                   batch: changes two neighbours
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
//   static constexpr Reach kReach                              reach, if not pointwise (pixel)
//   std::size_t scratch(Size, int channels) const              bytes behind call.scratch()
//
// Report errors by throwing BadUse for parameters or images that do not fit, and BadData for
// damaged data. Member functions are const and run on many threads at once.
#pragma once

#include <cstring>
#include <exception>
#include <new>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include "millrace/math.hpp"
#include "millrace/millrace.h"

constexpr bool operator==(const millrace_size& a, const millrace_size& b) {
  return a.width == b.width && a.height == b.height;
}
constexpr bool operator==(const millrace_rect& a, const millrace_rect& b) {
  return a.x0 == b.x0 && a.y0 == b.y0 && a.x1 == b.x1 && a.y1 == b.y1;
}

namespace millrace {
// Version of the inline code, renamed whenever that code changes: a plugin must not get another
// version's functions from the host. (The CMake function for plugins hides them as well.)
inline namespace plugin_v1 {

/// Width and height in pixels.
using Size = millrace_size;
/// Half-open rectangle [x0, x1) x [y0, y1) in pixels.
using Rect = millrace_rect;
/// Writable 8-bit pixels, interleaved.
using Image = millrace_image;
/// Read-only 8-bit pixels, interleaved.
struct ConstImage {
  const std::uint8_t* data = nullptr;
  int width = 0, height = 0, channels = 0;
  std::ptrdiff_t row = 0;
};

/// How a level at a position between pixels is computed.
enum class Interpolation : std::int32_t {
  none = MILLRACE_INDEX,         ///< whole offsets, flips and right angles: levels stay exact
  nearest = MILLRACE_NEAREST,    ///< the pixel whose square holds the position
  bilinear = MILLRACE_BILINEAR,  ///< two taps per axis; more if Warp::antialias widens them
};
/// Levels outside the window.
enum class Border : std::int32_t {
  constant = MILLRACE_CONSTANT,    ///< Warp::fill
  clamp = MILLRACE_CLAMP,          ///< the nearest pixel inside
  reflect = MILLRACE_REFLECT,      ///< mirrored at the edge pixel's middle
  symmetric = MILLRACE_SYMMETRIC,  ///< mirrored at the image's edge
};

/// Maps each output pixel to a position in the input (millrace_warp).
struct Warp : millrace_warp {
  /// Returns the map that shows the whole input unchanged.
  static Warp identity(Size input) {
    return {{{1, 0, 0, 0, 1, 0, 0, 0, 1},
             input,
             {0, 0, input.width, input.height},
             {},
             MILLRACE_INDEX,
             MILLRACE_CONSTANT,
             0}};
  }
  /// Sets an affine map: u = a x + b y + c, v = d x + e y + f.
  void set_map(double a, double b, double c, double d, double e, double f) {
    const double all[] = {a, b, c, d, e, f, 0, 0, 1};
    for (int i = 0; i < 9; ++i) map[i] = all[i];
  }
  void set_interpolation(Interpolation i) { interpolation = static_cast<std::int32_t>(i); }
  void set_border(Border b) { border = static_cast<std::int32_t>(b); }
};

/// Thrown when the images or parameters do not fit; `hint` says what to do.
struct BadUse : std::runtime_error {
  explicit BadUse(const std::string& what, std::string todo = {})
      : std::runtime_error(what), hint(std::move(todo)) {}
  std::string hint;
};
/// Thrown for damaged or unsuitable data; `hint` says what to do.
struct BadData : std::runtime_error {
  explicit BadData(const std::string& what, std::string todo = {})
      : std::runtime_error(what), hint(std::move(todo)) {}
  std::string hint;
};

/// Random draws of one unit for one sample, in the order in which it asks. Every call advances the
/// stream.
class Draw {
 public:
  constexpr explicit Draw(const millrace_rng& rng) : rng_(rng) {}
  /// Returns 32 random bits.
  constexpr std::uint32_t bits() { return millrace_rng_bits(&rng_); }
  /// Returns a number uniform on [0, 1), a multiple of 2^-32.
  constexpr double uniform() { return bits() * 0x1p-32; }
  /// Returns a number uniform on [low, high).
  constexpr double uniform(double low, double high) { return low + (high - low) * uniform(); }
  /// Returns a whole number uniform on 0 .. count-1 (bias below count * 2^-32).
  constexpr std::uint32_t integer(std::uint32_t count) {
    return static_cast<std::uint32_t>((std::uint64_t{bits()} * count) >> 32);
  }
  /// Returns true with probability p.
  constexpr bool chance(double p) { return uniform() < p; }

 private:
  millrace_rng rng_;
};

/// One call on one sample: its random numbers and the host's services. Valid during the call.
class Call : public Draw {
 public:
  explicit Call(millrace_call* raw) : Draw(raw->rng), raw_(raw) {}
  /// Reports a drawn value by name; `inspect` prints it.
  void report(const char* name, double value) {
    if (raw_->report != nullptr) raw_->report(raw_, name, value);
  }
  /// Logs a line, if the host listens.
  void log(const char* line) {
    if (raw_->log != nullptr) raw_->log(raw_, line);
  }
  /// Returns whether the result is no longer needed.
  bool cancelled() const { return raw_->cancelled != nullptr && raw_->cancelled(raw_) != 0; }
  /// Returns the memory that the class's scratch() asked for: 64-byte aligned, contents undefined.
  template <class T = std::uint8_t>
  T* scratch() {
    return static_cast<T*>(raw_->scratch);
  }
  /// Readers: returns memory for a sample's bytes, or null if memory is short.
  std::uint8_t* memory(std::size_t size) { return raw_->memory(raw_, size); }

 private:
  millrace_call* raw_;
};

// ---- parameters
// ---------------------------------------------------------------------------------

using Parameter = millrace_param;
/// Returns the `lengths` of a list of a numbers, or of b, or of c.
constexpr std::uint32_t lengths(int a, int b = -1, int c = -1) {
  const auto bit = [](int n) { return n < 0 ? 0u : 1u << n; };
  return bit(a) | bit(b) | bit(c);
}
/// Declares a boolean parameter. In this and the following functions, `fallback` is the default as
/// written in a recipe.
constexpr Parameter boolean(const char* name, const char* fallback, const char* help) {
  return {name, help, MILLRACE_BOOLEAN, 0, fallback, 0, 1, nullptr};
}
constexpr Parameter integer(const char* name, const char* fallback, double min, double max,
                            const char* help) {
  return {name, help, MILLRACE_INTEGER, 0, fallback, min, max, nullptr};
}
constexpr Parameter number(const char* name, const char* fallback, double min, double max,
                           const char* help) {
  return {name, help, MILLRACE_NUMBER, 0, fallback, min, max, nullptr};
}
constexpr Parameter text(const char* name, const char* fallback, const char* help) {
  return {name, help, MILLRACE_TEXT, 0, fallback, 0, 0, nullptr};
}
/// Declares a choice; `choices` is written "nearest|bilinear".
constexpr Parameter choice(const char* name, const char* fallback, const char* choices,
                           const char* help) {
  return {name, help, MILLRACE_CHOICE, 0, fallback, 0, 0, choices};
}
constexpr Parameter numbers(const char* name, const char* fallback, std::uint32_t lengths,
                            double min, double max, const char* help) {
  return {name, help, MILLRACE_NUMBERS, lengths, fallback, min, max, nullptr};
}
constexpr Parameter integers(const char* name, const char* fallback, std::uint32_t lengths,
                             double min, double max, const char* help) {
  return {name, help, MILLRACE_INTEGERS, lengths, fallback, min, max, nullptr};
}
/// Declares `fill`, the 8-bit colour outside an image, as all geometric units do.
constexpr Parameter fill_param() {
  return integers("fill", "[0]", lengths(1, 3), 0, 255,
                  "level where nothing is: for all channels, or one a channel");
}

/// A view of a list of numbers.
struct Numbers {
  const double* at = nullptr;
  std::size_t count = 0;
  double operator[](std::size_t i) const { return at[i]; }
  std::size_t size() const { return count; }
  double front() const { return at[0]; }
  double back() const { return at[count - 1]; }
};

/// The parameter values of an instance, by declared name. The host has checked them. Valid during
/// construction; reading an undeclared name throws std::logic_error.
class Values {
 public:
  Values(const millrace_create& create, const Parameter* params)
      : create_(create), params_(params) {}
  bool boolean(std::string_view name) const { return of(name).integer != 0; }
  std::int64_t integer(std::string_view name) const { return of(name).integer; }
  double number(std::string_view name) const { return of(name).number; }
  const char* text(std::string_view name) const { return of(name).text; }
  Numbers numbers(std::string_view name) const { return {of(name).numbers, of(name).count}; }
  /// Writes the levels of fill_param(); a single level goes to every channel.
  void fill(std::uint8_t (&fill)[4]) const {
    const Numbers levels = numbers("fill");
    for (std::size_t c = 0; c < 4; ++c)
      fill[c] = static_cast<std::uint8_t>(levels.count == 1  ? levels[0]
                                          : c < levels.count ? levels[c]
                                                             : 0);
  }
  /// Returns the value of the choice `interpolation`: nearest or bilinear.
  Interpolation interpolation() const {
    return std::string_view(text("interpolation")) == "nearest" ? Interpolation::nearest
                                                                : Interpolation::bilinear;
  }
  /// Returns output.mean, one number or one per channel; 0 if there is no output.
  Numbers mean() const {
    static constexpr double kNone = 0;
    return create_.mean != nullptr ? Numbers{create_.mean, create_.mean_count} : Numbers{&kNone, 1};
  }
  /// Returns output.std, one number or one per channel; 1 if there is no output.
  Numbers std() const {
    static constexpr double kNone = 1;
    return create_.std != nullptr ? Numbers{create_.std, create_.std_count} : Numbers{&kNone, 1};
  }
  /// Readers: return data.path and data.split.
  const char* path() const { return create_.path; }
  const char* split() const { return create_.split; }

 private:
  const millrace_value& of(std::string_view name) const {
    for (std::size_t i = 0; i < create_.value_count; ++i)
      if (name == params_[i].name) return create_.values[i];
    throw std::logic_error("parameter '" + std::string(name) + "' is read but not declared");
  }
  const millrace_create& create_;
  const Parameter* params_;
};

/// Makes instances of other units for a choice.
class Children {
 public:
  explicit Children(const millrace_create& create) : create_(create) {}
  /// Makes an instance, written as in a recipe ("posterize{bits=4}"). Returns its index for
  /// Chosen::add(). Throws BadUse.
  std::uint32_t add(const std::string& unit) {
    const std::int32_t place = create_.child(&create_, unit.c_str());
    if (place < 0) throw BadUse(create_.error);
    return static_cast<std::uint32_t>(place);
  }

 private:
  const millrace_create& create_;
};

/// Collects the children to apply to a sample, in order.
class Chosen {
 public:
  explicit Chosen(std::uint32_t* places) : places_(places) {}
  /// Appends a child by its index. Throws BadUse beyond MILLRACE_MOST_CHOSEN.
  void add(std::uint32_t child) {
    if (count_ == MILLRACE_MOST_CHOSEN) throw BadUse("more children than a sample may get");
    places_[count_++] = child;
  }
  std::size_t count() const { return count_; }

 private:
  std::uint32_t* places_;
  std::size_t count_ = 0;
};

/// One table per channel, which holds 0..255 on entry.
struct Levels {
  std::uint8_t (*table)[256];
  int channels;
};

/// Two samples of a batch and the probabilities of their labels.
struct Pair {
  const millrace_sample& sample;
  void* first;
  void* second;
  float* first_labels;
  float* second_labels;
};

/// Other pixels that a pixel's result may depend on.
struct Reach {
  std::int32_t kind = MILLRACE_POINTWISE;
  std::int32_t halo = 0;
};

// ---- from a class to a table
// --------------------------------------------------------------------

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
  || Chooses<T> || Pairs<T>;
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
      return {sizeof(millrace_pixel), reach.kind, reach.halo, nullptr, nullptr, &levels<T>};
    else if constexpr (AppliesInPlace<T>)
      return {sizeof(millrace_pixel), reach.kind, reach.halo,
              scratch_or_null<T>(),   &apply<T>,  nullptr};
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
      return {sizeof(millrace_batch), &pair<T>};
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
                    Pairs<T> || Decodes<T> || Reads<T>,
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
  if constexpr (Pairs<T>) unit.batch = &Tables<T>::kBatch;
  if constexpr (Reads<T>) unit.reader = &Tables<T>::kReader;
  return unit;
}

}  // namespace detail

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
