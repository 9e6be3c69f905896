// The loss around the path from task 1 to task 2, and on the straight lines between solutions, where it was computed.

const MOMENTS = [
  ["circle", "#ffffff", "start"],
  ["star", "#e69f00", "task-1 solution"],
  ["star", "#56d4f0", "task-2 solution"],
];

const landscapeSection = {
  id: "landscape",
  title: "Landscapes and barriers",
  nav: "Landscapes",
  render() {
    const parts = (kind, build) => {
      const found = analysesHere(kind);
      const command = `tmln ${kind} --benchmark ${benchmarkHere()} --methods er,tmln --runs ${DATA.folder}`;
      return found.length ? found.flatMap(build) : [empty(`No ${kind} has been computed:`, command)];
    };
    return [...parts("landscape", landscapeParts), ...parts("barrier", barrierParts)];
  },
};

/** What was measured on this benchmark, of the methods that are shown. */
function analysesHere(kind) {
  const there = DATA.analyses.filter(
    (one) => one.kind === kind && String(one.content.benchmark).split(":")[0] === benchmarkHere(),
  );
  return there.map((one) => ({ ...one, content: { ...one.content, methods: shownMethods(one.content.methods) } }));
}

/** The benchmark of the table in view, which may be one of several that differ in their options. */
function benchmarkHere() {
  return DATA.rows.find((row) => row.benchmark === state.b)?.of ?? (state.b || "split-digits");
}

/** Of a list of entries that name their method, or of an object by method. */
function shownMethods(methods) {
  if (Array.isArray(methods)) return methods.filter((one) => !state.hide.includes(one.method));
  return Object.fromEntries(Object.entries(methods).filter(([name]) => !state.hide.includes(name)));
}

/** A row in the style of a method that may have no run here. */
function styleRow(method, label = method) {
  const look = DATA.looks[method] ?? { colour: "#555555", symbol: "circle", dash: "solid" };
  return { method, label, settings: label.slice(method.length).trim(), look, variant: 0 };
}

function landscapeParts({ name, content }) {
  const isPlane = content.mode === "plane";
  const drawn = content.methods.filter((one) => !one.problem && Array.isArray(one.loss));
  const log = (value) => (value === null ? null : Math.log10(Math.max(value, 1e-8)));
  const logs = new Map(drawn.map((one) => [one, one.loss.map((line) => line.map(log))]));
  const every = [...logs.values()].flat(2).filter(isNumber);
  const range = every.length ? [Math.min(...every), Math.max(...every)] : [0, 1];
  const where = isPlane ? "in the plane of the start and the two solutions" : "along two random directions";
  const panel = (one) => {
    const row = styleRow(String(one.method), String(one.label));
    if (!logs.has(one)) {
      const why = `Not drawn: ${one.problem ?? "it holds no losses"}.`;
      return el("figure", {}, el("h4", { class: "plain" }, nameOf(row)), empty(why));
    }
    return figure({
      title: `Landscape of ${one.label}`,
      heading: el("span", {}, nameOf(row)),
      level: "h4",
      name: fileName(state.b, "landscape", name, one.label),
      caption: isNumber(one.residual) ? `${fixed(100 * one.residual, 0)} % off the plane` : "",
      build: (width) => landscapePlot(content, one, logs.get(one), range, row, width),
      table: () => ({
        columns: ["benchmark", "method", "x", "y", "loss"],
        rows: one.loss.flatMap((line, i) =>
          line.map((value, j) => [content.benchmark, one.label, content.x[j], content.y[i], value]),
        ),
      }),
    });
  };
  return [
    el("h3", {}, `Loss of ${content.tasks?.[0] ?? "task 1"} on the way to task 2`),
    el(
      "p",
      { class: "note" },
      `log10 of the loss (${content.samples} ${content.split} samples, seed ${content.seed}), ${where}; the line is the path ` +
        "of the weights, its dots where they were recorded, from the start (white) to the solutions of task 1 (orange star) " +
        `and task 2 (blue star). ${isPlane ? "Axes are distances between weights. " : ""}` +
        `All panels share one scale, ${fixed(range[0], 1)} (dark) to ${fixed(range[1], 1)} (light).`,
    ),
    el("div", { class: "grid" }, content.methods.map(panel)),
  ];
}

/** The path of the weights as one line a task; a method that starts afresh begins each at the start. */
function pathsOf({ method, points }) {
  const found = [];
  for (const point of points) {
    const last = found[found.length - 1];
    if (last && last[last.length - 1].task === point.task) last.push(point);
    else found.push([...(last ? [DATA.afresh.includes(method) ? points[0] : last[last.length - 1]] : []), point]);
  }
  return found;
}

