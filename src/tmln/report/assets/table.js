// The table of methods: mean, deviation, interval, and the test of each row against the reference.

const tableSection = {
  id: "table",
  title: "Methods",
  render() {
    const current = view();
    if (!current.rows.length) return [hiddenNote(current), empty("Nothing to show with these filters.")];
    const metrics = state.m.filter((name) => DATA.metrics[name]);
    const items = tableItems(current);
    const ends = bulletEnds(items);
    const files = downloads("Table of methods", fileName(state.b, "methods"), () => tableData(current, items, metrics), {
      text: () => tableText(current, items, metrics),
    });
    const body = readable(items, LINES).map((item) => tableRow(current, metrics, item, ends));
    return [
      el("div", { class: "head" }, tableNote(current), files),
      hiddenNote(current),
      scrollBox(
        "Table of methods",
        el("table", { class: "results" }, tableHead(current, metrics, ends), el("tbody", {}, body)),
      ),
      more(items, LINES),
    ];
  },
};

/** Each row, and behind it the other configurations of its method where they were asked for. */
function tableItems(current) {
  if (!current.folded) return current.rows;
  return current.rows.flatMap((item) =>
    state.unfold.includes(item.row.contender) ? [item, ...othersOf(current, item)] : [item],
  );
}

/** That nothing is computed anew where rows are hidden. */
function hiddenNote(current) {
  const hidden = current.all.length - current.whole.length;
  const seeds = state.f.filter((text) => text.startsWith("seed="));
  if (!hidden && !seeds.length) return null;
  const rows = `${hidden} of ${plural(current.all.length, "configuration")} ${hidden === 1 ? "is" : "are"} hidden.`;
  const text = "Means, intervals, tests, corrections, ranks and fronts still count every configuration and every seed.";
  return el("p", { class: "note", id: "hidden" }, hidden ? `${rows} ` : "Other seeds are hidden. ", text);
}

