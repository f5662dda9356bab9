/* Puts the page together when its results have been read. */

const SECTIONS = [
  ['Summary', summarySection], ['Runs', runsSection], ['Memory over time', memorySection], ['Driver time', latencySection],
  ['States', statesSection], ['Memory maps', mapSection], ['Iterations', iterationsSection], ['Measurements', tablesSection],
  ['Provenance', provenanceSection],
];

/* The same run may be in several files. */
function isSame(one, other) {
  const kept = ({ trace, spec, dump_at, laps, events, live, reserved, cells, covers, measures }) => JSON.stringify(
    [trace, spec, dump_at, laps, events, live, reserved, cells, covers, measures && [measures.memory_calls, measures.reserved_peak_bytes]]);
  return kept(one) === kept(other);
}

/* Names of series: the policy as given, and the file where the same comes from several. */
function labelSeries(data, series) {
  for (const one of series) {
    const setting = one.run === undefined ? '' : data.runs[one.run].setting;
    one.group = setting ? `${one.trace}, ${setting}` : one.trace;
  }
  const groups = groupBy(series, (one) => `${one.group}\n${one.dump_at || ''}\n${one.spec || one.policy}`);
  const kept = new Set();
  for (const alike of groups.values()) {
    const different = alike.filter((one, i) => !alike.slice(0, i).some((other) => isSame(one, other)));
    for (const one of different) {
      one.label = one.spec || one.policy || '?';
      if (different.length > 1) one.label += ` (${data.sources[one.source].file})`;
      kept.add(one);
    }
  }
  return series.filter((one) => kept.has(one));
}

function chooseTheme() {
  const root = document.documentElement, button = document.getElementById('theme');
  const remembered = () => { try { return localStorage.getItem('lakebed-theme'); } catch { return null; } };
  const system = matchMedia('(prefers-color-scheme: dark)');
  const set = (theme) => {
    root.dataset.theme = theme;
    button.textContent = theme === 'dark' ? 'Light' : 'Dark';
    redrawn.forEach((draw) => draw());
  };
  set(remembered() || (system.matches ? 'dark' : 'light'));
  system.addEventListener('change', () => { if (!remembered()) set(system.matches ? 'dark' : 'light'); });
  button.addEventListener('click', () => {
    const theme = root.dataset.theme === 'dark' ? 'light' : 'dark';
    try { localStorage.setItem('lakebed-theme', theme); } catch { /* A page of a file may not keep it. */ }
    set(theme);
  });
}

function makePage() {
  const data = JSON.parse(document.getElementById('results').textContent);
  document.title = data.title;
  document.getElementById('title').textContent = data.title;
  document.getElementById('made').textContent = `Made by ${data.program}.`;
  for (const runs of groupBy(data.runs, (run) => run.source).values()) labelRuns(runs);
  for (const part of ['lines', 'maps', 'iterations']) data[part] = labelSeries(data, data[part]);
  data.runs.forEach((run) => labelColor(run.label));

  const files = distinct(data.sources.filter((source) => source.count > 0), (source) => source.file);
  document.getElementById('subtitle').textContent = files.length <= 4 ? files.join(', ')
    : `${files.slice(0, 3).join(', ')} and ${files.length - 3} more files`;
  const main = document.getElementById('main'), contents = document.getElementById('contents');
  for (const [name, make] of SECTIONS) {
    const section = make(data);
    if (!section) continue;
    main.append(section);
    contents.append(element('a', { href: '#' + section.id }, name));
  }
  let resizing = 0;
  addEventListener('resize', () => {
    cancelAnimationFrame(resizing);
    resizing = requestAnimationFrame(() => redrawn.forEach((draw) => draw()));
  });
  /* Milliseconds from the beginning to when all has been drawn. */
  requestAnimationFrame(() => requestAnimationFrame(() => {
    document.documentElement.dataset.ready = Math.round(performance.now());
  }));
}

chooseTheme();
makePage();