function landscapePlot(content, one, logs, range, row, width) {
  const colour = row.look.colour,
    isPlane = content.mode === "plane";
  const [xs, ys] = [(points) => points.map((point) => point.x), (points) => points.map((point) => point.y)];
  const surface = {
    type: "contour",
    ...{ x: content.x, y: content.y, z: logs, zmin: range[0], zmax: range[1] },
    ...{ colorscale: "Viridis", showscale: false, ncontours: 18, line: { width: 0.4, color: "rgba(255,255,255,.5)" } },
    ...{ hoverinfo: "x+y+z", hovertemplate: "log10 loss %{z:.2f}<extra></extra>" },
  };
  const paths = pathsOf(one).flatMap((points) => [
    lines(xs(points), ys(points), { color: "#ffffff", width: 5 }),
    lines(xs(points), ys(points), { color: colour, width: 2.5 }),
  ]);
  const steps = one.points.map((point) => `task ${point.task}, step ${point.step}`);
  const dots = { size: 5, color: colour, line: { color: "#ffffff", width: 0.8 } };
  const moments = Object.values(one.markers).map((place, at) => {
    const [symbol, color, text] = MOMENTS[at] ?? [];
    const marker = { symbol, color, size: at ? 16 : 11, line: { color: "#000000", width: 1 } };
    return markers([place.x], [place.y], marker, [text]);
  });
  return {
    data: [surface, ...paths, markers(xs(one.points), ys(one.points), dots, steps), ...moments],
    layout: {
      height: Math.min(width, 420) * 0.9,
      margin: { l: 40, r: 6, t: 4, b: 38 },
      xaxis: axis(isPlane ? "along task 1" : "direction 1", { showgrid: false }),
      yaxis: axis(isPlane ? "towards task 2" : "direction 2", { showgrid: false }),
    },
  };
}

// -- barriers: Python has averaged the losses over earlier tasks and seeds --

function barrierParts({ name, content }) {
  const there = content.methods.filter((one) => one.seeds.length);
  const problems = content.methods.flatMap((one) => one.problems.map((text) => `${one.label}: ${text}`));
  if (!there.length) return [empty(`No line between solutions to draw. ${problems.join("; ")}`)];
  const isFlat = there.every((one) => one.seeds.every((seed) => seed.barrier === 0));
  return [
    figure({
      title: "Loss of earlier tasks between solutions",
      name: fileName(state.b, "barrier", name),
      caption:
        "Mean loss of the tasks learned before, on the straight line from each task’s solution to the next; bands are ± " +
        "sample deviation over seeds, dots the straight line that the barrier is measured from. " +
        (isFlat ? "No barrier anywhere: on no line does the loss rise above the straight one. " : "") +
        problems.join("; "),
      build: () => barrierPlot(content, there),
      table: () => barrierData(content, there),
      height: 400,
    }),
    barrierTable(content),
  ];
}

function barrierTraces(one, line, number, shares) {
  const row = styleRow(String(one.method), String(one.label)),
    colour = colourOf(row);
  const { mean, std } = line,
    x = shares.map((share) => number + 1 + share);
  const straight = shares.map((share) => (1 - share) * mean[0] + share * mean[mean.length - 1]);
  const hover = mean.map(
    (loss, k) =>
      `${bold(one.label)}<br>${fixed(100 * shares[k], 0)} % of the way from task ${line.from} to ${line.to}: ` +
      `loss ${isNumber(loss) ? fixed(loss, 3) : NONE}`,
  );
  const edge = (sign) => mean.map((loss, k) => (isNumber(loss) ? loss + sign * std[k] : null));
  return [
    ...(isNumber(std[0]) ? [band(x, edge(1), edge(-1), colour)] : []),
    lines(x, straight, { color: colour, width: 1, dash: "dot" }),
    lines(x, mean, { color: colour, width: 2, dash: row.look.dash }, {
      mode: "lines+markers",
      name: plain(clipped(one.label, 60)),
      showlegend: number === 0,
      marker: { color: colour, symbol: row.look.symbol, size: 5 },
      hovertext: hover,
      hoverinfo: "text",
    }),
  ];
}

function barrierPlot(content, there) {
  const tasks = content.tasks.length,
    tickvals = content.tasks.map((_, at) => at + 1);
  const ticktext = tickvals.map((at) => (tasks > 6 ? String(at) : `after ${at}`));
  return {
    data: there.flatMap((one) =>
      one.lines.flatMap((line, number) => barrierTraces(one, line, number, content.shares)),
    ),
    layout: {
      height: 400,
      margin: { l: 56, r: 16, t: 8, b: 44 },
      showlegend: true,
      xaxis: axis("from solution to solution, task", { tickvals, ticktext, range: [0.88, tasks + 0.12] }),
      yaxis: axis("mean loss of the tasks before"), // never logarithmic: the dotted line would not be straight
    },
  };
}

function barrierTable(content) {
  const digits = (value, count) => String(Number(value.toPrecision(count)));
  const cell = (found, unit = 1) => {
    if (!found?.n || found.mean === null) return NONE;
    const spread = found.n > 1 && found.std !== null ? ` ± ${digits(unit * found.std, 1)}` : "";
    return digits(unit * found.mean, 2) + spread;
  };
  const rows = content.methods.map((one) => [
    nameOf(styleRow(String(one.method), String(one.label))),
    String(one.seeds.length),
    cell(one.summary.barrier),
    cell(one.summary.climb),
    cell(one.summary.accuracy_barrier, 100),
  ]);
  return plainTable("Table of barriers", ["Method", "n", "Barrier ↓", "Climb ↓", "Accuracy barrier % ↓"], rows);
}

function barrierData(content, there) {
  const rows = [];
  for (const one of there)
    for (const { seed, pairs } of one.seeds)
      for (const pair of pairs)
        for (const task of pair.tasks)
          content.shares.forEach((share, k) =>
            rows.push([
              ...[content.benchmark, one.label, seed, pair.from, pair.to],
              ...[task.task, share, task.loss[k], task.accuracy[k]],
            ]),
          );
  return {
    columns: ["benchmark", "method", "seed", "from_task", "to_task", "of_task", "share", "loss", "accuracy"],
    rows,
  };
}
