// Accuracy over time: on all tasks seen so far, and on each task by itself.

const curvesSection = {
  id: "time",
  title: "Over time",
  render() {
    const there = view().byAccuracy.filter((item) => item.good.some((run) => run.accuracy.length > 1));
    if (!there.length) return [empty("Accuracy over time needs a finished run of at least two tasks.")];
    const items = readable(there);
    return [
      el(
        "div",
        { class: "inline" },
        select(
          "Bands",
          [
            ["std", "± sample standard deviation"],
            ["ci", "95% interval"],
            ["none", "none"],
          ],
          state.band,
          (band) => update({ band }),
          "bands",
        ),
      ),
      figure({
        title: "Average accuracy on the tasks seen so far",
        name: fileName(state.b, "average-accuracy"),
        build: (width) => averagePlot(items, width),
        table: () => curveData(items, [["average", seenSoFar]]),
        height: 420,
      }),
      figure({
        title: "Accuracy on each task",
        name: fileName(state.b, "task-accuracy"),
        caption: "One panel a task, from the moment it is learned; the dotted line marks that moment.",
        build: (width) => taskPlots(items, width),
        table: () =>
          curveData(
            items,
            tasksOf(items).map((_, j) => [`task ${j + 1}`, (run) => run.accuracy.map((line) => line[j])]),
          ),
        height: 420,
      }),
      more(there),
    ];
  },
};

function seenSoFar(run) {
  return run.accuracy.map((line, k) => mean(line.slice(0, k + 1)));
}

function tasksOf(items) {
  return Array.from({
    length: Math.max(...items.flatMap((item) => item.good.map((run) => run.accuracy[0]?.length ?? 0))),
  });
}

/** Statistics over seeds at each time. */
function curve(item, values) {
  const found = item.good.map(values);
  const length = Math.max(0, ...found.map((line) => line.length));
  return Array.from({ length }, (_, k) =>
    summarise(
      found.map((line) => line[k]),
      0.95,
      [0, 1],
    ),
  );
}

/** Band below, line above. `from` is the first time that is drawn. */
function curveTraces(item, points, from, axes, legend, at = "") {
  const { row } = item,
    colour = colourOf(row);
  const x = points.map((_, k) => k + 1).slice(from);
  const kept = points.slice(from);
  const half = (one, sign) => {
    if (state.band === "none" || one.n < 2) return 0;
    return state.band === "std" ? one.std : sign > 0 ? one.high - one.mean : one.mean - one.low;
  };
  const bound = (one, sign) => 100 * Math.min(1, Math.max(0, one.mean + sign * half(one, sign)));
  const hover = kept.map(
    (one, at2) => `<b>${plain(clipped(row.label, 60))}</b><br>${at}after task ${x[at2]}: ${meanStd(one, "acc")} %`,
  );
  const band = kept.some((one) => half(one, 1) || half(one, -1))
    ? [
        {
          type: "scatter",
          mode: "lines",
          x: [...x, ...[...x].reverse()],
          y: [...kept.map((one) => bound(one, 1)), ...kept.map((one) => bound(one, -1)).reverse()],
          fill: "toself",
          fillcolor: faint(colour, 0.13),
          line: { width: 0 },
          hoverinfo: "skip",
          showlegend: false,
          ...axes,
        },
      ]
    : [];
  return [
    ...band,
    {
      type: "scatter",
      mode: "lines+markers",
      x,
      y: kept.map((one) => 100 * one.mean),
      name: plain(clipped(row.label, 60)),
      showlegend: legend,
      line: { color: colour, width: 2, dash: dashOf(row) },
      marker: {
        color: colour,
        symbol: symbolOf(row),
        size: 7,
        line: { width: symbolOf(row).includes("-open") ? 1.6 : 0, color: colour },
      },
      hovertext: hover,
      hoverinfo: "text",
      customdata: x.map(() => row.label),
      ...axes,
    },
  ];
}

function averagePlot(items, width) {
  const tasks = tasksOf(items).length;
  return {
    data: items.flatMap((item) => curveTraces(item, curve(item, seenSoFar), 0, {}, true)),
    layout: {
      height: 380 + 20 * legendRows(items, width),
      margin: { l: 52, r: 16, t: 8, b: 44 },
      showlegend: true,
      xaxis: axis("after learning task", { dtick: tasks > 12 ? undefined : 1, range: [0.85, tasks + 0.15] }),
      yaxis: axis("accuracy on tasks seen, %", { range: [0, 102] }),
    },
  };
}

function curveData(items, series) {
  const rows = [];
  for (const item of items) {
    for (const [name, values] of series) {
      curve(item, values).forEach((one, k) =>
        rows.push([item.row.benchmark, item.row.label, name, k + 1, one.n, one.mean, one.std, one.low, one.high]),
      );
    }
  }
  return { columns: ["benchmark", "method", "on", "after_task", "n", "mean", "std", "low", "high"], rows };
}
