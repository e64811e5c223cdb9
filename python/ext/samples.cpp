// Calls the functions of a feed, and copies what they return.
#include "python/ext/samples.h"

#include <fmt/format.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>
#include <sys/types.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <string_view>
#include <system_error>
#include <thread>
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
void copy_pixels(PyObject* copy, PyObject* data, Size size, int channels, Depth depth,
                 Buffer& scratch, Outcome& outcome) {
  constexpr std::size_t kHeader = pipeline::RawImage::kHeaderBytes;
  if (size.width > kMaxImageSide || size.height > kMaxImageSide) {
    outcome.failure =
        fmt::format("an array of {}x{} pixels\nsides of more than {} are not resampled", size.width,
                    size.height, kMaxImageSide);
    return;
  }
  if (channels > kMaxChannels) {
    outcome.failure =
        fmt::format("an array of {} channels\nat most {} are taken: choose some of them", channels,
                    kMaxChannels);
    return;
  }
  const std::size_t pixels = static_cast<std::size_t>(size.width) *
                             static_cast<std::size_t>(size.height) *
                             static_cast<std::size_t>(channels * bytes_of(depth));
  std::uint8_t* out = scratch.reserve(kHeader + pixels);
  pipeline::write_raw_header(out, size, channels, depth, /*pixel_sum=*/0);
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

/// Takes the parts of a sample: (bytes, 0, 0, 0, 0, label) if it is encoded, (path, -1, 0, 0, 0,
/// label), or (pixels, height, width, channels, bits, label).
void take(PyObject* parts, PyObject* copy, Buffer& scratch, Outcome& outcome) {
  PyObject* data = nullptr;
  Size size;
  int channels = 0, bits = 0;
  long long label = 0;
  if (PyArg_ParseTuple(parts, "OiiiiL", &data, &size.height, &size.width, &channels, &bits,
                       &label) == 0) {
    outcome.failure = failure_of_call();
    return;
  }
  outcome.label = label;
  if (size.height > 0)
    return copy_pixels(copy, data, size, channels, static_cast<Depth>(bits), scratch, outcome);
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

/// Returns the column of a pair of its name and its arrays. Call it with the GIL.
std::unique_ptr<ArrowColumn> make_column(ArrowColumn::Of of, const nb::object& pair) {
  return std::make_unique<ArrowColumn>(of, nb::cast<std::string>(pair[0]), nb::object(pair[1]));
}

/// Returns the row of the columns that holds a sample.
std::uint64_t row_of(const Samples& samples, std::uint64_t index) {
  return samples.rows == nullptr ? index : static_cast<std::uint64_t>(samples.rows->number(index));
}

/// Copies a row out of columns.
Outcome fetch_row(const ArrowColumn& images, const ArrowColumn* labels, std::uint64_t row,
                  Buffer& scratch) {
  const ArrowColumn::Stored stored = images.stored(row);
  Outcome outcome;
  if (labels != nullptr) outcome.label = labels->number(row);
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

/// Returns the columns of what a feed's group() returned. Throws UsageError for columns of other
/// types than images and whole numbers. Call it with the GIL.
RowGroups::Columns columns_of(nb::handle group) {
  const nb::object images = group[0], labels = group[1];
  return {make_column(ArrowColumn::Of::images, images),
          labels.is_none() ? nullptr : make_column(ArrowColumn::Of::numbers, labels)};
}

/// Has Python load a row group in place of others.
std::string load_group(const Samples& samples, std::size_t group,
                       const std::function<void()>& make_room, RowGroups::Columns& columns) {
  return call(samples,
              [&] {
                make_room();
                Outcome outcome;
                ask(samples.group, group, outcome, [&](PyObject* found) {
                  try {
                    columns = columns_of(found);
                  } catch (const UsageError& error) {
                    outcome.failure = fmt::format("{}\n{}", error.what(), error.hint());
                  } catch (nb::python_error& error) {
                    error.restore();
                    outcome.failure = failure_of_call();
                  }
                });
                if (has_interrupt()) throw DataError("interrupted");
                return outcome;
              })
      .failure;
}

/// Returns what loads row groups as long as `samples` is there.
RowGroups::Load loader_of(const Samples& samples) {
  return [&samples](std::size_t group, const std::function<void()>& make_room,
                    RowGroups::Columns& columns) {
    return load_group(samples, group, make_room, columns);
  };
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
      if (samples.images != nullptr)
        return fetch_row(*samples.images, samples.labels.get(), row_of(samples, index), scratch);
      if (samples.groups == nullptr)
        return call(samples, [&] { return fetch(samples, index, scratch); });
      Outcome copied;
      samples.groups->read(
          index, loader_of(samples), [&](const RowGroups::Columns& columns, std::uint64_t row) {
            copied = fetch_row(*columns.images, columns.labels.get(), row, scratch);
          });
      return copied;
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

  std::uint64_t lookahead() const override {
    const std::shared_ptr<Samples> samples = samples_.lock();
    return samples == nullptr || samples->groups == nullptr ? 0 : samples->groups->lookahead();
  }

  void expect(std::uint64_t index) const override {
    const std::shared_ptr<Samples> samples = samples_.lock();
    if (samples == nullptr || !samples->groups->expect(index)) return;
    // Nobody joins the thread, which needs the GIL that whoever ends this reader may hold.
    try {
      std::thread([samples] {
        samples->groups->load_ahead(loader_of(*samples),
                                    [&] { return samples.use_count() > 1 && !is_ending(); });
      }).detach();
    } catch (const std::system_error&) {  // readers load what they need
      samples->groups->load_ahead({}, [] { return false; });
    }
  }

  std::int64_t label(std::uint64_t index) const override {
    if (info_.classes.empty())
      throw UsageError(
          fmt::format("{}: what goes by class needs the number of classes", info_.path),
          "set model.classes=N");
    try {
      const Outcome outcome = ask([&](const Samples& samples) {
        Outcome found;
        if (samples.groups != nullptr) {
          samples.groups->read(index, loader_of(samples),
                               [&](const RowGroups::Columns& columns, std::uint64_t row) {
                                 if (columns.labels != nullptr)
                                   found.label = columns.labels->number(row);
                               });
          return found;
        }
        if (samples.images == nullptr)
          return call(samples, [&] { return fetch_label(samples, index); });
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
  return make_column(of, nb::object(columns[place]));
}

/// Returns the row groups of a feed, or null if it has none.
std::unique_ptr<RowGroups> groups_of(nb::handle feed) {
  const auto rows = nb::cast<std::vector<std::uint64_t>>(feed.attr("group_rows"));
  if (rows.empty()) return nullptr;
  columns_of(feed.attr("empty_group")());  // has the right types
  return std::make_unique<RowGroups>(rows);
}

}  // namespace

Samples::Samples(nb::handle feed)
    : title(nb::cast<std::string>(feed.attr("title"))),
      count(nb::cast<std::uint64_t>(feed.attr("count"))),
      classes(nb::cast<std::vector<std::string>>(feed.attr("classes"))),
      images(column_of(feed, 0, ArrowColumn::Of::images)),
      labels(column_of(feed, 1, ArrowColumn::Of::numbers)),
      rows(column_of(feed, 2, ArrowColumn::Of::numbers)),
      groups(groups_of(feed)),
      fetch(nb::object(feed.attr("fetch")).release().ptr()),
      copy(nb::object(feed.attr("copy")).release().ptr()),
      label(nb::object(feed.attr("label")).release().ptr()),
      group(nb::object(feed.attr("group")).release().ptr()) {}

Samples::~Samples() {
  const HeldGil gil;
  if (!gil) {
    for (auto* column : {&images, &labels, &rows}) static_cast<void>(column->release());
    if (groups != nullptr) groups->leak();
    return;
  }
  survive([this] {
    for (auto* column : {&images, &labels, &rows}) column->reset();
    if (groups != nullptr) groups->release();
    Py_DECREF(fetch);
    Py_DECREF(copy);
    Py_DECREF(label);
    Py_DECREF(group);
  });
}

std::unique_ptr<Reader> make_samples_reader(const std::shared_ptr<Samples>& samples,
                                            const DataOptions& options) {
  return std::make_unique<SamplesReader>(samples, options);
}

}  // namespace millrace::python
