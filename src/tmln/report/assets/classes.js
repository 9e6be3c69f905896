// Classes: which was taken for which at the end, and how well each is known after each task.

const classesSection = {
  id: "classes",
  title: "Classes",
  nav: "Classes",
  render() {
    const there = view().byAccuracy.filter((item) => item.row.classes);
    if (!there.length) return [empty("These runs did not count classes: they are of an earlier version, or diverged.")];
    const tasks = Math.max(...there.map((item) => item.row.classes.accuracy.length));
    const after = Number(state.after) >= 1 && Number(state.after) <= tasks ? Number(state.after) : tasks;
    return [
      explained(
        "Of each class (rows), the share in percent of its test samples that was taken for each class (columns) at the " +
          "end, all seeds together. On the diagonal it was right; a full column is a class that is answered too often.",
        downloads("All classes", fileName(state.b, "classes"), () => classData(there)),
      ),
      el(
        "div",
        { class: "grid" },
        readable(there).map((item) => confusionFigure(item)),
      ),
      el("h3", {}, "Accuracy of each class"),
      el(
        "div",
        { class: "inline" },
        select(
          "After task",
          Array.from({ length: tasks }, (_, at) => [String(at + 1), String(at + 1)]),
          String(after),
          (chosen) => update({ after: Number(chosen) === tasks ? "" : chosen }),
          "classes after",
        ),
      ),
      el(
        "div",
        { class: "grid" },
        readable(there).map((item) => classBars(item, after)),
      ),
      more(there),
    ];
  },
};

/** Counts as rows of shares: [true][predicted]; null for a class that was not tested. */
function shares({ names, confusion }) {
  const counts = names.map(() => names.map(() => 0));
  for (let at = 0; at < confusion.length; at += 3) counts[confusion[at]][confusion[at + 1]] = confusion[at + 2];
  return counts.map((line) => {
    const tested = line.reduce((sum, count) => sum + count, 0);
    return line.map((count) => (tested ? count / tested : null));
  });
}

function confusionFigure(item) {
  return figure({
    title: `Confusion matrix of ${item.row.label}`,
    heading: el("span", {}, nameOf(item.row)),
    level: "h4",
    name: fileName(state.b, item.row.label, "confusion"),
    build: (width) => confusionMap(item.row.classes, width),
    table: () => confusionData(item),
  });
}

function confusionMap(classes, width) {
  const found = shares(classes),
    names = classes.names.map((name) => plain(clipped(name, 24)));
  const few = names.length <= 12 && (width - 60) / names.length > 22;
  const ticks = everySo(names.length, few ? names.length : 10);
  const named = (title, more) =>
    axis(title, {
      tickvals: ticks,
      ticktext: ticks.map((at) => plain(clipped(classes.names[at], 8))),
      showgrid: false,
      ticks: "",
      ...more,
    });
  const data = [
    {
      type: "heatmap",
      z: found.map((line) => line.map((share) => (share === null ? null : 100 * share))),
      hovertext: found.map((line, t) =>
        line.map((share, p) => `${names[t]} taken for ${names[p]}: <b>${share === null ? NONE : fixed(100 * share, 1)} %</b>`),
      ),
      hoverinfo: "text",
      zmin: 0,
      zmax: 100,
      xgap: few ? 2 : 0,
      ygap: few ? 2 : 0,
      showscale: false,
      colorscale: scale().map((colour, at, every) => [at / (every.length - 1), colour]),
    },
  ];
  if (few)
    data.push({
      type: "scatter",
      mode: "text",
      x: found.flatMap((line) => line.map((_, p) => p)),
      y: found.flatMap((line, t) => line.map(() => t)),
      text: found.flat().map((share) => (share === null || share < 0.005 ? "" : fixed(100 * share, 0))),
      hoverinfo: "skip",
      textfont: { size: 10, color: found.flat().map((share) => inkOn(share ?? NaN)) },
    });
  return {
    data,
    layout: {
      height: Math.min(width, 420) * 0.9 + 40,
      margin: { l: 48, r: 4, t: 4, b: 44 },
      xaxis: named("taken for", {}),
      yaxis: named("true class", { autorange: "reversed" }),
    },
  };
}

/** Places from 0 to many, about so many of them. */
function everySo(many, wanted) {
  const step = Math.max(1, Math.ceil(many / wanted));
  return Array.from({ length: Math.ceil(many / step) }, (_, at) => at * step);
}

function classBars(item, after) {
  const { names, accuracy } = item.row.classes;
  const values = accuracy[Math.min(after, accuracy.length) - 1];
  return figure({
    title: `Accuracy of each class, ${item.row.label}`,
    heading: el("span", {}, nameOf(item.row)),
    level: "h4",
    name: fileName(state.b, item.row.label, `classes-after-${after}`),
    height: 200,
    build: (width) => barsOf(item.row, names, values, width),
    table: () => classData([item]),
  });
}

function barsOf(row, names, values, width) {
  const tested = numbers(values),
    middle = tested.length ? 100 * mean(tested) : null;
  const ticks = everySo(names.length, width < 360 ? 10 : 12);
  const lines =
    middle === null
      ? []
      : [
          {
            type: "line",
            xref: "paper",
            x0: 0,
            x1: 1,
            y0: middle,
            y1: middle,
            line: { color: css("--muted"), width: 1, dash: "dot" },
          },
        ];
  return {
    data: [
      {
        type: "bar",
        x: values.map((_, at) => at),
        y: values.map((value) => (value === null ? null : 100 * value)),
        marker: { color: colourOf(row) },
        hovertext: values.map(
          (value, at) => `${plain(clipped(names[at], 40))}: <b>${value === null ? NONE : fixed(100 * value, 1)} %</b>`,
        ),
        hoverinfo: "text",
        textposition: "none",
      },
    ],
    layout: {
      height: 200,
      margin: { l: 40, r: 4, t: 8, b: 44 },
      bargap: 0.2,
      shapes: lines,
      xaxis: axis("class; dotted: the mean", {
        tickvals: ticks,
        ticktext: ticks.map((at) => plain(clipped(names[at], 8))),
        showgrid: false,
        ticks: "",
      }),
      yaxis: axis("accuracy %", { range: [0, 104], tickvals: [0, 50, 100] }),
    },
  };
}

function confusionData(item) {
  const { names, confusion } = item.row.classes;
  const rows = [];
  for (let at = 0; at < confusion.length; at += 3)
    rows.push([item.row.benchmark, item.row.label, names[confusion[at]], names[confusion[at + 1]], confusion[at + 2]]);
  return { columns: ["benchmark", "method", "true_class", "taken_for", "samples"], rows };
}

function classData(items) {
  const rows = items.flatMap((item) =>
    item.row.classes.accuracy.flatMap((line, k) =>
      line.map((value, c) => [item.row.benchmark, item.row.label, k + 1, item.row.classes.names[c], value]),
    ),
  );
  return { columns: ["benchmark", "method", "after_task", "class", "accuracy"], rows };
}
