#include "measure/trace_events.h"

#include <cstdio>
#include <utility>

namespace millrace::measure {

TraceEvents::TraceEvents(std::int64_t origin_ns, std::uint64_t left_out) : origin_ns_(origin_ns) {
  text_ = R"({"displayTimeUnit":"ms","otherData":{"left_out_records":)" + std::to_string(left_out) +
          R"(},"traceEvents":[)";
}

void TraceEvents::begin(std::string_view name, char phase, Track track) {
  text_.append(first_ ? "\n" : ",\n").append(R"({"name":")").append(name);
  first_ = false;
  char rest[80];
  text_.append(rest, static_cast<std::size_t>(std::snprintf(rest, sizeof rest,
                                                            R"(","ph":"%c","pid":%d,"tid":%d)",
                                                            phase, track.process, track.thread)));
}

void TraceEvents::add_us(const char* key, std::int64_t ns) {
  const auto length = static_cast<unsigned long long>(ns < 0 ? -ns : ns);
  char text[48];
  text_.append(text, static_cast<std::size_t>(
                         std::snprintf(text, sizeof text, R"(,"%s":%s%llu.%03llu)", key,
                                       ns < 0 ? "-" : "", length / 1000, length % 1000)));
}

void TraceEvents::end(std::string_view key, std::string_view value) {
  if (!value.empty()) text_.append(R"(,"args":{)").append(key).append(value).append("}");
  text_ += '}';
}

void TraceEvents::name_process(int process, std::string_view name) {
  begin("process_name", 'M', {process, 0});
  end(R"("name":)", name);
}

void TraceEvents::name_track(Track track, std::string_view name) {
  begin("thread_name", 'M', track);
  end(R"("name":)", name);
  begin("thread_sort_index", 'M', track);
  end(R"("sort_index":)", std::to_string(track.thread));
}

void TraceEvents::slice(Track track, std::string_view name, std::int64_t begins, std::int64_t ends,
                        std::string_view arguments) {
  begin(name, 'X', track);
  add_us("ts", begins - origin_ns_);
  add_us("dur", ends - begins);
  end("", arguments);
}

void TraceEvents::arrow(Track from, std::int64_t start, Track to, std::int64_t arrival) {
  const std::string flow = R"(,"cat":"flow","id":)" + std::to_string(++arrows_);
  begin("batch", 's', from);
  text_ += flow;
  add_us("ts", start - origin_ns_);
  end("", "");
  begin("batch", 'f', to);
  text_ += flow;
  text_ += R"(,"bp":"e")";
  add_us("ts", arrival - origin_ns_);
  end("", "");
}

void TraceEvents::overlapping(Track track, std::string_view category, std::string_view name,
                              std::uint64_t id, std::int64_t begins, std::int64_t ends,
                              std::string_view arguments) {
  for (const char phase : {'b', 'e'}) {
    begin(name, phase, track);
    text_.append(R"(,"cat":")").append(category).append(R"(","id":)").append(std::to_string(id));
    add_us("ts", (phase == 'b' ? begins : ends) - origin_ns_);
    end("", phase == 'b' ? arguments : "");
  }
}

void TraceEvents::finish() { text_ += "\n]}\n"; }

std::string TraceEvents::take() { return std::exchange(text_, {}); }

}  // namespace millrace::measure
