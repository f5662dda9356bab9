/* The sections of tables and bars. Each takes all results and returns its element; null: there is nothing for it. */

function isDone(run) { return run.status !== 'failed' && run.status !== 'missing'; }

/* Of the driver's calls, all kinds together. */
function callsOf(run) {
  return typeof run.calls === 'number' ? run.calls
    : run.driver_calls ? sum(Object.values(run.driver_calls), (cost) => cost[0]) : null;
}

/* Shows results of one file at a time, where there are several, or of one setting. make(runs) returns an element. */
function perSource(data, runs, make) {
  const groups = [], place = element('div');
  for (const [source, all] of groupBy(runs, (run) => run.source)) {
    const file = data.sources[source].file, settings = [...groupBy(all, (run) => run.setting)];
    groups.push([file, all]);
    if (settings.length > 1) settings.forEach(([setting, some]) => groups.push([`${file}: ${setting}`, some]));
  }
  const show = (i) => place.replaceChildren(make(groups[i][1]));
  show(0);
  if (groups.length === 1) return [place];
  return [element('div', { class: 'controls' }, chooser('results', groups.map(([name]) => name), show)), place];
}

/* ---- summary ---- */

function tile(value, name) { return element('div', { class: 'tile' }, element('b', {}, value), element('span', {}, name)); }

function policyRows(runs) {
  return [...groupBy(runs, (run) => run.label)].map(([label, all]) => {
    const done = all.filter(isDone);
    return {
      label, runs: all.length, failed: all.length - done.length,
      utilization: mean(done, (run) => run.utilization),
      worst: least(done, (run) => run.utilization),
      reserved: mean(done, (run) => run.reserved_peak_bytes),
      live: mean(done, (run) => run.live_peak_bytes),
      driver: sum(done, (run) => run.driver_us),
      ooms: done.filter((run) => run.failed_allocs > 0).length,
    };
  });
}

function summaryOf(runs) {
  const rows = policyRows(runs), traces = distinct(runs, (run) => run.trace);
  const several = runs.length > rows.length;
  const holding = rows.filter((row) => row.utilization !== null && row.reserved > 0);
  const best = holding.reduce((one, row) => !one || row.utilization > one.utilization ? row : one, null);
  const devices = distinct(runs, (run) => (run.device || '?') + (run.driver === 'sim' ? ', simulated' : ''));
  const capacities = distinct(runs, (run) => run.capacity_bytes).filter((value) => typeof value === 'number');
  const uneven = new Set(rows.map((row) => row.runs)).size > 1;
  const columns = [
    { title: 'policy', text: true, value: (row) => row.label, color: (row) => labelColor(row.label) },
    { title: several ? 'mean utilisation' : 'utilisation', value: (row) => row.utilization, format: ratio, bar: 1 },
    several ? { title: 'worst', value: (row) => row.worst, format: ratio } : null,
    { title: several ? 'mean reserved peak' : 'reserved peak', value: (row) => row.reserved, format: bytes, bar: true },
    { title: several ? 'mean live peak' : 'live peak', value: (row) => row.live, format: bytes },
    { title: 'driver time', value: (row) => row.driver, format: microseconds },
    rows.some((row) => row.ooms) ? { title: several ? 'runs out of memory' : 'out of memory', value: (row) => row.ooms, format: count, bad: (row) => row.ooms > 0 } : null,
    rows.some((row) => row.failed) ? { title: 'failed runs', value: (row) => row.failed, format: count, bad: (row) => row.failed > 0 } : null,
    several ? { title: 'runs', value: (row) => row.runs, format: count } : null,
  ].filter((column) => column);
  return element('div', {},
    element('div', { class: 'tiles' },
      traces.length > 1 ? tile(count(traces.length), 'traces')
        : tile(count(Math.max(...runs.map((run) => run.events || 0))), `events of ${traces[0]}`),
      tile(count(rows.length), rows.length === 1 ? 'policy' : 'policies'),
      tile(devices.length === 1 ? devices[0] : count(devices.length), capacities.length === 1
        ? `${bytes(capacities[0])} for a process` : devices.length === 1 ? 'device' : 'devices'),
      best ? tile(best.label, `highest ${several ? 'mean ' : ''}utilisation, ${ratio(best.utilization)}`) : ''),
    sortableTable(columns, rows, [1, true]).element,
    note('Utilisation is the peak of live memory over the peak of reserved memory; what is missing to 1 is fragmentation. ' +
      (several ? 'Driver time is the sum over all runs.' : '') +
      (uneven ? ' Policies differ in the number of their runs: their means are over different traces or settings.' : '')));
}

