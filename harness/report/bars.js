/* Stacked bars, one a name, of parts that have a color each. */

const SMALL_PART = 0.01, OTHER = 'other';

/* rows: {name, color, parts: Map(part: value)}. format: of the sum behind a bar. parts: names with colors.
 * ownScale: every bar is full, else as long as its sum. */
function stackedBars(rows, parts, format, ownScale) {
  const grid = element('div', { class: 'bars' });
  const total = (row) => [...row.parts.values()].reduce((before, value) => before + value, 0);
  const most = rows.reduce((largest, row) => Math.max(largest, total(row)), 0);
  for (const row of rows) {
    const all = total(row), track = element('div', { class: 'track' });
    for (const [part, color] of parts) {
      const value = row.parts.get(part);
      if (!value) continue;
      const width = 100 * value / (ownScale ? all : most);
      track.append(element('i', {
        style: `width: ${width}%; background: var(--${color})`,
        title: `${row.name}: ${part} ${format(value)} (${significant(100 * value / all)} %)`,
      }));
    }
    grid.append(element('div', { class: 'name', title: row.name }, dot(row.color), row.name),
      element('div', { class: 'value' }, format(all)), track);
  }
  return grid;
}

/* Names by their sums over all rows, the largest first, each with a color. */
function coloredParts(rows) {
  const sums = new Map();
  for (const row of rows) {
    for (const [part, value] of row.parts) sums.set(part, (sums.get(part) || 0) + value);
  }
  return [...sums].filter(([, value]) => value > 0).sort((left, right) => right[1] - left[1])
    .map(([part], i) => [part, 'c' + i % COLORS])
    .sort((left, right) => (left[0] === OTHER) - (right[0] === OTHER));
}

/* The same rows with those parts as one, called OTHER, that are small in every row. */
function withoutSmallParts(rows) {
  const large = new Set();
  for (const row of rows) {
    const all = [...row.parts.values()].reduce((before, value) => before + value, 0);
    for (const [part, value] of row.parts) if (value > all * SMALL_PART) large.add(part);
  }
  return rows.map((row) => {
    const parts = new Map();
    for (const [part, value] of row.parts) {
      const name = large.has(part) ? part : OTHER;
      parts.set(name, (parts.get(name) || 0) + value);
    }
    return { ...row, parts };
  });
}
