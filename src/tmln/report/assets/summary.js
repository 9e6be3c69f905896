// The top of the page, headline, tiles and the whole summary, and its end, the warnings. All of the text is Python's.

function headline() {
  if (!BENCHMARKS.length) return [el("p", {}, nothing())];
  return [el("p", { class: "lead", id: "headline" }, unbroken(DATA.tables[state.b].headline, state.b))];
}

/** The summary of this benchmark, and the headlines of the others. */
function wholeSummary() {
  if (!BENCHMARKS.length) return [];
  const other = (name) =>
    el(
      "li",
      {},
      link(name, `benchmark ${name}`, () => update({ b: name })),
      el("span", {}, DATA.tables[name].headline),
    );
  const others = BENCHMARKS.filter((name) => name !== state.b);
  return [
    el("p", { class: "note", id: "sentence" }, DATA.tables[state.b].summary),
    others.length ? el("ul", { class: "others", "aria-label": "Other benchmarks" }, others.map(other)) : null,
  ];
}

/** The text, with a word of it that is not to be broken at its hyphen. */
function unbroken(text, word) {
  const at = text.indexOf(word);
  return at < 0 ? text : [text.slice(0, at), el("span", { class: "word" }, word), text.slice(at + word.length)];
}

function nothing() {
  return DATA.problems.length
    ? "No run has finished yet: what was found is listed below."
    : "This folder holds no runs. `tmln compare --benchmark split-digits --methods er,tmln` makes some.";
}

/** Of all runs of the table, whatever the filters hide. */
function tiles() {
  return (DATA.tables[state.b]?.tiles ?? []).map(({ what, figure, unit, row, before, after, section }) => {
    const parts = [
      el("span", { class: "what" }, what),
      el("span", { class: "figure" }, figure, unit ? el("small", {}, ` ${unit}`) : null),
      el("span", { class: "who" }, before, row === null ? null : nameOf(DATA.rows[row]), after),
    ];
    if (!section) return el("div", { class: "tile" }, parts);
    const go = (event) => {
      event.preventDefault();
      goTo(section);
    };
    return el("a", { class: "tile known", href: `#${section}`, on: { click: go } }, parts);
  });
}

const LONGEST = 240; // characters of one thing that a warning is about

const warningsSection = {
  id: "warnings",
  title: "Warnings",
  render() {
    const found = DATA.warnings.filter((one) => !one.benchmark || one.benchmark === state.b).flatMap(ofShownRows);
    if (!found.length)
      return [empty("No warnings: every run could be read, is finished, and has the seeds that the others have.")];
    const entry = (one) => el("li", {}, el("strong", {}, one.text), one.about.length ? aboutList(one.about) : null);
    return [el("ul", { class: "warnings" }, found.map(entry))];
  },
};

/** A warning without the rows that are hidden; none is left of one that is of hidden rows alone. */
function ofShownRows(one) {
  if (one.benchmark !== state.b || !one.about.length) return [one];
  const shown = new Set(view().rows.map(({ row }) => row.label));
  const labels = DATA.rows.filter((row) => row.benchmark === state.b).map((row) => row.label);
  const isHidden = (text) => {
    const of = labels.filter((label) => text === label || text.startsWith(`${label} `));
    return of.length > 0 && !shown.has(of.sort((a, b) => b.length - a.length)[0]);
  };
  const about = one.about.flatMap((text) => {
    const at = text.indexOf(": "); // "0.01: er, tmln", "er: 3 of 5 seeds"
    const head = at < 0 ? "" : text.slice(0, at);
    if (head && isHidden(head)) return [];
    const names = (head ? text.slice(at + 2) : text).split(", ");
    const kept = names.filter((name) => !isHidden(name));
    if (kept.length === names.length) return [text];
    if (!kept.length || (!head && kept.length < 2)) return []; // a row does not agree with itself
    return [(head ? `${head}: ` : "") + kept.join(", ")];
  });
  return about.length ? [{ ...one, about }] : [];
}

function aboutList(about) {
  const folded = (text) => el("details", {}, el("summary", {}, clipped(text, LONGEST / 2)), text);
  const items = (texts) => el("ul", {}, texts.map((text) => el("li", {}, text.length > LONGEST ? folded(text) : text)));
  if (about.length <= 8) return items(about);
  const rest = el("details", {}, el("summary", {}, `and ${about.length - 6} more`), items(about.slice(6)));
  return [items(about.slice(0, 6)), rest];
}
