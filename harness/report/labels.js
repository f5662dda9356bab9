/* What a run is called, and its color: the policy, and those options in which the runs of a file differ. */

/* Options as a map: from an object, or from "a=1,b=2". */
function optionsOf(run) {
  if (run.options && typeof run.options === 'object') return new Map(Object.entries(run.options));
  const pairs = String(run.options || '').split(/,(?=[A-Za-z_]\w*=)/).filter((pair) => pair);
  return new Map(pairs.map((pair) => [pair.split('=')[0], pair.slice(pair.indexOf('=') + 1)]));
}

const SETTINGS = [
  ['device', 'device'], ['profile', 'profile'], ['capacity_bytes', 'capacity'], ['limit_bytes', 'limit'], ['lap_count', 'laps'],
  ['frees', 'frees'], ['event_delay_events', 'event delay'],
];

/* In what else than trace and policy a run differs from others of its file: "capacity 40.0 GiB". */
function settingOf(run, differing) {
  return differing.map(([key, name]) => isMissing(run[key]) ? `no ${name}`
    : `${name} ${typeof run[key] === 'number' ? formatOf(key)(run[key]) : run[key]}`).join(', ');
}

/* Sets the label and the setting of all runs of one file. */
function labelRuns(runs) {
  const differing = SETTINGS.filter(([key]) => distinct(runs, (run) => run[key]).length > 1);
  for (const run of runs) run.setting = settingOf(run, differing);
  const values = new Map();
  for (const run of runs) {
    if (run.spec) continue;
    for (const [name, value] of optionsOf(run)) {
      const option = run.policy + ' ' + name;
      if (!values.has(option)) values.set(option, new Set());
      values.get(option).add(value);
    }
  }
  for (const run of runs) {
    const differing = [...optionsOf(run)].filter(([name]) => (values.get(run.policy + ' ' + name) || []).size > 1);
    run.label = run.spec || run.policy + (differing.length
      ? ':' + differing.map(([name, value]) => name + '=' + value).join(',') : '');
  }
}

const COLORS = 12;
const labelColors = new Map();

/* The same label has the same color all over the page. */
function labelColor(label) {
  if (!labelColors.has(label)) labelColors.set(label, 'c' + labelColors.size % COLORS);
  return labelColors.get(label);
}

/* Distinct values in the order in which they come. */
function distinct(items, value) { return [...new Set(items.map(value))]; }

function groupBy(items, value) {
  const groups = new Map();
  for (const item of items) {
    const name = value(item);
    if (!groups.has(name)) groups.set(name, []);
    groups.get(name).push(item);
  }
  return groups;
}

function sum(items, value) { return items.reduce((total, item) => total + (value(item) || 0), 0); }

/* The mean of those values that there are; null: there is none. */
function mean(items, value) {
  const known = items.map(value).filter((number) => typeof number === 'number');
  return known.length ? known.reduce((total, number) => total + number, 0) / known.length : null;
}

function least(items, value) {
  const known = items.map(value).filter((number) => typeof number === 'number');
  return known.length ? Math.min(...known) : null;
}
