// Calls the functions of a feed, and copies what they return.
#include "python/ext/samples.h"

#include <fmt/format.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>
#include <sys/types.h>

#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>

#include "base/located_sample.h"
#include "base/open_file.h"
#include "millrace/buffer.h"
#include "millrace/error.h"
#include "millrace/limits.h"
#include "pipeline/decoders/raw_image.h"
#include "pipeline/readers/data_set.h"
#include "python/ext/gil.h"
#include "python/ext/kept_interrupt.h"
#include "python/ext/memory_view.h"

namespace nb = nanobind;

namespace millrace::python {
namespace {

/// A call's outcome. Holds no reference: see survive().
struct Outcome {
  std::string failure;  ///< "what\nhint"; empty: none
  std::int64_t label = 0;
  std::size_t bytes = 0;  ///< in the scratch buffer
  std::string path;       ///< of the file that holds the sample, in place of bytes
};

/// Returns the failure of a call that raised an exception, which is kept for the thread that waits
/// if it is Ctrl-C.
std::string failure_of_call() {
  if (keep_interrupt()) return "interrupted";
  PyErr_Clear();  // memory is short, or the interpreter is ending
  return "the source cannot be called";
}

/// Returns the text of a `str`.
std::string text_of(PyObject* text) {
  Py_ssize_t size = 0;
  const char* utf8 = PyUnicode_AsUTF8AndSize(text, &size);
  if (utf8 == nullptr) return failure_of_call();
  return {utf8, static_cast<std::size_t>(size)};
}

/// Copies the pixels of `data`, bytes or an array, behind the header of a raw image.
void copy_pixels(PyObject* copy, PyObject* data, Size size, int channels, Buffer& scratch,
                 Outcome& outcome) {
  constexpr std::size_t kHeader = pipeline::RawImage::kHeaderBytes;
  if (size.width > kMaxImageSide || size.height > kMaxImageSide) {
    outcome.failure =
        fmt::format("an array of {}x{} pixels\nsides of more than {} are not resampled", size.width,
                    size.height, kMaxImageSide);
    return;
  }
  const std::size_t pixels = static_cast<std::size_t>(size.width) *
                             static_cast<std::size_t>(size.height) *
                             static_cast<std::size_t>(channels);
  std::uint8_t* out = scratch.reserve(kHeader + pixels);
  pipeline::write_raw_header(out, size, channels, /*pixel_sum=*/0);
  outcome.bytes = kHeader + pixels;
  char* bytes = nullptr;
  Py_ssize_t length = 0;
  if (PyBytes_Check(data) != 0) {
    PyBytes_AsStringAndSize(data, &bytes, &length);
    std::memcpy(out + kHeader, bytes, std::min(pixels, static_cast<std::size_t>(length)));
    return;
  }
  PyObject* memory = memory_view(out + kHeader, pixels);
  PyObject* done =
      memory == nullptr ? nullptr : PyObject_CallFunctionObjArgs(copy, memory, data, nullptr);
  if (done == nullptr) outcome.failure = failure_of_call();
  Py_XDECREF(done);
  Py_XDECREF(memory);
}

/// Takes the parts of a sample: (bytes, 0, 0, 0, label) if it is encoded, (path, -1, 0, 0, label),
/// or (pixels, height, width, channels, label).
void take(PyObject* parts, PyObject* copy, Buffer& scratch, Outcome& outcome) {
  PyObject* data = nullptr;
  Size size;
  int channels = 0;
  long long label = 0;
  if (PyArg_ParseTuple(parts, "OiiiL", &data, &size.height, &size.width, &channels, &label) == 0) {
    outcome.failure = failure_of_call();
    return;
  }
  outcome.label = label;
  if (size.height > 0) return copy_pixels(copy, data, size, channels, scratch, outcome);
  char* bytes = nullptr;
  Py_ssize_t length = 0;
  if (PyBytes_AsStringAndSize(data, &bytes, &length) != 0) {
    outcome.failure = failure_of_call();
    return;
  }
  if (size.height < 0) {
    outcome.path.assign(bytes, static_cast<std::size_t>(length));
    return;
  }
  outcome.bytes = static_cast<std::size_t>(length);
  std::uint8_t* out = scratch.reserve(outcome.bytes);
  if (length > 0) std::memcpy(out, bytes, outcome.bytes);
}

/// Calls a function of the feed's. `take` reads what it returns, unless that is why there is
/// nothing.
template <typename Take>
void ask(PyObject* function, std::uint64_t index, Outcome& outcome, const Take& take) {
  PyObject* found = PyObject_CallFunction(function, "K", static_cast<unsigned long long>(index));
  if (found == nullptr)
    outcome.failure = failure_of_call();
  else if (PyUnicode_Check(found) != 0)
    outcome.failure = text_of(found);
  else
    take(found);
  Py_XDECREF(found);
}

/// Has Python fetch a sample.
Outcome fetch(const Samples& samples, std::uint64_t index, Buffer& scratch) {
  Outcome outcome;
  ask(samples.fetch, index, outcome,
      [&](PyObject* parts) { take(parts, samples.copy, scratch, outcome); });
  return outcome;
}

/// Has Python fetch a label.
Outcome fetch_label(const Samples& samples, std::uint64_t index) {
  Outcome outcome;
  ask(samples.label, index, outcome,
      [&](PyObject* label) { outcome.label = PyLong_AsLongLong(label); });
  return outcome;
}

/// Returns the row of the columns that holds a sample.
std::uint64_t row_of(const Samples& samples, std::uint64_t index) {
  return samples.rows == nullptr ? index : static_cast<std::uint64_t>(samples.rows->number(index));
}

/// Copies a sample out of its columns.
Outcome fetch_row(const Samples& samples, std::uint64_t index, Buffer& scratch) {
  const std::uint64_t row = row_of(samples, index);
  const ArrowColumn::Stored stored = samples.images->stored(row);
  Outcome outcome;
  if (samples.labels != nullptr) outcome.label = samples.labels->number(row);
  if (stored.bytes) {
    outcome.bytes = stored.bytes->size();
    std::uint8_t* out = scratch.reserve(outcome.bytes);
    if (outcome.bytes > 0) std::memcpy(out, stored.bytes->data(), outcome.bytes);
  } else if (stored.path) {
    outcome.path.assign(stored.path->begin(), stored.path->end());
  } else {
    outcome.failure = "the image is null";
  }
  return outcome;
}

/// Calls a function of the feed in its turn.
template <class Call>
Outcome call(const Samples& samples, const Call& function) {
  if (has_interrupt()) throw DataError("interrupted");  // the batch is given up
  const std::lock_guard turn(samples.turn);
  const HeldGil gil;
  if (!gil) throw RunError("the interpreter is ending");
  return survive(function);
}

class SamplesReader final : public Reader {
 public:
  SamplesReader(const std::shared_ptr<Samples>& samples, const DataOptions& options)
      : samples_(samples) {
    info_.reader = kSamplesReader;
    info_.path = samples->title;
    info_.split = options.split;
    info_.count = samples->count;
    info_.classes = samples->classes;
    info_.encoded = true;
    const auto known = info_.classes.size();
    const auto wanted = static_cast<std::size_t>(options.classes);
    if (wanted > 0 && known > wanted)
      throw DataError(
          fmt::format("{}: {} classes, but labels must lie below {}", info_.path, known, wanted),
          fmt::format("set model.classes={}, or leave it out", known));
    for (std::size_t i = known; i < wanted; ++i) info_.classes.push_back(std::to_string(i));
    pipeline::Fingerprint fingerprint;
    fingerprint.add(std::string_view(kSamplesReader));
    fingerprint.add(info_.count);
    for (const std::string& name : info_.classes) fingerprint.add(std::string_view(name));
    info_.fingerprint = fingerprint.value();
  }

