// The top of the page: the sentence, and the four things people ask.

function summary() {
  const current = view();
  const lines = BENCHMARKS.length ? [] : [el("p", {}, nothing())];
  if (BENCHMARKS.length) {
    const rows = current.byAccuracy;
    lines.push(
      el(
        "p",
        { class: "lead", id: "sentence" },
        rows.length ? unbroken(sentence(rows, state.b), state.b) : "The filters leave nothing to show.",
      ),
    );
    const others = BENCHMARKS.filter((name) => name !== state.b);
    if (others.length) {
      lines.push(
        el(
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
              el("span", {}, DATA.sentences[name]),
            ),
          ),
        ),
      );
    }
  }
  return lines;
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

function tiles() {
  const found = choices(view().byAccuracy);
  const fair = found.some((choice) => choice.fair);
  const rows = found.filter((choice) => choice.fair === fair).map((choice) => choice.item);
  const first = bestOf(rows);
  if (!first) return [];
  const least = best(rows, "fm")[0];
  const timed = rows.filter((item) => item.summary("seconds").mean > 0 && item.row.competes);
  const fastest = [...timed].sort((a, b) => a.summary("seconds").mean - b.summary("seconds").mean)[0];
  const known = warningsHere().length;
  return [
    tile(fair ? "Most accurate" : "Chosen on the test data", meanStd(first.summary("acc"), "acc"), "%", nameOf(first.row)),
    least ? tile("Forgets least", meanStd(least.summary("fm"), "fm"), "%", nameOf(least.row)) : null,
    fastest && timed.includes(first) ? price(first, fastest) : null,
    sureness(rows, first),
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

function sureness(rows, first) {
  const second = bestOf(rows.filter((item) => item !== first));
  if (!second) return tile("How sure", plural(first.summary("acc").n, "seed"), "", ["nothing to compare with"]);
  const paired = compare(first.values("acc"), second.values("acc"));
  if (Number.isNaN(paired.p))
    return tile("How sure", "unknown", "", [`${plural(paired.n, "shared seed")} with `, ...nameOf(second.row)]);
  return tile("How sure", `p ${pText(paired.p)}`, "", [
    paired.p < 0.05 ? "ahead of " : "not told apart from ",
    ...nameOf(second.row),
    ` on ${plural(paired.n, "seed")}`,
  ]);
}
