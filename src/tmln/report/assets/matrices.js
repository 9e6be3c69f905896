// Accuracy matrices: a row after each task, a column for each task tested. The mean over seeds is Python's.

const matricesSection = {
  id: "matrices",
  title: "Accuracy matrices",
  nav: "Matrices",
  render() {
    const there = view().byAccuracy.filter((item) => item.row.matrix.length);
    if (!there.length) return [empty("No finished run to show with these filters.")];
    const seeds = [...new Set(there.flatMap((item) => item.good.map((run) => run.seed)))].sort((a, b) => a - b);
    const seed = seeds.map(String).includes(state.seed) ? state.seed : "";
    const options = [["", "mean over seeds"], ...seeds.map((one) => [String(one), `seed ${one}`])];
    return [
      explained(
        "Accuracy in percent on each task (columns) after learning each task (rows). Down a column: forgetting; " +
          "along the diagonal: how well each task was learned.",
        downloads("All matrices", fileName(state.b, "matrices"), () => matrixData(there, seed)),
      ),
      inline(select("Show", options, seed, (one) => update({ seed: one }), "matrix seed")),
      el("div", { class: "grid" }, readable(there).map((item) => matrixFigure(item, seed))),
      more(there),
    ];
  },
};

function matrixOf(item, seed) {
  return seed ? (item.good.find((run) => String(run.seed) === seed)?.accuracy ?? []) : item.row.matrix;
}

function matrixFigure(item, seed) {
  const matrix = matrixOf(item, seed);
  if (!matrix.length)
    return el("figure", {}, el("h3", { class: "plain" }, nameOf(item.row)), empty(`No run of seed ${seed}.`));
  return figure({
    title: `Accuracy matrix of ${item.row.label}`,
    heading: el("span", {}, nameOf(item.row)),
    name: fileName(state.b, item.row.label, seed ? `seed-${seed}` : "mean", "matrix"),
    build: (width) => matrixPlot(item.row, matrix, width),
    table: () => matrixData([item], seed),
  });
}

function matrixPlot(row, matrix, width) {
  const tasks = matrix[0].length,
    cell = (width - 50) / tasks;
  const text = matrix.map((line) =>
    line.map((value) => (isNumber(value) ? fixed(100 * value, cell > 38 ? 1 : 0) : NONE)),
  );
  const hover = text.map((line, k) =>
    line.map((value, j) => `after task ${k + 1}, on ${plain(clipped(taskName(row, j), 60))}: <b>${value} %</b>`),
  );
  const numbered = (title, count, more = {}) => {
    const places = everySo(count, count);
    const ticks = { tickvals: places, ticktext: places.map((at) => String(at + 1)), showgrid: false, ticks: "" };
    return axis(title, { ...ticks, automargin: false, ...more });
  };
  return {
    data: heatMap(matrix, hover, { text, size: cell > 38 ? 12 : cell > 24 ? 11 : 9 }),
    layout: {
      height: Math.min(width, 420) * (matrix.length / tasks) * 0.82 + 44,
      margin: { l: 38, r: 4, t: 4, b: 38 },
      xaxis: numbered("tested on task", tasks),
      yaxis: numbered("after task", matrix.length, { autorange: "reversed" }),
    },
  };
}

function matrixData(items, seed) {
  return {
    columns: ["benchmark", "method", "seed", "after_task", "on_task", "task", "accuracy"],
    rows: items.flatMap(({ row, ...item }) =>
      matrixOf({ row, ...item }, seed).flatMap((line, k) =>
        line.map((value, j) => [
          ...[row.benchmark, row.label, seed === "" ? "mean" : Number(seed)],
          ...[k + 1, j + 1, row.tasks[j] ?? "", value],
        ]),
      ),
    ),
  };
}