function summarySection(data) {
  if (!data.runs.length) return null;
  return element('section', { id: 'summary' }, element('h2', {}, 'Summary'), ...perSource(data, data.runs, summaryOf));
}

/* ---- all runs ---- */

const RUN_COLUMNS = [
  ['live peak', 'live_peak_bytes'], ['reserved peak', 'reserved_peak_bytes'], ['utilisation', 'utilization'],
  ['driver time', 'driver_us'], ['driver calls', 'calls'], ['retries', 'alloc_retries'], ['failed requests', 'failed_allocs'],
  ['events', 'events'], ['host time an event', 'ns_per_event'], ['capacity', 'capacity_bytes'], ['limit', 'limit_bytes'],
  ['laps', 'lap_count'], ['event delay', 'event_delay_events'],
];

function runsTable(data, runs) {
  const differs = (key) => distinct(runs, (run) => run[key]).length > 1;
  const value = (key) => key === 'calls' ? callsOf : (run) => run[key];
  const columns = [
    { title: 'trace', text: true, value: (run) => run.trace },
    { title: 'policy', text: true, value: (run) => run.label, color: (run) => labelColor(run.label) },
  ];
  for (const [title, key] of RUN_COLUMNS) {
    if (!runs.some((run) => !isMissing(value(key)(run)))) continue;
    if (['capacity_bytes', 'limit_bytes', 'lap_count', 'event_delay_events'].includes(key) && !differs(key)) continue;
    columns.push({
      title, value: value(key), format: formatOf(key), bar: key === 'utilization' ? 1 : undefined,
      bad: key === 'failed_allocs' ? (run) => run.failed_allocs > 0 : undefined,
    });
  }
  if (differs('device') || differs('driver')) {
    columns.push({ title: 'device', text: true, value: (run) => `${run.device || '?'} (${run.driver || '?'})` });
  }
  if (runs.some((run) => run.error)) {
    columns.push({ title: 'error', text: true, value: (run) => run.error, bad: () => true });
  }
  const table = sortableTable(columns, runs);
  const filter = element('input', {
    type: 'search', placeholder: 'part of a trace or policy', oninput: () => {
      const words = filter.value.toLowerCase().split(/\s+/).filter((word) => word);
      table.filter((run) => words.every((word) => `${run.trace} ${run.label}`.toLowerCase().includes(word)));
    },
  });
  const failures = runs.filter((run) => run.first_failure);
  return element('div', {},
    runs.length > 8 ? element('div', { class: 'controls' }, element('label', {}, 'show', filter)) : '',
    table.element, failures.length ? failuresTable(failures) : '');
}

function failuresTable(runs) {
  const number = (title, name, format) => ({ title, value: (run) => run.first_failure[name], format });
  return element('div', {}, element('h3', {}, 'Requests that found no memory first'), sortableTable([
    { title: 'trace', text: true, value: (run) => run.trace },
    { title: 'policy', text: true, value: (run) => run.label, color: (run) => labelColor(run.label) },
    number('event', 'event', count), number('asked for', 'size_bytes', bytes), number('live', 'live_bytes', bytes),
    number('reserved', 'reserved_bytes', bytes), number('largest free', 'largest_free_bytes', bytes),
    { title: 'refused by', text: true, value: (run) => run.first_failure.refused_by },
  ], runs).element);
}

function runsSection(data) {
  if (!data.runs.length) return null;
  return element('section', { id: 'runs' }, element('h2', {}, 'Runs'),
    ...perSource(data, data.runs, (runs) => runsTable(data, runs)));
}

/* ---- driver time ---- */

