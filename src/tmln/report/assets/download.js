// What is shown, as a file: numbers as CSV and JSON, tables also as LaTeX and Markdown, pictures as PNG and SVG.

function save(name, type, content) {
  const url = URL.createObjectURL(content instanceof Blob ? content : new Blob([content], { type }));
  el("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
  say(`Saved ${name}`);
}

/** RFC 4180; text that a spreadsheet would run as a formula is made text by an apostrophe. */
function csv({ columns, rows }) {
  const cell = (value) => {
    if (value === null || value === undefined || Number.isNaN(value)) return "";
    const text = typeof value === "string" && /^[=+\-@\t\r]/.test(value) ? `'${value}` : String(value);
    return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  return [columns, ...rows].map((row) => row.map(cell).join(",")).join("\r\n") + "\r\n";
}

function json({ columns, rows }) {
  const plain = (value) => (value === undefined || Number.isNaN(value) ? null : value);
  return JSON.stringify(
    rows.map((row) => Object.fromEntries(columns.map((name, at) => [name, plain(row[at])]))),
    null,
    1,
  );
}

/**
 * A small menu. `table()` gives columns and rows; `image(format)`, of pictures only, a promise of a data URL; `text()`,
 * of tables only, lines of cells with a caption and a label.
 */
function downloads(title, name, table, { image = null, text = null } = {}) {
  const chosen = (run) => () => {
    menu.open = false;
    menu.querySelector("summary").focus();
    run();
  };
  const item = (format, run) =>
    el("button", { type: "button", "aria-label": `${title} as ${format}`, on: { click: chosen(run) } }, format);
  const menu = el(
    "details",
    { class: "menu", "data-focus": `download ${name}` },
    el("summary", { "aria-label": `Download ${title}`, "data-focus": `download ${name} summary` }, "Download"),
    el(
      "div",
      { role: "group", "aria-label": `Formats of ${title}` },
      item("CSV", () => save(`${name}.csv`, "text/csv;charset=utf-8", csv(table()))),
      item("JSON", () => save(`${name}.json`, "application/json", json(table()))),
      ...(text
        ? [
            item("LaTeX", () => save(`${name}.tex`, "application/x-tex", `${latex(...Object.values(text()))}\n`)),
            item("Markdown", () => save(`${name}.md`, "text/markdown;charset=utf-8", `${markdown(text().lines)}\n`)),
          ]
        : []),
      ...(image
        ? ["PNG", "SVG"].map((format) =>
            item(format, async () => {
              save(`${name}.${format.toLowerCase()}`, "", unpacked(await image(format.toLowerCase())));
            }),
          )
        : []),
    ),
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
  const text = head.endsWith(";base64") ? atob(body) : decodeURIComponent(body);
  const type = head.replace(";base64", "");
  const bytes = head.endsWith(";base64")
    ? Uint8Array.from(text, (char) => char.charCodeAt(0))
    : new TextEncoder().encode(text);
  return new Blob([bytes], { type });
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
  return (
    parts
      .join("-")
      .toLowerCase()
      .replace(/[^a-z0-9+.=-]+/g, "-")
      .replace(/^[-.]+|-+$/g, "")
      .slice(0, 80) || "tmln"
  );
}
