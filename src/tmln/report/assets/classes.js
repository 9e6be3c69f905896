// Classes: which was predicted as which at the end, and how accurate each is after each task. Shares are Python's.

const classesSection = {
  id: "classes",
  title: "Classes",
  render() {
    const there = view().byAccuracy.filter((item) => item.row.classes);
    if (!there.length) return [empty("These runs did not count classes: they are of an earlier version, or diverged.")];
    const tasks = Math.max(...there.map((item) => item.row.classes.accuracy.length));
    const after = Number(state.after) >= 1 && Number(state.after) <= tasks ? Number(state.after) : tasks;
    const times = everySo(tasks, tasks).map((at) => [String(at + 1), String(at + 1)]);
    const choose = (task) => update({ after: Number(task) === tasks ? "" : task });
    return [
      explained(
        "Of each class (rows), the share in percent of its test samples that was predicted as each class (columns) at the " +
          "end, all seeds together. The diagonal is correct; a full column is a class that is predicted too often.",
        downloads("All classes", fileName(state.b, "classes"), () => classData(there)),
      ),
      el("div", { class: "grid" }, readable(there).map(confusionFigure)),
      el("h3", {}, "Accuracy of each class"),
      inline(select("After task", times, String(after), choose, "classes after")),
      el("div", { class: "grid" }, readable(there).map((item) => classBars(item, after))),
      more(there),
    ];
  },
};

function confusionFigure(item) {
  return figure({
    title: `Confusion matrix of ${item.row.label}`,
    heading: el("span", {}, nameOf(item.row)),
    level: "h4",
    name: fileName(state.b, item.row.label, "confusion"),
    build: (width) => confusionPlot(item.row.classes, width),
    table: () => confusionData(item),
  });
}

/** Rows of shares, [true][predicted]; null for a class that was not tested. */
function sharesOf({ names, confusion }) {
  const tested = new Set(confusion.map(([truth]) => truth));
  const shares = names.map((_, truth) => names.map(() => (tested.has(truth) ? 0 : null)));
  for (const [truth, predicted, , share] of confusion) shares[truth][predicted] = share;
  return shares;
}

function confusionPlot(classes, width) {
  const shares = sharesOf(classes),
    names = classes.names.map((name) => plain(clipped(name, 24)));
  const few = names.length <= 12 && (width - 60) / names.length > 22;
  const named = (title, more = {}) =>
    axis(title, { ...classTicks(classes.names, few ? names.length : 10), showgrid: false, ticks: "", ...more });
  const percent = (share, digits) => (share === null ? NONE : fixed(100 * share, digits));
  const hover = shares.map((line, t) =>
    line.map((share, p) => `${names[t]} predicted as ${names[p]}: <b>${percent(share, 1)} %</b>`),
  );
  const text = shares.map((line) => line.map((share) => (share === null || share < 0.005 ? "" : percent(share, 0))));
  return {
    data: heatMap(shares, hover, few ? { text, size: 10 } : { gap: 0 }),
    layout: {
      height: Math.min(width, 420) * 0.9 + 40,
      margin: { l: 48, r: 4, t: 4, b: 44 },
      xaxis: named("predicted as"),
      yaxis: named("true class", { autorange: "reversed" }),
    },
  };
}

function classTicks(names, wanted) {
  const tickvals = everySo(names.length, wanted);
  return { tickvals, ticktext: tickvals.map((at) => plain(clipped(names[at], 8))) };
}

function classBars(item, after) {
  const { names, accuracy, mean } = item.row.classes;
  const at = Math.min(after, accuracy.length) - 1;
  return figure({
    title: `Accuracy of each class, ${item.row.label}`,
    heading: el("span", {}, nameOf(item.row)),
    level: "h4",
    name: fileName(state.b, item.row.label, `classes-after-${after}`),
    height: 200,
    build: (width) => classPlot(item.row, names, accuracy[at], mean[at], width),
    table: () => classData([item]),
  });
}

function classPlot(row, names, values, mean, width) {
  const middle = { xref: "paper", x0: 0, x1: 1, y0: 100 * mean, y1: 100 * mean };
  const text = (value) => (value === null ? NONE : fixed(100 * value, 1));
  return {
    data: [
      {
        type: "bar",
        x: values.map((_, at) => at),
        y: values.map((value) => (value === null ? null : 100 * value)),
        marker: { color: colourOf(row) },
        hovertext: values.map((value, at) => `${plain(clipped(names[at], 40))}: <b>${text(value)} %</b>`),
        hoverinfo: "text",
        textposition: "none",
      },
    ],
    layout: {
      height: 200,
      margin: { l: 40, r: 4, t: 8, b: 44 },
      bargap: 0.2,
      shapes: mean === null ? [] : [rule(middle, "dot")],
      xaxis: axis("class; dotted: the mean", { ...classTicks(names, width < 360 ? 10 : 12), showgrid: false, ticks: "" }),
      yaxis: axis("accuracy %", { range: [0, 104], tickvals: [0, 50, 100] }),
    },
  };
}

function confusionData({ row }) {
  const { names, confusion } = row.classes;
  return {
    columns: ["benchmark", "method", "true_class", "predicted_class", "samples"],
    rows: confusion.map(([truth, predicted, count]) => [row.benchmark, row.label, names[truth], names[predicted], count]),
  };
}

function classData(items) {
  const rows = items.flatMap(({ row }) =>
    row.classes.accuracy.flatMap((line, k) =>
      line.map((value, c) => [row.benchmark, row.label, k + 1, row.classes.names[c], value]),
    ),
  );
  return { columns: ["benchmark", "method", "after_task", "class", "accuracy"], rows };
}