/* Runs of one trace, or of all. */
function perTrace(runs, make) {
  const byTrace = groupBy(runs, (run) => run.trace), traces = [...byTrace.keys()];
  const place = element('div');
  const choices = traces.length > 1 ? ['all traces together', ...traces] : traces;
  const show = (i) => place.replaceChildren(make(
    traces.length > 1 && i === 0 ? runs : byTrace.get(traces[traces.length > 1 ? i - 1 : 0])));
  show(0);
  return element('div', {}, element('div', { class: 'controls' }, choices.length > 1
    ? chooser('trace', choices, show) : element('span', { class: 'muted' }, traces[0])), place);
}

/* Sums of a cost by name, for each policy. which: the place of the number in a cost. */
function costRows(runs, part, which) {
  return [...groupBy(runs, (run) => run.label)].map(([label, alike]) => {
    const parts = new Map();
    for (const run of alike) {
      for (const [name, cost] of Object.entries(run[part] || {})) parts.set(name, (parts.get(name) || 0) + (cost[which] || 0));
    }
    return { name: label, color: labelColor(label), parts };
  });
}

function costTable(runs) {
  const rows = [];
  for (const [label, alike] of groupBy(runs, (run) => run.label)) {
    const calls = new Map();
    for (const run of alike) {
      for (const [call, [number, failures, us, p50, p99]] of Object.entries(run.driver_calls || {})) {
        const row = calls.get(call) || { label, call, number: 0, failures: 0, us: 0 };
        row.number += number || 0;
        row.failures += failures || 0;
        row.us += us || 0;
        if (alike.length === 1) Object.assign(row, { p50, p99 });
        calls.set(call, row);
      }
    }
    rows.push(...calls.values());
  }
  const columns = [
    { title: 'policy', text: true, value: (row) => row.label, color: (row) => labelColor(row.label) },
    { title: 'call', text: true, value: (row) => row.call },
    { title: 'count', value: (row) => row.number, format: count },
    { title: 'not successful', value: (row) => row.failures, format: count },
    { title: 'time', value: (row) => row.us, format: microseconds, bar: true },
    { title: 'mean', value: (row) => row.number ? row.us / row.number : null, format: microseconds },
  ];
  if (rows.some((row) => row.p50 !== undefined)) {
    columns.push({ title: 'median', value: (row) => row.p50, format: microseconds },
      { title: '99th percentile', value: (row) => row.p99, format: microseconds });
  }
  return sortableTable(columns, rows, [4, true]).element;
}

function driverTime(runs) {
  const rows = withoutSmallParts(costRows(runs, 'driver_calls', 2).filter((row) => row.parts.size));
  const colored = coloredParts(rows), place = element('div');
  const show = (i) => place.replaceChildren(stackedBars(rows, colored, microseconds, i === 0));
  show(0);
  return element('div', {},
    element('div', { class: 'controls' }, chooser('bars', ['shares of each policy', 'as long as the time'], show)),
    key(colored), place, folded('All calls', () => costTable(runs)));
}

function latencySection(data) {
  const runs = data.runs.filter((run) => run.driver_calls && isDone(run));
  if (!runs.length) return null;
  return element('section', { id: 'latency' }, element('h2', {}, 'Driver time by call'),
    note('Time in calls of the driver, from the creation of the policy to the last event; on a simulated device as its profile has them.'),
    ...perSource(data, runs, (chosen) => perTrace(chosen, driverTime)));
}

/* ---- operations and states ---- */

const STATES = ['S1', 'S2', 'S3', 'S4', 'S5'];

/* What the states of a stitching policy stand for. */
const STATE_TITLES = {
  S1: 'S1: a block fits exactly', S2: 'S2: a larger block is split', S3: 'S3: blocks are stitched',
  S4: 'S4: blocks are stitched with new memory', S5: 'S5: out of memory',
};

function statesOf(runs) {
  const rows = costRows(runs, 'operations', 0)
    .map((row) => ({ ...row, parts: new Map(STATES.filter((state) => row.parts.get(state)).map((state) => [state, row.parts.get(state)])) }))
    .filter((row) => row.parts.size);
  if (!rows.length) return '';
  const times = costRows(runs, 'operations', 1).filter((row) => rows.some((other) => other.name === row.name))
    .map((row) => ({ ...row, parts: new Map(STATES.map((state) => [state, row.parts.get(state) || 0])) }));
  const colored = STATES.map((state, i) => [state, 'c' + [2, 0, 4, 1, 6][i]]);
  return element('div', {}, element('h3', {}, 'Large requests by state'),
    key(colored.map(([state, color]) => [STATE_TITLES[state], color])),
    stackedBars(rows, colored, count, true),
    element('h3', {}, 'Driver time in each state'), stackedBars(times, colored, microseconds, true));
}

