/* Maps of memory at one moment: all that a policy held, byte after byte, in cells (harness/report_map.c). */

const CELL_LETTERS = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_';
const CELLS_A_ROW = 256, ROW_HEIGHT = 7, COVER_HEIGHT = 2;

/* A cell's shares of live and waiting bytes, and the shade of its largest live block. */
function cellAt(map, i) {
  const code = CELL_LETTERS.indexOf(map.cells[i]);
  return { live: (code >> 2 & 7) / 7, waiting: (code & 3) / 3, shade: code >> 5 };
}

function parts(color) { return [1, 3, 5].map((at) => parseInt(color.slice(at, at + 2), 16)); }

/* Colors mixed by what the bytes of a cell are. */
function cellColor(cell, palette) {
  const free = Math.max(0, 1 - cell.live - cell.waiting), all = free + cell.live + cell.waiting;
  const live = palette[cell.shade ? 'live-other' : 'live'];
  return 'rgb(' + [0, 1, 2].map((i) => Math.round((free * palette.free[i] + cell.live * live[i] +
    cell.waiting * palette.waiting[i]) / all)).join() + ')';
}

/* rowBytes: of memory in a row of the drawing, the same for all maps that are compared. */
function drawMap(canvas, map, rowBytes) {
  const perRow = Math.max(1, rowBytes / map.cell_bytes), rows = Math.max(1, Math.ceil(map.cells.length / perRow));
  const step = ROW_HEIGHT + (map.covers ? COVER_HEIGHT : 0) + 1;
  const scale = Math.min(2, window.devicePixelRatio || 1), width = canvas.clientWidth || 800;
  canvas.width = Math.round(width * scale);
  canvas.height = Math.round(rows * step * scale);
  canvas.style.height = rows * step + 'px';
  const pen = canvas.getContext('2d'), palette = {};
  pen.scale(scale, scale);
  for (const name of ['live', 'live-other', 'waiting', 'free']) palette[name] = parts(colorNow(name));
  const colors = new Map();
  const place = (i) => [Math.floor(i % perRow * width / perRow), Math.floor(i / perRow) * step];

  /* Cells of one color side by side are one rectangle. */
  const fill = (from, to, color, top, height, alpha) => {
    const [x, y] = place(from), [last] = place(to - 1);
    pen.fillStyle = color;
    pen.globalAlpha = alpha;
    pen.fillRect(x, y + top, last + Math.ceil(width / perRow) - x, height);
    pen.globalAlpha = 1;
  };
  const fillRuns = (text, draw) => {
    for (let from = 0; from < text.length;) {
      let to = from + 1;
      while (to < text.length && text[to] === text[from] && to % perRow !== 0) to++;
      draw(from, to, text[from]);
      from = to;
    }
  };
  fillRuns(map.cells, (from, to, letter) => {
    if (!colors.has(letter)) colors.set(letter, cellColor(cellAt(map, from), palette));
    fill(from, to, colors.get(letter), 0, ROW_HEIGHT, 1);
  });
  if (map.covers) {
    fillRuns(map.covers, (from, to, letter) => {
      const over = CELL_LETTERS.indexOf(letter);
      if (over) fill(from, to, colorNow('cover'), ROW_HEIGHT, COVER_HEIGHT, Math.min(1, .35 + over / 8));
    });
  }
  pen.fillStyle = colorNow('tick');
  let last = -Infinity;
  for (const start of map.starts) {
    const [x, y] = place(start), along = y * width + x;
    if (along - last >= 6 || y * width > last) pen.fillRect(x, y, 1, ROW_HEIGHT);
    last = along;
  }
}

function percent(share) { return Math.round(100 * share) + '\u00a0%'; }

function spotText(map, i) {
  const cell = cellAt(map, i), over = map.covers ? CELL_LETTERS.indexOf(map.covers[i]) : 0;
  return `at ${bytes(i * map.cell_bytes)} of ${bytes(map.line_bytes)}, ${bytes(map.cell_bytes)}: about ` +
    `${percent(cell.live)} live` + (cell.waiting ? `, ${percent(cell.waiting)} waiting` : '') +
    (over ? `; under ${over} stitched ${over === 1 ? 'block' : 'blocks'}` + (over === 63 ? ' or more' : '') : '');
}

function sizesTable(map) {
  const sizes = new Map();
  const add = (list, what) => list.forEach(([total, number, power]) => {
    if (!sizes.has(power)) sizes.set(power, { power });
    sizes.get(power)[what] = number;
    sizes.get(power)[what + '_bytes'] = total;
  });
  add(map.live_sizes, 'live');
  add(map.free_sizes, 'free');
  return sortableTable([
    { title: 'runs of', value: (row) => 2 ** row.power, format: (value) => `${bytes(value)} and more` },
    { title: 'live', value: (row) => row.live, format: count },
    { title: 'live bytes', value: (row) => row.live_bytes, format: bytes, bar: true },
    { title: 'free', value: (row) => row.free, format: count },
    { title: 'free bytes', value: (row) => row.free_bytes, format: bytes, bar: true },
  ], [...sizes.values()], [0, false]).element;
}

