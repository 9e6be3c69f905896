// What earlier tasks lose on the straight line from solution to solution, where it was computed.

function barrierParts({ name, content }) {
  const there = content.methods.filter((one) => one.seeds.length);
  const problems = content.methods.flatMap((one) => one.problems.map((text) => `${one.label}: ${text}`));
  if (!there.length) return [empty(`No line between solutions to draw. ${problems.join("; ")}`)];
  const flat = there.every((one) => one.seeds.every((seed) => seed.barrier === 0));
  return [
    figure({
      title: "Loss of earlier tasks between solutions",
      name: fileName(state.b, "barrier", name),
      caption:
        "Mean loss of the tasks learned before, on the straight line from each task’s solution to the next; bands are ± " +
        "sample deviation over seeds, dots the straight line that the barrier is measured from. " +
        (flat ? "No barrier anywhere: on no line does the loss rise above the straight one. " : "") +
        problems.join("; "),
      build: () => barrierPlot(content, there),
      table: () => ({
        columns: ["benchmark", "method", "seed", "from_task", "to_task", "of_task", "share", "loss", "accuracy"],
        rows: there.flatMap((one) =>
          one.seeds.flatMap((seed) =>
            seed.pairs.flatMap((pair) =>
              pair.tasks.flatMap((task) =>
                content.shares.map((share, k) => [
                  content.benchmark,
                  one.label,
                  seed.seed,
                  pair.from,
                  pair.to,
                  task.task,
                  share,
                  task.loss[k],
                  task.accuracy[k],
                ]),
              ),
            ),
          ),
        ),
      }),
      height: 400,
    }),
    barrierTable(content),
  ];
}

function barrierPlot(content, there) {
  const data = [];
  for (const one of there) {
    const row = lookRow(String(one.method), String(one.label)),
      colour = colourOf(row);
    one.seeds[0].pairs.forEach((pair, number) => {
      const points = content.shares.map((_, k) =>
        summarise(one.seeds.map((seed) => mean(seed.pairs[number].tasks.map((task) => task.loss[k])))),
      );
      const x = content.shares.map((share) => number + 1 + share),
        y = points.map((point) => point.mean);
      if (points[0].n > 1) {
        data.push({
          type: "scatter",
          mode: "lines",
          x: [...x, ...[...x].reverse()],
          y: [...points.map((p) => p.mean + p.std), ...points.map((p) => p.mean - p.std).reverse()],
          fill: "toself",
          fillcolor: faint(colour, 0.13),
          line: { width: 0 },
          hoverinfo: "skip",
          showlegend: false,
        });
      }
      data.push({
        type: "scatter",
        mode: "lines",
        x,
        y: content.shares.map((share) => (1 - share) * y[0] + share * y[y.length - 1]),
        line: { color: colour, width: 1, dash: "dot" },
        hoverinfo: "skip",
        showlegend: false,
      });
      data.push({
        type: "scatter",
        mode: "lines+markers",
        x,
        y,
        name: plain(clipped(one.label, 60)),
        showlegend: number === 0,
        line: { color: colour, width: 2, dash: row.look.dash },
        marker: {
          color: colour,
          symbol: row.look.symbol,
          size: 5,
        },
        hovertext: points.map(
          (point, k) =>
            `<b>${plain(clipped(one.label, 60))}</b><br>${fixed(100 * content.shares[k], 0)} % of the way ` +
            `from task ${pair.from} to ${pair.to}: loss ${fixed(point.mean, 3)}`,
        ),
        hoverinfo: "text",
      });
    });
  }
  const ticks = content.tasks.map((_, at) => at + 1);
  return {
    data,
    layout: {
      height: 400,
      margin: { l: 56, r: 16, t: 8, b: 44 },
      showlegend: true,
      xaxis: axis("from solution to solution, task", {
        tickvals: ticks,
        ticktext: ticks.map((at) => (content.tasks.length > 6 ? String(at) : `after ${at}`)),
        range: [0.88, content.tasks.length + 0.12],
      }),
      // never logarithmic: the dotted line would not be straight
      yaxis: axis("mean loss of the tasks before", {}),
    },
  };
}

function barrierTable(content) {
  const cell = (found, percent = 1) => {
    if (!found?.n || found.mean === null) return NONE;
    const spread = found.n > 1 && found.std !== null ? ` ± ${significant(percent * found.std, 1)}` : "";
    return significant(percent * found.mean, 2) + spread;
  };
  const rows = content.methods.map((one) => [
    nameOf(lookRow(String(one.method), String(one.label))),
    String(one.seeds.length),
    cell(one.summary.barrier),
    cell(one.summary.climb),
    cell(one.summary.accuracy_barrier, 100),
  ]);
  return plainTable("Table of barriers", ["Method", "n", "Barrier ↓", "Climb ↓", "Accuracy barrier % ↓"], rows);
}

/** So many digits that mean something. */
function significant(value, digits) {
  return String(Number(value.toPrecision(digits)));
}
