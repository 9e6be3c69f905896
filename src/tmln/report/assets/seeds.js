// Every seed as a point: how far apart runs of one method are.

const seedsSection = {
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
        build: (width) => seedsPlot(items, width),
        table: () => ({
          columns: ["benchmark", "method", "seed", state.by, "run"],
          rows: items.flatMap(({ row, good }) =>
            good.map((run) => [row.benchmark, row.label, run.seed, run.metrics[state.by], run.name]),
          ),
        }),
        click: openPoint,
        height: 90 + 34 * items.length,
      }),
      more(there, LINES),
    ];
  },
};

/** Open the runs of the row that was clicked. */
function openPoint(point) {
  if (point.customdata) update({ open: point.customdata });
}

/** What hovering over a run says. */
function runText(row, run) {
  return `${bold(row.label)}<br>seed ${run.seed}: ${shown(run.metrics[state.by], state.by, 2)}`;
}

function seedsPlot(items, width) {
  const unit = unitOf(state.by),
    ink = css("--ink");
  const data = items.flatMap(({ row, good, summary }, at) => {
    const { mean, low, high, text, interval } = summary(state.by),
      colour = colourOf(row);
    const runs = good.filter((run) => isNumber(run.metrics[state.by]));
    const spread = (index) => (runs.length > 1 ? (index / (runs.length - 1) - 0.5) * 0.34 : 0);
    const edge = symbolOf(row).includes("-open") ? colour : css("--surface");
    return [
      lines([unit * low, unit * high], [at, at], { color: colour, width: 2 }),
      markers(
        [unit * mean],
        [at],
        { symbol: "line-ns-open", size: 18, color: ink, line: { width: 2, color: ink } },
        [`${bold(row.label)}<br>mean ${dash(text)}<br>95% ${dash(interval)}`],
        { customdata: [row.label] },
      ),
      markers(
        runs.map((run) => unit * run.metrics[state.by]),
        runs.map((_, index) => at + spread(index)),
        { symbol: symbolOf(row), color: colour, size: 9, opacity: 0.85, line: { width: 1, color: edge } },
        runs.map((run) => runText(row, run)),
        { customdata: runs.map(() => row.label) },
      ),
    ];
  });
  return {
    data,
    layout: {
      height: 74 + 34 * items.length,
      margin: { l: 12, r: 16, t: 4, b: 44 },
      xaxis: axis(withUnit(state.by)),
      yaxis: nameAxis(items.map((item) => item.row), width),
    },
  };
}
