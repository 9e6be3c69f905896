// The embedded document, and the state of the view, which lives in the URL's fragment: an address is a view.

// objects without a prototype: a field may be called __proto__ or constructor
const DATA = JSON.parse(byId("data").textContent, (_, value) =>
  value && typeof value === "object" && !Array.isArray(value) ? Object.setPrototypeOf(value, null) : value,
);
const RUNS_OF = DATA.rows.map(() => []);
for (const run of DATA.runs) RUNS_OF[run.row].push(run);
for (const runs of RUNS_OF) runs.sort((a, b) => a.seed - b.seed);

const BENCHMARKS = Object.keys(DATA.tables);
const FIRST = mostRuns(); // the benchmark that the page opens on
const PARTS = ["replay", "penalty", "step"];

function mostRuns() {
  const counts = BENCHMARKS.map((name) => DATA.runs.filter((run) => DATA.rows[run.row].benchmark === name).length);
  return BENCHMARKS[counts.indexOf(Math.max(...counts))] ?? "";
}

// number the configurations of each method: 0, the plainest look, is the one that represents it
{
  const count = new Map();
  const kin = (row) => JSON.stringify([row.benchmark, row.method]);
  DATA.rows.forEach((row, id) => {
    row.id = id;
    row.settings = row.label.slice(row.method.length).trim();
    for (const summary of Object.values(row.metrics))
      for (const part of ["mean", "std", "low", "high"]) summary[part] ??= NaN;
  });
  for (const row of [...DATA.rows].sort((a, b) => b.representative - a.representative)) {
    row.variant = count.get(kin(row)) ?? 0;
    count.set(kin(row), row.variant + 1);
  }
  for (const row of DATA.rows) row.kin = count.get(kin(row));
}

/** The fields in which rows that have them differ, parts first, each with the values it takes. */
function varied(rows) {
  const found = new Map();
  for (const name of new Set(rows.flatMap((row) => Object.keys(row.fields)))) {
    const values = new Set(rows.map((row) => row.fields[name]).filter((value) => value !== undefined));
    if (values.size > 1 && name !== "method") found.set(name, [...values].sort(inOrder));
  }
  const rank = (name) => (PARTS.includes(name) ? PARTS.indexOf(name) : PARTS.length);
  return new Map([...found].sort((a, b) => rank(a[0]) - rank(b[0]) || inOrder(a[0], b[0])));
}

/** Compare numbers as numbers, the rest as text. */
function inOrder(a, b) {
  const difference = Number(a) - Number(b);
  return a !== "" && b !== "" && !Number.isNaN(difference) ? difference : a < b ? -1 : a > b ? 1 : 0;
}

// -- the state of the view --

const DEFAULTS = {
  b: "", // benchmark
  show: "", // "all": every configuration; empty: one of each method
  unfold: [], // methods whose other configurations are in the table all the same
  hide: [], // hidden methods
  f: [], // filters, each "field=value"
  m: DATA.columns, // columns
  by: "acc", // the metric of intervals, tests and seeds
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
const same = (a, b) => JSON.stringify(a) === JSON.stringify(b);
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
    if (same(state[key], usual) || (key === "b" && state.b === FIRST)) continue;
    const values = Array.isArray(usual) ? (state[key].length ? state[key] : [""]) : [state[key]];
    for (const value of values) written.append(key, value);
  }
  return written.toString();
}

/** Change the view: the address follows, and every listener is called. */
function update(changes) {
  if (changes.b !== undefined && changes.b !== state.b)
    changes = { show: "", unfold: [], hide: [], f: [], ref: "", seed: "", open: "", ...changes };
  state = { ...state, ...changes };
  const text = fragment();
  if (text !== location.hash.slice(1))
    history.replaceState(null, "", text ? `#${text}` : location.pathname + location.search);
  for (const listener of listeners) listener(Object.keys(changes));
}

window.addEventListener("hashchange", () => {
  const before = state;
  state = read();
  const changed = Object.keys(state).filter((key) => !same(state[key], before[key]));
  for (const listener of listeners) listener(changed);
});
