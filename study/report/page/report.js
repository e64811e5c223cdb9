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
  const LONG_NAMES = 14; // with longer names the bars are horizontal
  const SHOWN = 44;      // letters of a category's name on an axis

  const colourOf = (name, index) => COLOURS[(name in KNOWN ? KNOWN[name] : index) % COLOURS.length];
  const css = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const isBar = figure => figure.kind === 'bar' || figure.kind === 'stacked_bar';
  const isStacked = figure => figure.kind.startsWith('stacked');
  const isLying = figure => isBar(figure) && figure.categories.some(name => name.length > LONG_NAMES);
  const shortened = name => (name.length > SHOWN ? name.slice(0, SHOWN - 1) + '…' : name);

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

  // Distributions stand above each other, with their names at the axis.
  function makeRidge(figure, x, y) {
    const names = figure.series.map(series => series.name).reverse();
    Object.assign(x, {type: 'logarithmic', min: undefined});
    const plain = value => ['1', '2', '5'].includes(value.toExponential(5).split('e')[0].replace(/\.?0+$/, ''));
    Object.assign(x.ticks, {callback: value => (plain(value) ? String(Number(value.toPrecision(5))) : ''), maxRotation: 0});
    Object.assign(y, {type: 'linear', beginAtZero: true, max: names.length, title: {display: false}});
    Object.assign(y.ticks, {stepSize: 1, autoSkip: false, callback: value => shortened(names[value] ?? '')});
    return {label: item => `${item.dataset.label}: ${item.dataset.shares[item.dataIndex].toPrecision(3)} ${figure.y_label}`};
  }

  function configOf(figure) {
    const lying = isLying(figure);
    const whole = figure.series.every(s => s.x.every(x => Number.isInteger(x)));
    const axis = text => ({
      title: {display: text !== '', text, color: css('--soft')},
      ticks: {color: css('--soft')},
      grid: {color: css('--line')},
    });
    const x = axis(figure.x_label);
    const y = {...axis(figure.y_label), ...reach(figure), beginAtZero: figure.kind !== 'line' || figure.y_label !== '%',
      stacked: isStacked(figure)};
    if (isBar(figure)) {
      x.stacked = isStacked(figure);
      x.grid.display = false;
      x.ticks.callback = (value, index) => shortened(figure.categories[index] ?? '');
      x.ticks.autoSkip = !lying;
    } else {
      x.type = 'linear';
      if (whole) x.ticks.precision = 0;
      if (figure.series.every(s => s.x.length === 1)) x.grace = '10%'; // points, none of them at the edge
    }
    const ridge = figure.kind === 'ridge' ? makeRidge(figure, x, y) : {};
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
          legend: {display: figure.series.length > 1 && figure.kind !== 'ridge', labels: {color: css('--ink'), usePointStyle: !isBar(figure)}},
          tooltip: {callbacks: {...ridge, title: items => items.length === 0 ? '' : isBar(figure)
            ? figure.categories[items[0].dataIndex] : figure.x_label + ' ' + items[0].label}},
        },
      },
      plugins: [whiskers, medians],
    };
  }

  function heightOf(figure) {
    if (figure.kind === 'ridge') return Math.max(190, 60 + 44 * figure.series.length) + 'px';
    if (!isLying(figure)) return '';
    const bars = isStacked(figure) ? 1 : figure.series.filter(s => !s.bound).length;
    return Math.max(190, 90 + figure.categories.length * (12 + 13 * bars)) + 'px';
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
      canvas.parentElement.style.height = heightOf(shown);
      if (shown.series.length > 0) charts.push(new Chart(canvas, configOf(shown)));
    }
  }

  // A table of runs: its rows can be filtered and sorted, and the marked ones are drawn.
  const DRAWN_AT_FIRST = 8;
  const MOST_CHOICES = 12; // a column with more values is searched, not chosen from
  let chosen = null;

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
    chosen = new Set(drawn.slice(0, DRAWN_AT_FIRST).map(({cells}) => cells[0]));

    const bar = document.createElement('div');
    bar.className = 'filters';
    table.parentElement.before(bar);
    const search = make('input', make('label', bar, {textContent: 'search'}), {type: 'search', name: 'search'});
    const selects = titles.map((title, column) => {
      const values = [...new Set(rows.map(({cells}) => cells[column]))];
      const result = column >= titles.indexOf('images/s') && title !== 'bound';
      if (column === 0 || result || values.length < 2 || values.length > MOST_CHOICES) return null;
      const select = make('select', make('label', bar, {textContent: title}), {name: title});
      for (const value of ['any', ...values.sort((a, b) => a.localeCompare(b, undefined, {numeric: true}))])
        select.add(new Option(value === '' ? '(none)' : value, value));
      select.options[0].value = '\u0000any';
      select.selectedIndex = 0;
      return select;
    });
    const count = make('output', bar, {name: 'count'});

    const marks = new Map();
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
      chosen = new Set(drawn.filter(wanted).map(({cells}) => cells[0]));
      for (const [name, box] of marks) box.checked = chosen.has(name);
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
  document.querySelectorAll('table.runs').forEach(prepareRuns);
  draw();
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', draw);
  const paper = on => {
    document.documentElement.classList.toggle('paper', on);
    draw();
  };
  addEventListener('beforeprint', () => paper(true));
  addEventListener('afterprint', () => paper(false));
})();
