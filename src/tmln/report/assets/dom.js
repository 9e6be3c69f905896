// Elements are built from text and attributes only: data can never become markup.

/** An element; `attributes.on` holds listeners, null and false attributes are left out, children are nodes or text. */
function el(tag, attributes = {}, ...children) {
  return furnish(document.createElement(tag), attributes, children);
}

/** The same for SVG. */
function svg(tag, attributes = {}, ...children) {
  return furnish(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function furnish(node, { on = {}, ...attributes }, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    node.setAttribute(name, value === true ? "" : String(value));
  }
  for (const [event, listener] of Object.entries(on)) node.addEventListener(event, listener);
  node.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== ""));
  return node;
}

function byId(id) {
  return document.getElementById(id);
}

/** Build `container` anew; whoever had the keyboard, told by data-focus, has it again. */
function rebuild(container, ...children) {
  const active = container.contains(document.activeElement) ? document.activeElement.dataset.focus : undefined;
  const open = [...container.querySelectorAll("details[open][data-focus]")].map((node) => node.dataset.focus);
  container.replaceChildren(
    ...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== ""),
  );
  for (const node of container.querySelectorAll("details[data-focus]")) {
    if (open.includes(node.dataset.focus)) node.open = true;
  }
  if (active === undefined) return;
  for (const node of container.querySelectorAll("[data-focus]")) {
    if (node.dataset.focus === active && node.tagName !== "DETAILS") return node.focus({ preventScroll: true });
  }
}

/** A select whose options are [value, text] pairs. */
function select(label, options, value, onChange, key = label) {
  const node = el(
    "select",
    {
      "data-focus": key,
      on: { change: () => onChange(node.value) },
    },
    ...options.map(([option, text]) => el("option", { value: option, selected: option === value }, text)),
  );
  return el("label", { class: "field" }, el("span", {}, label), node);
}

/** A table in a box of its own that scrolls; the first cell of each row is its heading. */
function plainTable(label, headings, rows, kind = null) {
  const head = headings.map((text, at) => el("th", { scope: "col", class: at ? null : "left" }, text));
  const body = rows.map(([name, ...cells]) =>
    el(
      "tr",
      {},
      el("th", { scope: "row", class: "left" }, name),
      cells.map((cell) => (cell instanceof Element && cell.tagName === "TD" ? cell : el("td", {}, cell))),
    ),
  );
  const table = el("table", { class: kind }, el("thead", {}, el("tr", {}, head)), el("tbody", {}, body));
  return el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": label }, table);
}

/** Say to a screen reader what a sighted reader sees happen. */
function say(text) {
  byId("said").textContent = text;
}
