/* Elements of the page. Text from results is only ever set as text, never as markup. */

function element(tag, properties, ...children) {
  const made = document.createElement(tag);
  for (const [key, value] of Object.entries(properties || {})) {
    if (key === 'class') made.className = value;
    else if (key.startsWith('on')) made.addEventListener(key.slice(2), value);
    else if (value !== undefined) made.setAttribute(key, value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

/* A select with a label. values: texts; changed gets the index of the one that is chosen. */
function chooser(label, values, changed) {
  const select = element('select', { onchange: () => changed(select.selectedIndex) });
  values.forEach((value) => select.append(element('option', {}, value)));
  return element('label', {}, label, select);
}

/* Buttons that switch what names stand for on and off. changed gets the set of those that are on. */
function chips(names, colors, changed) {
  const on = new Set(names.keys());
  const row = element('div', { class: 'chips', role: 'group' });
  names.forEach((name, i) => {
    const chip = element('button', {
      class: 'chip', type: 'button', 'aria-pressed': 'true', onclick: () => {
        if (!on.delete(i)) on.add(i);
        chip.setAttribute('aria-pressed', String(on.has(i)));
        changed(on);
      },
    }, dot(colors[i]), name);
    row.append(chip);
  });
  return row;
}

/* color: the name of a custom property of the page's style, "c3". */
function dot(color) {
  return element('i', { class: 'dot', style: `background: var(--${color})` });
}

function key(entries) {
  return element('div', { class: 'key' },
    ...entries.map(([name, color]) => element('span', {}, dot(color), name)));
}

function note(...text) { return element('p', { class: 'note' }, ...text); }

/* Content that is made when it is first looked at. */
function folded(title, make) {
  const box = element('details', {
    ontoggle: () => { if (box.open && box.children.length === 1) box.append(make()); },
  }, element('summary', {}, title));
  return box;
}

/* A color of the page's style as it is now. */
function colorNow(name) {
  return getComputedStyle(document.documentElement).getPropertyValue('--' + name).trim();
}

/* What has to be drawn again when colors change. */
const redrawn = [];
