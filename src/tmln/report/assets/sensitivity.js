// What a setting does: each field that a method ran with several values of, against the metric, every seed a point.

const sensitivitySection = {
  id: "sensitivity",
  title: "Sensitivity",
  render() {
    const sweeps = sweepsOf(view().whole.filter((item) => item.summary(state.by).n));
    if (!sweeps.length)
      return [
        empty(
          "No method ran with several settings:",
          `tmln sweep --benchmark ${benchmarkHere() || "split-digits"} --method tmln --grid step.damping=0.01,0.1,1 --seeds 3`,
        ),
      ];
    const some = state.all ? sweeps : sweeps.slice(0, LIMIT);
    const values = sweeps.flatMap(({ items }) => items.flatMap((item) => [...item.values(state.by).values()]));
    const unit = metricOf(state.by).percent ? 100 : 1,
      ends = [unit * Math.min(...numbers(values)), unit * Math.max(...numbers(values))];
    const room = 0.06 * (ends[1] - ends[0] || 1);
    return [
      explained(
        `${metricOf(state.by).heading} of every run against each setting that its method ran with several values of. A ` +
          "point is a seed; lines join the means of configurations that are alike in all else, the strong one through the " +
          "ringed configuration, which stands for its method. “Compare by” chooses another metric.",
        downloads("Settings and seeds", fileName(state.b, state.by, "sensitivity"), () => sweepData(sweeps)),
      ),
      el(
        "div",
        { class: "grid" },
        some.map((sweep) => sweepFigure(sweep, [ends[0] - room, ends[1] + room])),
      ),
      sweeps.length > LIMIT ? offer(`Showing ${some.length} of ${sweeps.length} settings.`) : null,
    ];
  },
};

/** A method and a field that it varies in, with its rows that have it. */
function sweepsOf(items) {
  return [...new Set(items.map((item) => item.row.contender))].flatMap((contender) => {
    const mine = items.filter((item) => item.row.contender === contender);
    const fields = varied(mine.map((item) => item.row));
    return [...fields.keys()].map((field) => ({
      contender,
      field,
      values: fields.get(field),
      others: [...fields.keys()].filter((name) => name !== field),
      items: mine.filter((item) => item.row.fields[field] !== undefined),
    }));
  });
}

function sweepFigure(sweep, range) {
  const face = sweep.items.find((item) => item.row.face) ?? sweep.items[0];
  return figure({
    title: `${metricOf(state.by).heading} of ${sweep.contender} against ${sweep.field}`,
    heading: [glyph(face.row), el("span", { class: "name" }, sweep.contender), " ", el("span", { class: "settings" }, sweep.field)],
    level: "h4",
    name: fileName(state.b, sweep.contender, state.by, "against", sweep.field),
    build: () => sweepPlot(sweep, face, range),
    table: () => sweepData([sweep]),
    click: (point) => point.customdata && update({ open: point.customdata }),
    height: 250,
  });
}

function sweepPlot(sweep, face, range) {
  const unit = metricOf(state.by).percent ? 100 : 1,
    colour = colourOf(face.row);
  const { place, layout } = sweepAxis(sweep.values);
  const at = (item) => place(item.row.fields[sweep.field]);
  const alike = (item) => JSON.stringify(sweep.others.map((name) => item.row.fields[name] ?? null));
  const slices = new Map();
  for (const item of sweep.items) slices.set(alike(item), [...(slices.get(alike(item)) ?? []), item]);
  const data = [];
  const strongest = alike(face);
  for (const [key, mine] of [...slices].sort(([a], [b]) => (a === strongest) - (b === strongest))) {
    const main = key === strongest;
    const inLine = [...mine].sort((a, b) => at(a) - at(b));
    data.push({
      type: "scatter",
      mode: "lines",
      x: inLine.map(at),
      y: inLine.map((item) => unit * item.summary(state.by).mean),
      line: { color: main ? colour : faint(colour, 0.3), width: main ? 2.5 : 1 },
      hoverinfo: "skip",
    });
    const points = mine.flatMap((item) =>
      item.good.filter((run) => typeof run.metrics[state.by] === "number").map((run) => ({ item, run })),
    );
    data.push({
      type: "scatter",
      mode: "markers",
      x: points.map(({ item }) => at(item)),
      y: points.map(({ run }) => unit * run.metrics[state.by]),
      marker: { color: main ? colour : faint(colour, 0.35), size: main ? 7 : 5, symbol: face.row.look.symbol },
      hovertext: points.map(
        ({ item, run }) =>
          `<b>${plain(clipped(item.row.label, 60))}</b><br>seed ${run.seed}: ${shown(run.metrics[state.by], state.by, 2)}`,
      ),
      hoverinfo: "text",
      customdata: points.map(({ item }) => item.row.label),
    });
  }
  data.push({
    type: "scatter",
    mode: "markers",
    x: [at(face)],
    y: [unit * face.summary(state.by).mean],
    marker: { symbol: "circle-open", size: 17, color: css("--ink"), line: { width: 1.6, color: css("--ink") } },
    hoverinfo: "skip",
  });
  return {
    data,
    layout: {
      height: 250,
      margin: { l: 44, r: 10, t: 8, b: 44 },
      xaxis: axis(plain(sweep.field), layout),
      yaxis: axis(`${metricOf(state.by).heading}${unit > 1 ? ", %" : ""}`, { range }),
    },
  };
}

/** Numbers by their size, or its logarithm where they span much; words, and few numbers with a 0, side by side. */
function sweepAxis(values) {
  const found = values.map(Number),
    [low, high] = [Math.min(...found), Math.max(...found)];
  const logs = low > 0 && high / low >= 20;
  const measured = values.every((value) => value !== "" && Number.isFinite(Number(value))) && (logs || values.length > 8);
  const place = measured ? (value) => (logs ? Math.log10(Number(value)) : Number(value)) : (value) => values.indexOf(value);
  const ends = [place(values[0]), place(values[values.length - 1])],
    room = 0.07 * (ends[1] - ends[0] || 1);
  const few = everySo(values.length, 7).map((at) => values[at]);
  return {
    place,
    layout: {
      range: [ends[0] - room, ends[1] + room],
      tickvals: few.map(place),
      ticktext: few.map((value) => plain(clipped(value, 12))),
    },
  };
}

function sweepData(sweeps) {
  return {
    columns: ["benchmark", "method", "field", "value", "seed", state.by, "configuration", "run"],
    rows: sweeps.flatMap(({ contender, field, items }) =>
      items.flatMap((item) =>
        item.good.map((run) => [
          item.row.benchmark,
          contender,
          field,
          item.row.fields[field],
          run.seed,
          run.metrics[state.by],
          item.row.label,
          run.name,
        ]),
      ),
    ),
  };
}
