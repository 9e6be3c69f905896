// The style of a method: a colour, a shape and a dash, the same in every picture and in the text; and the colour scale.

const SHAPES = {
  circle: "M6 1a5 5 0 1 1 0 10a5 5 0 1 1 0-10z",
  square: "M1.5 1.5h9v9h-9z",
  "triangle-up": "M6 1l5.5 9.5h-11z",
  "triangle-down": "M6 11l5.5-9.5h-11z",
  diamond: "M6 .5l5.5 5.5l-5.5 5.5l-5.5-5.5z",
  cross: "M4.2 1h3.6v3.2h3.2v3.6h-3.2v3.2h-3.6v-3.2h-3.2v-3.6h3.2z",
  x: "M3 .7l3 3l3-3l2.3 2.3l-3 3l3 3l-2.3 2.3l-3-3l-3 3l-2.3-2.3l3-3l-3-3z",
  star: "M6 .4l1.5 3.8l4 .3l-3.1 2.6l1 4l-3.4-2.2l-3.4 2.2l1-4l-3.1-2.6l4-.3z",
  pentagon: "M6 .8l5.3 3.9l-2 6.2h-6.6l-2-6.2z",
};
const FILLS = ["", "-open", "-dot", "-open-dot"]; // configurations of one method
const DASHES = ["solid", "dash", "dot", "dashdot", "longdash", "longdashdot"];

function colourOf(row) {
  return document.documentElement.dataset.theme === "dark" ? lighter(row.look.colour) : row.look.colour;
}

function symbolOf(row) {
  return row.look.symbol + FILLS[row.variant % FILLS.length];
}

function dashOf(row) {
  return DASHES[(DASHES.indexOf(row.look.dash) + row.variant) % DASHES.length];
}

/** Mix a colour with white until it stands out from a dark page. */
function lighter(colour) {
  let [r, g, b] = channels(colour);
  for (let tries = 0; tries < 20 && luminance(r, g, b) < 0.22; tries++)
    [r, g, b] = [r, g, b].map((c) => c + 0.08 * (255 - c));
  return `rgb(${[r, g, b].map(Math.round).join(",")})`;
}

function channels(colour) {
  const hex = colour.match(/^#(..)(..)(..)$/);
  return hex
    ? hex.slice(1).map((pair) => parseInt(pair, 16))
    : (colour.match(/[\d.]+/g) ?? [0, 0, 0]).slice(0, 3).map(Number);
}

function luminance(...rgb) {
  const [r, g, b] = rgb.map((c) => (c / 255 <= 0.04045 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

function faint(colour, opacity) {
  return `rgba(${channels(colour).map(Math.round).join(",")},${opacity})`;
}

/** The shape as a small picture for the text. */
function glyph(row) {
  const open = symbolOf(row).includes("-open");
  const colour = colourOf(row);
  return svg(
    "svg",
    { class: "glyph", viewBox: "0 0 12 12", "aria-hidden": "true", "data-colour": row.look.colour },
    svg("path", {
      d: SHAPES[row.look.symbol] ?? SHAPES.circle,
      fill: open ? "none" : colour,
      stroke: colour,
      "stroke-width": open ? 1.6 : 0,
    }),
  );
}

/** A setting is broken before its value, if it must be. */
function breakable(text) {
  return text.split(/(?<==)/).flatMap((piece, at) => (at ? [el("wbr"), piece] : [piece]));
}

/** The name of a row: its method, and the settings in which it differs from the method's other rows. */
function nameOf(row) {
  return [
    el("span", { class: "who-is" }, glyph(row), el("span", { class: "name" }, row.method)),
    row.settings ? el("span", { class: "settings" }, breakable(row.settings)) : null,
    row.not_learned ? el("abbr", { class: "settings", title: row.not_learned }, "not learned") : null,
  ];
}

// -- the colour scale of heat maps --

/** From the page's own background to a deep, or on a dark page a bright, blue: one hue, told by lightness alone. */
function scale() {
  return document.documentElement.dataset.theme === "dark"
    ? ["#20252c", "#21405f", "#2a6596", "#58a0d8", "#b9dcf7"]
    : ["#f1f3f5", "#c9dcee", "#86b4db", "#3c7fb8", "#0b4a80"];
}

/** The channels of the scale's colour of this value, from 0 to 1. */
function shadeChannels(value) {
  const stops = scale(),
    place = Math.min(Math.max(value, 0), 1) * (stops.length - 1),
    below = Math.min(Math.floor(place), stops.length - 2);
  const [from, to] = [channels(stops[below]), channels(stops[below + 1])];
  return from.map((c, at) => c + (place - below) * (to[at] - c));
}

function shade(value) {
  return `rgb(${shadeChannels(value).map(Math.round).join(",")})`;
}

/** Black or white, whichever stands out more from the cell of this value. */
function inkOn(value) {
  if (!isNumber(value)) return css("--muted");
  return luminance(...shadeChannels(value)) > 0.18 ? "#000000" : "#ffffff";
}
