// Save what is shown as a file: numbers as CSV and JSON, tables also as LaTeX and Markdown, pictures as PNG and SVG.

function save(name, type, content) {
  const url = URL.createObjectURL(content instanceof Blob ? content : new Blob([content], { type }));
  el("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
  say(`Saved ${name}`);
}

const isMissing = (value) => value === null || value === undefined || Number.isNaN(value);

/** RFC 4180; text that a spreadsheet would run as a formula is made text by an apostrophe. */
function csv({ columns, rows }) {
  const cell = (value) => {
    if (isMissing(value)) return "";
    const text = typeof value === "string" && /^[=+\-@\t\r]/.test(value) ? `'${value}` : String(value);
    return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  return [columns, ...rows].map((row) => row.map(cell).join(",")).join("\r\n") + "\r\n";
}

function json({ columns, rows }) {
  const plain = (value) => (isMissing(value) ? null : value);
  const entries = rows.map((row) => Object.fromEntries(columns.map((name, at) => [name, plain(row[at])])));
  return JSON.stringify(entries, null, 1);
}

/**
 * A small menu. `table()` gives columns and rows; `image(format)`, of pictures only, a promise of a data URL; `text()`,
 * of tables only, lines of cells with a caption and a label.
 */
function downloads(title, name, table, { image = null, text = null } = {}) {
  const files = [
    ["CSV", () => save(`${name}.csv`, "text/csv;charset=utf-8", csv(table()))],
    ["JSON", () => save(`${name}.json`, "application/json", json(table()))],
  ];
  if (text)
    files.push(
      ["LaTeX", () => save(`${name}.tex`, "application/x-tex", `${latex(...Object.values(text()))}\n`)],
      ["Markdown", () => save(`${name}.md`, "text/markdown;charset=utf-8", `${markdown(text().lines)}\n`)],
    );
  if (image)
    for (const format of ["png", "svg"])
      files.push([
        format.toUpperCase(),
        async () => save(`${name}.${format}`, "", unpacked(await image(format))),
      ]);
  const choose = (run) => () => {
    menu.open = false;
    menu.querySelector("summary").focus();
    run();
  };
  const items = files.map(([format, run]) =>
    button(format, null, choose(run), { "aria-label": `${title} as ${format}` }),
  );
  const menu = el(
    "details",
    { class: "menu", "data-focus": `download ${name}` },
    el("summary", { "aria-label": `Download ${title}`, "data-focus": `download ${name} summary` }, "Download"),
    el("div", { role: "group", "aria-label": `Formats of ${title}` }, items),
  );
  return menu;
}

/** What a part of the page is, in words, beside the menu of its files. */
function explained(text, menu) {
  return el("div", { class: "head" }, el("p", { class: "note" }, text), menu);
}

/** A data URL as a file; fetching it would be a request. */
function unpacked(url) {
  const [head, body] = [url.slice(5, url.indexOf(",")), url.slice(url.indexOf(",") + 1)];
  const packed = head.endsWith(";base64");
  const bytes = packed
    ? Uint8Array.from(atob(body), (char) => char.charCodeAt(0))
    : new TextEncoder().encode(decodeURIComponent(body));
  return new Blob([bytes], { type: head.replace(";base64", "") });
}

document.addEventListener("click", (event) => closeMenus(event.target));
document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape") return;
  const menu = document.activeElement?.closest("details.menu[open]");
  closeMenus(null);
  menu?.querySelector("summary").focus();
});

function closeMenus(target) {
  for (const menu of document.querySelectorAll("details.menu[open]"))
    if (!target || !menu.contains(target)) menu.open = false;
}

/** A file's name that every system takes. */
function fileName(...parts) {
  const text = parts.join("-").toLowerCase().replace(/[^a-z0-9+.=-]+/g, "-");
  return text.replace(/^[-.]+|-+$/g, "").slice(0, 80) || "tmln";
}

// -- tables as text, as tmln.analysis.text_table writes them: the tests compare the two --

/** A bold cell. */
function strong(text) {
  return { strong: text };
}

function textOf(cell) {
  return String(cell.strong ?? cell);
}

/** Python's hyphen where the page has a dash or a minus sign. */
function bare(text) {
  return text === NONE ? "-" : text.replaceAll("−", "-");
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

/** A float with the rules of the booktabs package. */
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