  Sample read(std::uint64_t index, Buffer& scratch) const override {
    const Outcome outcome = ask([&](const Samples& samples) {
      return samples.images != nullptr
                 ? fetch_row(samples, index, scratch)
                 : call(samples, [&] { return fetch(samples, index, scratch); });
    });
    check_label(outcome.label);
    if (outcome.path.empty()) return {{scratch.data(), outcome.bytes}, outcome.label};
    Location location;
    if (!base::set_path(location, outcome.path))
      throw DataError("the path is too long", "move the file to a shorter path");
    const base::OpenFile file = base::open_regular(outcome.path);
    location.size = file.size;
    location.whole_file = true;
    location.label = outcome.label;
    return base::read_located(location, file.descriptor.get(), scratch);
  }

  std::int64_t label(std::uint64_t index) const override {
    if (info_.classes.empty())
      throw UsageError(
          fmt::format("{}: what goes by class needs the number of classes", info_.path),
          "set model.classes=N");
    try {
      const Outcome outcome = ask([&](const Samples& samples) {
        if (samples.images == nullptr)
          return call(samples, [&] { return fetch_label(samples, index); });
        Outcome found;
        if (samples.labels != nullptr) found.label = samples.labels->number(row_of(samples, index));
        return found;
      });
      check_label(outcome.label);
      return outcome.label;
    } catch (const DataError& error) {  // no loader adds the name
      throw DataError(name(index) + ": " + error.what(), error.hint());
    }
  }

