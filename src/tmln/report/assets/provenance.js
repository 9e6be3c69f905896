// What ran and how: configurations with their differences, versions, the commands that make each row again.

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
    const shownRuns = current.rows.flatMap((item) => item.runs);
    const parts = [];
    if (current.rows.length) {
      parts.push(configurationTable(current), facts(current, shownRuns));
      parts.push(
        el("h3", {}, "Commands"),
        el("p", { class: "note" }, "Each makes its row again; add --out to say where."),
        el(
          "div",
          { class: "commands" },
          readable(current.byAccuracy).map((item) =>
            el("div", {}, el("p", {}, nameOf(item.row)), commandBox(item.row)),
          ),
        ),
        more(current.byAccuracy),
      );
    } else parts.push(empty("No run to tell of with these filters."));
    parts.push(
      el(
        "div",
        { class: "head" },
        el(
          "p",
          { class: "note" },
          `${plural(DATA.runs.length, "finished run")} in all`,
          DATA.shortcuts.length ? `, and ${plural(DATA.shortcuts.length, "shortcut reference")}` : "",
          ".",
        ),
        downloads("Runs shown", fileName(state.b, "runs"), () => runData(shownRuns)),
      ),
    );
    return parts;
  },
};

/** Fields that differ, a column each; what is unlike most others is marked by weight and a line, not by colour alone. */
function configurationTable(current) {
  const fields = [...varied(current.rows.map((item) => item.row)).keys()];
  if (!fields.length) return el("p", { class: "note" }, "All configurations shown are the same but for the method.");
  const usual = new Map(fields.map((name) => [name, commonest(current.rows.map(({ row }) => row.fields[name] ?? ""))]));
  const cell = (row, name) => {
    const value = row.fields[name];
    if (value === undefined) return el("td", { class: "absent" }, NONE);
    return value === usual.get(name) ? clipped(value, 40) : el("mark", {}, clipped(value, 40));
  };
  const rows = readable(current.rows, LINES).map(({ row }) => [nameOf(row), ...fields.map((name) => cell(row, name))]);
  return [
    el("h3", {}, "Configurations, where they differ"),
    el(
      "p",
      { class: "note" },
      el("mark", {}, "Underlined on yellow"),
      " is what differs from the commonest value of its column; a dash is a setting that the method does not have.",
    ),
    plainTable("Differences between configurations", ["Method", ...fields], rows, "differences"),
  ];
}

function commonest(values) {
  const count = new Map();
  for (const value of values) if (value !== "") count.set(value, (count.get(value) ?? 0) + 1);
  return [...count].sort((a, b) => b[1] - a[1])[0]?.[0];
}

function facts(current, runs) {
  const list = (values) =>
    [...new Set(values)]
      .filter((value) => value !== "" && value !== "null")
      .sort(inOrder)
      .join(", ") || "not recorded";
  const packages = [...new Set(runs.flatMap((run) => Object.keys(run.versions)))].sort();
  const machines = [...new Set(runs.flatMap((run) => Object.keys(run.machine)))].sort();
  const pairs = [
    ["Seeds", list(runs.map((run) => String(run.seed)))],
    ...packages.map((name) => [name, list(runs.map((run) => run.versions[name] ?? "not recorded"))]),
    ...(machines.length
      ? machines.map((name) => [name, list(runs.map((run) => run.machine[name] ?? "not recorded"))])
      : [["Machine", "not recorded"]]),
    ["Model", list(current.rows.map(({ row }) => row.fields.model ?? ""))],
    ["Parameters", list(runs.map((run) => String(run.parameters)))],
    ["Epochs a task", list(current.rows.map(({ row }) => row.fields.epochs ?? ""))],
    ["Batch", list(current.rows.map(({ row }) => row.fields.batch_size ?? ""))],
    ["Learning rate", list(current.rows.map(({ row }) => row.fields.lr ?? ""))],
    [
      "INT against",
      list(runs.map((run) => AGAINST[run.oracle] ?? run.oracle)),
    ],
  ];
  return el(
    "dl",
    { class: "facts" },
    pairs.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, clipped(value, 300)))),
  );
}

function commandBox(row) {
  if (!row.commands.length) return el("p", { class: "note" }, `No command: ${row.no_command}`);
  const text = row.commands.join("\n");
  const button = el(
    "button",
    { type: "button", class: "quiet", "aria-label": `Copy the command of ${row.label}` },
    "Copy",
  );
  button.addEventListener("click", async (event) => {
    event.stopPropagation();
    const done = await copy(text, button.previousElementSibling);
    button.textContent = done ? "Copied" : "Selected";
    say(done ? "Command copied" : "Command selected");
    setTimeout(() => {
      button.textContent = "Copy";
    }, 1500);
  });
  return el("div", { class: "command" }, el("pre", { tabindex: "0" }, el("code", {}, text)), button);
}

async function copy(text, node) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    // not allowed here: select it instead
    getSelection().selectAllChildren(node);
    return false;
  }
}

function runData(runs) {
  const metrics = [...new Set(runs.flatMap((run) => Object.keys(run.metrics)))].sort();
  return {
    columns: ["run", "benchmark", "method", "seed", "diverged", "oracle", ...metrics],
    rows: runs.map((run) => [
      run.name,
      DATA.rows[run.row].benchmark,
      DATA.rows[run.row].label,
      run.seed,
      run.diverged,
      run.oracle,
      ...metrics.map((name) => run.metrics[name]),
    ]),
  };
}
