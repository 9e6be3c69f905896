// What methods cost: the wall-clock time of the runs, and, where it was measured, time and memory over naive training.

const costSection = {
  id: "cost",
  title: "Cost",
  render() {
    const there = view().rows.filter((item) => item.summary("seconds").n),
      items = readable(there, LINES);
    const overheads = analysesHere("overhead");
    return [
      items.length ? secondsFigure(items) : null,
      more(there, LINES),
      overheads.length
        ? overheads.flatMap(overheadParts)
        : empty(
            "Overhead over naive training has not been measured:",
            `tmln overhead --benchmark ${benchmarkHere()} --runs ${DATA.folder}`,
          ),
    ];
  },
};

function secondsFigure(items) {
  return figure({
    title: "Time of a run",
    name: fileName(state.b, "seconds"),
    caption:
      "Wall-clock time of a whole run with its tests, mean over seeds and sample deviation, on the machine it ran on: " +
      "not a fair comparison.",
    build: (width) => secondsPlot(items, width),
    table: () => ({
      columns: ["benchmark", "method", "n", "mean", "std"],
      rows: items.map(({ row, summary }) => {
        const { n, mean, std } = summary("seconds");
        return [row.benchmark, row.label, n, mean, std];
      }),
    }),
    click: openPoint,
    height: 74 + 30 * items.length,
  });
}

function secondsPlot(items, width) {
  const rows = items.map((item) => item.row),
    found = items.map((item) => item.summary("seconds")),
    std = found.map((one) => one.std || 0);
  const text = rows.map((row, at) => `${bold(row.label)}<br>${dash(found[at].text)} s`);
  return {
    data: [bars(rows, found.map((one) => one.mean), std, std, text, { customdata: rows.map((row) => row.label) })],
    layout: {
      height: 64 + 30 * items.length,
      margin: { l: 12, r: 16, t: 4, b: 44 },
      xaxis: axis("seconds", { rangemode: "tozero" }),
      yaxis: nameAxis(rows, width),
    },
  };
}

// -- overhead over naive training, as tmln overhead measured it --

function overheadParts({ name, content }) {
  const methods = Object.entries(content.methods);
  const found = methods
    .filter(([, one]) => one.step.ratio.mean !== null)
    .map(([method, one]) => ({ method, one, row: styleRow(method) }));
  if (!found.length) return [];
  const diverged = methods.filter(([, one]) => one.diverged).map(([method]) => method);
  const machine = content.machine ?? {};
  const kind = [machine.processor, machine.threads && plural(machine.threads, "thread")];
  const about =
    `${plural(content.rounds, "round")} of ${content.steps} steps, methods taking turns, ${content.model} with ` +
    `${content.parameters} parameters; ${kind.filter(Boolean).join(", ")}.` +
    (content.control?.mean ? ` Naive against itself: ${ratioText(content.control)}.` : "") +
    (diverged.length ? ` Diverged: ${diverged.join(", ")}.` : "");
  return [
    figure({
      title: "Time of a step over naive training",
      name: fileName(state.b, "overhead", name),
      caption: `Bars: a step, with its 95% interval; diamonds: a whole run, task boundaries included. ${about}`,
      build: (width) => overheadPlot(found, width),
      table: () => overheadData(found, content),
      height: 90 + 32 * found.length,
    }),
    overheadTable(found),
  ];
}

function overheadPlot(found, width) {
  const rows = found.map(({ row }) => row),
    steps = found.map(({ one }) => one.step.ratio),
    runs = found.map(({ one }) => one.training.ratio);
  const text = found.map(
    ({ method }, at) => `<b>${plain(method)}</b><br>a step ${ratioText(steps[at])}<br>a whole run ${ratioText(runs[at])}`,
  );
  const plus = steps.map((one) => (one.high ?? one.mean) - one.mean),
    minus = steps.map((one) => one.mean - (one.low ?? one.mean));
  const diamond = { symbol: "diamond", size: 9, color: css("--surface"), line: { color: css("--ink"), width: 1.4 } };
  return {
    data: [
      bars(rows, steps.map((one) => one.mean), plus, minus, text, { name: "a step", showlegend: false }),
      markers(runs.map((one) => one.mean), rows.map((_, at) => at), diamond, [], { hoverinfo: "skip", name: "a whole run" }),
    ],
    layout: {
      height: 74 + 32 * rows.length,
      margin: { l: 12, r: 16, t: 4, b: 44 },
      xaxis: axis("times naive", { rangemode: "tozero" }),
      yaxis: nameAxis(rows, width),
      shapes: [rule({ x0: 1, x1: 1, yref: "paper", y0: 0, y1: 1 }, "dash")],
    },
  };
}

function overheadTable(found) {
  const headings = ["Method", "Step ×", "Whole run ×", "Boundary, epochs", "Extra memory", "held", "Peak of the process"];
  const cells = ({ row, one }) => [
    nameOf(row),
    ratioText(one.step.ratio),
    ratioText(one.training.ratio),
    isNumber(one.boundary?.epochs?.mean) ? fixed(one.boundary.epochs.mean, 2) : NONE,
    one.auxiliary?.formula ?? NONE,
    bytesText(one.auxiliary?.held_bytes),
    bytesText(one.peak_bytes),
  ];
  return plainTable("Table of overheads", headings, found.map(cells));
}

function ratioText(ratio) {
  if (!ratio || ratio.mean === null) return NONE;
  return fixed(ratio.mean, 2) + (ratio.low === null ? "" : ` [${fixed(ratio.low, 2)}, ${fixed(ratio.high, 2)}]`);
}

function bytesText(size) {
  if (!isNumber(size)) return NONE;
  const [unit, name] = size < 1e6 ? [1e3, "kB"] : size < 1e9 ? [1e6, "MB"] : [1e9, "GB"];
  return `${fixed(size / unit, size < 100 * unit ? 1 : 0)} ${name}`;
}

function overheadData(found, content) {
  return {
    columns: [
      ...["benchmark", "method", "step_ratio", "step_low", "step_high"],
      ...["run_ratio", "boundary_epochs", "formula", "held_bytes", "peak_bytes"],
    ],
    rows: found.map(({ method, one }) => [
      ...[content.benchmark, method, one.step.ratio.mean, one.step.ratio.low, one.step.ratio.high],
      ...[one.training.ratio.mean, one.boundary?.epochs?.mean, one.auxiliary?.formula ?? ""],
      ...[one.auxiliary?.held_bytes, one.peak_bytes],
    ]),
  };
}
