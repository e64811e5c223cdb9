// Builds the figures of time and throughput.
#include "study/report/run_figures.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "study/analysis/wait_breakdown.h"
#include "study/records/run_files.h"

namespace millrace::study {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kMaxBars = 48;

/// Spans that belong to no step, or only to the first one.
constexpr pipeline::Span kBetween[] = {pipeline::Span::setup, pipeline::Span::first_batch,
                                       pipeline::Span::evaluate, pipeline::Span::checkpoint,
                                       pipeline::Span::teardown};

bool is_between(pipeline::Span span) {
  return std::find(std::begin(kBetween), std::end(kBetween), span) != std::end(kBetween);
}

std::int64_t in_steps(const StepSum& sum, auto wanted) {
  std::int64_t ns = 0;
  for (std::size_t i = 0; i < pipeline::kSpanCount; ++i)
    if (!is_between(static_cast<pipeline::Span>(i)) && wanted(static_cast<pipeline::Span>(i)))
      ns += sum.ns[i];
  return ns;
}

std::string left_out(const StepTable& steps) {
  std::string text;
  for (const pipeline::Span span : kBetween) {
    const auto ns = steps.all.ns[static_cast<std::size_t>(span)];
    if (ns > 0)
      text += fmt::format("{}{} {:.3f} s", text.empty() ? "" : ", ",
                          pipeline::kSpanNames[static_cast<std::size_t>(span)],
                          static_cast<double>(ns) * 1e-9);
  }
  return text.empty() ? "" : " Not included, because they belong to no step: " + text + ".";
}

Series over_steps(const char* name, const StepTable& steps, auto ns_of) {
  Series series{.name = name};
  for (const StepSum& sum : steps.reduced.sums()) {
    series.x.push_back(sum.middle());
    series.y.push_back(static_cast<double>(ns_of(sum)) * 1e-6 / static_cast<double>(sum.steps));
  }
  return series;
}

std::string epoch_name(const JsonLines& epochs, const Group& group) {
  const std::string first = text_at(epochs[group.begin], {"epoch"});
  const std::string last = text_at(epochs[group.end - 1], {"epoch"});
  return first == last ? first : first + "-" + last;
}

/// Returns the sum of `value` over the group's epochs; NaN counts as nothing.
double sum_over(const JsonLines& epochs, const Group& group, auto value) {
  double sum = 0;
  for (std::size_t i = group.begin; i < group.end; ++i) {
    const double one = value(epochs[i]);
    if (std::isfinite(one)) sum += one;
  }
  return sum;
}

Figure epoch_bars(const JsonLines& epochs, std::string id, std::string title, std::string caption) {
  Figure figure{.id = std::move(id),
                .title = std::move(title),
                .caption = std::move(caption),
                .kind = FigureKind::stacked_bar,
                .x_label = "epoch",
                .y_label = "seconds"};
  for (const Group& group : groups_of(epochs.size(), kMaxBars))
    figure.categories.push_back(epoch_name(epochs, group));
  if (figure.categories.size() < epochs.size())
    figure.caption += " Each bar adds up neighbouring epochs.";
  return figure;
}

void add_bars(Figure& figure, const JsonLines& epochs, const std::string& name, auto value) {
  Series series{.name = name};
  for (const Group& group : groups_of(epochs.size(), kMaxBars))
    series.y.push_back(sum_over(epochs, group, value));
  figure.series.push_back(std::move(series));
}

}  // namespace

std::vector<Group> groups_of(std::size_t count, std::size_t most) {
  std::vector<Group> groups;
  const std::size_t width = (count + most - 1) / std::max<std::size_t>(1, most);
  for (std::size_t at = 0; at < count; at += width)
    groups.push_back({at, std::min(count, at + width)});
  return groups;
}

std::vector<Figure> shown(Figure figure) {
  std::erase_if(figure.series, [](const Series& series) {
    return std::none_of(series.y.begin(), series.y.end(),
                        [](double y) { return std::isfinite(y) && y != 0; });
  });
  if (figure.series.empty()) return {};
  return {std::move(figure)};
}

