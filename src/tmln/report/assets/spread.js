// Every seed as a point: how far apart runs of one method are.

const spreadSection = {
  id: "seeds",
  title: "Seeds",
  render() {
    const there = view().rows.filter((item) => item.summary(state.by).n),
      items = readable(there, LINES);
    if (!items.length) return [empty(`No run has ${metricOf(state.by).heading}.`)];
    return [
      figure({
        title: `${metricOf(state.by).heading} of every seed`,
        name: fileName(state.b, state.by, "seeds"),
        caption: "A point a run; the bar is the mean, the line its 95% interval. “Compare by” chooses another metric.",
        build: (width) => spreadPlot(items, width),
        table: () => ({
          columns: ["benchmark", "method", "seed", state.by, "run"],
          rows: items.flatMap((item) =>
            item.good.map((run) => [item.row.benchmark, item.row.label, run.seed, run.metrics[state.by], run.name]),
          ),
        }),
        click: (point) => point.customdata && update({ open: point.customdata }),
        height: 90 + 34 * items.length,
      }),
      more(there, LINES),
    ];
  },
};

function spreadPlot(items, width) {
  const percent = metricOf(state.by).percent ? 100 : 1;
  const data = items.flatMap((item, at) => {
    const found = item.summary(state.by),
      colour = colourOf(item.row);
    const label = `<b>${plain(clipped(item.row.label, 60))}</b>`;
    const runs = item.good.filter((run) => typeof run.metrics[state.by] === "number");
    const jitter = (index) => (runs.length > 1 ? (index / (runs.length - 1) - 0.5) * 0.34 : 0);
    return [
      {
        type: "scatter",
        mode: "lines",
        x: [percent * found.low, percent * found.high],
        y: [at, at],
        line: { color: colour, width: 2 },
        hoverinfo: "skip",
      },
      {
        type: "scatter",
        mode: "markers",
        x: [percent * found.mean],
        y: [at],
        marker: { symbol: "line-ns-open", size: 18, color: css("--ink"), line: { width: 2, color: css("--ink") } },
        hovertext: [`${label}<br>mean ${meanStd(found, state.by)}<br>95% ${interval(found, state.by)}`],
        hoverinfo: "text",
        customdata: [item.row.label],
      },
      {
        type: "scatter",
        mode: "markers",
        x: runs.map((run) => percent * run.metrics[state.by]),
        y: runs.map((_, index) => at + jitter(index)),
        marker: {
          symbol: symbolOf(item.row),
          color: colour,
          size: 9,
          opacity: 0.85,
          line: { width: 1, color: symbolOf(item.row).includes("-open") ? colour : css("--surface") },
        },
        hovertext: runs.map((run) => `${label}<br>seed ${run.seed}: ${shown(run.metrics[state.by], state.by, 2)}`),
        hoverinfo: "text",
        customdata: runs.map(() => item.row.label),
      },
    ];
  });
  return {
    data,
    layout: {
      height: 74 + 34 * items.length,
      margin: { l: 12, r: 16, t: 4, b: 44 },
      xaxis: axis(`${metricOf(state.by).heading}${percent > 1 ? ", %" : ""}`),
      yaxis: nameAxis(items, width),
    },
  };
}

/** Rows from top to bottom, by name. */
function nameAxis(items, width) {
  return axis("", {
    tickvals: items.map((_, at) => at),
    ticktext: items.map((item) => plain(clipped(item.row.label, width < 600 ? 18 : 44)) + "  "),
    range: [items.length - 0.4, -0.6],
    showgrid: false,
    tickfont: { size: 12, color: css("--ink") },
  });
}
