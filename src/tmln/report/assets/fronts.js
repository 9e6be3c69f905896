// Forgetting against intransigence, or any metric against any other, with the Pareto fronts, which are Python's.

const frontsSection = {
  id: "tradeoff",
  title: "Trade-off",
  render() {
    const metrics = metricsHere(),
      { x, y } = state;
    const items = view().whole.filter((item) => item.summary(x).n && item.summary(y).n);
    const choose = inline(
      selectMetric("Across", metrics, x, (value) => update({ x: value }), "across"),
      selectMetric("Up", metrics, y, (value) => update({ y: value }), "up"),
    );
    if (!items.length) {
      const lacking = [x, y].filter((name) => !metrics.includes(name)).map((name) => metricOf(name).heading.toUpperCase());
      const text = lacking.length ? `No run here has ${lacking.join(" and ")}.` : "No run here has both.";
      return [choose, empty(text, lacking.includes("INT") ? "tmln run --int-reference prefix" : "")];
    }
    const title = (name) => ({ fm: "Forgetting", int: "intransigence" })[name] ?? metricOf(name).heading;
    return [
      choose,
      figure({
        title: `${title(y)} against ${title(x)}`,
        name: fileName(state.b, y, "against", x),
        caption:
          "A point a configuration, mean over the seeds that have both, with its sample deviation. The dotted stairs are the " +
          "Pareto front of all configurations, whose points are ringed in ink; stairs in a method’s colour are its own " +
          "front. Click a point to see its runs.",
        build: (width) => frontPlot(items, width),
        table: () => frontData(items),
        click: openPoint,
        height: 460,
      }),
    ];
  },
};

/** The fronts of the two metrics as lists of rows from left to right, and the points; a metric against itself has none. */
function frontsHere() {
  const { fronts } = DATA.tables[state.b];
  const found = fronts[`${state.x} ${state.y}`],
    turned = fronts[`${state.y} ${state.x}`];
  const { all, methods, points } = found ?? turned ?? { all: [], methods: {}, points: {} };
  const ordered = (ids) => (found ? ids : [...ids].reverse());
  const pointOf = (item) => {
    const [first, second] = points[item.row.id] ?? [];
    const [x, y] = found ? [first, second] : [second, first];
    const part = (given, metric) => (given ? { n: given[0], mean: given[1], std: given[2] } : item.summary(metric));
    return { x: part(x, state.x), y: part(y, state.y) };
  };
  return { all: ordered(all), methods: Object.values(methods).map(ordered), pointOf };
}

function frontPlot(items, width) {
  const { all, methods, pointOf } = frontsHere();
  const [sx, sy] = [unitOf(state.x), unitOf(state.y)];
  const isOn = (item) => all.includes(item.row.id);
  const stairs = (ids, line) => {
    const kept = ids.map((id) => items.find((item) => item.row.id === id)).filter(Boolean);
    const points = kept.map(pointOf);
    return lines(points.map(({ x }) => sx * x.mean), points.map(({ y }) => sy * y.mean), { shape: "hv", ...line });
  };
  const data = [stairs(all, { color: css("--muted"), width: 1.5, dash: "dot" })];
  for (const own of methods.filter((ids) => ids.length > 1))
    data.push(stairs(own, { color: faint(colourOf(DATA.rows[own[0]]), 0.55), width: 1.5 }));
  for (const method of new Set(items.map((item) => item.row.method))) {
    const mine = items.filter((item) => item.row.method === method),
      points = mine.map(pointOf),
      colour = colourOf(mine[0].row);
    const error = (values) => ({
      ...{ type: "data", array: values.map((value) => value || 0), color: faint(colour, 0.45) },
      ...{ thickness: 1, width: 0, visible: items.length <= 30 },
    });
    const line = {
      width: mine.map((item) => (isOn(item) ? 2 : 1)),
      color: mine.map((item) => css(isOn(item) ? "--ink" : "--surface")),
    };
    data.push(
      markers(
        points.map(({ x }) => sx * x.mean),
        points.map(({ y }) => sy * y.mean),
        { symbol: mine[0].row.look.symbol, color: colour, size: 12, opacity: 0.92, line },
        mine.map((item, at) => pointText(item, points[at], isOn(item))),
        {
          name: plain(clipped(method, 40)),
          showlegend: true,
          error_x: error(points.map(({ x }) => sx * x.std)),
          error_y: error(points.map(({ y }) => sy * y.std)),
          customdata: mine.map((item) => item.row.label),
        },
      ),
    );
  }
  const title = (name) => `${withUnit(name)} (${metricOf(name).more_is_better ? "more" : "less"} is better)`;
  return {
    data,
    layout: {
      height: width < 600 ? 420 : 480,
      margin: { l: 56, r: 20, t: 8, b: 48 },
      showlegend: true,
      xaxis: axis(title(state.x)),
      yaxis: axis(title(state.y)),
    },
  };
}

/** Hover: the numbers and the configuration, as far as it differs from the others. */
function pointText({ row, summary }, { y }, isOn) {
  const fields = [...varied(view().all.filter((other) => other.method === row.method)).keys()].slice(0, 10);
  return [
    `<b>${plain(row.method)}</b>${isOn ? " · on the front" : ""}`,
    ...[state.x, state.y].map((name) => `${plain(metricOf(name).heading)} ${dash(summary(name).text)}`),
    ...fields.map((name) => `${plain(name)} = ${plain(clipped(row.fields[name] ?? "", 40))}`),
    plural(y.n, "seed"),
  ].join("<br>");
}

function frontData(items) {
  const { all, pointOf } = frontsHere();
  return {
    columns: ["benchmark", "method", state.x, `${state.x}_std`, state.y, `${state.y}_std`, "n", "on_front"],
    rows: items.map((item) => {
      const { x, y } = pointOf(item);
      return [item.row.benchmark, item.row.label, x.mean, x.std, y.mean, y.std, y.n, all.includes(item.row.id)];
    }),
  };
}
