// Accuracy over time: on all tasks seen so far, and on each task. Every point, [n, mean, std, low, high], is Python's.

const curvesSection = {
  id: "time",
  title: "Over time",
  render() {
    const there = view().byAccuracy.filter((item) => item.row.curves.average.length > 1);
    if (!there.length) return [empty("Accuracy over time needs a finished run of at least two tasks.")];
    const items = readable(there);
    const bands = [
      ["std", "± sample standard deviation"],
      ["ci", "95% interval"],
      ["none", "none"],
    ];
    return [
      inline(select("Bands", bands, state.band, (one) => update({ band: one }), "bands")),
      figure({
        title: "Average accuracy on the tasks seen so far",
        name: fileName(state.b, "average-accuracy"),
        build: (width) => averagePlot(items, width),
        table: () => curveData(items, (row) => [["average", 0, row.curves.average]]),
        height: 420,
      }),
      figure({
        title: "Accuracy on each task",
        name: fileName(state.b, "task-accuracy"),
        caption: "One panel a task, from the time it is learned, which the dotted line marks.",
        build: (width) => taskPlots(items, width),
        table: () => curveData(items, (row) => row.curves.tasks.map((points, j) => [`task ${j + 1}`, j, points])),
        height: 420,
      }),
      more(there),
    ];
  },
};

function tasksOf(items) {
  return Math.max(...items.map((item) => item.row.curves.tasks.length));
}

/** Band below, line above; the first point is after task `from` + 1. */
function curveTraces(row, points, from, axes, showlegend, at = "") {
  const colour = colourOf(row),
    x = points.map((_, k) => from + k + 1);
  const edge = ([n, mean, std, low, high], sign) => {
    if (mean === null || n < 2) return mean;
    return state.band === "std" ? Math.min(1, Math.max(0, mean + sign * std)) : sign > 0 ? high : low;
  };
  const percent = (values) => values.map((value) => (value === null ? null : 100 * value));
  const edges = [1, -1].map((sign) => percent(points.map((point) => edge(point, sign))));
  const isOpen = symbolOf(row).includes("-open");
  const line = lines(x, percent(points.map(([, mean]) => mean)), { color: colour, width: 2, dash: dashOf(row) }, {
    mode: "lines+markers",
    name: plain(clipped(row.label, 60)),
    showlegend,
    marker: { color: colour, symbol: symbolOf(row), size: 7, line: { width: isOpen ? 1.6 : 0, color: colour } },
    hovertext: points.map(
      ([, mean, std], k) => `${bold(row.label)}<br>${at}after task ${x[k]}: ${percentText(mean, std)} %`,
    ),
    hoverinfo: "text",
    customdata: x.map(() => row.label),
    ...axes,
  });
  const banded = state.band !== "none" && points.some(([n, , std]) => n > 1 && std > 0);
  return banded ? [band(x, ...edges, colour, axes), line] : [line];
}

function averagePlot(items, width) {
  const tasks = tasksOf(items);
  return {
    data: items.flatMap(({ row }) => curveTraces(row, row.curves.average, 0, {}, true)),
    layout: {
      height: 380 + 20 * legendRows(items, width),
      margin: { l: 52, r: 16, t: 8, b: 44 },
      showlegend: true,
      xaxis: axis("after learning task", { dtick: tasks > 12 ? undefined : 1, range: [0.85, tasks + 0.15] }),
      yaxis: axis("accuracy on tasks seen, %", { range: accuracyRange(items.map(({ row }) => row.curves.average)) }),
    },
  };
}

/** A panel a task, in as many columns as there is room for. */
function taskPlots(items, width) {
  const tasks = tasksOf(items),
    columns = Math.min(tasks, width < 480 ? 2 : width < 800 ? 3 : 5),
    rows = Math.ceil(tasks / columns);
  const panel = width < 480 ? 150 : 170,
    gapX = 12 / width,
    gapY = 52,
    top = 26 + legendRows(items, width) * 20;
  const inner = rows * panel + (rows - 1) * gapY;
  const layout = { height: top + inner + 44, margin: { l: 40, r: 8, t: top, b: 44 }, showlegend: true };
  layout.legend = { ...base().legend, y: 1 + 26 / inner, yanchor: "bottom" };
  const note = (text, x, y, colour, more) => {
    const place = { x, y, xref: "paper", yref: "paper", showarrow: false };
    return { text, ...place, font: { size: 12, color: css(colour) }, ...more };
  };
  layout.annotations = [note("after learning task", 0.5, 0, "--muted", { yshift: -26, yanchor: "top" })];
  layout.shapes = [];
  const data = [];
  const range = accuracyRange(items.flatMap(({ row }) => row.curves.tasks));
  for (let j = 0; j < tasks; j++) {
    const column = j % columns,
      y1 = 1 - (Math.floor(j / columns) * (panel + gapY)) / inner;
    const x0 = column / columns + (column ? gapX : 0),
      x1 = (column + 1) / columns - (column < columns - 1 ? gapX : 0);
    const [x, y] = ["x", "y"].map((letter) => (j ? `${letter}${j + 1}` : letter));
    const time = { range: [0.7, tasks + 0.3], dtick: tasks > 6 ? Math.ceil(tasks / 5) : 1 };
    const accuracy = { range, nticks: 4, showticklabels: column === 0 };
    const [across, up] = [[x0, x1], [y1 - panel / inner, y1]];
    layout[x.replace("x", "xaxis")] = axis("", { domain: across, anchor: y, automargin: false, ...time });
    layout[y.replace("y", "yaxis")] = axis("", { domain: up, anchor: x, automargin: false, ...accuracy });
    const title = plain(clipped(taskName(items[0].row, j), Math.floor(width / columns / 7)));
    layout.annotations.push(note(title, x0, y1, "--ink", { xanchor: "left", yanchor: "bottom" }));
    const learned = { xref: x, yref: `${y} domain`, x0: j + 1, x1: j + 1, y0: 0, y1: 1, layer: "below" };
    layout.shapes.push(rule(learned, "dot"));
    for (const { row } of items)
      data.push(...curveTraces(row, row.curves.tasks[j] ?? [], j, { xaxis: x, yaxis: y }, j === 0, `on task ${j + 1}, `));
  }
  return { data, layout };
}

/** The percentages that these curves and their bands take, with room; at least ten points. */
function accuracyRange(curves) {
  const values = curves.flat().flatMap(([, mean, std, low, high]) => {
    if (mean === null) return [];
    const band = { none: [], std: [mean - (std ?? 0), mean + (std ?? 0)] }[state.band] ?? [low ?? mean, high ?? mean];
    return [mean, ...band].map((value) => 100 * Math.min(1, Math.max(0, value)));
  });
  if (!values.length) return [0, 102];
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const room = Math.max(2, 0.06 * (high - low), (10 - (high - low)) / 2);
  return [Math.max(-3, low - room), Math.min(103, high + room)];
}

/** About how many lines a legend takes. */
function legendRows(items, width) {
  const widest = Math.max(...items.map((item) => 50 + 7 * Math.min([...item.row.label].length, 60)));
  return Math.ceil(items.length / Math.max(1, Math.floor((width - 50) / widest)));
}

/** `series(row)` gives names, the task before the first point, and points. */
function curveData(items, series) {
  return {
    columns: ["benchmark", "method", "on", "after_task", "n", "mean", "std", "low", "high"],
    rows: items.flatMap(({ row }) =>
      series(row).flatMap(([name, from, points]) =>
        points.map((point, k) => [row.benchmark, row.label, name, from + k + 1, ...point]),
      ),
    ),
  };
}
