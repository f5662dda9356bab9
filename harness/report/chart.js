/* Lines over events or iterations, by dygraphs: drag to zoom, double-click resets. */

/* series: {name, color, xs, ys, filled?, dashed?}, xs ascending. Between its points a series keeps its value.
 * Returns the rows that dygraphs draws: every x of any series, and what each series is there. */
function alignSeries(series) {
  const all = new Set();
  for (const one of series) one.xs.forEach((x) => all.add(x));
  const at = series.map(() => -1);
  return [...all].sort((left, right) => left - right).map((x) => [x, ...series.map((one, i) => {
    while (at[i] + 1 < one.xs.length && one.xs[at[i] + 1] <= x) at[i]++;
    const over = at[i] === one.xs.length - 1 && x > one.xs[at[i]];
    return at[i] < 0 || over ? null : one.ys[at[i]];
  })]);
}

/* options: series, xTitle, yTitle, x (format of an x), y (format of a y), factor (of y in the axis' unit),
 * low (a chart of less height). Returns {element, show(on)}: on says by index which series are shown. */
function lineChart(options) {
  const { series, factor } = options;
  const box = element('div', { class: options.low ? 'chart low' : 'chart', role: 'img',
    'aria-label': `${options.yTitle} over ${options.xTitle}` });
  const readout = element('div', { class: 'readout', 'aria-live': 'off' });
  const reset = element('button', { type: 'button', onclick: () => chart.resetZoom() }, 'Reset zoom');
  const range = element('span', { class: 'muted' });
  const visible = series.map(() => true);
  let chart = null;

  function describe(x, values) {
    readout.replaceChildren(element('span', {}, `${options.xTitle} `, element('b', {}, options.x(x))),
      ...series.map((one, i) => visible[i] && values[i] !== null && values[i] !== undefined
        ? element('span', {}, dot(one.color), `${one.name} `, element('b', {}, options.y(values[i] * factor))) : null)
        .filter((part) => part));
  }

  function idle() {
    readout.replaceChildren(matchMedia('(pointer: coarse)').matches
      ? 'Spread two fingers on the chart to zoom in; a tap shows numbers.'
      : 'Drag over the chart to zoom in; a double-click shows all again.');
  }

  function themed() {
    return {
      colors: series.map((one) => colorNow(one.color)),
      gridLineColor: colorNow('line'),
      axisLineColor: colorNow('line'),
    };
  }

  /* One finger scrolls the page, two zoom. */
  function interaction() {
    const usual = Dygraph.defaultInteractionModel;
    return { ...usual, touchstart: (event, ...rest) => { if (event.touches.length > 1) usual.touchstart(event, ...rest); } };
  }

  function draw() {
    const rows = alignSeries(series.map((one) => ({ xs: one.xs, ys: one.ys.map((y) => y === null ? null : y / factor) })));
    /* dygraphs names series by their labels, which have to differ. */
    const names = series.map((one, i) => `${i} ${one.name}`);
    const most = rows.reduce((largest, row) => Math.max(largest, ...row.slice(1)), 0), special = {};
    series.forEach((one, i) => {
      special[names[i]] = one.filled ? { fillGraph: true, strokeWidth: 1 } : one.dashed ? { strokePattern: [5, 4] } : {};
    });
    chart = new Dygraph(box, rows, {
      labels: ['x', ...names],
      series: special,
      strokeWidth: 1.6,
      fillAlpha: 0.16,
      includeZero: true,
      xRangePad: 4,
      highlightCircleSize: 3,
      xlabel: options.xTitle,
      ylabel: options.yTitle,
      xLabelHeight: 16,
      yLabelWidth: 16,
      interactionModel: interaction(),
      legend: 'always',
      legendFormatter: () => '',
      axes: {
        x: { axisLabelFormatter: (x) => options.x(x), pixelsPerLabel: 90 },
        y: { axisLabelFormatter: (y) => count(Number(y.toPrecision(6))), axisLabelWidth: 18 + 7 * count(Math.round(most)).length },
      },
      highlightCallback: (event, x, points, row) => describe(x, rows[row].slice(1)),
      unhighlightCallback: idle,
      drawCallback: (drawn) => {
        const [from, to] = drawn.xAxisRange();
        box.dataset.from = from;
        box.dataset.to = to;
        range.textContent = drawn.isZoomed() ? `${options.x(from)} to ${options.x(to)}` : '';
        reset.hidden = !drawn.isZoomed();
      },
      ...themed(),
    });
  }

  /* A chart needs the width that it has on the page. */
  requestAnimationFrame(draw);
  redrawn.push(() => { if (chart && box.isConnected) chart.updateOptions(themed()); });
  idle();
  return {
    element: element('div', {}, box, element('div', { class: 'controls' }, reset, range), readout),
    show(on) {
      series.forEach((one, i) => {
        visible[i] = on(i);
        if (chart) chart.setVisibility(i, visible[i]);
      });
    },
  };
}
