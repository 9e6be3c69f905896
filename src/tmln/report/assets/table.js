// The table of methods: mean, spread, interval, and how each stands against the reference.

const tableSection = {
  id: "table",
  title: "Methods",
  render() {
    const current = view();
    if (!current.rows.length) return [empty("Nothing to show with these filters.")];
    const metrics = state.m.filter((name) => DATA.metrics[name]);
    const items = tableItems(current);
    const ends = bulletEnds(items);
    return [
      el(
        "div",
        { class: "head" },
        tableNote(current),
        downloads("Table of methods", fileName(state.b, "methods"), () => tableData(current, items, metrics), {
          text: () => tableText(current, items, metrics),
        }),
      ),
      el(
        "div",
        { class: "scroll", tabindex: "0", role: "region", "aria-label": "Table of methods" },
        el(
          "table",
          { class: "results" },
          tableHead(current, metrics, ends),
          el(
            "tbody",
            {},
            readable(items, LINES).map((item) => tableRow(current, metrics, item, ends)),
          ),
        ),
      ),
      more(items, LINES),
    ];
  },
};

/** Each row, and behind it the other configurations of its method where they were asked for. */
function tableItems(current) {
  if (!current.folded) return current.rows;
  return current.rows.flatMap((item) =>
    state.unfold.includes(item.row.contender) ? [item, ...behind(current, item)] : [item],
  );
}

function tableNote(current) {
  const against = current.reference
    ? `Δ and p are against ${current.reference.row.label}, by a two-sided paired t-test seed by seed; the corrected p ` +
      "is Holm’s, for all pairs of contestants, or those with a row that you named (* below 0.05, of three seeds or more); " +
      "the plain one is under it."
    : "";
  const references = [...new Set(current.rows.filter((item) => !item.row.competes).map((item) => item.row.method))];
  const aside = references.length ? `, ${references.join(" and ")}, the reference of INT, aside` : "";
  const bold = `bold: the best and what a corrected test cannot tell from it, of all runs${aside}`;
  return el(
    "div",
    { class: "note" },
    el("p", {}, `Mean ± sample standard deviation over n seeds; ${bold}. Open a row to see its runs.`),
    against
      ? el(
          "details",
          { "data-focus": "reading" },
          el("summary", { "data-focus": "reading summary" }, "What Δ and p are"),
          el("p", {}, against),
        )
      : null,
  );
}

function tableHead(current, metrics, ends) {
  const { heading } = metricOf(state.by);
  const column = (key, text, about = "") =>
    el(
      "th",
      { scope: "col", "aria-sort": sorting(key), class: key === "method" ? "left" : null },
      sorter(key, text, about),
    );
  return el(
    "thead",
    {},
    el(
      "tr",
      {},
      column("method", "Method"),
      column("n", "n", "number of seeds"),
      metrics.map((name) => column(name, metricOf(name).title, metricOf(name).about)),
      el("th", { scope: "col", class: "range" }, `${heading} 95%`, bulletScale(ends)),
      current.reference
        ? [
            el("th", { scope: "col" }, `Δ ${heading}`),
            el(
              "th",
              { scope: "col", "aria-sort": sorting("holm") ?? sorting("p") },
              sorter("holm", "corrected p", "paired t-test against the reference, corrected by Holm for how many are compared"),
              " ",
              sorter("p", "plain", "the same test, not corrected"),
            ),
          ]
        : null,
    ),
  );
}

function sorting(key) {
  return state.sort === key ? "ascending" : state.sort === `-${key}` ? "descending" : null;
}

function sorter(key, text, about) {
  const now = sorting(key);
  const firstDown = !["method", "p", "holm"].includes(key) && metricOf(key).more_is_better;
  const next = now ? (now === "descending" ? key : `-${key}`) : firstDown ? `-${key}` : key;
  return el(
    "button",
    {
      type: "button",
      title: about || null,
      "data-focus": `sort ${key}`,
      "data-sort": key,
      on: { click: () => update({ sort: next }) },
    },
    text,
    el("span", { class: "arrow", "aria-hidden": "true" }, now ? (now === "descending" ? " ▾" : " ▴") : ""),
  );
}

function tableRow(current, metrics, item, ends) {
  const { row } = item;
  const bold = (name) => row.strong.includes(name);
  const aside = current.folded && !row.face;
  return el(
    "tr",
    {
      "data-row": row.label,
      class: [item === current.reference ? "reference" : "", aside ? "aside" : ""].join(" ").trim() || null,
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
      howChosen(current, item),
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
        el(bold(name) ? "strong" : "span", {}, withSpread(meanStd(item.summary(name), name))),
        bold(name) ? el("span", { class: "unseen" }, " best") : null,
      ),
    ),
    el(
      "td",
      { class: "range" },
      bullet(ends, item),
      el("span", { class: "interval" }, interval(item.summary(state.by), state.by)),
    ),
    current.reference
      ? [
          el("td", { "data-metric": "difference" }, item.against ? signed(item.against.mean) : "reference"),
          el(
            "td",
            { class: "ps" },
            el(
              "span",
              { "data-metric": "holm" },
              item.against ? pShown(item.against.corrected) + (told(item.against) ? "*" : "") : NONE,
            ),
            Number.isFinite(item.against?.p) ? el("span", { class: "plain", "data-metric": "p" }, pShown(item.against.p)) : null,
          ),
        ]
      : null,
  );
}

/** The deviation smaller than the mean. */
function withSpread(text) {
  const at = text.indexOf(" ±");
  return at < 0 ? text : [text.slice(0, at), el("span", { class: "spread" }, text.slice(at))];
}

/** By what data the row was chosen, from how many; and the way to the others. */
function howChosen(current, { row }) {
  if (!row.chosen) return null;
  const kind = row.fair ? "how" : "how doubtful";
  if (!current.folded) return el("span", { class: kind }, row.chosen);
  const open = state.unfold.includes(row.contender);
  const toggle = (event) => {
    event.stopPropagation(); // the row itself opens its runs
    const others = state.unfold.filter((name) => name !== row.contender);
    update({ unfold: open ? others : [...others, row.contender] });
  };
  return el(
    "button",
    {
      type: "button",
      class: kind,
      "data-focus": `unfold ${row.contender}`,
      "aria-expanded": String(open),
      title: open ? "Hide the other configurations" : "Show the other configurations",
      on: { click: toggle },
    },
    `${row.chosen}\u00a0`,
    el("span", { "aria-hidden": "true" }, open ? "▾" : "▸"),
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
