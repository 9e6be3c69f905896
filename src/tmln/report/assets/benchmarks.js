// Methods by benchmarks: what each comes to on each, coloured by rank. Ranks and notes are Python's.

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
    return [
      explained(
        "Mean ± sample deviation of one configuration a method, coloured by its rank on a benchmark, the first strongest. " +
          `${said.map(sentenceCase).join(" ")} A benchmark’s name opens it.`,
        downloads("Methods by benchmarks", fileName("benchmarks", metric), () => benchmarkData(tables, methods, metric), {
          text: () => benchmarkText(tables, methods, metric),
        }),
      ),
      el(
        "div",
        { class: "inline" },
        select(
          "Metric",
          metrics.map((name) => [name, metricOf(name).heading]),
          metric,
          (by) => update({ by }),
          "benchmarks by",
        ),
      ),
      benchmarkTable(tables, methods, metric),
    ];
  },
};

function sentenceCase(text) {
  return `${text.slice(0, 1).toUpperCase()}${text.slice(1)}.`;
}

function benchmarkTable(tables, methods, metric) {
  const opens = (name) =>
    el(
      "button",
      { type: "button", class: "link", "data-focus": `open ${name}`, on: { click: () => update({ b: name }) } },
      name,
    );
  const ranked = methods.filter((one) => one.mean_rank !== null).length;
  return plainTable(
    "Methods by benchmarks",
    ["Method", ...tables.map(opens), ...(ranked ? ["mean rank"] : [])],
    methods.map(({ method, mean_rank, cells }) => [
      nameOf(rowOf(method)),
      ...cells.map((cell) => heatCell(cell, metric, ranked)),
      ...(ranked ? [el("td", { class: "mean-rank" }, rankText(mean_rank, 2))] : []),
    ]),
    "heat",
  );
}

function heatCell(cell, metric, ranked) {
  if (!cell) return el("td", { class: "absent" }, NONE);
  const place = cell.rank === null ? null : ranked > 1 ? 1 - (cell.rank - 1) / (ranked - 1) : 1;
  const style = place === null ? null : `background:${shade(place)};color:${inkOn(place)}`;
  const text = meanStd({ ...cell, std: cell.std ?? NaN }, metric);
  return el(
    "td",
    { style, "data-rank": cell.rank },
    el("span", { class: "value" }, cell.fair ? text : `${text} ‡`),
    cell.rank === null ? null : el("span", { class: "rank" }, `rank ${rankText(cell.rank, 1)}`),
  );
}

/** `2`, or `2.5` of those that share a place. */
function rankText(rank, digits) {
  if (rank === null) return NONE;
  return digits === 1 && Number.isInteger(rank) ? String(rank) : fixed(rank, digits);
}

/** Some row of the method, for its look. */
function rowOf(method) {
  const row = DATA.rows.find((one) => one.contender === method);
  return { ...row, settings: row.contender.slice(row.method.length).trim(), variant: 0, not_learned: "" };
}

function benchmarkText(tables, methods, metric) {
  const cell = (one) => {
    if (!one) return "-";
    const text = bare(meanStd({ ...one, std: one.std ?? NaN }, metric));
    return one.rank === 1 ? strong(text) : text;
  };
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
