// Accuracy matrices: a row after each task, a column for each task tested.

const matricesSection = {
  id: "matrices",
  title: "Accuracy matrices",
  nav: "Matrices",
  render() {
    const current = view();
    const there = current.byAccuracy.filter((item) => item.good.length);
    if (!there.length) return [empty("No finished run to show with these filters.")];
    const seeds = [...new Set(there.flatMap((item) => item.good.map((run) => run.seed)))].sort((a, b) => a - b);
    const chosen = seeds.map(String).includes(state.seed) ? state.seed : "";
    return [
      explained(
        "Accuracy in percent on each task (columns) after learning each task (rows). Down a column, forgetting; " +
          "along the diagonal, how well each task was learned.",
        downloads("All matrices", fileName(state.b, "matrices"), () => matrixData(there, chosen)),
      ),
      el(
        "div",
        { class: "inline" },
        select(
          "Show",
          [["", "mean over seeds"], ...seeds.map((seed) => [String(seed), `seed ${seed}`])],
          chosen,
          (seed) => update({ seed }),
          "matrix seed",
        ),
      ),
      el(
        "div",
        { class: "grid" },
        readable(there).map((item) => matrixFigure(item, chosen)),
      ),
      more(there),
    ];
  },
};

function matrixFigure(item, seed) {
  const name = fileName(state.b, item.row.label, seed ? `seed-${seed}` : "mean", "matrix");
  const size = matrixOf(item, seed);
  if (!size.length)
    return el("figure", {}, el("h3", { class: "plain" }, nameOf(item.row)), empty(`No run of seed ${seed}.`));
  return figure({
    title: `Accuracy matrix of ${item.row.label}`,
    heading: el("span", {}, nameOf(item.row)),
    name,
    build: (width) => heatMap(item.row, size, width),
    table: () => matrixData([item], seed),
  });
}

/** The mean over seeds of those entries that all of the largest matrices have; or one seed's. */
function matrixOf(item, seed) {
  const runs = item.good.filter((run) => !seed || String(run.seed) === seed);
  const tasks = Math.max(0, ...runs.map((run) => run.accuracy.length));
  const whole = runs.filter((run) => run.accuracy.length === tasks);
  if (!tasks || !whole.length) return [];
  return whole[0].accuracy.map((row, k) => row.map((_, j) => mean(whole.map((run) => run.accuracy[k][j]))));
}

function heatMap(row, matrix, width) {
  const tasks = matrix[0].length,
    height = Math.min(width, 420) * (matrix.length / tasks) * 0.82 + 44;
  const cell = (width - 50) / tasks;
  const text = matrix.map((line) =>
    line.map((value) => (Number.isNaN(value) ? NONE : fixed(100 * value, cell > 38 ? 1 : 0))),
  );
  const labels = matrix[0].map((_, j) => String(j + 1));
  const hover = matrix.map((line, k) =>
    line.map((value, j) => `after task ${k + 1}, on ${plain(clipped(taskName(row, j), 60))}: <b>${text[k][j]} %</b>`),
  );
  return {
    data: [
      {
        type: "heatmap",
        z: matrix.map((line) => line.map((value) => 100 * value)),
        hovertext: hover,
        hoverinfo: "text",
        zmin: 0,
        zmax: 100,
        xgap: 2,
        ygap: 2,
        showscale: false,
        colorscale: scale().map((colour, at, every) => [at / (every.length - 1), colour]),
      },
      {
        type: "scatter",
        mode: "text",
        x: matrix.flatMap((line) => line.map((_, j) => j)),
        y: matrix.flatMap((line, k) => line.map(() => k)),
        text: text.flat(),
        hoverinfo: "skip",
        textfont: { size: cell > 38 ? 12 : cell > 24 ? 11 : 9, color: matrix.flat().map(inkOn) },
      },
    ],
    layout: {
      height,
      margin: { l: 38, r: 4, t: 4, b: 38 },
      xaxis: axis("tested on task", {
        tickvals: labels.map((_, j) => j),
        ticktext: labels,
        showgrid: false,
        ticks: "",
        automargin: false,
      }),
      yaxis: axis("after task", {
        tickvals: matrix.map((_, k) => k),
        ticktext: matrix.map((_, k) => String(k + 1)),
        autorange: "reversed",
        showgrid: false,
        ticks: "",
        automargin: false,
      }),
    },
  };
}

/** From the page's own ground to a deep, or on a dark page a bright, blue: one hue, so lightness alone tells. */
function scale() {
  const dark = document.documentElement.dataset.theme === "dark";
  const stops = dark
    ? ["#20252c", "#21405f", "#2a6596", "#58a0d8", "#b9dcf7"]
    : ["#f1f3f5", "#c9dcee", "#86b4db", "#3c7fb8", "#0b4a80"];
  return stops;
}

/** The channels of the scale's colour of this value, from 0 to 1. */
function shadeChannels(value) {
  const stops = scale(),
    place = Math.min(Math.max(value, 0), 1) * (stops.length - 1),
    below = Math.min(Math.floor(place), stops.length - 2);
  const [from, to] = [channels(stops[below]), channels(stops[below + 1])];
  return from.map((c, at) => c + (place - below) * (to[at] - c));
}

function shade(value) {
  return `rgb(${shadeChannels(value).map(Math.round).join(",")})`;
}

/** Black or white, whichever stands out more from the cell of this value. */
function inkOn(value) {
  if (Number.isNaN(value)) return css("--muted");
  return luminance(...shadeChannels(value)) > 0.18 ? "#000000" : "#ffffff";
}

function matrixData(items, seed) {
  const rows = [];
  for (const item of items) {
    matrixOf(item, seed).forEach((line, k) =>
      line.forEach((value, j) =>
        rows.push([
          item.row.benchmark,
          item.row.label,
          seed === "" ? "mean" : Number(seed),
          k + 1,
          j + 1,
          item.row.tasks[j] ?? "",
          value,
        ]),
      ),
    );
  }
  return { columns: ["benchmark", "method", "seed", "after_task", "on_task", "task", "accuracy"], rows };
}
