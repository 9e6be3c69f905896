// The table of methods as files: every number for programs, what is shown for a paper.

function tableData(current, items, metrics) {
  const columns = [
    "benchmark",
    "method",
    "n",
    ...metrics.flatMap((name) => ["mean", "std", "low", "high"].map((part) => `${name}_${part}`)),
    "reference",
    `${state.by}_difference`,
    `${state.by}_p`,
    `${state.by}_p_holm`,
    "chosen",
  ];
  const rows = items.map((item) => [
    item.row.benchmark,
    item.row.label,
    item.summary("acc").n,
    ...metrics.flatMap((name) => ["mean", "std", "low", "high"].map((part) => item.summary(name)[part])),
    current.reference?.row.label ?? "",
    item.against?.mean,
    item.against?.p,
    item.against?.corrected,
    item.row.chosen,
  ]);
  return { columns, rows };
}

/** Lines, caption and label, as `tmln show --columns` has them. */
function tableText(current, items, metrics) {
  const { heading } = metricOf(state.by);
  const head = ["method", "n", ...metrics.map((name) => metricOf(name).title), `${heading} 95%`];
  const lines = items.map((item) => {
    const { row, against } = item;
    const cells = metrics.map((name) => {
      const text = bare(meanStd(item.summary(name), name));
      return row.strong.includes(name) ? strong(text) : text;
    });
    return [
      row.not_learned ? `${row.label} †` : row.label,
      String(item.summary("acc").n),
      ...cells,
      bare(interval(item.summary(state.by), state.by)),
      ...(current.reference ? differenceCells(against) : []),
    ];
  });
  return {
    lines: [[...head, ...(current.reference ? [`Δ ${heading}`, "p", "corrected p"] : [])], ...lines],
    caption: `${state.b}. ${DATA.latex.caption}`,
    label: `tab:${state.b}`,
  };
}

function differenceCells(against) {
  if (!against) return ["reference", "-", "-"];
  const corrected = bare(pShown(against.corrected));
  return [bare(signed(against.mean)), bare(pShown(against.p)), told(against) ? strong(corrected) : corrected];
}