std::vector<Figure> step_figures(const StepTable& steps) {
  if (steps.all.steps == 0) return {};
  const std::uint64_t width = steps.reduced.width();
  const std::string points =
      width > 1 ? fmt::format("Each point is the mean of {} steps.", width) : "One point per step.";
  Figure kinds{.id = "step-time",
               .title = "Step time",
               .caption = points + left_out(steps),
               .kind = FigureKind::stacked_area,
               .x_label = "step",
               .y_label = "ms a step"};
  kinds.series = {
      over_steps("load", steps,
                 [](const StepSum& sum) {
                   return in_steps(sum, [](pipeline::Span s) { return pipeline::is_load(s); });
                 }),
      over_steps("update", steps,
                 [](const StepSum& sum) {
                   return in_steps(sum, [](pipeline::Span s) { return pipeline::is_update(s); });
                 }),
      over_steps("other", steps, [](const StepSum& sum) {
        return in_steps(
            sum, [](pipeline::Span s) { return !pipeline::is_load(s) && !pipeline::is_update(s); });
      })};
  Figure spans{.id = "step-spans",
               .title = "Step time by spans",
               .caption = points,
               .kind = FigureKind::stacked_area,
               .x_label = "step",
               .y_label = "ms a step"};
  for (std::size_t i = 0; i < pipeline::kSpanCount; ++i)
    if (!is_between(static_cast<pipeline::Span>(i)))
      spans.series.push_back(over_steps(std::string(pipeline::kSpanNames[i]).c_str(), steps,
                                        [i](const StepSum& sum) { return sum.ns[i]; }));
  std::vector<Figure> all = shown(std::move(kinds));
  for (Figure& figure : shown(std::move(spans)))
    if (figure.series.size() > 3) all.push_back(std::move(figure));
  return all;
}

std::vector<Figure> epoch_figure(const JsonLines& epochs) {
  Figure figure =
      epoch_bars(epochs, "epoch-time", "Epoch time",
                 "From the end of the previous epoch to its own end; set-up belongs to the "
                 "first.");
  add_bars(figure, epochs, "load", [](const Json& e) { return number_at(e, {"load_s"}); });
  add_bars(figure, epochs, "update", [](const Json& e) { return number_at(e, {"update_s"}); });
  for (const pipeline::Span span : {pipeline::Span::evaluate, pipeline::Span::checkpoint,
                                    pipeline::Span::log, pipeline::Span::setup}) {
    const std::string name(pipeline::kSpanNames[static_cast<std::size_t>(span)]);
    add_bars(figure, epochs, name, [&name](const Json& e) {
      return number_at(e, {"spans", name.c_str()});
    });
  }
  return shown(std::move(figure));
}

std::vector<Figure> blame_figure(const JsonLines& epochs) {
  Figure figure = epoch_bars(epochs, "blame", "Wait breakdown",
                             "Load, split by what the trainer was waiting for.");
  for (const std::string_view part : kPartNames) {
    const std::string name(part);
    add_bars(figure, epochs, name, [&name](const Json& e) {
      return number_at(e, {"blame", name.c_str()});
    });
  }
  return shown(std::move(figure));
}

std::vector<Figure> blame_step_figure(const Json& summary) {
  Figure figure{.id = "blame-step",
                .title = "Wait per step",
                .caption = "50, 90 and 99 of 100 steps waited no longer than this.",
                .kind = FigureKind::bar,
                .x_label = "part of load",
                .y_label = "ms"};
  std::vector<std::string> names{"load"};
  names.insert(names.end(), kPartNames.begin(), kPartNames.end());
  for (const char* quantile : {"p50", "p90", "p99"}) figure.series.push_back({.name = quantile});
  for (const std::string& name : names) {
    if (!(number_at(summary, {"blame_step", name.c_str(), "p99"}) > 0)) continue;
    figure.categories.push_back(name);
    for (Series& series : figure.series)
      series.y.push_back(1e3 *
                         number_at(summary, {"blame_step", name.c_str(), series.name.c_str()}));
  }
  if (figure.categories.empty()) return {};
  return {std::move(figure)};
}

std::vector<Figure> throughput_figure(const JsonLines& epochs, const StepTable& steps) {
  Figure figure{.id = "throughput",
                .title = "Images per second",
                .caption = "While training: images over load + update.",
                .kind = FigureKind::line,
                .x_label = epochs.size() >= 2 ? "epoch" : "step",
                .y_label = "images/s"};
  Series series{.name = "images/s"};
  if (epochs.size() >= 2) {
    for (const Json& epoch : epochs) {
      series.x.push_back(number_at(epoch, {"epoch"}));
      series.y.push_back(number_at(epoch, {"images_per_s"}));
    }
  } else {
    for (const StepSum& sum : steps.reduced.sums()) {
      const std::int64_t ns = sum.load_ns() + sum.update_ns();
      series.x.push_back(sum.middle());
      series.y.push_back(ns > 0 ? static_cast<double>(sum.images) / (1e-9 * static_cast<double>(ns))
                                : NAN);
    }
  }
  figure.series.push_back(std::move(series));
  return shown(std::move(figure));
}

}  // namespace millrace::study
