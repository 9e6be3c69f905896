// The panel beside the results: what is shown, and the reference of the tests. Its list of methods is a legend.

function controls() {
  const current = view();
  return [
    BENCHMARKS.length > 1
      ? select("Benchmark", BENCHMARKS.map((name) => [name, name]), state.b, (b) => update({ b }))
      : el("p", { class: "field" }, el("span", {}, "Benchmark"), el("strong", {}, state.b || "none")),
    configurations(current),
    methodList(current.all),
    filterFields(current.all),
    compared(),
    columnList(),
    button("Reset the view", "reset", reset, { class: "quiet reset", disabled: isReset() }),
  ];
}

/** One row a method, or all of them; nothing to choose where that is the same. */
function configurations({ all }) {
  const count = all.filter((row) => row.representative).length;
  if (count === all.length) return null;
  const options = [
    ["", `best of each method (${count})`],
    ["all", `all (${all.length})`],
  ];
  return select("Configurations", options, state.show, (show) => update({ show }));
}

function methodList(rows) {
  const methods = [...new Set(rows.map((row) => row.method))];
  const toggle = (method, on) =>
    update({ hide: on ? state.hide.filter((name) => name !== method) : [...state.hide, method] });
  const entries = methods.map((method) => {
    const kin = rows.filter((row) => row.method === method);
    const first = kin.find((row) => row.representative) ?? kin[0];
    const names = { "data-focus": `method ${method}`, "data-method": method };
    return el(
      "label",
      { class: "check" },
      checkbox(!state.hide.includes(method), names, (on) => toggle(method, on)),
      glyph(first),
      el("span", { class: "name" }, method),
      first.kin > 1 ? el("span", { class: "count", title: `${first.kin} configurations` }, `×${first.kin}`) : null,
    );
  });
  const pair = [
    link("all", "all methods", () => update({ hide: [] })),
    link("none", "no methods", () => update({ hide: methods })),
  ];
  return el(
    "fieldset",
    { class: "methods" },
    el("legend", {}, "Methods"),
    entries,
    methods.length > 2 ? el("div", { class: "pair" }, pair) : null,
  );
}

/** Parts, seeds and every other field in which the rows differ. */
function filterFields(rows) {
  const fields = varied(rows);
  const seeds = [...new Set(rows.flatMap((row) => RUNS_OF[row.id].map((run) => String(run.seed))))].sort(inOrder);
  if (seeds.length > 1) fields.set("seed", seeds);
  if (!fields.size) return null;
  const chosen = fields.has(controls.field) ? controls.field : [...fields.keys()][0];
  const others = state.f.filter((text) => !text.startsWith(`${chosen}=`));
  const value = state.f.find((text) => text.startsWith(`${chosen}=`))?.slice(chosen.length + 1) ?? "";
  const chip = (text) => {
    const remove = () => update({ f: state.f.filter((other) => other !== text) });
    const cross = el("span", { "aria-hidden": "true" }, " ×");
    return el("li", {}, button([text, cross], null, remove, { "aria-label": `Remove the filter ${text}` }));
  };
  return el(
    "fieldset",
    { class: "filters" },
    el("legend", {}, "Filter"),
    select("Field", [...fields.keys()].map((name) => [name, name]), chosen, (name) => {
      controls.field = name;
      rebuild(byId("controls"), controls());
    }),
    select("Value", [["", "any"], ...fields.get(chosen).map((one) => [one, clipped(one, 40)])], value, (one) =>
      update({ f: one ? [...others, `${chosen}=${one}`] : others }),
    ),
    state.f.length ? el("ul", { class: "chips", "aria-label": "Active filters" }, state.f.map(chip)) : null,
  );
}

function compared() {
  const metrics = metricsHere();
  if (!metrics.length) return null;
  const references = DATA.tables[state.b].references.map((id) => DATA.rows[id].label);
  const options = [["", "the best"], ...references.map((label) => [label, clipped(label, 48)])];
  return el(
    "fieldset",
    {},
    el("legend", {}, "Compare"),
    selectMetric("by", metrics, state.by, (by) => update({ by })),
    select("with", options, state.ref, (ref) => update({ ref })),
  );
}

function columnList() {
  const metrics = metricsHere();
  if (!metrics.length) return null;
  const choose = (name, on) =>
    update({ m: metrics.filter((other) => (other === name ? on : state.m.includes(other))) });
  const entry = (name) => {
    const names = { "data-focus": `column ${name}`, "data-metric": name };
    const box = checkbox(state.m.includes(name), names, (on) => choose(name, on));
    return el("label", { class: "check", title: metricOf(name).about }, box, metricOf(name).heading);
  };
  return el(
    "details",
    { class: "columns", "data-focus": "columns" },
    el("summary", { "data-focus": "columns summary" }, "Columns"),
    metrics.map(entry),
  );
}

function isReset() {
  const { b, theme, open, at, after, ...rest } = DEFAULTS;
  return Object.entries(rest).every(([key, usual]) => same(state[key], usual));
}

function reset() {
  const { b, theme, open, at, ...rest } = DEFAULTS;
  update(rest);
}

/** The view in words, for paper and for the phone, where the panel is folded away. */
function viewInWords() {
  const current = view();
  const parts = [state.b || "no benchmark", `${current.rows.length} of ${plural(current.all.length, "configuration")}`];
  if (state.f.length) parts.push(state.f.join(", "));
  if (current.reference) parts.push(`against ${clipped(current.reference.label, 40)}`);
  return parts.join(" · ");
}
