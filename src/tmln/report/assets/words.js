// Numbers as they are read, rounded as Python rounds them.

const NONE = "–";

/** toFixed, but an exact half goes to the even digit. */
function fixed(value, digits) {
  const text = value.toFixed(digits);
  const halves = value * 2 ** (digits + 1);
  if (!Number.isInteger(halves) || halves % 2 === 0) return text;
  const last = Number(text[text.length - 1]);
  return last % 2 ? (value - Math.sign(value) * 10 ** -(digits + 1)).toFixed(digits) : text;
}

/** A value of a metric: percent where it is a fraction. */
function shown(value, metric, digits = 1) {
  if (value === null || value === undefined || Number.isNaN(value)) return NONE;
  return fixed(metricOf(metric).percent ? 100 * value : value, digits);
}

/** `94.4 ± 1.1` */
function meanStd(summary, metric) {
  if (!summary.n) return NONE;
  const { digits: written } = metricOf(metric);
  if (written.endsWith("g")) return String(Number(summary.mean.toPrecision(Number(written.slice(1, -1)))));
  const digits = metricOf(metric).percent || summary.mean >= 10 ? 1 : 2;
  return shown(summary.mean, metric, digits) + (summary.n > 1 ? ` ± ${shown(summary.std, metric, digits)}` : "");
}

function interval(summary, metric) {
  return Number.isNaN(summary.low) ? NONE : `[${shown(summary.low, metric)}, ${shown(summary.high, metric)}]`;
}

/** `= 0.012` or `< 0.001` */
function pText(p) {
  return p >= 0.001 ? `= ${fixed(p, 3)}` : "< 0.001";
}

function duration(seconds) {
  if (seconds < 120) return `${fixed(seconds, 1)} s`;
  return seconds < 7200 ? `${fixed(seconds / 60, 1)} min` : `${fixed(seconds / 3600, 1)} h`;
}

const UNKNOWN = { about: "", more_is_better: true, percent: true, digits: ".1f", contest: true, within: [null, null] };

/** A row of tmln.metrics' table, which the document carries. */
function metricOf(name) {
  return DATA.metrics[name] ?? { ...UNKNOWN, heading: name, title: name };
}

function plural(count, word) {
  return `${count} ${word}${count === 1 ? "" : "s"}`;
}

function taskName(row, index) {
  const name = row.tasks[index];
  return name ? `task ${index + 1}: ${name}` : `task ${index + 1}`;
}

/** At most so many characters. */
function clipped(text, length) {
  const letters = [...text];
  return letters.length > length ? `${letters.slice(0, length - 1).join("")}…` : text;
}
