// One row opened: its runs seed by seed, its whole configuration, the command that makes it again.

function details() {
  const dialog = byId("details");
  const row = DATA.rows.find((one) => one.benchmark === state.b && one.label === state.open);
  if (!row) {
    if (dialog.open) dialog.close();
    return;
  }
  const { runs } = measured(row, []);
  const close = () => dialog.close();
  rebuild(
    dialog,
    el(
      "div",
      { class: "head" },
      el("h2", { id: "details-title" }, nameOf(row)),
      el("button", { type: "button", class: "quiet", "data-focus": "close", on: { click: close } }, "Close"),
    ),
    el(
      "p",
      { class: "note" },
      `${row.benchmark}, ${plural(runs.length, "run")}`,
      row.missing.length ? `; seeds ${row.missing.join(", ")} are missing` : "",
    ),
    el(
      "div",
      { class: "head" },
      el("h3", {}, "Runs"),
      downloads("Runs of this row", fileName(row.benchmark, row.label, "runs"), () => runData(runs)),
    ),
    runTable(runs),
    el("h3", {}, row.commands.length > 1 ? "Commands" : "Command"),
    commandBox(row),
    el("h3", {}, "Configuration"),
    el(
      "p",
      { class: "note" },
      el("mark", {}, "Underlined on yellow"),
      " are the settings in which the configurations of this benchmark differ.",
    ),
    configurationList(row),
  );
  if (!dialog.open) dialog.showModal();
  dialog.scrollTop = 0;
}

function runTable(runs) {
  const metrics = metricsThere();
  const rows = runs.map((run) => [
    String(run.seed),
    ...(run.diverged
      ? [el("td", { colspan: metrics.length, class: "left why" }, `diverged: ${run.diverged}`)]
      : metrics.map((name) => shown(run.metrics[name], name, metricOf(name).percent ? 1 : 2))),
    el("td", { class: "left" }, el("code", {}, run.name)),
  ]);
  return plainTable("Runs of this row", ["Seed", ...metrics.map((name) => metricOf(name).title), "Folder"], rows);
}

/** Every field; those in which it differs from another row of the benchmark come first, marked. */
function configurationList(row) {
  const odd = varied(DATA.rows.filter((one) => one.benchmark === row.benchmark));
  const names = Object.keys(row.fields)
    .filter((name) => name !== "method")
    .sort((a, b) => odd.has(b) - odd.has(a) || inOrder(a, b));
  return el(
    "dl",
    { class: "facts" },
    names.map((name) =>
      el(
        "div",
        {},
        el("dt", {}, name),
        el("dd", {}, odd.has(name) ? el("mark", {}, row.fields[name]) : row.fields[name]),
      ),
    ),
  );
}
