// What ran and how: configurations with their differences, versions, commands; and the dialog of one row.

const AGAINST = {
  prefix: "joint training after each task",
  final: "the shortcut oracle",
  independent: "training on each task alone",
  none: "",
};

const runsSection = {
  id: "runs",
  title: "What ran, and how",
  nav: "What ran",
  render() {
    const current = view();
    const runs = current.rows.flatMap((item) => item.runs);
    const command = ({ row }) => el("div", {}, el("p", {}, nameOf(row)), commandBox(row));
    const shortcuts = DATA.shortcuts.length ? `, and ${plural(DATA.shortcuts.length, "shortcut reference")}` : "";
    return [
      current.rows.length
        ? [
            configurationTable(current),
            facts(current, runs),
            el("h3", {}, "Commands"),
            el("p", { class: "note" }, "Each makes its row again; add --runs to say where."),
            el("div", { class: "commands" }, readable(current.byAccuracy).map(command)),
            more(current.byAccuracy),
          ]
        : empty("No run to show with these filters."),
      explained(
        `${plural(DATA.runs.length, "finished run")} in all${shortcuts}.`,
        downloads("Runs shown", fileName(state.b, "runs"), () => runData(runs)),
      ),
    ];
  },
};

/** A note on what is marked, by weight and a line, not by colour alone. */
function markedNote(text) {
  return el("p", { class: "note" }, el("mark", {}, "Underlined on yellow"), text);
}

/** Fields that differ, a column each; what is unlike most others is marked. */
function configurationTable(current) {
  const rows = current.rows.map((item) => item.row);
  const fields = [...varied(rows).keys()];
  if (!fields.length) return el("p", { class: "note" }, "All configurations shown are the same but for the method.");
  const usual = new Map(fields.map((name) => [name, commonest(rows.map((row) => row.fields[name] ?? ""))]));
  const cell = (row, name) => {
    const value = row.fields[name];
    if (value === undefined) return el("td", { class: "absent" }, NONE);
    return value === usual.get(name) ? clipped(value, 40) : el("mark", {}, clipped(value, 40));
  };
  const lines = readable(current.rows, LINES).map(({ row }) => [nameOf(row), ...fields.map((name) => cell(row, name))]);
  return [
    el("h3", {}, "Configurations, where they differ"),
    markedNote(" is what differs from the commonest value of its column; a dash is a setting that the method does not have."),
    plainTable("Differences between configurations", ["Method", ...fields], lines, "differences"),
  ];
}

function commonest(values) {
  const count = new Map();
  for (const value of values) if (value !== "") count.set(value, (count.get(value) ?? 0) + 1);
  return [...count].sort((a, b) => b[1] - a[1])[0]?.[0];
}

function facts(current, runs) {
  const list = (values) => {
    const known = [...new Set(values)].filter((value) => value !== "" && value !== "null");
    return clipped(known.sort(inOrder).join(", ") || "not recorded", 300);
  };
  const each = (key) => {
    const names = [...new Set(runs.flatMap((run) => Object.keys(run[key])))].sort();
    return names.map((name) => [name, list(runs.map((run) => run[key][name] ?? "not recorded"))]);
  };
  const field = (name) => list(current.rows.map(({ row }) => row.fields[name] ?? ""));
  const machine = each("machine");
  return factList([
    ["Seeds", list(runs.map((run) => String(run.seed)))],
    ...each("versions"),
    ...(machine.length ? machine : [["Machine", "not recorded"]]),
    ["Model", field("model")],
    ["Parameters", list(runs.map((run) => String(run.parameters)))],
    ["Epochs a task", field("epochs")],
    ["Batch", field("batch_size")],
    ["Learning rate", field("lr")],
    ["INT against", list(runs.map((run) => AGAINST[run.oracle] ?? run.oracle))],
  ]);
}

function commandBox(row) {
  if (!row.commands.length) return el("p", { class: "note" }, `No command: ${row.no_command}`);
  const text = row.commands.join("\n");
  const click = async (event) => {
    event.stopPropagation();
    const done = await copy(text, box.firstElementChild);
    copier.textContent = done ? "Copied" : "Selected";
    say(done ? "Command copied" : "Command selected");
    setTimeout(() => (copier.textContent = "Copy"), 1500);
  };
  const copier = button("Copy", null, click, { class: "quiet", "aria-label": `Copy the command of ${row.label}` });
  const box = el("div", { class: "command" }, el("pre", { tabindex: "0" }, el("code", {}, text)), copier);
  return box;
}

async function copy(text, node) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    getSelection().selectAllChildren(node); // copying is not allowed here
    return false;
  }
}

function runData(runs) {
  const metrics = [...new Set(runs.flatMap((run) => Object.keys(run.metrics)))].sort();
  return {
    columns: ["run", "benchmark", "method", "seed", "diverged", "oracle", ...metrics],
    rows: runs.map((run) => [
      ...[run.name, DATA.rows[run.row].benchmark, DATA.rows[run.row].label, run.seed, run.diverged, run.oracle],
      ...metrics.map((name) => run.metrics[name]),
    ]),
  };
}

// -- one row opened: its runs seed by seed, its whole configuration, the command that makes it again --

function details() {
  const dialog = byId("details");
  const row = DATA.rows.find((one) => one.benchmark === state.b && one.label === state.open);
  if (!row) {
    if (dialog.open) dialog.close();
    return;
  }
  const runs = RUNS_OF[row.id];
  const missing = row.missing.length ? `; seeds ${row.missing.join(", ")} are missing` : "";
  rebuild(
    dialog,
    el(
      "div",
      { class: "head" },
      el("h2", { id: "details-title" }, nameOf(row)),
      button("Close", "close", () => dialog.close(), { class: "quiet" }),
    ),
    el("p", { class: "note" }, `${row.benchmark}, ${plural(runs.length, "run")}${missing}`),
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
    markedNote(" are the settings in which the configurations of this benchmark differ."),
    configurationList(row),
  );
  if (!dialog.open) dialog.showModal();
  dialog.scrollTop = 0;
}

function runTable(runs) {
  const metrics = metricsHere();
  const values = (run) =>
    run.diverged
      ? [el("td", { colspan: metrics.length, class: "left why" }, `diverged: ${run.diverged}`)]
      : metrics.map((name) => shown(run.metrics[name], name, metricOf(name).percent ? 1 : 2));
  const folder = (run) => el("td", { class: "left" }, el("code", {}, run.name));
  return plainTable(
    "Runs of this row",
    ["Seed", ...metrics.map((name) => metricOf(name).title), "Folder"],
    runs.map((run) => [String(run.seed), ...values(run), folder(run)]),
  );
}

/** Every field; those in which it differs from another row of the benchmark come first, marked. */
function configurationList(row) {
  const odd = varied(DATA.rows.filter((one) => one.benchmark === row.benchmark));
  const names = Object.keys(row.fields).filter((name) => name !== "method");
  names.sort((a, b) => odd.has(b) - odd.has(a) || inOrder(a, b));
  return factList(names.map((name) => [name, odd.has(name) ? el("mark", {}, row.fields[name]) : row.fields[name]]));
}