function tableNote(current) {
  const references = [...new Set(current.rows.filter(({ row }) => !row.competes).map(({ row }) => row.method))];
  const aside = references.length ? `, except ${references.join(" and ")}, the reference of INT` : "";
  const about =
    `Mean ± sample standard deviation over n seeds. Bold: the best, and every row that does not differ significantly ` +
    `from it after Holm correction over all runs${aside}. Open a row to see its runs.`;
  const against = current.reference
    ? `Δ and p compare each row with ${current.reference.label}: a two-sided paired t-test over the seeds that both have. ` +
      "The corrected p is Holm’s, over all pairs of methods, or over the pairs with the row that you named (* below 0.05 " +
      "with at least three seeds); the uncorrected p is under it."
    : "";
  return el(
    "div",
    { class: "note" },
    el("p", {}, about),
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
  const column = (key, text, about = "", kind = null) =>
    el("th", { scope: "col", "aria-sort": sorting(key), class: kind }, sorter(key, text, about));
  const compared = () => [
    el("th", { scope: "col" }, `Δ ${heading}`),
    el(
      "th",
      { scope: "col", "aria-sort": sorting("holm") ?? sorting("p") },
      sorter("holm", "corrected p", "paired t-test against the reference, Holm-corrected for the number of comparisons"),
      " ",
      sorter("p", "plain", "the same test, not corrected"),
    ),
  ];
  return el(
    "thead",
    {},
    el(
      "tr",
      {},
      column("method", "Method", "", "left"),
      column("n", "n", "number of seeds"),
      metrics.map((name) => column(name, metricOf(name).title, metricOf(name).about)),
      el("th", { scope: "col", class: "range" }, `${heading} 95%`, bulletScale(ends)),
      current.reference ? compared() : null,
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
  const arrow = el("span", { class: "arrow", "aria-hidden": "true" }, now ? (now === "descending" ? " ▾" : " ▴") : "");
  const names = { title: about || null, "data-sort": key };
  return button([text, arrow].flat(), `sort ${key}`, () => update({ sort: next }), names);
}

function tableRow(current, metrics, item, ends) {
  const { row, against } = item;
  const kinds = [row === current.reference ? "reference" : "", current.folded && !row.representative ? "aside" : ""];
  const diverged = item.runs.length - item.good.length;
  const metricCell = (name) => {
    const isBold = row.strong.includes(name);
    return el(
      "td",
      { "data-metric": name },
      el(isBold ? "strong" : "span", {}, withSpread(dash(item.summary(name).text))),
      isBold ? el("span", { class: "unseen" }, " best") : null,
    );
  };
  const compared = () => [
    el("td", { "data-metric": "difference" }, against ? signed(against.mean, state.by) : "reference"),
    el(
      "td",
      { class: "ps" },
      el("span", { "data-metric": "holm" }, against ? pShown(against.corrected) + (against.significant ? "*" : "") : NONE),
      isNumber(against?.p) ? el("span", { class: "plain", "data-metric": "p" }, pShown(against.p)) : null,
    ),
  ];
  return el(
    "tr",
    { "data-row": row.label, class: kinds.join(" ").trim() || null, on: { click: () => update({ open: row.label }) } },
    el(
      "th",
      { scope: "row", class: "left" },
      el("button", { type: "button", class: "row", "data-focus": `row ${row.label}`, "aria-haspopup": "dialog" }, nameOf(row)),
      howChosen(current, row),
    ),
    el(
      "td",
      {},
      String(item.summary("acc").n),
      diverged ? el("abbr", { title: `${diverged} diverged` }, "†") : null,
    ),
    metrics.map(metricCell),
    el(
      "td",
      { class: "range" },
      bullet(ends, item),
      el("span", { class: "interval" }, dash(item.summary(state.by).interval)),
    ),
    current.reference ? compared() : null,
  );
}

/** The deviation smaller than the mean. */
function withSpread(text) {
  const at = text.indexOf(" ±");
  return at < 0 ? text : [text.slice(0, at), el("span", { class: "spread" }, text.slice(at))];
}

/** On which data the row was chosen, from how many; and a button that shows the others. */
function howChosen(current, row) {
  if (!row.chosen) return null;
  const kind = row.fair ? "how" : "how doubtful";
  if (!current.folded) return el("span", { class: kind }, row.chosen);
  const open = state.unfold.includes(row.contender);
  const toggle = (event) => {
    event.stopPropagation(); // the row itself opens its runs
    const others = state.unfold.filter((name) => name !== row.contender);
    update({ unfold: open ? others : [...others, row.contender] });
  };
  const arrow = el("span", { "aria-hidden": "true" }, open ? "▾" : "▸");
  return button([`${row.chosen}\u00a0`, arrow], `unfold ${row.contender}`, toggle, {
    class: kind,
    "aria-expanded": String(open),
    title: open ? "Hide the other configurations" : "Show the other configurations",
  });
}

// -- mean and interval of each row on a line that all rows share --

const BULLET = { width: 136, height: 20, edge: 4 };

/** The least and the largest end of the intervals that the table has. */
function bulletEnds(items) {
  const found = items.map((one) => one.summary(state.by));
  const ends = found.flatMap((one) => [one.mean, one.low, one.high]).filter(isNumber);
  return ends.length ? [Math.min(...ends), Math.max(...ends)] : null;
}

function bullet(ends, item) {
  const mine = item.summary(state.by);
  if (!ends || !isNumber(mine.mean)) return null;
  const [low, high] = ends,
    { width, height, edge } = BULLET,
    middle = height / 2,
    colour = colourOf(item.row);
  const place = (value) => edge + ((width - 2 * edge) * (value - low)) / (high - low || 1);
  const flatLine = (from, to, more) => svg("line", { x1: from, x2: to, y1: middle, y2: middle, ...more });
  const [at, from, to] = [mine.mean, mine.low, mine.high].map(place);
  return svg(
    "svg",
    { class: "bullet", viewBox: `0 0 ${width} ${height}`, width, height, "aria-hidden": "true" },
    flatLine(edge, width - edge, { class: "track" }),
    isNumber(mine.low)
      ? [
          flatLine(from - 1, to + 1, { stroke: colour, "stroke-width": 11 }),
          svg("line", { x1: at, x2: at, y1: 1, y2: height - 1, class: "mean" }),
        ]
      : svg("circle", { cx: at, cy: middle, r: 5, fill: colour }),
  );
}

/** What the line's ends are, for its heading. */
function bulletScale(ends) {
  if (!ends) return null;
  return el("span", { class: "ends", "aria-hidden": "true" }, ends.map((end) => el("span", {}, shown(end, state.by))));
}

// -- the table as files: every number for programs, what is shown for a paper --

function tableData(current, items, metrics) {
  const parts = ["mean", "std", "low", "high"];
  return {
    columns: [
      ...["benchmark", "method", "n"],
      ...metrics.flatMap((name) => parts.map((part) => `${name}_${part}`)),
      ...["reference", `${state.by}_difference`, `${state.by}_p`, `${state.by}_p_holm`, "chosen"],
    ],
    rows: items.map(({ row, summary, against }) => [
      ...[row.benchmark, row.label, summary("acc").n],
      ...metrics.flatMap((name) => parts.map((part) => summary(name)[part])),
      ...[current.reference?.label ?? "", against?.mean, against?.p, against?.corrected, row.chosen],
    ]),
  };
}

/** Lines, caption and label, as `tmln show --columns` has them. */
function tableText(current, items, metrics) {
  const { heading } = metricOf(state.by);
  const compared = current.reference ? [`Δ ${heading}`, "p", "corrected p"] : [];
  const lines = items.map(({ row, summary, against }) => [
    row.not_learned ? `${row.label} †` : row.label,
    String(summary("acc").n),
    ...metrics.map((name) => (row.strong.includes(name) ? strong(summary(name).text) : summary(name).text)),
    summary(state.by).interval,
    ...(current.reference ? differenceCells(against) : []),
  ]);
  return {
    lines: [["method", "n", ...metrics.map((name) => metricOf(name).title), `${heading} 95%`, ...compared], ...lines],
    caption: `${state.b}. ${DATA.latex.caption}`,
    label: `tab:${state.b}`,
  };
}

function differenceCells(against) {
  if (!against) return ["reference", "-", "-"];
  const corrected = bare(pShown(against.corrected));
  const difference = bare(signed(against.mean, state.by));
  return [difference, bare(pShown(against.p)), against.significant ? strong(corrected) : corrected];
}
