// Draws a report's figures with Chart.js. The figures are JSON in #report-figures; the page already
// holds a canvas for each, with the figure's id.
(() => {
  'use strict';
  const figures = JSON.parse(document.getElementById('report-figures').textContent);

  // Okabe and Ito's colours for colour-blind readers, with a darker yellow.
  const COLOURS = ['#0072b2', '#e69f00', '#009e73', '#cc79a7', '#56b4e9', '#d55e00', '#a39800', '#8c8c8c'];
  // Gives categories that occur in many reports a fixed colour.
  const KNOWN = {
    load: 1, update: 0, other: 7, measured: 0, predicted: 1, train: 1, test: 0,
    'train top-1': 1, 'test top-1': 0, 'test top-5': 4,
    h2d: 5, forward: 2, backward: 3, step: 4, peer_wait: 6, device_wait: 0, log: 7,
    evaluate: 2, checkpoint: 3, setup: 4,
    storage: 0, decode: 1, augment: 2, queue: 3, cores: 5, startup: 6, epoch_boundary: 4, handover: 7,
  };
  const DASHES = [[], [7, 3], [2, 2], [9, 3, 2, 3]];
  const POINTS = ['circle', 'rect', 'triangle', 'rectRot', 'crossRot', 'star'];
  const FONT = 12;            // pixels, Chart.js's own size
  const LINE = 1.2 * FONT;
  const MOST_LINES = 3;       // of a label on an axis
  const MOST_IN_LEGEND = 14;  // of more series only the tooltip tells the names

  const colourOf = (name, index) => COLOURS[(name in KNOWN ? KNOWN[name] : index) % COLOURS.length];
  const css = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const isBar = figure => figure.kind === 'bar' || figure.kind === 'stacked_bar';
  const isStacked = figure => figure.kind.startsWith('stacked');

  // Widths of texts on axes and in legends.
  const pen = document.createElement('canvas').getContext('2d');
  function widthOf(text) {
    pen.font = `${FONT}px system-ui, sans-serif`;
    return pen.measureText(text).width;
  }
  // Cuts the front of a text that is too wide: the ends of keys tell them apart.
  function fit(text, room) {
    if (widthOf(text) <= room) return text;
    let from = 1;
    while (from < text.length && widthOf('…' + text.slice(from)) > room) ++from;
    return '…' + text.slice(from);
  }
  // Breaks a label into lines, after marks if it has some; leaves out the middle if there are too many.
  function linesOf(text, room) {
    const lines = [];
    let line = '';
    const add = part => {
      if (line !== '' && widthOf(line + part) > room) {
        lines.push(line.trimEnd());
        line = '';
      }
      line += part;
    };
    for (const part of text.split(/(?<=[._=,/ -])/)) {
      const pieces = Math.ceil(widthOf(part) / room);
      const size = Math.ceil(part.length / pieces);
      for (let piece = 0; piece < pieces; ++piece) add(part.slice(piece * size, (piece + 1) * size));
    }
    lines.push(line.trimEnd());
    if (lines.length > MOST_LINES)
      lines.splice(MOST_LINES - 1, lines.length, fit(lines.slice(MOST_LINES - 1).join(''), room));
    return lines;
  }

  // Short forms of keys that share a beginning or an end, as those of an ablation do: color_jitter for
  // augment.color_jitter.enabled=true. Other names stay as they are.
  function shortNames(names) {
    const isKey = name => /^\w+\.[\w.]+=\S*$/.test(name);
    const keys = names.filter(isKey);
    if (keys.length < 2 || names.some(name => name.includes('=') && !isKey(name))) return names;
    const shared = texts => {
      let length = 0;
      while (length < texts[0].length && texts.every(text => text[length] === texts[0][length])) ++length;
      return texts[0].slice(0, length);
    };
    const backwards = text => [...text].reverse().join('');
    const begin = shared(keys).lastIndexOf('.') + 1;
    const end = backwards(shared(keys.map(key => backwards(key.slice(begin)))));
    const mark = end.search(/[.=]/);
    const left = mark < 0 ? 0 : end.length - mark; // letters of the shared end
    const short = names.map(name => (isKey(name) ? name.slice(begin, name.length - left) : name));
    return new Set(short).size === names.length && !short.includes('') ? short : names;
  }

  // Fits the names of a figure to a canvas of some width.
  function layoutOf(figure, width) {
    const names = shortNames(isBar(figure) ? figure.categories : figure.series.map(series => series.name));
    const isNumber = name => name !== '' && Number.isFinite(Number(name));
    // Names stand side by side below their bars if all fit, and beside lying bars if not; numbers may be left out.
    const lying = isBar(figure) && !names.every(isNumber)
      && names.some(name => widthOf(name) + 8 > (width - 80) / names.length);
    const room = Math.max(60, Math.min(300, width / 2 - 44)); // Chart.js gives an axis half of the width
    const marked = name => (figure.marked !== '' && name === figure.marked ? ['limits'] : []);
    const lines = names.map((name, i) => [...(lying || figure.kind === 'ridge' ? linesOf(name, room) : [name]),
      ...marked((figure.categories ?? [])[i])]);
    const bars = isStacked(figure) ? 1 : figure.series.filter(series => !series.bound).length;
    const row = Math.max(12 + 13 * bars, 6 + LINE * Math.max(1, ...lines.map(one => one.length)));
    const legend = figure.series.length > 1 && figure.series.length <= MOST_IN_LEGEND && figure.kind !== 'ridge';
    const entries = shortNames(figure.series.map(series => series.name)).map(name => fit(name, width - 80));
    let entryRows = legend ? 1 : 0;
    let used = 0;
    for (const name of legend ? entries : []) {
      const entry = widthOf(name) + 60;
      if (used > 0 && used + entry > width) {
        ++entryRows;
        used = 0;
      }
      used += entry;
    }
    const height = figure.kind === 'ridge' ? 60 + Math.max(44, row + 4) * figure.series.length
      : lying ? Math.max(90 + figure.categories.length * row + 22 * entryRows, 80 + 48 * entryRows)
      : entryRows > 2 ? 80 + 48 * entryRows : 0; // Chart.js gives a legend half of the height
    const span = width - 70 - Math.max(0, ...lines.flat().map(widthOf)); // of the values' axis, if the bars lie
    return {lying, lines, legend, entries, span, height: height === 0 ? 0 : Math.max(240, height)};
  }

  // Draws intervals: a line from low to high through each value, with a bar at either end.
  const whiskers = {
    id: 'whiskers',
    afterDatasetsDraw(chart) {
      const lying = chart.options.indexAxis === 'y';
      const scale = chart.scales[lying ? 'x' : 'y'];
      const pen = chart.ctx;
      pen.save();
      const area = chart.chartArea;
      pen.beginPath();
      pen.rect(area.left, area.top, area.right - area.left, area.bottom - area.top);
      pen.clip();
      pen.strokeStyle = css('--ink');
      pen.lineWidth = 1.3;
      chart.data.datasets.forEach((dataset, index) => {
        if (!dataset.low || !dataset.low.length || !chart.isDatasetVisible(index)) return;
        chart.getDatasetMeta(index).data.forEach((element, i) => {
          if (dataset.low[i] === null || dataset.high[i] === null) return;
          const low = scale.getPixelForValue(dataset.low[i]);
          const high = scale.getPixelForValue(dataset.high[i]);
          const at = lying ? element.y : element.x;
          const line = (a, b, c, d) => {
            pen.moveTo(lying ? b : a, lying ? a : b);
            pen.lineTo(lying ? d : c, lying ? c : d);
          };
          pen.beginPath();
          line(at, low, at, high);
          line(at - 4, low, at + 4, low);
          line(at - 4, high, at + 4, high);
          pen.stroke();
        });
      });
      pen.restore();
    },
  };

  // Marks the median of each distribution: half of its steps lie at either side.
  const medians = {
    id: 'medians',
    afterDatasetsDraw(chart) {
      const pen = chart.ctx;
      pen.save();
      pen.strokeStyle = css('--ink');
      pen.lineWidth = 1.5;
      for (const dataset of chart.data.datasets) {
        if (dataset.median === undefined) continue;
        const x = chart.scales.x.getPixelForValue(dataset.median);
        pen.beginPath();
        pen.moveTo(x, chart.scales.y.getPixelForValue(dataset.base));
        pen.lineTo(x, chart.scales.y.getPixelForValue(dataset.base + 0.35));
        pen.stroke();
      }
      pen.restore();
    },
  };

  function medianOf(series) {
    const whole = series.y.reduce((sum, y) => sum + y, 0);
    let sum = 0;
    return series.x[series.y.findIndex(y => (sum += y) >= whole / 2)];
  }

  // A run keeps its colour, whichever others are chosen.
  const runNames = [...new Set(figures.flatMap(figure => figure.series.flatMap(series => series.run ?? [])))];

  function datasetOf(figure, series, index) {
    const place = series.run ? runNames.indexOf(series.run) : index;
    const ofRun = series.run ? figure.series.filter(other => other.run === series.run).indexOf(series) : 0;
    const colour = series.run ? COLOURS[place % COLOURS.length] : colourOf(series.name, index);
    const common = {label: series.name, borderColor: colour, low: series.low, high: series.high};
    if (isBar(figure)) {
      if (series.bound)
        return {...common, type: 'line', data: series.y, borderColor: css('--ink'), borderDash: [6, 4],
          borderWidth: 1.5, pointRadius: 0, pointHitRadius: 8, backgroundColor: 'transparent', order: -1};
      if (series.line)
        return {...common, type: 'line', data: series.y, borderColor: css('--ink'), backgroundColor: css('--ink'),
          borderWidth: 2, pointRadius: 4, order: -1, stack: 'line-' + index};
      if (figure.marked !== '') { // the other bars are pale
        const isMarked = name => name === figure.marked;
        return {...common, data: series.y, borderColor: css('--ink'),
          borderWidth: figure.categories.map(name => (isMarked(name) ? 2 : 0)),
          backgroundColor: figure.categories.map(name => (isMarked(name) ? colour : colour + '66'))};
      }
      return {...common, data: series.y, backgroundColor: colour, borderColor: css('--paper'), borderWidth: 0.5};
    }
    if (figure.kind === 'ridge') {
      const base = figure.series.length - 1 - index;
      const most = Math.max(...series.y);
      return {...common, backgroundColor: colour + '99', borderWidth: 2, tension: 0, pointRadius: 0, pointHitRadius: 6,
        fill: {value: base}, base, median: medianOf(series), shares: series.y,
        data: series.x.map((x, i) => ({x, y: base + 0.9 * series.y[i] / most}))};
    }
    const data = series.x.map((x, i) => ({x, y: series.y[i]}));
    if (figure.kind === 'stacked_area')
      return {...common, data, backgroundColor: colour + 'cc', borderWidth: 1, tension: 0,
        fill: index === 0 ? 'origin' : '-1', pointRadius: data.length < 2 ? 4 : 0, pointHitRadius: 6};
    if (series.bound)
      return {...common, data, borderDash: [6, 4], borderWidth: 1.5, pointRadius: 0, pointHitRadius: 6,
        backgroundColor: 'transparent'};
    return {...common, data, backgroundColor: colour, borderWidth: 2, tension: 0,
      borderDash: DASHES[(series.run ? ofRun : Math.floor(index / COLOURS.length)) % DASHES.length],
      pointStyle: POINTS[(place + ofRun) % POINTS.length], pointRadius: data.length <= 60 ? 3.5 : 0, pointHitRadius: 6};
  }

  // Extends the value axis to the intervals. An interval over two runs can be thousands of times its
  // value: it is cut at the end of the axis, so that the bars stay visible.
  function reach(figure) {
    const known = values => values.filter(v => v !== null);
    const ends = known(figure.series.flatMap(s => [...s.low, ...s.high]));
    if (!ends.length) return {};
    const most = 3 * Math.max(0, ...known(figure.series.flatMap(s => s.y)).map(Math.abs));
    return {suggestedMin: Math.max(Math.min(...ends), -most), suggestedMax: Math.min(Math.max(...ends), most)};
  }

  // Makes an axis logarithmic, with labels at 1, 2 and 5 times the powers of ten.
  function makeLogarithmic(axis) {
    Object.assign(axis, {type: 'logarithmic', beginAtZero: false, suggestedMin: undefined});
    const plain = value => ['1', '2', '5'].includes(value.toExponential(5).split('e')[0].replace(/\.?0+$/, ''));
    axis.ticks.callback = value => (plain(value) ? Number(value.toPrecision(5)).toLocaleString('en') : '');
  }

  // Returns where a logarithmic axis begins: the lowest bar stays visible.
  function foot(figure) {
    const values = figure.series.flatMap(series => series.y).filter(value => value > 0);
    return values.length === 0 ? undefined : 10 ** Math.floor(Math.log10(Math.min(...values) / 2));
  }

  // Distributions stand above each other, with their names at the axis.
  function makeRidge(figure, x, y, lines) {
    const names = [...lines].reverse();
    makeLogarithmic(x);
    Object.assign(y, {type: 'linear', beginAtZero: true, max: names.length, title: {display: false}});
    Object.assign(y.ticks, {stepSize: 1, autoSkip: false, callback: value => names[value] ?? ''});
    return {label: item => `${item.dataset.label}: ${item.dataset.shares[item.dataIndex].toPrecision(3)} ${figure.y_label}`};
  }

  // Returns how many labels of numbers stand side by side on an axis of `span` pixels.
  function mostTicks(values, span) {
    const most = Math.max(0, ...values.filter(value => value !== null).map(Math.abs));
    const widest = widthOf(Math.ceil(1.3 * most).toLocaleString('en'));
    return 1 + Math.max(1, Math.floor(span / (14 + Math.max(40, widest))));
  }

  function configOf(figure, layout, width) {
    const {lying, lines} = layout;
    const whole = figure.series.every(s => s.x.every(x => Number.isInteger(x)));
    const axis = text => ({
      title: {display: text !== '', text, color: css('--soft')},
      ticks: {color: css('--soft'), maxRotation: 0},
      grid: {color: css('--line')},
    });
    const x = axis(figure.x_label);
    const y = {...axis(figure.y_label), ...reach(figure), beginAtZero: figure.kind !== 'line' || figure.y_label !== '%',
      stacked: isStacked(figure)};
    if (isBar(figure)) {
      x.stacked = isStacked(figure);
      x.grid.display = false;
      x.ticks.callback = value => lines[value] ?? '';
      x.ticks.autoSkip = !lying;
      if (lying) y.ticks.maxTicksLimit = mostTicks(figure.series.flatMap(s => [...s.y, ...s.high]), layout.span);
      if (figure.logarithmic) {
        makeLogarithmic(y);
        y.min = foot(figure);
      }
    } else {
      x.type = 'linear';
      x.ticks.maxTicksLimit = Math.min(11, mostTicks(figure.series.flatMap(s => s.x), width - 90));
      if (whole) x.ticks.precision = 0;
      if (figure.series.every(s => s.x.length === 1)) x.grace = '10%'; // points, none of them at the edge
    }
    const ridge = figure.kind === 'ridge' ? makeRidge(figure, x, y, lines) : {};
    const [flat, upright] = lying ? [y, x] : [x, y]; // the title of the second one stands on its side
    flat.title.text = fit(flat.title.text, width / 2);
    upright.title.text = fit(upright.title.text, (layout.height || 304) - 110);
    return {
      type: isBar(figure) ? 'bar' : 'line',
      data: {
        labels: isBar(figure) ? figure.categories : undefined,
        datasets: figure.series.map((series, index) => datasetOf(figure, series, index)),
      },
      options: {
        animation: false,
        responsive: true,
        maintainAspectRatio: false,
        indexAxis: lying ? 'y' : 'x',
        interaction: {mode: isBar(figure) ? 'index' : 'nearest', axis: lying ? 'y' : 'x', intersect: false},
        scales: lying ? {x: y, y: x} : {x, y},
        plugins: {
          legend: {display: layout.legend, labels: {color: css('--ink'), usePointStyle: !isBar(figure),
            generateLabels: chart => Chart.defaults.plugins.legend.labels.generateLabels(chart)
              .map(entry => ({...entry, text: layout.entries[entry.datasetIndex]}))}},
          tooltip: {callbacks: {...ridge, title: items => items.length === 0 ? '' : isBar(figure)
            ? figure.categories[items[0].dataIndex] : figure.x_label + ' ' + items[0].label}},
        },
      },
      plugins: [whiskers, medians],
    };
  }

  // Makes the table of values behind a chart when the reader opens it.
  function fillTable(details, figure) {
    const table = document.createElement('table');
    const row = (cells, kind) => {
      const line = table.insertRow();
      for (const text of cells) {
        const cell = document.createElement(kind);
        cell.textContent = text === null || text === undefined ? '' : String(text);
        line.append(cell);
      }
    };
    row(['series', figure.x_label, figure.y_label, 'low', 'high'], 'th');
    for (const series of figure.series)
      series.y.forEach((y, i) => row(
        [series.name, isBar(figure) ? figure.categories[i] : series.x[i], y, series.low[i], series.high[i]], 'td'));
    const scroll = document.createElement('div');
    scroll.className = 'scroll';
    scroll.append(table);
    details.append(scroll);
  }

  let charts = [];
  function draw() {
    for (const chart of charts) chart.destroy();
    charts = [];
    for (const figure of figures) {
      const canvas = document.getElementById('canvas-' + figure.id);
      if (!canvas) continue; // the page shows a matrix as a table
      const shown = {...figure, series: figure.series.filter(series => !chosen || !series.run || chosen.has(series.run))};
      canvas.closest('figure').hidden = shown.series.length === 0;
      if (shown.series.length === 0) continue;
      const width = canvas.parentElement.clientWidth;
      const layout = layoutOf(shown, width);
      canvas.parentElement.style.height = layout.height > 0 ? layout.height + 'px' : '';
      charts.push(new Chart(canvas, configOf(shown, layout, width)));
    }
  }

  // Tables of runs: their rows can be filtered and sorted, and the marked ones are drawn.
  const DRAWN_AT_FIRST = 8; // of all tables together
  const MOST_CHOICES = 12; // a column with more values is searched, not chosen from
  const MOST_STUCK = 0.62;  // part of the width that columns may take which stay in view
  let chosen = null;        // names of runs; null: the page has no table of runs
  const marks = new Map();  // boxes that choose, by the run's name

  function make(kind, parent, properties) {
    const element = Object.assign(document.createElement(kind), properties);
    parent.append(element);
    return element;
  }

  function prepareRuns(table) {
    const titles = [...table.tHead.rows[0].cells].map(cell => cell.textContent);
    const body = table.tBodies[0];
    const rows = [...body.rows].map(row => ({row, cells: [...row.cells].map(cell => cell.textContent)}));
    const drawn = rows.filter(({cells}) => runNames.includes(cells[0]));
    chosen ??= new Set();
    for (const {cells} of drawn)
      if (chosen.size < DRAWN_AT_FIRST) chosen.add(cells[0]);

    const bar = document.createElement('div');
    bar.className = 'filters';
    table.parentElement.before(bar);
    const search = make('input', make('label', bar, {textContent: 'search'}), {type: 'search', name: 'search'});
    const selects = titles.map((title, column) => {
      const values = [...new Set(rows.map(({cells}) => cells[column]))];
      const result = column <= Number(table.dataset.results) && title !== 'bound' || title === 'other keys';
      if (column === 0 || result || values.length < 2 || values.length > MOST_CHOICES) return null;
      const select = make('select', make('label', bar, {textContent: title}), {name: title});
      for (const value of ['any', ...values.sort((a, b) => a.localeCompare(b, undefined, {numeric: true}))])
        select.add(new Option(value === '' ? '(none)' : value, value));
      select.options[0].value = '\u0000any';
      select.selectedIndex = 0;
      return select;
    });
    const count = make('output', bar, {name: 'count'});

    for (const {row, cells} of rows) {
      if (!runNames.includes(cells[0])) continue;
      const label = document.createElement('label');
      const mark = make('input', label, {type: 'checkbox', checked: chosen.has(cells[0])});
      label.append(' ' + cells[0]);
      row.cells[0].replaceChildren(label);
      mark.addEventListener('change', () => {
        if (mark.checked) chosen.add(cells[0]); else chosen.delete(cells[0]);
        draw();
      });
      marks.set(cells[0], mark);
    }
    const filter = () => {
      const words = search.value.toLowerCase().split(/\s+/).filter(word => word !== '');
      for (const {row, cells} of rows) {
        const text = cells.join(' ').toLowerCase();
        row.hidden = !words.every(word => text.includes(word))
          || selects.some((select, column) => select && select.selectedIndex > 0 && select.value !== cells[column]);
      }
      count.textContent = `${rows.filter(({row}) => !row.hidden).length} of ${rows.length} runs`;
    };
    bar.addEventListener('input', filter);
    const mark = (text, wanted) => make('button', bar, {type: 'button', textContent: text}).addEventListener('click', () => {
      for (const one of drawn) {
        const name = one.cells[0];
        if (wanted(one)) chosen.add(name); else chosen.delete(name);
        marks.get(name).checked = chosen.has(name);
      }
      draw();
    });
    mark('draw all of these', ({row}) => !row.hidden);
    mark('draw none', () => false);

    titles.forEach((title, column) => {
      let up = false;
      const cell = table.tHead.rows[0].cells[column];
      cell.replaceChildren();
      make('button', cell, {type: 'button', textContent: title}).addEventListener('click', () => {
        up = !up;
        rows.sort((a, b) => (up ? 1 : -1) * a.cells[column].localeCompare(b.cells[column], undefined, {numeric: true}));
        for (const {row} of rows) body.append(row);
        for (const other of table.tHead.rows[0].cells) other.removeAttribute('aria-sort');
        cell.setAttribute('aria-sort', up ? 'ascending' : 'descending');
      });
    });
    filter();
  }

  // Keeps the run's name in view while the table is scrolled to its keys, and as many results as fit beside them.
  function stick(table) {
    const room = MOST_STUCK * table.parentElement.clientWidth;
    let left = 0;
    for (let column = 0; column <= Number(table.dataset.results); ++column) {
      const width = table.tHead.rows[0].cells[column].offsetWidth;
      const sticks = left + width <= room;
      for (const row of table.rows) {
        row.cells[column].classList.toggle('stuck', sticks);
        row.cells[column].style.left = sticks ? left + 'px' : '';
      }
      left = sticks ? left + width : Infinity;
    }
  }

  for (const details of document.querySelectorAll('details[data-figure]'))
    details.addEventListener('toggle', () => {
      const figure = figures.find(one => one.id === details.dataset.figure);
      if (details.open && !details.querySelector('table')) fillTable(details, figure);
    });

  // A page on a run that goes on loads itself again. The tables of numbers that are open stay open.
  function reloadAfter(seconds) {
    const tables = [...document.querySelectorAll('details[data-figure]')];
    const key = 'open ' + location.pathname;
    const remembered = use => { try { return use(sessionStorage); } catch { return null; } }; // may be forbidden
    const open = remembered(storage => JSON.parse(storage.getItem(key))) ?? [];
    for (const table of tables) table.open = open.includes(table.dataset.figure);
    setTimeout(() => {
      const now = tables.filter(table => table.open).map(table => table.dataset.figure);
      remembered(storage => storage.setItem(key, JSON.stringify(now)));
      location.reload();
    }, 1000 * seconds);
  }
  if (document.body.dataset.reload) reloadAfter(Number(document.body.dataset.reload));

  Chart.defaults.font.family = 'system-ui, sans-serif';
  const runTables = [...document.querySelectorAll('table.runs')];
  runTables.forEach(prepareRuns);
  runTables.forEach(stick);
  let drawnWidth = innerWidth;
  addEventListener('resize', () => {
    if (innerWidth === drawnWidth) return;
    drawnWidth = innerWidth;
    runTables.forEach(stick);
    draw();
  });
  draw();
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', draw);
  const paper = on => {
    document.documentElement.classList.toggle('paper', on);
    draw();
  };
  addEventListener('beforeprint', () => paper(true));
  addEventListener('afterprint', () => paper(false));
})();
