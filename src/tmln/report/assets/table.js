// The table of methods: mean, spread, interval, and how each stands against the reference.

const tableSection = {
  id: "table",
  title: "Methods",
  render() {
    const current = view();
    if (!current.rows.length) return [empty("Nothing to show with these filters.")];
    const metrics = state.m.filter((name) => DATA.metrics[name]);
    return [
      el(
        "div",
        { class: "head" },
        el("p", { class: "note" }, tableNote(current)),
        downloads("Table of methods", fileName(state.b, "methods"), () => tableData(current, metrics)),
      ),
      el(
        "div",
        { class: "scroll", tabindex: "0", role: "region", "aria-label": "Table of methods" },
        el(
          "table",
          { class: "results" },
          tableHead(current, metrics),
          el(
            "tbody",
            {},
            readable(current.rows, LINES).map((item) => tableRow(current, metrics, item)),
          ),
        ),
      ),
      more(current.rows, LINES),
    ];
  },
};

function tableNote(current) {
  const against = current.reference
    ? ` Δ and p are against ${current.reference.row.label}, by a two-sided paired t-test seed by seed; the corrected p ` +
      "is Holm’s, for all pairs of contestants, or those with a row that you named (* below 0.05, of three seeds or more)."
    : "";
  const references = [...new Set(current.rows.filter((item) => !item.row.competes).map((item) => item.row.method))];
  const aside = references.length ? ` (${references.join(" and ")}, the reference of INT, aside)` : "";
  const bold = `Bold: the best and what a corrected test cannot tell from it, of all runs${aside}.`;
  return `Mean ± sample standard deviation over n seeds. ${bold}${against} Open a row to see its runs.`;
}

function tableHead(current, metrics) {
  const heading = metricOf(state.by).heading;
  const column = (key, text, about = "") => {
    const on = state.sort === key || state.sort === `-${key}`;
    const down = state.sort === `-${key}`;
    const firstDown = !["method", "p", "holm"].includes(key) && metricOf(key).more_is_better;
    const next = on ? (down ? key : `-${key}`) : firstDown ? `-${key}` : key;
    return el(
      "th",
      {
        scope: "col",
        "aria-sort": on ? (down ? "descending" : "ascending") : null,
        title: about || null,
        class: key === "method" ? "left" : null,
      },
      el(
        "button",
        { type: "button", "data-focus": `sort ${key}`, "data-sort": key, on: { click: () => update({ sort: next }) } },
        text,
        el("span", { class: "arrow", "aria-hidden": "true" }, on ? (down ? " ▾" : " ▴") : ""),
      ),
    );
  };
  return el(
    "thead",
    {},
    el(
      "tr",
      {},
      column("method", "Method"),
      column("n", "n", "number of seeds"),
      metrics.map((name) => column(name, metricOf(name).title, metricOf(name).about)),
      el("th", { scope: "col" }, `${heading} 95%`),
      current.reference
        ? [
            el("th", { scope: "col" }, `Δ ${heading}`),
            column("p", "p", "paired t-test against the reference"),
            column("holm", "corrected p", "the same, corrected by Holm for how many are compared"),
          ]
        : null,
    ),
  );
}

function tableRow(current, metrics, item) {
  const { row } = item;
  const bold = (name) => row.strong.includes(name);
  return el(
    "tr",
    {
      "data-row": row.label,
      class: item === current.reference ? "reference" : null,
      on: { click: () => update({ open: row.label }) },
    },
    el(
      "th",
      { scope: "row", class: "left" },
      el(
        "button",
        { type: "button", class: "row", "data-focus": `row ${row.label}`, "aria-haspopup": "dialog" },
        nameOf(row),
      ),
    ),
    el(
      "td",
      {},
      String(item.summary("acc").n),
      item.runs.length > item.good.length
        ? el("abbr", { title: `${item.runs.length - item.good.length} diverged` }, "†")
        : null,
    ),
    metrics.map((name) =>
      el(
        "td",
        { "data-metric": name },
        el(bold(name) ? "strong" : "span", {}, meanStd(item.summary(name), name)),
        bold(name) ? el("span", { class: "unseen" }, " best") : null,
      ),
    ),
    el(
      "td",
      {},
      el(
        "div",
        { class: "range" },
        whisker(current, item),
        el("span", { class: "interval" }, interval(item.summary(state.by), state.by)),
      ),
    ),
    current.reference
      ? [
          el("td", {}, item.against ? signed(item.against.mean) : "reference"),
          el("td", { "data-metric": "p" }, item.against ? pShown(item.against.p) : NONE),
          el(
            "td",
            { "data-metric": "holm" },
            item.against ? pShown(item.against.corrected) + (told(item.against) ? "*" : "") : NONE,
          ),
        ]
      : null,
  );
}

function signed(difference) {
  if (Number.isNaN(difference)) return NONE;
  const text = shown(difference, state.by).replace("-", "−");
  return difference > 0 ? `+${text}` : text;
}

function pShown(p) {
  if (Number.isNaN(p)) return NONE;
  return p >= 0.001 ? fixed(p, 3) : "<0.001";
}

function told({ n, corrected }) {
  return n >= 3 && corrected < 0.05;
}

/** Mean and interval on a line that all rows share. */
function whisker(current, item) {
  const found = current.rows.map((one) => one.summary(state.by));
  const ends = numbers(found.flatMap((one) => [one.mean, one.low, one.high]));
  const mine = item.summary(state.by);
  if (!ends.length || Number.isNaN(mine.mean)) return null;
  const [low, high] = [Math.min(...ends), Math.max(...ends)];
  const place = (value) => 4 + (92 * (Math.min(Math.max(value, low), high) - low)) / (high - low || 1);
  const colour = colourOf(item.row);
  return svg(
    "svg",
    { class: "whisker", viewBox: "0 0 100 12", "aria-hidden": "true", preserveAspectRatio: "none" },
    svg("line", { x1: 0, x2: 100, y1: 6, y2: 6, class: "track" }),
    Number.isNaN(mine.low)
      ? null
      : svg("line", {
          x1: place(mine.low),
          x2: Math.max(place(mine.high), place(mine.low) + 1),
          y1: 6,
          y2: 6,
          stroke: colour,
          "stroke-width": 4,
        }),
    svg("line", { x1: place(mine.mean), x2: place(mine.mean), y1: 1, y2: 11, class: "tick" }),
  );
}

function tableData(current, metrics) {
  const columns = [
    "benchmark",
    "method",
    "n",
    ...metrics.flatMap((name) => ["mean", "std", "low", "high"].map((part) => `${name}_${part}`)),
    "reference",
    `${state.by}_difference`,
    `${state.by}_p`,
    `${state.by}_p_holm`,
  ];
  const rows = current.rows.map((item) => [
    item.row.benchmark,
    item.row.label,
    item.summary("acc").n,
    ...metrics.flatMap((name) => ["mean", "std", "low", "high"].map((part) => item.summary(name)[part])),
    current.reference?.row.label ?? "",
    item.against?.mean,
    item.against?.p,
    item.against?.corrected,
  ]);
  return { columns, rows };
}
