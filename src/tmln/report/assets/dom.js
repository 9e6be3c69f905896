// Build elements from text and attributes only: data can never become markup.

/** An element; `attributes.on` holds listeners, null and false attributes are left out, children are nodes or text. */
function el(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** The same for SVG. */
function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function fill(node, { on = {}, ...attributes }, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    node.setAttribute(name, value === true ? "" : String(value));
  }
  for (const [event, listener] of Object.entries(on)) node.addEventListener(event, listener);
  node.append(...flat(children));
  return node;
}

function flat(children) {
  return children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== "");
}

function byId(id) {
  return document.getElementById(id);
}

/** A button; `key` names it for `rebuild`, which returns the keyboard focus to it. */
function button(text, key, onClick, attributes = {}) {
  return el("button", { type: "button", "data-focus": key, on: { click: onClick }, ...attributes }, text);
}

function link(text, key, onClick) {
  return button(text, key, onClick, { class: "link" });
}

/** Replace what is in `container`; the element with the focus, told by data-focus, has it again. */
function rebuild(container, ...children) {
  const active = container.contains(document.activeElement) ? document.activeElement.dataset.focus : undefined;
  const open = [...container.querySelectorAll("details[open][data-focus]")].map((node) => node.dataset.focus);
  container.replaceChildren(...flat(children));
  for (const node of container.querySelectorAll("details[data-focus]"))
    if (open.includes(node.dataset.focus)) node.open = true;
  if (active === undefined) return;
  for (const node of container.querySelectorAll("[data-focus]"))
    if (node.dataset.focus === active && node.tagName !== "DETAILS") return node.focus({ preventScroll: true });
}

/** A select whose options are [value, text] pairs. */
function select(label, options, value, onChange, key = label) {
  const node = el(
    "select",
    { "data-focus": key, on: { change: () => onChange(node.value) } },
    options.map(([option, text]) => el("option", { value: option, selected: option === value }, text)),
  );
  return el("label", { class: "field" }, el("span", {}, label), node);
}

/** A select of metrics. */
function selectMetric(label, metrics, value, onChange, key = label) {
  return select(label, metrics.map((name) => [name, metricOf(name).heading]), value, onChange, key);
}

function inline(...children) {
  return el("div", { class: "inline" }, children);
}

function checkbox(checked, attributes, onChange) {
  const box = el("input", { type: "checkbox", checked, ...attributes, on: { change: () => onChange(box.checked) } });
  return box;
}

/** A box that scrolls sideways, named for screen readers. */
function scrollBox(label, table) {
  return el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": label }, table);
}

/** A table; the first cell of each row is its heading. */
function plainTable(label, headings, rows, kind = null) {
  const head = headings.map((text, at) => el("th", { scope: "col", class: at ? null : "left" }, text));
  const cellOf = (cell) => (cell instanceof Element && cell.tagName === "TD" ? cell : el("td", {}, cell));
  const body = rows.map(([name, ...cells]) =>
    el("tr", {}, el("th", { scope: "row", class: "left" }, name), cells.map(cellOf)),
  );
  return scrollBox(label, el("table", { class: kind }, el("thead", {}, el("tr", {}, head)), el("tbody", {}, body)));
}

/** A list of names and values. */
function factList(pairs) {
  return el("dl", { class: "facts" }, pairs.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value))));
}

/** A note where a picture would be, and the command that would make it. */
function empty(text, command = "") {
  return el("p", { class: "empty" }, text, command ? [" ", el("code", {}, command)] : "");
}

/** Announce to a screen reader what a sighted reader sees happen. */
function say(text) {
  byId("said").textContent = text;
}
