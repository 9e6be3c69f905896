// What is being looked at. It lives in the URL's fragment: a view is shared by sharing its address.

const DEFAULTS = {
  b: "", // benchmark
  show: "", // "all": every configuration; empty: one of each method
  unfold: [], // methods whose other configurations are in the table all the same
  hide: [], // methods left out
  f: [], // filters, each "field=value"
  m: Object.keys(DATA.metrics).filter(isColumn), // columns
  by: "acc", // the metric of intervals, tests and spread
  ref: "", // label of the reference; empty: the best
  sort: "", // "key" or "-key"; empty: by accuracy
  x: "int",
  y: "fm",
  seed: "", // of the matrices; empty: mean
  after: "", // the task after which classes are shown; empty: the last
  band: "std",
  all: "", // show also what was left out to keep pictures readable
  open: "", // the row whose runs are shown
  at: "", // section
  theme: "",
};
const listeners = [];

/** Whether a metric is a column unasked: always, or as the rate where rows differ in it. */
function isColumn(name) {
  const { shown } = DATA.metrics[name];
  return shown === "always" || (shown === "differs" && ratesDiffer());
}

/** Rows at one learning rate need not be at one rate of their steps; where they are not, it is a column. */
function ratesDiffer() {
  const found = DATA.runs
    .filter((run) => DATA.rows[run.row].competes && run.metrics.rate)
    .map((run) => Number(run.metrics.rate.toPrecision(9)));
  return new Set(found).size > 1;
}

let state = read();

function read() {
  const given = new URLSearchParams(location.hash.slice(1).includes("=") ? location.hash.slice(1) : "");
  const found = {};
  for (const [key, usual] of Object.entries(DEFAULTS)) {
    if (!given.has(key)) found[key] = usual;
    else found[key] = Array.isArray(usual) ? given.getAll(key).filter((item) => item !== "") : given.get(key);
  }
  if (!BENCHMARKS.includes(found.b)) found.b = FIRST;
  return found;
}

function fragment() {
  const written = new URLSearchParams();
  for (const [key, usual] of Object.entries(DEFAULTS)) {
    if (JSON.stringify(state[key]) === JSON.stringify(usual)) continue;
    if (key === "b" && state.b === FIRST) continue;
    const values = Array.isArray(usual) ? (state[key].length ? state[key] : [""]) : [state[key]];
    for (const value of values) written.append(key, value);
  }
  return written.toString();
}

/** Change the view: the address follows, and everybody who asked is told. */
function update(changes) {
  if (changes.b !== undefined && changes.b !== state.b)
    changes = { show: "", unfold: [], hide: [], f: [], ref: "", seed: "", open: "", ...changes };
  state = { ...state, ...changes };
  const text = fragment();
  if (text !== location.hash.slice(1))
    history.replaceState(null, "", text ? `#${text}` : location.pathname + location.search);
  for (const listener of listeners) listener(Object.keys(changes));
}

function onChange(listener) {
  listeners.push(listener);
}

window.addEventListener("hashchange", () => {
  const before = state;
  state = read();
  for (const listener of listeners)
    listener(Object.keys(state).filter((key) => JSON.stringify(state[key]) !== JSON.stringify(before[key])));
});
