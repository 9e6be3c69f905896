// What a reader must know before trusting the page.

const warningsSection = {
  id: "warnings",
  title: "Warnings",
  render() {
    const found = warningsHere();
    if (!found.length)
      return [
        empty("Nothing to warn of: every run could be read, is finished, and has the seeds that the others have."),
      ];
    return [
      el(
        "ul",
        { class: "warnings" },
        found.map((one) => el("li", {}, el("strong", {}, one.text), one.about.length ? aboutList(one.about) : null)),
      ),
    ];
  },
};

const LONGEST = 240; // characters of one thing that a warning is about

function folded(text) {
  return el("details", {}, el("summary", {}, clipped(text, LONGEST / 2)), text);
}

function aboutList(about) {
  const items = (texts) =>
    el(
      "ul",
      {},
      texts.map((text) => el("li", {}, text.length > LONGEST ? folded(text) : text)),
    );
  if (about.length <= 8) return items(about);
  return [
    items(about.slice(0, 6)),
    el("details", {}, el("summary", {}, `and ${about.length - 6} more`), items(about.slice(6))),
  ];
}

/** Of this benchmark and of the whole folder. */
function warningsHere() {
  return DATA.warnings.filter((one) => !one.benchmark || one.benchmark === state.b);
}
