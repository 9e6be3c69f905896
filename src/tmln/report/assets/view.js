// The rows that the filters leave, with their statistics.

const LIMIT = 12; // rows in pictures that more would make unreadable
const LINES = 25; // rows in tables and bars, likewise

let seen = { key: null, view: null };

/** Everything the sections show, computed once for each state. */
function view() {
  const key = JSON.stringify([state.b, state.show, state.hide, state.f, state.by, state.ref, state.sort]);
  if (seen.key !== key) seen = { key, view: look() };
  return seen.view;
}

function look() {
  const inBenchmark = DATA.rows.filter((row) => row.benchmark === state.b);
  const wanted = state.f.map((text) => [text.slice(0, text.indexOf("=")), text.slice(text.indexOf("=") + 1)]);
  const rows = inBenchmark
    .filter(
      (row) =>
        !state.hide.includes(row.method) &&
        wanted.every(([field, value]) => field === "seed" || (row.fields[field] ?? "") === value),
    )
    .map((row) =>
      measured(
        row,
        wanted.filter(([field]) => field === "seed").map(([, value]) => Number(value)),
      ),
    )
    .filter((item) => item.runs.length);
  const whole = [...rows].sort(
    (a, b) => sortable(b, "acc") - sortable(a, "acc") || inOrder(a.row.label, b.row.label),
  );
  // whoever filters by a setting looks for a configuration, chosen or not
  const folded = state.show !== "all" && wanted.every(([field]) => field === "seed");
  const byAccuracy = folded ? whole.filter((item) => item.row.face) : whole;
  const seeds = wanted.filter(([field]) => field === "seed").map(([, value]) => Number(value));
  const every = inBenchmark.map((row) => measured(row, seeds)).filter((item) => item.runs.length);
  const named = every.find((item) => item.row.label === state.ref);
  const able = every.filter((item) => item.row.contestant && !item.row.not_learned);
  const held = named ?? best(able, state.by)[0] ?? best(every, state.by)[0];
  // the row itself, if it is shown: what it is held against does not change by what is hidden
  const reference = rows.find((item) => held && item.row === held.row) ?? held ?? null;
  const found = { benchmark: state.b, all: inBenchmark, whole, folded, reference };
  const corrected = reference ? correctedPs(every, held, Boolean(named)) : new Map();
  for (const item of rows)
    item.against =
      reference && item !== reference
        ? {
            ...compare(item.values(state.by), reference.values(state.by)),
            corrected: corrected.get(item.row) ?? NaN,
          }
        : null;
  found.rows = sorted(byAccuracy, state.sort);
  found.byAccuracy = byAccuracy;
  return found;
}

/** A row with the runs that count (those that diverged do not) and its statistics, each computed when asked for. */
function measured(row, seeds) {
  const runs = RUNS_OF[row.id].filter((run) => !seeds.length || seeds.includes(run.seed));
  const good = runs.filter((run) => !run.diverged);
  const summaries = new Map();
  const values = (metric) =>
    new Map(good.filter((run) => run.metrics[metric] !== undefined).map((run) => [run.seed, run.metrics[metric]]));
  const summary = (metric) => {
    const { within } = metricOf(metric);
    if (!summaries.has(metric)) summaries.set(metric, summarise([...values(metric).values()], 0.95, within));
    return summaries.get(metric);
  };
  return { row, runs, good, values, summary };
}

/** Holm's p of each contestant against the one held, as tmln.results.contest has it: all pairs, unless that was named. */
function correctedPs(every, held, named) {
  const able = every.filter(
    (item) => (item.row.contestant || (named && item === held)) && Number.isFinite(item.summary(state.by).mean),
  );
  if (!able.includes(held)) return new Map();
  const pairs = able
    .flatMap((a, at) => able.slice(at + 1).map((b) => [a, b]))
    .filter((pair) => !named || pair.includes(held));
  const ps = holm(pairs.map(([a, b]) => compare(a.values(state.by), b.values(state.by)).p));
  return new Map(
    pairs.flatMap(([a, b], at) => (a === held ? [[b.row, ps[at]]] : b === held ? [[a.row, ps[at]]] : [])),
  );
}

function sortable(item, metric) {
  const value = item.summary(metric).mean;
  return Number.isNaN(value) ? -Infinity : value;
}

function sorted(rows, sort) {
  if (!sort) return rows;
  const down = sort.startsWith("-"),
    key = down ? sort.slice(1) : sort;
  const value = (item) => {
    if (key === "method") return item.row.label;
    if (key === "n") return item.summary("acc").n;
    if (key === "p") return item.against ? item.against.p : NaN;
    if (key === "holm") return item.against ? item.against.corrected : NaN;
    return item.summary(key).mean;
  };
  const missing = (x) => typeof x === "number" && Number.isNaN(x);
  return [...rows].sort((a, b) => {
    const [x, y] = [value(a), value(b)];
    if (missing(x) || missing(y)) return missing(x) - missing(y); // what is not there comes last either way
    return (x < y ? -1 : x > y ? 1 : 0) * (down ? -1 : 1);
  });
}

/** The rows with the best mean; the references do not compete. */
function best(rows, metric) {
  const racing = rows.filter(
    (item) => item.row.competes && Number.isFinite(item.summary(metric).mean),
  );
  const means = racing.map((item) => item.summary(metric).mean);
  const top = (metricOf(metric).more_is_better ? Math.max : Math.min)(...means);
  return racing.filter((item) => item.summary(metric).mean === top);
}

/** The metrics that some run of the benchmark has, in the order of the table of metrics. */
function metricsThere() {
  const there = new Set(
    DATA.runs
      .filter((run) => DATA.rows[run.row].benchmark === state.b)
      .flatMap((run) => Object.keys(run.metrics).filter((name) => run.metrics[name] !== null)),
  );
  return Object.keys(DATA.metrics).filter((name) => there.has(name));
}

/** The first rows, and one of each method at least; or all if they were asked for. */
function readable(items, limit = LIMIT) {
  if (state.all || items.length <= limit) return items;
  const kept = new Set();
  for (const name of new Set(items.map((item) => item.row.contender))) {
    const kin = items.filter((item) => item.row.contender === name);
    kept.add(kin.find((item) => item.row.face) ?? kin[0]);
  }
  for (const item of items) if (kept.size < limit) kept.add(item);
  return items.filter((item) => kept.has(item));
}

/** The other configurations of a row's method, as far as the filters leave them. */
function behind(current, item) {
  return sorted(
    current.whole.filter((other) => other !== item && other.row.contender === item.row.contender),
    state.sort,
  );
}
