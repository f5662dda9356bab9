/* Reserved and live memory over the events of a trace, a line a policy. */

/* Live memory is the same under every policy that serves all requests: then one line, else one for each. */
function liveSeries(lines, xsOf) {
  const groups = groupBy(lines, (line) => Math.max(...line.live));
  const series = [];
  for (const [, alike] of groups) {
    const points = new Map();
    for (const line of alike) xsOf(line).forEach((x, i) => points.set(x, line.live[i]));
    const xs = [...points.keys()].sort((left, right) => left - right);
    series.push({
      name: groups.size === 1 ? 'live' : 'live, ' + alike.map((line) => line.label).join(', '),
      color: groups.size === 1 ? 'area' : labelColor(alike[0].label),
      filled: groups.size === 1,
      dashed: groups.size > 1,
      xs, ys: xs.map((x) => points.get(x)),
      of: alike,
    });
  }
  return series;
}

/* All lines of one trace. inTime: over the time of the recording, not over events. */
function memoryChart(lines, inTime) {
  const xsOf = (line) => inTime ? line.times : line.events;
  const live = liveSeries(lines, xsOf);
  const series = [...live, ...lines.map((line) => ({
    name: line.label, color: labelColor(line.label), xs: xsOf(line), ys: line.reserved, of: [line],
  }))];
  const most = Math.max(...series.map((one) => Math.max(...one.ys)));
  const [unit, factor] = byteUnit(most);
  const chart = lineChart({
    series, factor, y: bytes,
    yTitle: `reserved memory, ${unit}`,
    xTitle: inTime ? 'time since the first event' : 'event',
    x: inTime ? microseconds : (x) => count(Math.round(x)),
  });
  const row = chips(lines.map((line) => line.label), lines.map((line) => labelColor(line.label)), (on) => {
    chart.show((i) => series[i].of.some((line) => on.has(lines.indexOf(line))));
  });
  return element('div', {}, row, chart.element);
}

function memorySection(data) {
  if (!data.lines.length) return null;
  const byTrace = groupBy(data.lines, (line) => line.group), traces = [...byTrace.keys()];
  const place = element('div');
  let trace = traces[0], inTime = false;
  const axis = chooser('over', ['events', 'recorded time'], (i) => { inTime = i === 1; show(); });
  function show() {
    const lines = byTrace.get(trace), timed = lines.every((line) => line.times);
    axis.hidden = !timed;
    place.replaceChildren(memoryChart(lines, inTime && timed));
  }
  show();
  return element('section', { id: 'memory' }, element('h2', {}, 'Memory over time'),
    note('What each policy held from the driver (lines) and what callers held of it (area), after each event. ' +
      'Of stretches of events the extremes are kept.'),
    element('div', { class: 'controls' },
      traces.length > 1 ? chooser('trace', traces, (i) => { trace = traces[i]; show(); }) : element('span', { class: 'muted' }, trace),
      axis),
    place);
}