function operationsTable(runs) {
  const counts = costRows(runs, 'operations', 0), times = costRows(runs, 'operations', 1);
  const rows = counts.flatMap((row, i) => [...row.parts].filter(([, number]) => number > 0)
    .map(([operation, number]) => ({ label: row.name, operation, number, us: times[i].parts.get(operation) })));
  return sortableTable([
    { title: 'policy', text: true, value: (row) => row.label, color: (row) => labelColor(row.label) },
    { title: 'operation', text: true, value: (row) => row.operation },
    { title: 'count', value: (row) => row.number, format: count },
    { title: 'driver time', value: (row) => row.us, format: microseconds, bar: true },
    { title: 'mean', value: (row) => row.us / row.number, format: microseconds },
  ], rows, [3, true]).element;
}

function countersTable(runs) {
  const rows = runs.flatMap((run) => Object.entries(run.counters || {}).filter(([, value]) => value !== 0)
    .map(([counter, value]) => ({ label: run.label, trace: run.trace, counter, value })));
  return sortableTable([
    { title: 'policy', text: true, value: (row) => row.label, color: (row) => labelColor(row.label) },
    { title: 'trace', text: true, value: (row) => row.trace },
    { title: 'counter', text: true, value: (row) => row.counter },
    { title: 'value', value: (row) => row.value, format: count },
  ], rows).element;
}

function statesSection(data) {
  const runs = data.runs.filter((run) => run.operations && isDone(run));
  if (!runs.length) return null;
  return element('section', { id: 'states' }, element('h2', {}, 'Operations and states'),
    note('What policies did, and the driver time within it. Operations nest, so their times do not add up.'),
    ...perSource(data, runs, (chosen) => perTrace(chosen, (some) => element('div', {}, statesOf(some),
      folded('All operations', () => operationsTable(some)),
      some.some((run) => Object.keys(run.counters || {}).length) ? folded('Counters', () => countersTable(some)) : ''))));
}

/* ---- iterations ---- */

function sinceText(since) {
  if (since === null) return 'never';
  return since ? (since.lap > 1 ? `lap ${since.lap}, ` : '') + since.iteration : undefined;
}

function iterationsChart(all, measure) {
  const series = all.map((one) => ({
    name: one.label, color: labelColor(one.label), xs: one.laps.map((lap, i) => i + 1), ys: one.measures[measure] || [],
  })).filter((one) => one.ys.some((y) => y !== null));
  const isBytes = /_bytes$/.test(measure), most = Math.max(0, ...series.map((one) => Math.max(...one.ys)));
  const [unit, factor] = isBytes ? byteUnit(most) : ['', 1];
  const chart = lineChart({
    series, factor, low: true, y: formatOf(measure), xTitle: 'iteration', x: (x) => count(Math.round(x * 100) / 100),
    yTitle: titleOf(measure) + (isBytes ? `, ${unit}` : /_us$/.test(measure) ? ', \u00b5s' : ''),
  });
  return element('div', {}, chips(series.map((one) => one.name), series.map((one) => one.color),
    (on) => chart.show((i) => on.has(i))), chart.element);
}

