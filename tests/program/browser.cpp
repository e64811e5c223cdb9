// Runs a headless browser on a report and reads its answers.
#include "tests/program/browser.h"

#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>

namespace millrace::program_test {
namespace {

namespace fs = std::filesystem;

constexpr const char* kProbe = R"(<script>
const probe = {errors: [], requests: 0, charts: [], rows: 0, planted: false, titles: [], broken: [], runs: null};
const say = text => probe.errors.push(String(text).replace(/[<>&]/g, '?'));
addEventListener('error', event => say(event.message || 'not loaded: ' + event.target.outerHTML), true);
addEventListener('unhandledrejection', event => say(event.reason));
addEventListener('securitypolicyviolation', event => say('policy: ' + event.blockedURI));
for (const kind of ['error', 'warn']) console[kind] = (...words) => say(words.join(' '));
// Words of headings whose parts stand on different lines.
function brokenWords() {
  const broken = [];
  for (const heading of document.querySelectorAll('h1, h2, h3, th')) {
    const texts = document.createTreeWalker(heading, NodeFilter.SHOW_TEXT);
    for (let node; (node = texts.nextNode());) {
      for (const word of node.textContent.matchAll(/[\p{L}\p{N}]+/gu)) {
        const range = document.createRange();
        range.setStart(node, word.index);
        range.setEnd(node, word.index + word[0].length);
        if (new Set([...range.getClientRects()].map(box => Math.round(box.top))).size > 1) broken.push(word[0]);
      }
    }
  }
  return broken;
}
// Labels of a chart that lie beyond its edges or over each other, with where they stand.
function badLabels(chart) {
  const bad = [];
  const measure = (text, font) => {
    chart.ctx.save();
    chart.ctx.font = font.string;
    const width = chart.ctx.measureText(text).width;
    chart.ctx.restore();
    return width;
  };
  const judge = (boxes, where) => {
    boxes.forEach((box, i) => {
      if (box.left < -1 || box.top < -1 || box.right > chart.width + 1 || box.bottom > chart.height + 1)
        bad.push(where + ' cut: ' + box.text);
      for (const other of boxes.slice(i + 1))
        if (box.left < other.right - 1 && other.left < box.right - 1 && box.top < other.bottom - 1 && other.top < box.bottom - 1)
          bad.push(where + ' overlapped: ' + box.text + ' and ' + other.text);
    });
  };
  const shown = [];
  for (const scale of Object.values(chart.scales)) {
    const boxes = (scale._labelItems ?? []).map(item => {
      const lines = [item.label].flat().map(String);
      const width = Math.max(...lines.map(line => measure(line, item.font)));
      const [x, y] = item.translation;
      const left = item.textAlign === 'right' ? x - width : item.textAlign === 'center' ? x - width / 2 : x;
      const top = y + item.textOffset - item.font.lineHeight / 2;
      if (item.rotation) bad.push(scale.id + ' turned: ' + lines.join(' '));
      return {text: lines.join('|'), left, right: left + width, top, bottom: top + lines.length * item.font.lineHeight};
    }).filter(box => box.text !== '');
    judge(boxes, scale.id);
    shown.push(...boxes.map(box => box.text));
    const title = scale.options.title;
    if (!title.display) {
      if (scale.options.type !== 'linear' || !chart.data.datasets.some(set => set.shares)) bad.push(scale.id + ' has no title');
      continue;
    }
    const room = scale.isHorizontal() ? scale.right - scale.left : scale.bottom - scale.top;
    if (measure(title.text, Chart.helpers.toFont(title.font)) > room) bad.push(scale.id + ' title squeezed: ' + title.text);
  }
  if (chart.options.plugins.legend.display)
    judge(chart.legend.legendHitBoxes.map((box, i) => ({text: chart.legend.legendItems[i].text, left: box.left,
      right: box.left + box.width, top: box.top, bottom: box.top + box.height})), 'legend');
  if (chart.options.plugins.legend.display && chart.legend.legendHitBoxes.some(box => box.top + box.height > chart.chartArea.top + 1))
    bad.push('the legend lies over the chart');
  if (chart.chartArea.right - chart.chartArea.left < 0.3 * chart.width) bad.push('labels leave no room for the chart');
  return {bad, shown};
}
const labels = () => [...document.querySelectorAll('canvas')].map(canvas => Chart.getChart(canvas))
  .map(chart => chart ? chart.data.datasets.map(set => set.label) : []);
// Uses the table of runs as a reader would: searches, then leaves out the first run.
function useRuns() {
  const visible = () => document.querySelectorAll('table.runs tbody tr:not([hidden])').length;
  const search = document.querySelector('.filters input[type=search]');
  const runs = {rows: visible(), before: labels(), tables: document.querySelectorAll('table.runs').length};
  // The cells in view where the first table is scrolled to its last column.
  const scroll = document.querySelector('table.runs').parentElement;
  scroll.scrollLeft = scroll.scrollWidth;
  const edge = scroll.getBoundingClientRect();
  runs.scrolled = scroll.scrollLeft;
  runs.stuck = [...document.querySelector('table.runs').tHead.rows[0].cells]
    .filter(cell => cell.classList.contains('stuck')).map(cell => cell.textContent);
  runs.inView = [...document.querySelectorAll('table.runs')[0].tBodies[0].rows[0].cells].filter(cell => {
    const box = cell.getBoundingClientRect();
    return cell.classList.contains('stuck') && box.left >= edge.left - 1 && box.right <= edge.right + 1;
  }).length;
  scroll.scrollLeft = 0;
  search.value = document.querySelector('table.runs tbody td').textContent.trim();
  search.dispatchEvent(new Event('input', {bubbles: true}));
  runs.found = visible();
  search.value = '';
  search.dispatchEvent(new Event('input', {bubbles: true}));
  runs.again = visible();
  document.querySelector('table.runs input[type=checkbox]').click();
  runs.after = labels();
  document.querySelector('table.runs input[type=checkbox]').click();
  return runs;
}
addEventListener('load', () => {
  for (const details of document.querySelectorAll('details')) details.open = true;
  setTimeout(() => {
    for (const canvas of document.querySelectorAll('canvas')) {
      const chart = Chart.getChart(canvas);
      if (!chart) continue; // no chosen run has the figure
      const wanted = chart.data.datasets.filter(set => !set.borderDash || !set.borderDash.length)
        .flatMap(set => [set.backgroundColor, set.borderColor].flat()).filter(text => text.startsWith('#'))
        .map(text => [1, 3, 5].map(at => parseInt(text.slice(at, at + 2), 16)));
      const pixels = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
      let coloured = 0;
      for (let i = 0; i < pixels.length; i += 4) {
        if (pixels[i + 3] > 128 && wanted.some(colour =>
          colour.every((part, at) => Math.abs(part - pixels[i + at]) < 6) && colour.some(part => part < 250))) ++coloured;
      }
      const {bad, shown} = badLabels(chart);
      probe.charts.push({id: canvas.id, coloured, bad, shown, labels: chart.data.datasets.map(set => set.label),
        types: chart.data.datasets.map(set => set.type || chart.config.type),
        width: canvas.clientWidth, inside: canvas.getBoundingClientRect().right <= innerWidth});
    }
    probe.pictures = [...document.images].map(image =>
      ({loaded: image.naturalWidth > 0, inside: image.getBoundingClientRect().right <= innerWidth}));
    probe.rows = document.querySelectorAll('details tr').length;
    probe.requests = performance.getEntriesByType('resource').filter(e => !e.name.startsWith('data:')).length;
    probe.titles = [...document.querySelectorAll('h3')].map(title => title.textContent);
    probe.broken = brokenWords();
    probe.width = document.documentElement.clientWidth;
    probe.overflow = document.documentElement.scrollWidth - document.documentElement.clientWidth;
    probe.paper = getComputedStyle(document.body).backgroundColor;
    if (document.querySelector('table.runs')) probe.runs = useRuns();
    probe.planted = 'planted' in window;
    const answer = document.createElement('pre');
    answer.textContent = 'PROBE' + JSON.stringify(probe) + 'EBORP';
    document.body.append(answer);
  }, 300);
});
</script>
)";

std::string output_of(const std::string& command) {
  std::string out;
  FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return out;
  char block[65536];
  for (std::size_t got; (got = fread(block, 1, sizeof block, pipe)) > 0;) out.append(block, got);
  pclose(pipe);
  return out;
}

}  // namespace

