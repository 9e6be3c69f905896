// Looks into weight space, where they were computed: the loss around the way from task 1 to task 2.

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
    const found = analysesHere("landscape");
    const barriers = analysesHere("barrier");
    const command = (what) => `tmln ${what} --benchmark ${benchmarkHere() || "split-digits"} --methods er,tmln --out RUNS`;
    return [
      ...(found.length
        ? found.flatMap(landscapeParts)
        : [empty("No landscape has been computed:", command("landscape"))]),
      ...(barriers.length
        ? barriers.flatMap(barrierParts)
        : [empty("No barrier has been computed:", command("barrier"))]),
    ];
  },
};

/** What was measured on this benchmark, of the methods that are shown. */
function analysesHere(kind) {
  const there = DATA.analyses.filter(
    (one) => one.kind === kind && String(one.content.benchmark).split(":")[0] === benchmarkHere(),
  );
  return there.map((one) => ({ ...one, content: { ...one.content, methods: shownMethods(one.content.methods) } }));
}

/** Of which the table in view is: it may be one of several that differ in their options. */
function benchmarkHere() {
  return DATA.rows.find((row) => row.benchmark === state.b)?.of ?? state.b;
}

/** Of a list of entries that name their method, or of an object by method. */
function shownMethods(methods) {
  if (Array.isArray(methods)) return methods.filter((one) => !state.hide.includes(one.method));
  return Object.fromEntries(Object.entries(methods).filter(([name]) => !state.hide.includes(name)));
}

/** The look of a method that may have no run here. */
function lookRow(method, label = method) {
  const look = DATA.looks[method] ?? { colour: "#555555", symbol: "circle", dash: "solid" };
  return { method, label, settings: label.slice(method.length).trim(), look, variant: 0 };
}

function landscapeParts({ name, content }) {
  const drawn = content.methods.filter((one) => !one.problem && Array.isArray(one.loss));
  const logs = drawn.map((one) =>
    one.loss.map((line) => line.map((value) => (value === null ? null : Math.log10(Math.max(value, 1e-8))))),
  );
  const every = numbers(logs.flat(2));
  const where =
    content.mode === "plane" ? "in the plane of the start and the two solutions" : "along two random directions";
  const range = every.length ? [Math.min(...every), Math.max(...every)] : [0, 1];
  return [
    el("h3", {}, `Loss of ${content.tasks?.[0] ?? "task 1"} on the way to task 2`),
    el(
      "p",
      { class: "note" },
      `log10 of the loss (${content.samples} ${content.split} samples, seed ${content.seed}), ${where}; the line is the way ` +
        "the weights took, its dots where they were recorded, from the start (white) to the solutions of task 1 (orange star) " +
        `and task 2 (blue star). ${content.mode === "plane" ? "Axes are distances between weights. " : ""}` +
        `All panels share one scale, ${fixed(range[0], 1)} (dark) to ${fixed(range[1], 1)} (light).`,
    ),
    el(
      "div",
      { class: "grid" },
      content.methods.map((one) => {
        const at = drawn.indexOf(one),
          row = lookRow(String(one.method), String(one.label));
        if (at < 0)
          return el(
            "figure",
            {},
            el("h4", { class: "plain" }, nameOf(row)),
            empty(`Not drawn: ${one.problem ?? "it holds no losses"}.`),
          );
        const off = typeof one.residual === "number" ? `${fixed(100 * one.residual, 0)} % off the plane` : "";
        return figure({
          title: `Landscape of ${one.label}`,
          heading: el("span", {}, nameOf(row)),
          level: "h4",
          name: fileName(state.b, "landscape", name, one.label),
          caption: off,
          build: (width) => landscapePlot(content, one, logs[at], range, row, width),
          table: () => ({
            columns: ["benchmark", "method", "x", "y", "loss"],
            rows: one.loss.flatMap((line, i) =>
              line.map((value, j) => [content.benchmark, one.label, content.x[j], content.y[i], value]),
            ),
          }),
        });
      }),
    ),
  ];
}

function landscapePlot(content, one, logs, range, row, width) {
  const lines = [];
  for (const point of one.points) {
    const line = lines[lines.length - 1];
    if (!line || line.task !== point.task) {
      const begun = !line ? [] : DATA.afresh.includes(one.method) ? [one.points[0]] : [line.points[line.points.length - 1]];
      lines.push({ task: point.task, points: [...begun, point] });
    } else line.points.push(point);
  }
  const colour = row.look.colour;
  const path = (line, look) => ({
    type: "scatter",
    mode: "lines",
    x: line.points.map((point) => point.x),
    y: line.points.map((point) => point.y),
    hoverinfo: "skip",
    line: look,
  });
  const steps = one.points.map((point) => `task ${point.task}, step ${point.step}`);
  const markers = Object.values(one.markers);
  return {
    data: [
      {
        type: "contour",
        x: content.x,
        y: content.y,
        z: logs,
        colorscale: "Viridis",
        zmin: range[0],
        zmax: range[1],
        showscale: false,
        ncontours: 18,
        line: { width: 0.4, color: "rgba(255,255,255,.5)" },
        hoverinfo: "x+y+z",
        hovertemplate: "log10 loss %{z:.2f}<extra></extra>",
      },
      ...lines.flatMap((line) => [
        path(line, { color: "#ffffff", width: 5 }),
        path(line, { color: colour, width: 2.5 }),
      ]),
      {
        type: "scatter",
        mode: "markers",
        x: one.points.map((point) => point.x),
        y: one.points.map((point) => point.y),
        marker: { size: 5, color: colour, line: { color: "#ffffff", width: 0.8 } },
        hovertext: steps,
        hoverinfo: "text",
      },
      ...markers.map((place, at) => ({
        type: "scatter",
        mode: "markers",
        x: [place.x],
        y: [place.y],
        marker: {
          symbol: MOMENTS[at]?.[0],
          color: MOMENTS[at]?.[1],
          size: at ? 16 : 11,
          line: { color: "#000000", width: 1 },
        },
        hovertext: [MOMENTS[at]?.[2]],
        hoverinfo: "text",
      })),
    ],
    layout: {
      height: Math.min(width, 420) * 0.9,
      margin: { l: 40, r: 6, t: 4, b: 38 },
      xaxis: axis(content.mode === "plane" ? "along task 1" : "direction 1", { showgrid: false }),
      yaxis: axis(content.mode === "plane" ? "towards task 2" : "direction 2", { showgrid: false }),
    },
  };
}
