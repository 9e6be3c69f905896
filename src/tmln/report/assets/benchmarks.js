// Methods by benchmarks: the result of each on each, coloured by rank. Ranks and notes are Python's.

const benchmarksSection = {
  id: "benchmarks",
  title: "Benchmarks",
  there: () => DATA.benchmarks !== null,
  render() {
    const { tables, maps } = DATA.benchmarks;
    const metrics = Object.keys(maps);
    const metric = metrics.includes(state.by) ? state.by : metrics[0];
    if (!metric) return [empty("No run has a metric to rank by.")];
    const { methods, notes } = maps[metric];
    const unfair = methods.some(({ cells }) => cells.some((cell) => cell && !cell.fair));
    const said = [...notes, ...(unfair ? ["‡ was chosen on the test data, and is not ranked"] : [])];
    const files = downloads(
      "Methods by benchmarks",
      fileName("benchmarks", metric),
      () => benchmarkData(tables, methods, metric),
      { text: () => benchmarkText(tables, methods, metric) },
    );
    return [
      explained(
        "Mean ± sample deviation of one configuration a method, coloured by its rank on a benchmark, the best strongest. " +
          `${said.map(sentenceCase).join(" ")} Click a benchmark’s name to open it.`,
        files,
      ),
      inline(selectMetric("Metric", metrics, metric, (by) => update({ by }), "benchmarks by")),
      benchmarkTable(tables, methods),
    ];
  },
};

function benchmarkTable(tables, methods) {
  const ranked = methods.filter((one) => one.mean_rank !== null).length;
  const names = tables.map((name) => link(name, `open ${name}`, () => update({ b: name })));
  return plainTable(
    "Methods by benchmarks",
    ["Method", ...names, ...(ranked ? ["mean rank"] : [])],
    methods.map(({ method, mean_rank, cells }) => [
      nameOf(someRowOf(method)),
      ...cells.map((cell) => rankCell(cell, ranked)),
      ...(ranked ? [el("td", { class: "mean-rank" }, rankText(mean_rank, 2))] : []),
    ]),
    "heat",
  );
}

function rankCell(cell, ranked) {
  if (!cell) return el("td", { class: "absent" }, NONE);
  const place = cell.rank === null ? null : ranked > 1 ? 1 - (cell.rank - 1) / (ranked - 1) : 1;
  const style = place === null ? null : `background:${shade(place)};color:${inkOn(place)}`;
  return el(
    "td",
    { style, "data-rank": cell.rank },
    el("span", { class: "value" }, cell.fair ? cell.text : `${cell.text} ‡`),
    cell.rank === null ? null : el("span", { class: "rank" }, `rank ${rankText(cell.rank, 1)}`),
  );
}

/** `2`, or `2.5` for methods that share a rank. */
function rankText(rank, digits) {
  if (rank === null) return NONE;
  return digits === 1 && Number.isInteger(rank) ? String(rank) : fixed(rank, digits);
}

/** Some row of the method, for its style. */
function someRowOf(method) {
  const row = DATA.rows.find((one) => one.contender === method);
  return { ...row, settings: row.contender.slice(row.method.length).trim(), variant: 0, not_learned: "" };
}

function benchmarkText(tables, methods, metric) {
  const cell = (one) => (!one ? "-" : one.rank === 1 ? strong(one.text) : one.text);
  return {
    lines: [
      ["method", ...tables, "mean rank"],
      ...methods.map(({ method, mean_rank, cells }) => [method, ...cells.map(cell), bare(rankText(mean_rank, 2))]),
    ],
    caption: `${metricOf(metric).heading}: mean ± sample deviation over seeds; bold: the first in rank.`,
    label: `tab:benchmarks-${metric}`,
  };
}

function benchmarkData(tables, methods, metric) {
  return {
    columns: ["benchmark", "method", "configuration", "n", `${metric}_mean`, `${metric}_std`, "rank", "mean_rank", "fair"],
    rows: methods.flatMap(({ method, mean_rank, cells }) =>
      cells.flatMap((cell, at) =>
        cell ? [[tables[at], method, cell.label, cell.n, cell.mean, cell.std, cell.rank, mean_rank, cell.fair]] : [],
      ),
    ),
  };
}