  std::string name(std::uint64_t index) const override {
    return fmt::format("sample {} of {}", index, info_.path);
  }

 private:
  /// Calls a function with the samples. Throws DataError if it fails.
  template <class Ask>
  Outcome ask(const Ask& function) const {
    const std::shared_ptr<Samples> samples = samples_.lock();
    if (samples == nullptr) throw RunError("the loader of these samples is gone");
    const Outcome outcome = function(*samples);
    if (outcome.failure.empty()) return outcome;
    const std::size_t end = outcome.failure.find('\n');
    throw DataError(outcome.failure.substr(0, end),
                    end == std::string::npos ? "" : outcome.failure.substr(end + 1));
  }

  void check_label(std::int64_t label) const {
    if (label >= 0 &&
        (info_.classes.empty() || label < static_cast<std::int64_t>(info_.classes.size())))
      return;
    throw DataError(info_.classes.empty()
                        ? fmt::format("label {}", label)
                        : fmt::format("label {} of {} classes", label, info_.classes.size()),
                    "labels count classes from 0; model.classes sets their number");
  }

  std::weak_ptr<Samples> samples_;
};

/// Returns column `place` of a feed's, or null if it has none.
std::unique_ptr<ArrowColumn> column_of(nb::handle feed, int place, ArrowColumn::Of of) {
  const nb::object columns = feed.attr("columns");
  if (columns.is_none() || columns[place].is_none()) return nullptr;
  const nb::object pair = columns[place];
  return std::make_unique<ArrowColumn>(of, nb::cast<std::string>(pair[0]), nb::object(pair[1]));
}

}  // namespace

Samples::Samples(nb::handle feed)
    : title(nb::cast<std::string>(feed.attr("title"))),
      count(nb::cast<std::uint64_t>(feed.attr("count"))),
      classes(nb::cast<std::vector<std::string>>(feed.attr("classes"))),
      images(column_of(feed, 0, ArrowColumn::Of::images)),
      labels(column_of(feed, 1, ArrowColumn::Of::numbers)),
      rows(column_of(feed, 2, ArrowColumn::Of::numbers)),
      fetch(nb::object(feed.attr("fetch")).release().ptr()),
      copy(nb::object(feed.attr("copy")).release().ptr()),
      label(nb::object(feed.attr("label")).release().ptr()) {}

Samples::~Samples() {
  const HeldGil gil;
  if (!gil) {
    for (auto* column : {&images, &labels, &rows}) static_cast<void>(column->release());
    return;
  }
  survive([this] {
    for (auto* column : {&images, &labels, &rows}) column->reset();
    Py_DECREF(fetch);
    Py_DECREF(copy);
    Py_DECREF(label);
  });
}

std::unique_ptr<Reader> make_samples_reader(const std::shared_ptr<Samples>& samples,
                                            const DataOptions& options) {
  return std::make_unique<SamplesReader>(samples, options);
}

}  // namespace millrace::python