function regionsTable(map) {
  const number = (title, key, format) => ({ title, value: (row) => row[key], format });
  const table = sortableTable([
    { title: 'address', text: true, value: (row) => row.address },
    { title: 'kind', text: true, value: (row) => row.kind },
    number('addresses', 'address_bytes', bytes), number('held', 'held_bytes', bytes),
    number('live', 'live_bytes', bytes), number('waiting', 'waiting_bytes', bytes),
    number('free', 'free_bytes', bytes), number('free runs', 'free_runs', count),
    number('largest free', 'largest_free_bytes', bytes), number('mapped again', 'mapped_again_bytes', bytes),
    number('chunks', 'chunks', count),
  ], map.regions, [3, true]).element;
  const left = map.region_count - map.regions.length;
  return element('div', {}, table, left > 0 ? note(`The ${map.regions.length} largest; ${count(left)} more are left out.`) : '');
}

function blocksTable(map) {
  const rows = Object.entries(map.blocks).map(([kind, sums]) => ({ kind, sums }));
  return sortableTable([
    { title: 'kind', text: true, value: (row) => row.kind },
    { title: 'blocks', value: (row) => row.sums[0], format: count },
    { title: 'given out', value: (row) => row.sums[1], format: count },
    { title: 'bytes', value: (row) => row.sums[2], format: bytes },
    { title: 'in use', value: (row) => row.sums[3], format: bytes },
  ], rows).element;
}

function mapFacts(map) {
  const facts = [`reserved ${bytes(map.reserved_bytes)}`, `live ${bytes(map.live_bytes)} in ${count(map.live_blocks)} blocks`,
    map.elsewhere_bytes ? '' : `free ${bytes(map.free_bytes)} in ${count(map.free_runs)} runs`].filter((fact) => fact);
  if (typeof map.largest_free_bytes === 'number') facts.push(`largest that can be given out ${bytes(map.largest_free_bytes)}`);
  if (map.shared_bytes) facts.push(`${bytes(map.shared_bytes)} mapped at several addresses`);
  if (map.elsewhere_bytes) facts.push("held by the driver's own pool: where its free memory lies is not known");
  return facts.join(' \u00b7 ');
}

function mapFigure(map, rowBytes) {
  const heading = element('h3', {}, dot(labelColor(map.label)), map.label);
  if (!map.cells) {
    return element('figure', {}, element('figcaption', {}, heading,
      element('p', { class: 'muted' }, 'no map: ' + (map.no_map || 'nothing was held'))));
  }
  const canvas = element('canvas', { class: 'map', role: 'img', 'aria-label': `${map.label}: ${mapFacts(map)}` });
  const spot = element('div', { class: 'spot' });
  const draw = () => { if (canvas.isConnected) drawMap(canvas, map, rowBytes); };
  requestAnimationFrame(draw);
  redrawn.push(draw);
  canvas.addEventListener('pointermove', (event) => {
    const perRow = rowBytes / map.cell_bytes, step = ROW_HEIGHT + (map.covers ? COVER_HEIGHT : 0) + 1;
    const box = canvas.getBoundingClientRect();
    const i = Math.floor((event.clientY - box.top) / step) * perRow + Math.floor((event.clientX - box.left) * perRow / box.width);
    spot.textContent = i >= 0 && i < map.cells.length ? spotText(map, i) : '';
  });
  canvas.addEventListener('pointerleave', () => { spot.textContent = ''; });
  return element('figure', {}, element('figcaption', {}, heading, element('p', { class: 'note' }, mapFacts(map))), canvas, spot,
    folded('Sizes of live and free memory', () => sizesTable(map)),
    map.regions.length ? folded('Segments and ranges', () => regionsTable(map)) : '',
    Object.keys(map.blocks).length ? folded('Blocks and stitched blocks', () => blocksTable(map)) : '');
}

function momentText(map) {
  if (map.dump_at === 'peak') return 'when most memory was live';
  if (map.dump_at === 'oom') return 'when a request found no memory';
  return `after event ${map.dump_at}`;
}

function mapSection(data) {
  if (!data.maps.length) return null;
  const groups = [...groupBy(data.maps, (map) => `${map.trace}, ${momentText(map)}`)];
  const place = element('div'), scale = element('p', { class: 'note' });
  function show(maps) {
    const cell = Math.max(...maps.map((map) => map.cell_bytes || 0)), rowBytes = cell * CELLS_A_ROW;
    scale.textContent = cell ? `A row is ${bytes(rowBytes)}, a cell of one colour at least ${bytes(Math.min(...maps.map((map) => map.cell_bytes || cell)))}.` : '';
    place.replaceChildren(...maps.map((map) => mapFigure(map, rowBytes)));
  }
  show(groups[0][1]);
  return element('section', { id: 'maps' }, element('h2', {}, 'Memory maps'),
    note('All physical memory that a policy held, every byte once, in the order of addresses.'),
    element('div', { class: 'controls' }, groups.length > 1
      ? chooser('moment', groups.map(([name]) => name), (i) => show(groups[i][1]))
      : element('span', { class: 'muted' }, groups[0][0])),
    scale,
    key([['live, neighbours in two shades', 'live'], ['waiting for other streams', 'waiting'], ['free', 'free'],
      ['begin of a segment or range', 'tick'], ['stitched blocks lie over it', 'cover']]),
    place);
}
