/* Tables that sort by the column that is clicked. */

const ROWS_AT_FIRST = 200;

function isMissing(value) { return value === null || value === undefined || value === ''; }

/* Numbers by size and texts by the alphabet, numbers in texts by size; what is missing is last either way. */
function compareBy(column, descending) {
  return (left, right) => {
    const one = column.value(left), other = column.value(right);
    if (isMissing(one) || isMissing(other)) return isMissing(one) - isMissing(other);
    const order = typeof one === 'number' && typeof other === 'number'
      ? one - other
      : String(one).localeCompare(String(other), 'en', { numeric: true });
    return descending ? -order : order;
  };
}

function cellOf(column, row, most) {
  const value = column.value(row);
  const cell = element('td', column.text ? { class: 'left' } : {});
  if (column.color) cell.append(dot(column.color(row)));
  cell.append(isMissing(value) ? '\u2013' : column.format ? column.format(value) : String(value));
  if (column.text && !isMissing(value)) cell.title = String(value);
  if (column.bad && column.bad(row)) cell.classList.add('bad');
  if (column.bar) {
    const width = isMissing(value) || !(most > 0) ? 0 : Math.min(100, 100 * value / most);
    cell.append(element('span', { class: 'in-bar' }, element('i', { style: `width: ${width}%` })));
  }
  return cell;
}

/* columns: {title, value(row), format?, text?, bar? (true, or what a full bar stands for), color?(row), bad?(row)}.
 * sorted: the column by which rows are sorted at first, and whether from the largest down. */
function sortableTable(columns, rows, sorted) {
  let by = sorted ? sorted[0] : -1, descending = sorted ? sorted[1] : false;
  let shown = ROWS_AT_FIRST, kept = rows;
  const body = element('tbody'), more = element('p', { class: 'note' });
  const most = columns.map((column) => column.bar === true
    ? rows.reduce((largest, row) => Math.max(largest, column.value(row) || 0), 0) : column.bar);
  const heads = columns.map((column, i) => element('th', { scope: 'col', class: column.text ? 'left' : '' },
    element('button', {
      type: 'button', onclick: () => {
        descending = by === i ? !descending : !column.text;
        by = i;
        show();
      },
    }, column.title)));

  function show() {
    const ordered = by < 0 ? kept : [...kept].sort(compareBy(columns[by], descending));
    heads.forEach((head, i) => {
      if (i === by) head.setAttribute('aria-sort', descending ? 'descending' : 'ascending');
      else head.removeAttribute('aria-sort');
    });
    body.replaceChildren(...ordered.slice(0, shown).map((row) => element('tr', {},
      ...columns.map((column, i) => cellOf(column, row, most[i])))));
    more.replaceChildren();
    if (ordered.length > shown) {
      more.append(`${count(shown)} of ${count(ordered.length)} rows. `, element('button', {
        type: 'button', onclick: () => { shown = Infinity; show(); },
      }, 'Show all'));
    }
  }

  show();
  const box = element('div', { class: rows.length > 14 ? 'scroll tall' : 'scroll', tabindex: '0' },
    element('table', {}, element('thead', {}, element('tr', {}, ...heads)), body));
  return {
    element: element('div', {}, box, more),
    /* Leaves the rows for which it holds. */
    filter(holds) {
      kept = rows.filter(holds);
      show();
    },
  };
}
