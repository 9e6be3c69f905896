// What a method costs over naive training, where it was measured: time of a step and of a run, memory.

function overheadParts({ name, content }) {
  const found = Object.entries(content.methods)
    .filter(([, one]) => one.step.ratio.mean !== null)
    .map(([method, one]) => ({ method, one, row: lookRow(method) }));
  if (!found.length) return [];
  const gone = Object.entries(content.methods)
    .filter(([, one]) => one.diverged)
    .map(([method]) => method);
  const machine = content.machine ?? {};
  const kind = [machine.processor, machine.threads && plural(machine.threads, "thread")];
  const about =
    `${plural(content.rounds, "round")} of ${content.steps} steps, methods taking turns, ${content.model} with ` +
    `${content.parameters} parameters; ${kind.filter(Boolean).join(", ")}.` +
    (content.control?.mean ? ` Naive against itself: ${ratioText(content.control)}.` : "") +
    (gone.length ? ` Diverged: ${gone.join(", ")}.` : "");
  return [
    figure({
      title: "Time of a step over naive training",
      name: fileName(state.b, "overhead", name),
      caption: `Bars: a step, with its 95% interval; diamonds: a whole run, task boundaries included. ${about}`,
      build: (width) => overheadPlot(found, width),
      table: () => overheadData(found, content),
      height: 90 + 32 * found.length,
    }),
    memoryTable(found),
  ];
}

function overheadPlot(found, width) {
  const items = found.map(({ row }) => ({ row }));
  const ratio = found.map(({ one }) => one.step.ratio);
  const text = found.map(
    ({ method, one }) =>
      `<b>${plain(method)}</b><br>a step ${ratioText(one.step.ratio)}<br>a whole run ${ratioText(one.training.ratio)}`,
  );
  return {
    data: [
      {
        type: "bar",
        orientation: "h",
        x: ratio.map((one) => one.mean),
        y: items.map((_, at) => at),
        width: 0.6,
        name: "a step",
        showlegend: false,
        marker: { color: found.map(({ row }) => faint(colourOf(row), 0.85)) },
        hovertext: text,
        hoverinfo: "text",
        error_x: {
          type: "data",
          symmetric: false,
          array: ratio.map((one) => (one.high ?? one.mean) - one.mean),
          arrayminus: ratio.map((one) => one.mean - (one.low ?? one.mean)),
          color: css("--ink"),
          thickness: 1,
          width: 3,
        },
      },
      {
        type: "scatter",
        mode: "markers",
        x: found.map(({ one }) => one.training.ratio.mean),
        y: items.map((_, at) => at),
        hoverinfo: "skip",
        name: "a whole run",
        marker: { symbol: "diamond", size: 9, color: css("--surface"), line: { color: css("--ink"), width: 1.4 } },
      },
    ],
    layout: {
      height: 74 + 32 * items.length,
      margin: { l: 12, r: 16, t: 4, b: 44 },
      xaxis: axis("times naive", { rangemode: "tozero" }),
      yaxis: nameAxis(items, width),
      shapes: [
        {
          type: "line",
          x0: 1,
          x1: 1,
          yref: "paper",
          y0: 0,
          y1: 1,
          line: { color: css("--muted"), width: 1, dash: "dash" },
        },
      ],
    },
  };
}

function memoryTable(found) {
  const headings = [
    "Method",
    "Step ×",
    "Whole run ×",
    "Boundary, epochs",
    "Extra memory",
    "held",
    "Peak of the process",
  ];
  const cells = ({ row, one }) => [
    nameOf(row),
    ratioText(one.step.ratio),
    ratioText(one.training.ratio),
    typeof one.boundary?.epochs?.mean === "number" ? fixed(one.boundary.epochs.mean, 2) : NONE,
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
  if (size === null || size === undefined) return NONE;
  const [unit, name] = size < 1e6 ? [1e3, "kB"] : size < 1e9 ? [1e6, "MB"] : [1e9, "GB"];
  return `${fixed(size / unit, size < 100 * unit ? 1 : 0)} ${name}`;
}

function overheadData(found, content) {
  return {
    columns: [
      "benchmark",
      "method",
      "step_ratio",
      "step_low",
      "step_high",
      "run_ratio",
      "boundary_epochs",
      "formula",
      "held_bytes",
      "peak_bytes",
    ],
    rows: found.map(({ method, one }) => [
      content.benchmark,
      method,
      one.step.ratio.mean,
      one.step.ratio.low,
      one.step.ratio.high,
      one.training.ratio.mean,
      one.boundary?.epochs?.mean,
      one.auxiliary?.formula ?? "",
      one.auxiliary?.held_bytes,
      one.peak_bytes,
    ]),
  };
}
