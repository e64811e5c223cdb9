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

  function datasetOf(figure, series, index) {
    const colour = colourOf(series.name, index);
    const common = {label: series.name, borderColor: colour, low: series.low, high: series.high};
    if (isBar(figure)) {
      if (series.bound)
        return {...common, type: 'line', data: series.y, borderColor: css('--ink'), borderDash: [6, 4],
          borderWidth: 1.5, pointRadius: 0, pointHitRadius: 8, backgroundColor: 'transparent', order: -1};
      return {...common, data: series.y, backgroundColor: colour, borderColor: css('--paper'), borderWidth: 0.5};
    }
    const data = series.x.map((x, i) => ({x, y: series.y[i]}));
    if (figure.kind === 'stacked_area')
      return {...common, data, backgroundColor: colour + 'cc', borderWidth: 1, tension: 0,
        fill: index === 0 ? 'origin' : '-1', pointRadius: data.length < 2 ? 4 : 0, pointHitRadius: 6};
    if (series.bound)
      return {...common, data, borderDash: [6, 4], borderWidth: 1.5, pointRadius: 0, pointHitRadius: 6,
        backgroundColor: 'transparent'};
    return {...common, data, backgroundColor: colour, borderWidth: 2, tension: 0,
      borderDash: DASHES[Math.floor(index / COLOURS.length) % DASHES.length],
      pointStyle: POINTS[index % POINTS.length], pointRadius: data.length <= 60 ? 3.5 : 0, pointHitRadius: 6};
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
    }
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
          legend: {display: figure.series.length > 1, labels: {color: css('--ink'), usePointStyle: !isBar(figure)}},
          tooltip: {callbacks: {title: items => items.length === 0 ? '' : isBar(figure)
            ? figure.categories[items[0].dataIndex] : figure.x_label + ' ' + items[0].label}},
        },
      },
      plugins: [whiskers],
    };
  }

  function heightOf(figure) {
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
      canvas.parentElement.style.height = heightOf(figure);
      charts.push(new Chart(canvas, configOf(figure)));
    }
  }

  for (const details of document.querySelectorAll('details[data-figure]'))
    details.addEventListener('toggle', () => {
      const figure = figures.find(one => one.id === details.dataset.figure);
      if (details.open && !details.querySelector('table')) fillTable(details, figure);
    });

  Chart.defaults.font.family = 'system-ui, sans-serif';
  draw();
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', draw);
  const paper = on => {
    document.documentElement.classList.toggle('paper', on);
    draw();
  };
  addEventListener('beforeprint', () => paper(true));
  addEventListener('afterprint', () => paper(false));
})();