std::string find_browser() {
  const char* path = std::getenv("PATH");
  std::istringstream folders(path == nullptr ? "/usr/bin" : path);
  std::vector<fs::path> all;
  for (std::string folder; std::getline(folders, folder, ':');) all.emplace_back(folder);
  for (const char* name : {"chromium-headless-shell", "chromium", "chromium-browser",
                           "google-chrome", "google-chrome-stable"})
    for (const fs::path& folder : all) {
      std::error_code missing;
      if (fs::exists(folder / name, missing)) return (folder / name).string();
    }
  return "";
}

namespace {

Json look_once(const fs::path& page, const Display& display) {
  const fs::path folder = page.parent_path() / (page.stem().string() + "-browser");
  fs::create_directories(folder);
  std::string html = read_file(page);
  const std::string head = "<meta charset=\"utf-8\">\n";
  const std::size_t at = html.find(head);
  if (at == std::string::npos) {
    ADD_FAILURE() << page << " has no head";
    return nullptr;
  }
  html.insert(at + head.size(), kProbe);
  write_file(folder / "page.html", html);
  // Root needs --no-sandbox. Virtual time ends when nothing is left to do, at the latest after 20
  // s.
  const std::string command =
      "HOME='" + folder.string() + "' timeout -k 1 40 '" + find_browser() +
      "' --headless --no-sandbox --disable-gpu --hide-scrollbars --disable-extensions "
      "--no-first-run"
      " --user-data-dir='" +
      (folder / "profile").string() +
      fmt::format("' --window-size={},900 --blink-settings=preferredColorScheme={}", display.width,
                  display.dark ? 0 : 1) +
      " --virtual-time-budget=20000 --dump-dom 'file://" + (folder / "page.html").string() +
      "' 2>'" + (folder / "log").string() + "'";
  const std::string dom = output_of(command);
  const std::size_t begin = dom.rfind("PROBE{");
  const std::size_t end = dom.rfind("}EBORP");
  if (begin == std::string::npos || end == std::string::npos || end < begin) {
    ADD_FAILURE() << "the browser gave no answer:\n" << read_file(folder / "log");
    return nullptr;
  }
  return parse_json(dom.substr(begin + 5, end + 1 - begin - 5));
}

}  // namespace

Json look_at(const fs::path& page, const Display& display) {
  const auto all_drawn = [](const Json& seen) {
    if (seen.is_object())
      for (const Json& chart : seen["charts"])
        if (chart["coloured"] == 0) return false;
    return true;
  };
  // On a busy machine a browser may answer before it has painted; charts that stay empty are empty.
  Json seen = look_once(page, display);
  for (int again = 0; again < 2 && !all_drawn(seen); ++again) seen = look_once(page, display);
  return seen;
}

}  // namespace millrace::program_test
