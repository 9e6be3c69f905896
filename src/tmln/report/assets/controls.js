// The panel beside the results: what is shown, and compared with what. Its list of methods is every picture’s legend.

function controls() {
  const current = view();
  const rows = current.all;
  return [
    BENCHMARKS.length > 1
      ? select(
          "Benchmark",
          BENCHMARKS.map((name) => [name, name]),
          state.b,
          (b) => update({ b }),
        )
      : el("p", { class: "field" }, el("span", {}, "Benchmark"), el("strong", {}, state.b || "none")),
    configurations(current),
    methodList(rows),
    filterFields(rows),
    compared(current),
    columnList(),
    el(
      "button",
      { type: "button", class: "quiet reset", "data-focus": "reset", disabled: untouched(), on: { click: reset } },
      "Reset the view",
    ),
  ];
}

/** One row a method, or all of them; nothing to choose where that is the same. */
function configurations(current) {
  const faces = current.all.filter((row) => row.face).length;
  if (faces === current.all.length) return null;
  const options = [
    ["", `best of each method (${faces})`],
    ["all", `all (${current.all.length})`],
  ];
  return select("Configurations", options, state.show, (show) => update({ show }));
}

function methodList(rows) {
  const methods = [...new Set(rows.map((row) => row.method))];
  const toggle = (method, on) =>
    update({ hide: on ? state.hide.filter((name) => name !== method) : [...state.hide, method] });
  return el(
    "fieldset",
    { class: "methods" },
    el("legend", {}, "Methods"),
    methods.map((method) => {
      const kin = rows.filter((row) => row.method === method);
      const first = kin.find((row) => row.face) ?? kin[0];
      const box = el("input", {
        type: "checkbox",
        checked: !state.hide.includes(method),
        "data-focus": `method ${method}`,
        "data-method": method,
      });
      box.addEventListener("change", () => toggle(method, box.checked));
      return el(
        "label",
        { class: "check" },
        box,
        glyph(first),
        el("span", { class: "name" }, method),
        first.kin > 1 ? el("span", { class: "count", title: `${first.kin} configurations` }, `×${first.kin}`) : null,
      );
    }),
    methods.length > 2
      ? el(
          "div",
          { class: "pair" },
          el(
            "button",
            { type: "button", class: "link", "data-focus": "all methods", on: { click: () => update({ hide: [] }) } },
            "all",
          ),
          el(
            "button",
            {
              type: "button",
              class: "link",
              "data-focus": "no methods",
              on: { click: () => update({ hide: methods }) },
            },
            "none",
          ),
        )
      : null,
  );
}

/** Parts, seeds and every other field in which the rows differ. */
function filterFields(rows) {
  const fields = varied(rows);
  const seeds = [...new Set(rows.flatMap((row) => RUNS_OF[row.id].map((run) => String(run.seed))))].sort(inOrder);
  if (seeds.length > 1) fields.set("seed", seeds);
  if (!fields.size) return null;
  const chosen = fields.has(controls.field) ? controls.field : [...fields.keys()][0];
  const add = (value) =>
    value && update({ f: [...state.f.filter((text) => !text.startsWith(`${chosen}=`)), `${chosen}=${value}`] });
  return el(
    "fieldset",
    { class: "filters" },
    el("legend", {}, "Filter"),
    select(
      "Field",
      [...fields.keys()].map((name) => [name, name]),
      chosen,
      (name) => {
        controls.field = name;
        rebuild(byId("controls"), controls());
      },
    ),
    select(
      "Value",
      [["", "any"], ...fields.get(chosen).map((value) => [value, clipped(value, 40)])],
      state.f.find((text) => text.startsWith(`${chosen}=`))?.slice(chosen.length + 1) ?? "",
      (value) => (value ? add(value) : update({ f: state.f.filter((text) => !text.startsWith(`${chosen}=`)) })),
    ),
    state.f.length
      ? el(
          "ul",
          { class: "chips", "aria-label": "Filters in force" },
          state.f.map((text) =>
            el(
              "li",
              {},
              el(
                "button",
                {
                  type: "button",
                  "aria-label": `Remove the filter ${text}`,
                  on: { click: () => update({ f: state.f.filter((other) => other !== text) }) },
                },
                text,
                el("span", { "aria-hidden": "true" }, " ×"),
              ),
            ),
          ),
        )
      : null,
  );
}

function compared(current) {
  const metrics = metricsThere();
  if (!metrics.length) return null;
  return el(
    "fieldset",
    {},
    el("legend", {}, "Compare"),
    select(
      "by",
      metrics.map((name) => [name, metricOf(name).heading]),
      state.by,
      (by) => update({ by }),
      "by",
    ),
    select(
      "with",
      [["", "the best"], ...current.whole.map((item) => [item.row.label, clipped(item.row.label, 48)])],
      state.ref,
      (ref) => update({ ref }),
      "with",
    ),
  );
}

function columnList() {
  const metrics = metricsThere();
  if (!metrics.length) return null;
  return el(
    "details",
    { class: "columns", "data-focus": "columns" },
    el("summary", { "data-focus": "columns summary" }, "Columns"),
    metrics.map((name) => {
      const box = el("input", {
        type: "checkbox",
        checked: state.m.includes(name),
        "data-focus": `column ${name}`,
        "data-metric": name,
      });
      box.addEventListener("change", () =>
        update({ m: metrics.filter((other) => (other === name ? box.checked : state.m.includes(other))) }),
      );
      return el("label", { class: "check", title: metricOf(name).about }, box, metricOf(name).heading);
    }),
  );
}

function untouched() {
  return ["show", "unfold", "hide", "f", "m", "by", "ref", "sort", "x", "y", "seed", "band", "all"].every(
    (key) => JSON.stringify(state[key]) === JSON.stringify(DEFAULTS[key]),
  );
}

function reset() {
  const { b, theme, open, at, ...rest } = DEFAULTS;
  update(rest);
}

/** In words, for paper and for the phone, where the panel is folded away. */
function viewInWords() {
  const current = view();
  const parts = [state.b || "no benchmark", `${current.rows.length} of ${plural(current.all.length, "configuration")}`];
  if (state.f.length) parts.push(state.f.join(", "));
  if (current.reference) parts.push(`against ${clipped(current.reference.row.label, 40)}`);
  return parts.join(" · ");
}
