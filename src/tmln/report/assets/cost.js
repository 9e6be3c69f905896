// What methods cost: the wall-clock time of the runs, and, where it was measured, time and memory over naive training.

const costSection = {
  id: "cost",
  title: "Cost",
  render() {
    const there = view().rows.filter((item) => item.summary("seconds").n),
      items = readable(there, LINES);
    const measuredOnes = analysesHere("overhead");
    return [
      items.length
        ? figure({
            title: "Time of a run",
            name: fileName(state.b, "seconds"),
            caption:
              "Wall-clock time of a whole run with its tests, mean over seeds and sample deviation, " +
              "on whatever machine it ran: no fair race.",
            build: (width) => secondsPlot(items, width),
            table: () => ({
              columns: ["benchmark", "method", "n", "mean", "std"],
              rows: items.map((item) => [
                item.row.benchmark,
                item.row.label,
                item.summary("seconds").n,
                item.summary("seconds").mean,
                item.summary("seconds").std,
              ]),
            }),
            click: (point) => point.customdata && update({ open: point.customdata }),
            height: 74 + 30 * items.length,
          })
        : null,
      more(there, LINES),
      measuredOnes.length
        ? measuredOnes.flatMap(overheadParts)
        : empty(
            "Overheads side by side, method by method in turns, have not been measured:",
            `tmln overhead --benchmark ${benchmarkHere() || "split-digits"} --out RUNS`,
          ),
    ];
  },
};

function secondsPlot(items, width) {
  const mean = items.map((item) => item.summary("seconds").mean),
    std = items.map((item) => item.summary("seconds").std || 0);
  return {
    data: [
      {
        type: "bar",
        orientation: "h",
        x: mean,
        y: items.map((_, at) => at),
        width: 0.6,
        marker: { color: items.map((item) => faint(colourOf(item.row), 0.85)) },
        error_x: { type: "data", array: std, color: css("--ink"), thickness: 1, width: 3 },
        hovertext: items.map(
          (item) => `<b>${plain(clipped(item.row.label, 60))}</b><br>${meanStd(item.summary("seconds"), "seconds")} s`,
        ),
        hoverinfo: "text",
        customdata: items.map((item) => item.row.label),
      },
    ],
    layout: {
      height: 64 + 30 * items.length,
      margin: { l: 12, r: 16, t: 4, b: 44 },
      xaxis: axis("seconds", { rangemode: "tozero" }),
      yaxis: nameAxis(items, width),
    },
  };
}
