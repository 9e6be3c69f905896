// Forgetting against intransigence, or any metric against any other, with the front that no configuration beats.

const frontsSection = {
  id: "tradeoff",
  title: "Trade-off",
  render() {
    const metrics = metricsThere();
    const [x, y] = [state.x, state.y];
    const items = view().whole.filter((item) => item.summary(x).n && item.summary(y).n);
    const options = metrics.map((name) => [name, metricOf(name).heading]);
    const choose = el(
      "div",
      { class: "inline" },
      select("Across", options, x, (value) => update({ x: value }), "across"),
      select("Up", options, y, (value) => update({ y: value }), "up"),
    );
    if (!items.length) {
      const lacking = [x, y]
        .filter((name) => !metrics.includes(name))
        .map((name) => metricOf(name).heading.toUpperCase());
      return [
        choose,
        empty(
          lacking.length ? `No run here has ${lacking.join(" and ")}.` : "No run here has both.",
          lacking.includes("INT") ? "tmln run --oracle prefix" : "",
        ),
      ];
    }
    return [
      choose,
      figure({
        title: `${headline(y)} against ${headline(x)}`,
        name: fileName(state.b, y, "against", x),
        caption:
          "A point a configuration, all of them, mean over seeds with its sample deviation. The dotted stairs join those that no other " +
          "beats on both, ringed in ink; stairs in a method’s colour are the method’s own. Click a point to see its runs.",
        build: (width) => frontPlot(items, width),
        table: () => frontData(items),
        click: (point) => point.customdata && update({ open: point.customdata }),
        height: 460,
      }),
    ];
  },
};

function headline(name) {
  return { fm: "Forgetting", int: "intransigence" }[name] ?? metricOf(name).heading;
}

/** Less is better on both axes: what is better when larger changes its sign. The references do not compete. */
function costsOf(item) {
  if (!item.row.competes) return [NaN, NaN];
  return [state.x, state.y].map((name) => item.summary(name).mean * (metricOf(name).more_is_better ? -1 : 1));
}

function frontPlot(items, width) {
  const [sx, sy] = [state.x, state.y].map((name) => (metricOf(name).percent ? 100 : 1));
  const at = (item) => [sx * item.summary(state.x).mean, sy * item.summary(state.y).mean];
  const line = (kept, look) => ({
    type: "scatter",
    mode: "lines",
    x: kept.map((item) => at(item)[0]),
    y: kept.map((item) => at(item)[1]),
    hoverinfo: "skip",
    showlegend: false,
    line: { shape: "hv", ...look },
  });
  const skyline = skylineOf(items);
  const methods = [...new Set(items.map((item) => item.row.method))];
  const data = [line(skyline, { color: css("--muted"), width: 1.5, dash: "dot" })];
  for (const method of methods) {
    const mine = items.filter((item) => item.row.method === method),
      own = frontOf(mine);
    const colour = colourOf(mine[0].row);
    if (own.length > 1) data.push(line(own, { color: faint(colour, 0.55), width: 1.5 }));
    const bars = items.length <= 30;
    data.push({
      type: "scatter",
      mode: "markers",
      name: plain(clipped(method, 40)),
      showlegend: true,
      x: mine.map((item) => at(item)[0]),
      y: mine.map((item) => at(item)[1]),
      error_x: {
        type: "data",
        array: mine.map((item) => sx * item.summary(state.x).std || 0),
        color: faint(colour, 0.45),
        thickness: 1,
        width: 0,
        visible: bars,
      },
      error_y: {
        type: "data",
        array: mine.map((item) => sy * item.summary(state.y).std || 0),
        color: faint(colour, 0.45),
        thickness: 1,
        width: 0,
        visible: bars,
      },
      marker: {
        symbol: mine[0].row.look.symbol,
        color: colour,
        size: 12,
        opacity: 0.92,
        line: {
          width: mine.map((item) => (skyline.includes(item) ? 2 : 1)),
          color: mine.map((item) => (skyline.includes(item) ? css("--ink") : css("--surface"))),
        },
      },
      hovertext: mine.map((item) => pointText(item, skyline)),
      hoverinfo: "text",
      customdata: mine.map((item) => item.row.label),
    });
  }
  const arrow = (name) => (metricOf(name).more_is_better ? "more is better" : "less is better");
  const unit = (name) => `${metricOf(name).heading}${metricOf(name).percent ? ", %" : ""} (${arrow(name)})`;
  return {
    data,
    layout: {
      height: width < 600 ? 420 : 480,
      margin: { l: 56, r: 20, t: 8, b: 48 },
      showlegend: true,
      xaxis: axis(unit(state.x)),
      yaxis: axis(unit(state.y)),
    },
  };
}

function frontOf(items) {
  return front(items.map(costsOf)).map((index) => items[index]);
}

/** The front of all methods: of one with validation data only the configuration that was chosen on them. */
function skylineOf(items) {
  return frontOf(items.filter((item) => !item.row.passed_over));
}

/** Hover: the numbers and the configuration, as far as it differs from the others. */
function pointText(item, skyline) {
  const fields = [...varied(view().all.filter((row) => row.method === item.row.method)).keys()].slice(0, 10);
  return [
    `<b>${plain(item.row.method)}</b>${skyline.includes(item) ? " · on the front" : ""}`,
    ...[state.x, state.y].map((name) => `${plain(metricOf(name).heading)} ${meanStd(item.summary(name), name)}`),
    ...fields.map((name) => `${plain(name)} = ${plain(clipped(item.row.fields[name] ?? "", 40))}`),
    plural(item.summary(state.y).n, "seed"),
  ].join("<br>");
}

function frontData(items) {
  const skyline = skylineOf(items);
  return {
    columns: ["benchmark", "method", state.x, `${state.x}_std`, state.y, `${state.y}_std`, "n", "on_front"],
    rows: items.map((item) => [
      item.row.benchmark,
      item.row.label,
      item.summary(state.x).mean,
      item.summary(state.x).std,
      item.summary(state.y).mean,
      item.summary(state.y).std,
      item.summary(state.y).n,
      skyline.includes(item),
    ]),
  };
}