function iterationsSection(data) {
  if (!data.iterations.length) return null;
  const groups = [...groupBy(data.iterations, (one) => one.group)], place = element('div');
  let all = groups[0][1], measure = 'memory_calls';
  const measures = distinct(data.iterations.flatMap((one) => Object.keys(one.measures)), (name) => name)
    .filter((name) => data.iterations.some((one) => (one.measures[name] || []).some((value) => value)));
  if (!measures.includes(measure)) measure = measures[0];
  const show = () => place.replaceChildren(measure ? iterationsChart(all, measure) : '');
  const pick = chooser('measure', measures.map(titleOf), (i) => { measure = measures[i]; show(); });
  pick.querySelector('select').selectedIndex = Math.max(0, measures.indexOf(measure));
  show();
  const known = data.iterations.filter((one) => one.quiet_from !== undefined);
  return element('section', { id: 'iterations' }, element('h2', {}, 'Iterations'),
    note('What policies did in each iteration of the recorded run. Memory calls are driver calls that reserve, create, map, allow access, unmap, release, allocate or free.'),
    element('div', { class: 'controls' }, groups.length > 1
      ? chooser('trace', groups.map(([trace]) => trace), (i) => { all = groups[i][1]; show(); })
      : element('span', { class: 'muted' }, groups[0][0]), pick),
    place,
    known.length ? element('div', {}, element('h3', {}, 'From which iteration on'), sortableTable([
      { title: 'trace', text: true, value: (one) => one.trace },
      { title: 'policy', text: true, value: (one) => one.label, color: (one) => labelColor(one.label) },
      { title: 'iterations', value: (one) => one.laps.length, format: count },
      { title: 'exact matches only (S1)', value: (one) => one.measures.S1_count ? sinceText(one.exact_from) : undefined },
      { title: 'no memory calls', value: (one) => sinceText(one.quiet_from) },
    ], known).element) : '');
}

/* ---- other tables ---- */

const TABLE_TITLES = {
  table1: 'Building 2 GiB from chunks, by call', figure6: 'Building stitched memory, by size of chunks', profile: 'Costs of driver calls',
  bandwidth: 'Bandwidth', aliases: 'Two addresses of one memory',
};

function resultTable(data, table) {
  const used = Object.keys(table.columns).map((name, i) => ({ name, i }))
    .filter(({ i }) => table.rows.some((row) => !isMissing(row[i])));
  const columns = used.map(({ name, i }) => {
    const text = table.rows.some((row) => typeof row[i] === 'string' || typeof row[i] === 'boolean');
    return { title: titleOf(name), text, value: (row) => row[i], format: text ? String : formatOf(name) };
  });
  /* What is the same in all rows is said once. */
  const same = used.filter(({ i }) => table.rows.length > 2 && table.rows.every((row) => row[i] === table.rows[0][i]));
  const varying = columns.filter((column, i) => !same.includes(used[i]));
  const shared = same.map(({ name, i }) => `${titleOf(name)} ${typeof table.rows[0][i] === 'number' ? formatOf(name)(table.rows[0][i]) : table.rows[0][i]}`);
  return element('div', {}, shared.length ? note('In all rows: ' + shared.join(', ') + '.') : '',
    sortableTable(varying.length ? varying : columns, table.rows).element);
}

function tablesSection(data) {
  if (!data.tables.length) return null;
  const blocks = data.tables.map((table) => {
    const source = data.sources[table.source], title = (source.provenance.title || [''])[0];
    const kind = source.kind === 'oom' ? 'smallest device' : table.title || title;
    const name = `${source.file}${kind ? ': ' + (TABLE_TITLES[kind] || kind) : ''}`;
    return folded(`${name} (${count(table.rows.length)} ${table.rows.length === 1 ? 'row' : 'rows'})`, () => resultTable(data, table));
  });
  if (blocks.length <= 3) blocks.forEach((block) => { block.open = true; });
  return element('section', { id: 'tables' }, element('h2', {}, 'Measurements'), ...blocks);
}

/* ---- provenance ---- */

function sourceBlock(source) {
  const terms = element('dl', {}, element('dt', {}, 'what'), element('dd', {},
    `${source.kind}, ${count(source.count)} ${source.count === 1 ? 'result' : 'results'}`));
  for (const [name, values] of Object.entries(source.provenance)) {
    const text = values.map((value) => value === null ? 'and more' : typeof value === 'number' ? formatOf(name)(value)
      : value === true ? 'yes' : value === false ? 'no' : String(value)).join('; ');
    terms.append(element('dt', {}, titleOf(name)), element('dd', {}, text));
  }
  return element('div', {}, element('h3', {}, source.file), terms);
}

function provenanceSection(data) {
  return element('section', { id: 'provenance' }, element('h2', {}, 'Where it comes from'), ...data.sources.map(sourceBlock));
}
