// The embedded document, and what is looked up in it again and again.

// objects without a prototype: a field may be called __proto__ or constructor
const DATA = JSON.parse(byId("data").textContent, (_, value) =>
  value && typeof value === "object" && !Array.isArray(value) ? Object.setPrototypeOf(value, null) : value,
);
const RUNS_OF = DATA.rows.map(() => []);
for (const run of DATA.runs) RUNS_OF[run.row].push(run);
for (const runs of RUNS_OF) runs.sort((a, b) => a.seed - b.seed);

const BENCHMARKS = [...new Set(DATA.rows.map((row) => row.benchmark))];
const FIRST = mostRuns(); // what the page opens on
const PARTS = ["replay", "penalty", "step"];

function mostRuns() {
  const count = (name) => DATA.runs.filter((run) => DATA.rows[run.row].benchmark === name).length;
  const counts = BENCHMARKS.map(count);
  return BENCHMARKS[counts.indexOf(Math.max(...counts))] ?? "";
}

// of several configurations of one method on one benchmark, which this is
{
  const count = new Map();
  DATA.rows.forEach((row, id) => {
    row.id = id;
    row.settings = row.label.slice(row.method.length).trim();
  });
  for (const row of [...DATA.rows].sort((a, b) => b.face - a.face)) {
    const kin = JSON.stringify([row.benchmark, row.method]);
    row.variant = count.get(kin) ?? 0; // 0, the plainest look, is of what stands for its method
    count.set(kin, row.variant + 1);
  }
  for (const row of DATA.rows) row.kin = count.get(JSON.stringify([row.benchmark, row.method]));
}

/** The fields in which rows that have them differ, parts first, each with the values it takes. */
function varied(rows) {
  const found = new Map();
  const names = new Set(rows.flatMap((row) => Object.keys(row.fields)));
  for (const name of names) {
    const values = new Set(rows.map((row) => row.fields[name]).filter((value) => value !== undefined));
    if (values.size > 1 && name !== "method") found.set(name, [...values].sort(inOrder));
  }
  const rank = (name) => (PARTS.includes(name) ? PARTS.indexOf(name) : PARTS.length);
  return new Map([...found].sort((a, b) => rank(a[0]) - rank(b[0]) || inOrder(a[0], b[0])));
}

/** Numbers as numbers, the rest as text. */
function inOrder(a, b) {
  const difference = Number(a) - Number(b);
  return a !== "" && b !== "" && !Number.isNaN(difference) ? difference : a < b ? -1 : a > b ? 1 : 0;
}
