/* Numbers as people read them, as in the program's own tables (harness/units.h). */

const GIB = 2 ** 30;

/* Three significant digits at least, never an exponent. */
function significant(value) {
  const size = Math.abs(value);
  if (size === 0) return '0';
  if (size >= 100) return Math.round(value).toLocaleString('en-US');
  const digits = Math.min(12, 2 - Math.floor(Math.log10(size)));
  return value.toFixed(Math.max(0, digits));
}

function count(value) {
  return Number.isInteger(value) ? value.toLocaleString('en-US') : significant(value);
}

const BYTE_UNITS = [['TiB', 2 ** 40], ['GiB', GIB], ['MiB', 2 ** 20], ['KiB', 2 ** 10], ['B', 1]];

/* The unit in which a number of bytes reads best: [name, factor]. */
function byteUnit(bytes) {
  return BYTE_UNITS.find((unit) => bytes >= unit[1]) || BYTE_UNITS[4];
}

function bytes(value) {
  const [name, factor] = byteUnit(Math.abs(value));
  return (factor === 1 ? count(value) : significant(value / factor)) + '\u00a0' + name;
}

const TIME_UNITS = [['s', 1e6], ['ms', 1e3], ['\u00b5s', 1], ['ns', 1e-3]];

function microseconds(value) {
  const [name, factor] = TIME_UNITS.find((unit) => Math.abs(value) >= unit[1]) || TIME_UNITS[3];
  return significant(value / factor) + '\u00a0' + name;
}

function ratio(value) { return value.toFixed(3); }

/* How a number is shown is said by the ending of its key. */
function formatOf(key) {
  if (/_bytes$/.test(key) || key === 'bytes') return bytes;
  if (/_us$/.test(key)) return microseconds;
  if (/_ns$/.test(key) || key === 'ns_per_event') return (value) => microseconds(value / 1e3);
  if (/_gib$/.test(key)) return (value) => bytes(value * GIB);
  if (/_mib$/.test(key)) return (value) => bytes(value * 2 ** 20);
  if (/_ms$/.test(key)) return (value) => microseconds(value * 1e3);
  if (/_s$/.test(key)) return (value) => microseconds(value * 1e6);
  if (/^utilization/.test(key)) return ratio;
  return count;
}

/* "live_peak_bytes" becomes "live peak". */
function titleOf(key) {
  return key.replace(/_(bytes|gib|mib|s|ms|us|ns)$/, '').replace('utilization', 'utilisation').replace(/_/g, ' ');
}
