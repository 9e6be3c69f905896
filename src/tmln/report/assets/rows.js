// The rows that the filters leave. Filters hide rows; every statistic is Python's, of all rows, and stays as it is.

const LIMIT = 12; // rows in pictures that more would make unreadable
const LINES = 25; // rows in tables and bars, likewise
const NOTHING = { n: 0, mean: NaN, std: NaN, low: NaN, high: NaN, text: "-", interval: "-" };

let seen = { key: null, view: null };

/** Everything the sections show, found once for each state. */
function view() {
  const key = JSON.stringify([state.b, state.show, state.hide, state.f, state.by, state.ref, state.sort]);
  if (seen.key !== key) seen = { key, view: filterRows() };
  return seen.view;
}

function filterRows() {
  const all = DATA.rows.filter((row) => row.benchmark === state.b);
  const wanted = state.f.map((text) => [text.slice(0, text.indexOf("=")), text.slice(text.indexOf("=") + 1)]);
  const fields = wanted.filter(([field]) => field !== "seed");
  const seeds = wanted.filter(([field]) => field === "seed").map(([, value]) => Number(value));
  const kept = (row) =>
    !state.hide.includes(row.method) && fields.every(([field, value]) => (row.fields[field] ?? "") === value);
  const tests = testsHere();
  const whole = all
    .filter(kept)
    .map((row) => itemOf(row, seeds, tests))
    .filter((item) => item.runs.length);
  // whoever filters by a setting looks for a configuration, representative or not
  const folded = state.show !== "all" && !fields.length;
  const byAccuracy = folded ? whole.filter((item) => item.row.representative) : whole;
  return {
    all,
    whole, // in Python's order, by accuracy
    folded,
    byAccuracy,
    rows: sorted(byAccuracy, state.sort),
    reference: isNumber(tests?.reference) ? DATA.rows[tests.reference] : null,
  };
}

/** Python's tests against the reference that was named, or else against the best row. */
function testsHere() {
  const found = DATA.tables[state.b]?.comparisons[state.by];
  return found?.[state.ref] ?? found?.[""];
}

/** A row with its runs (of these seeds, or all), those that did not diverge, and its test against the reference. */
function itemOf(row, seeds, tests = null) {
  const runs = RUNS_OF[row.id].filter((run) => !seeds.length || seeds.includes(run.seed));
  const [n, mean, p, corrected, significant] = tests?.rows[row.id] ?? [0];
  return {
    row,
    runs,
    good: runs.filter((run) => !run.diverged),
    summary: (metric) => row.metrics[metric] ?? NOTHING,
    against: isNumber(tests?.reference) && tests.reference !== row.id ? { n, mean, p, corrected, significant } : null,
  };
}

function sorted(items, sort) {
  if (!sort) return items;
  const down = sort.startsWith("-"),
    key = down ? sort.slice(1) : sort;
  const value = (item) => {
    if (key === "method") return item.row.label;
    if (key === "n") return item.summary("acc").n;
    if (key === "p") return item.against?.p ?? NaN;
    if (key === "holm") return item.against?.corrected ?? NaN;
    return item.summary(key).mean;
  };
  return [...items].sort((a, b) => {
    const [x, y] = [value(a), value(b)];
    const [noX, noY] = [Number.isNaN(x), Number.isNaN(y)];
    if (noX || noY) return noX - noY; // what is missing comes last either way
    return (x < y ? -1 : x > y ? 1 : 0) * (down ? -1 : 1);
  });
}

/** The metrics that some run of the benchmark has, in the order of the table of metrics. */
function metricsHere() {
  return DATA.tables[state.b]?.metrics ?? [];
}

/** The first rows, and one of each method at least; or all if they were asked for. */
function readable(items, limit = LIMIT) {
  if (state.all || items.length <= limit) return items;
  const kept = new Set();
  for (const name of new Set(items.map((item) => item.row.contender))) {
    const kin = items.filter((item) => item.row.contender === name);
    kept.add(kin.find((item) => item.row.representative) ?? kin[0]);
  }
  for (const item of items) if (kept.size < limit) kept.add(item);
  return items.filter((item) => kept.has(item));
}

/** The other configurations of a row's method, as far as the filters leave them. */
function othersOf(current, item) {
  const others = current.whole.filter((other) => other !== item && other.row.contender === item.row.contender);
  return sorted(others, state.sort);
}

/** Where only the first rows are shown: say so, and offer the rest. */
function more(items, limit = LIMIT) {
  if (items.length <= limit) return null;
  return offer(
    state.all
      ? `Showing all ${items.length} configurations.`
      : `Showing ${readable(items, limit).length} of ${items.length} configurations, one of each method at least.`,
  );
}

function offer(text) {
  const toggle = link(state.all ? "Show fewer" : "Show all", "more", () => update({ all: state.all ? "" : "1" }));
  return el("p", { class: "more" }, text, " ", toggle);
}
