// Tables as text for a paper or a README, as tmln.results.textgrid writes them: the tests hold the two against each other.

/** A cell that stands out. */
function strong(text) {
  return { strong: text };
}

function textOf(cell) {
  return String(cell.strong ?? cell);
}

/** Lines of cells, the heading first. */
function markdown(lines) {
  const cell = (one) => {
    const text = textOf(one).trim().split(/\s+/).join(" ").replaceAll("|", "\\|");
    return one.strong === undefined ? text : `**${text}**`;
  };
  const [heading, ...body] = lines.map((line) => line.map(cell));
  const rule = heading.map((_, at) => (at ? "---:" : "---"));
  return [heading, rule, ...body].map((line) => `| ${line.join(" | ")} |`).join("\n");
}

/** A float with the rules of the booktabs package; a minus is one, what is not there is a dash. */
function latex(lines, caption, label) {
  const { signs } = DATA.latex;
  const written = (text) =>
    [...text.replace(/(?<![\p{L}\p{N}_.)\]])-(?=\.?\d)/gu, "−")].map((sign) => signs[sign] ?? sign).join("");
  const cell = (one) => {
    const text = textOf(one) === "-" ? "--" : written(textOf(one));
    return one.strong === undefined ? text : `\\textbf{${text}}`;
  };
  const row = (line) => {
    const text = line.map(cell).join(" & ");
    return `${/^[[*]/.test(text) ? "{}" : ""}${text} \\\\`; // else the line break before takes it as its argument
  };
  const [heading, ...body] = lines;
  return [
    "\\begin{table}[t]",
    "\\centering",
    `\\caption{${written(caption)}}`,
    `\\label{${label.replace(/[^A-Za-z0-9:.+-]+/g, "-")}}`,
    `\\begin{tabular}{l${"r".repeat(heading.length - 1)}}`,
    "\\toprule",
    row(heading),
    "\\midrule",
    ...body.map(row),
    "\\bottomrule",
    "\\end{tabular}",
    "\\end{table}",
  ].join("\n");
}

/** What the page leaves open with its own dash is a hyphen in text. */
function bare(text) {
  return text === NONE ? "-" : text.replaceAll("−", "-");
}
