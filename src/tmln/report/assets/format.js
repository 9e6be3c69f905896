// Write numbers as they are read, rounded as Python rounds them. Means and intervals come written from Python.

const NONE = "–";

/** toFixed, but an exact half goes to the even digit. */
function fixed(value, digits) {
  const text = value.toFixed(digits);
  const halves = value * 2 ** (digits + 1);
  if (!Number.isInteger(halves) || halves % 2 === 0) return text;
  const last = Number(text[text.length - 1]);
  return last % 2 ? (value - Math.sign(value) * 10 ** -(digits + 1)).toFixed(digits) : text;
}

function isNumber(value) {
  return typeof value === "number" && !Number.isNaN(value);
}

/** What a metric is multiplied by to be shown: 100 where it is a fraction. */
function unitOf(metric) {
  return metricOf(metric).percent ? 100 : 1;
}

/** A heading with its unit, for an axis. */
function withUnit(metric) {
  return `${metricOf(metric).heading}${metricOf(metric).percent ? ", %" : ""}`;
}

/** A value of a metric: percent where it is a fraction. */
function shown(value, metric, digits = 1) {
  return isNumber(value) ? fixed(unitOf(metric) * value, digits) : NONE;
}

/** Python writes a hyphen where there is no number, the page a dash. */
function dash(text) {
  return text === "-" ? NONE : text;
}

/** `94.4 ± 1.1`, of an accuracy's mean and sample deviation. */
function percentText(mean, std) {
  if (!isNumber(mean)) return NONE;
  return fixed(100 * mean, 1) + (isNumber(std) ? ` ± ${fixed(100 * std, 1)}` : "");
}

function signed(difference, metric) {
  if (!isNumber(difference)) return NONE;
  const text = shown(difference, metric).replace("-", "−");
  return difference > 0 ? `+${text}` : text;
}

function pShown(p) {
  if (!isNumber(p)) return NONE;
  return p >= 0.001 ? fixed(p, 3) : "<0.001";
}

/** A row of tmln.metrics' table, which the document carries. */
function metricOf(name) {
  return DATA.metrics[name] ?? { about: "", more_is_better: true, percent: true, heading: name, title: name };
}

function plural(count, word) {
  return `${count} ${word}${count === 1 ? "" : "s"}`;
}

function sentenceCase(text) {
  return `${text.slice(0, 1).toUpperCase()}${text.slice(1)}.`;
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

/** Positions from 0 to many, about so many of them. */
function everySo(many, wanted) {
  const step = Math.max(1, Math.ceil(many / wanted));
  return Array.from({ length: Math.ceil(many / step) }, (_, at) => at * step);
}
