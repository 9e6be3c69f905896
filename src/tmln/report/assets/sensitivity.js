// The effect of a setting: each field that a method ran with several values of, against the metric, every seed a point.

const sensitivitySection = {
  id: "sensitivity",
  title: "Sensitivity",
  render() {
    const sweeps = sweepsOf(view().whole.filter((item) => item.summary(state.by).n));
    if (!sweeps.length)
      return [
        empty(
          "No method ran with several settings:",
          `tmln sweep --benchmark ${benchmarkHere()} --method tmln --grid step.damping=0.01,0.1,1 --seeds 3`,
        ),
      ];
    const some = state.all ? sweeps : sweeps.slice(0, LIMIT);
    const values = sweeps.flatMap(({ items }) => items.flatMap((item) => valuesOf(item).map(([value]) => value)));
    const [low, high] = [Math.min(...values), Math.max(...values)].map((end) => unitOf(state.by) * end);
    const room = 0.06 * (high - low || 1);
    return [
      explained(
        `${metricOf(state.by).heading} of every run against each setting that its method ran with several values of. A ` +
          "point is a seed; lines join the means of configurations that differ in this setting alone, the strong one " +
          "through the ringed configuration, which represents its method. “Compare by” chooses another metric.",
        downloads("Settings and seeds", fileName(state.b, state.by, "sensitivity"), () => sweepData(sweeps)),
      ),
      el("div", { class: "grid" }, some.map((sweep) => sweepFigure(sweep, [low - room, high + room]))),
      sweeps.length > LIMIT ? offer(`Showing ${some.length} of ${sweeps.length} settings.`) : null,
    ];
  },
};

/** The values of the metric, each with its run. */
function valuesOf(item) {
  return item.good.map((run) => [run.metrics[state.by], run]).filter(([value]) => isNumber(value));
}

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
  const main = sweep.items.find((item) => item.row.representative) ?? sweep.items[0];
  const name = el("span", { class: "name" }, sweep.contender);
  return figure({
    title: `${metricOf(state.by).heading} of ${sweep.contender} against ${sweep.field}`,
    heading: [glyph(main.row), name, " ", el("span", { class: "settings" }, sweep.field)],
    level: "h4",
    name: fileName(state.b, sweep.contender, state.by, "against", sweep.field),
    build: () => sweepPlot(sweep, main, range),
    table: () => sweepData([sweep]),
    click: openPoint,
    height: 250,
  });
}

function sweepPlot(sweep, main, range) {
  const unit = unitOf(state.by),
    colour = colourOf(main.row),
    ink = css("--ink");
  const { place, layout } = sweepAxis(sweep.values);
  const at = (item) => place(item.row.fields[sweep.field]);
  const mean = (item) => unit * item.summary(state.by).mean;
  const rest = (item) => JSON.stringify(sweep.others.map((name) => item.row.fields[name] ?? null));
  const slices = new Map();
  for (const item of sweep.items) slices.set(rest(item), [...(slices.get(rest(item)) ?? []), item]);
  const inMain = (key) => key === rest(main);
  const data = [...slices]
    .sort(([a], [b]) => inMain(a) - inMain(b))
    .flatMap(([key, mine]) => {
      const isMain = inMain(key);
      const ordered = [...mine].sort((a, b) => at(a) - at(b));
      const points = mine.flatMap((item) => valuesOf(item).map(([value, run]) => ({ item, value, run })));
      const line = { color: isMain ? colour : faint(colour, 0.3), width: isMain ? 2.5 : 1 };
      return [
        lines(ordered.map(at), ordered.map(mean), line),
        markers(
          points.map(({ item }) => at(item)),
          points.map(({ value }) => unit * value),
          { color: isMain ? colour : faint(colour, 0.35), size: isMain ? 7 : 5, symbol: main.row.look.symbol },
          points.map(({ item, run }) => runText(item.row, run)),
          { customdata: points.map(({ item }) => item.row.label) },
        ),
      ];
    });
  const ring = { symbol: "circle-open", size: 17, color: ink, line: { width: 1.6, color: ink } };
  data.push(markers([at(main)], [mean(main)], ring, [], { hoverinfo: "skip" }));
  return {
    data,
    layout: {
      height: 250,
      margin: { l: 44, r: 10, t: 8, b: 44 },
      xaxis: axis(plain(sweep.field), layout),
      yaxis: axis(withUnit(state.by), { range }),
    },
  };
}

/** Numbers by their size, or its logarithm where they span much; words, and few numbers with a 0, side by side. */
function sweepAxis(values) {
  const found = values.map(Number),
    [low, high] = [Math.min(...found), Math.max(...found)];
  const logs = low > 0 && high / low >= 20;
  const measured = values.every((value) => value !== "" && Number.isFinite(Number(value))) && (logs || values.length > 8);
  const number = (value) => (logs ? Math.log10(Number(value)) : Number(value));
  const place = measured ? number : (value) => values.indexOf(value);
  const ends = [place(values[0]), place(values[values.length - 1])],
    room = 0.07 * (ends[1] - ends[0] || 1);
  const few = everySo(values.length, 7).map((at) => values[at]);
  const ticks = { tickvals: few.map(place), ticktext: few.map((value) => plain(clipped(value, 12))) };
  return { place, layout: { range: [ends[0] - room, ends[1] + room], ...ticks } };
}

function sweepData(sweeps) {
  return {
    columns: ["benchmark", "method", "field", "value", "seed", state.by, "configuration", "run"],
    rows: sweeps.flatMap(({ contender, field, items }) =>
      items.flatMap(({ row, good }) =>
        good.map((run) => [
          ...[row.benchmark, contender, field, row.fields[field]],
          ...[run.seed, run.metrics[state.by], row.label, run.name],
        ]),
      ),
    ),
  };
}
