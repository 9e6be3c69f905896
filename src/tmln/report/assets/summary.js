// The top of the page: the sentence, and the four things people ask.

/** The claim in a line: the whole of it stands under the tiles. */
function summary() {
  if (!BENCHMARKS.length) return [el("p", {}, nothing())];
  return [el("p", { class: "lead", id: "headline" }, unbroken(DATA.headlines[state.b], state.b))];
}

/** The sentence of this benchmark, and the claims of the others. */
function wholeSentence() {
  if (!BENCHMARKS.length) return [];
  const others = BENCHMARKS.filter((name) => name !== state.b);
  return [
    el("p", { class: "note", id: "sentence" }, DATA.sentences[state.b]),
    others.length
      ? el(
          "ul",
          { class: "others", "aria-label": "Other benchmarks" },
          others.map((name) =>
            el(
              "li",
              {},
              el(
                "button",
                {
                  type: "button",
                  class: "link",
                  "data-focus": `benchmark ${name}`,
                  on: { click: () => update({ b: name }) },
                },
                name,
              ),
              el("span", {}, DATA.headlines[name]),
            ),
          ),
        )
      : null,
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

/** Of all runs of the table, whatever the filters leave: a claim is not made better by hiding a method. */
function tiles() {
  const { fair, acc, fm } = DATA.verdicts[state.b] ?? { acc: {}, fm: {} };
  const every = DATA.rows.filter((row) => row.benchmark === state.b).map((row) => measured(row, []));
  const called = (label) => every.find((item) => item.row.label === label);
  const first = called(acc.first),
    least = called(fm.first);
  if (!first) return [];
  const timed = every.filter((item) => item.summary("seconds").mean > 0 && item.row.competes);
  const fastest = [...timed].sort((a, b) => a.summary("seconds").mean - b.summary("seconds").mean)[0];
  const known = warningsHere().length;
  return [
    tile(
      fair ? (acc.won ? "Leads" : "Highest accuracy") : "Chosen on the test data",
      meanStd(first.summary("acc"), "acc"),
      "%",
      nameOf(first.row),
    ),
    least
      ? tile(fm.won ? "Forgets least" : "Lowest forgetting", meanStd(least.summary("fm"), "fm"), "%", [
          ...nameOf(least.row),
          least.summary("peak").n ? ` from a peak of ${shown(least.summary("peak").mean, "peak")}` : null,
        ])
      : null,
    fastest && timed.includes(first) ? price(first, fastest) : null,
    sureness(first, called(acc.near), acc),
    known
      ? el(
          "a",
          {
            class: "tile known",
            href: "#warnings",
            on: {
              click: (event) => {
                event.preventDefault();
                goTo("warnings");
              },
            },
          },
          el("span", { class: "what" }, "Before you trust it"),
          el("span", { class: "figure" }, String(known)),
          el("span", { class: "who" }, `${known === 1 ? "thing" : "things"} to know`),
        )
      : null,
  ];
}

function tile(what, number, unit, who) {
  return el(
    "div",
    { class: "tile" },
    el("span", { class: "what" }, what),
    el("span", { class: "figure" }, number, unit ? el("small", {}, ` ${unit}`) : null),
    el("span", { class: "who" }, who),
  );
}

function price(first, fastest) {
  const mine = first.summary("seconds").mean,
    ratio = mine / fastest.summary("seconds").mean;
  const who =
    first === fastest ? ["the fastest here"] : [`${fixed(ratio, 1)} × the fastest,`, " ", ...nameOf(fastest.row)];
  return tile("Its price", duration(mine), "a run", who);
}

function sureness(first, near, { won, shared, corrected }) {
  if (!near) return tile("How sure", plural(first.summary("acc").n, "seed"), "", ["nothing to compare with"]);
  if (corrected === null || shared < 3)
    return tile("How sure", "unknown", "", [`${plural(shared, "shared seed")} with `, ...nameOf(near.row)]);
  return tile("How sure, corrected", `p ${pText(corrected)}`, "", [
    won ? "ahead of " : "not told apart from all; nearest ",
    ...nameOf(near.row),
    ` on ${plural(shared, "seed")}`,
  ]);
}
