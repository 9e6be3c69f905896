// A picture: drawn when it comes into sight, drawn again when the view, the theme or the width changes.

const plots = new Set();
const sight = new IntersectionObserver(
  (entries) => {
    for (const entry of entries) {
      const plot = [...plots].find((one) => one.host === entry.target);
      if (plot && entry.isIntersecting) draw(plot);
    }
  },
  { rootMargin: "300px" },
);

/** Plotly reads tags in text; what comes from data is text and nothing else. */
function plain(text) {
  return String(text).replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
}

function css(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

/**
 * A figure. `build(width)` gives Plotly's data and layout, or null where there is nothing to draw;
 * `table()` the numbers behind it; `click(point)` is called with what was clicked.
 */
function figure({ title, name, caption = "", build, table, click = null, height = 320, level = "h3", heading = null }) {
  const label = `${title}. The numbers are in its CSV.`;
  const host = el("div", { class: "plot", role: "img", "aria-label": label, style: `min-height:${height}px` });
  const plot = { host, build, click, dirty: true };
  plots.add(plot);
  sight.observe(host);
  const image = (format) => picture(plot, format);
  return el(
    "figure",
    { "data-figure": name },
    el("div", { class: "head" }, el(level, {}, heading ?? title), downloads(title, name, table, { image })),
    caption ? el("figcaption", {}, caption) : null,
    host,
  );
}

function draw(plot) {
  if (!plot.dirty) return;
  const width = plot.host.clientWidth;
  if (!width) return;
  plot.dirty = false;
  let data, layout;
  try {
    ({ data, layout } = plot.build(width));
  } catch (error) {
    console.warn(error);
    plot.host.replaceChildren(empty(`This picture cannot be drawn: ${error.message}.`));
    return;
  }
  const height = layout.height ?? 320;
  plot.host.style.minHeight = `${height}px`;
  Plotly.react(
    plot.host,
    data,
    { ...base(), ...layout, width, height },
    { displayModeBar: false, doubleClick: "reset", scrollZoom: false },
  );
  if (plot.click && !plot.listening) {
    plot.listening = true;
    plot.host.on("plotly_click", (event) => plot.click(event.points[0]));
  }
}

/** After a change, everything is out of date; what is in sight is drawn at once. */
function redraw() {
  for (const plot of plots) {
    if (!plot.host.isConnected) {
      sight.unobserve(plot.host);
      if (plot.host.data) Plotly.purge(plot.host);
      plots.delete(plot);
      continue;
    }
    plot.dirty = true;
    const { top, bottom } = plot.host.getBoundingClientRect();
    if (bottom > -300 && top < innerHeight + 300) draw(plot);
  }
}

function drawAll() {
  for (const plot of plots) draw(plot);
}

async function picture(plot, format) {
  draw(plot);
  const { width, height } = plot.host.getBoundingClientRect();
  const size = { width: Math.round(width), height: Math.round(height), scale: format === "png" ? 2 : 1 };
  return Plotly.toImage(plot.host, { format, ...size });
}

function base() {
  const [ink, surface] = [css("--ink"), css("--surface")];
  const font = { family: css("--sans"), size: 12, color: ink };
  return {
    font,
    paper_bgcolor: surface,
    plot_bgcolor: surface,
    margin: { l: 52, r: 16, t: 12, b: 44 },
    hoverlabel: { bgcolor: css("--raised"), bordercolor: css("--line"), font, align: "left" },
    legend: {
      ...{ orientation: "h", x: 0, xanchor: "left", y: 1.02, yanchor: "bottom" },
      ...{ itemclick: false, itemdoubleclick: false, font: { size: 12, color: ink } },
    },
    dragmode: false,
    showlegend: false,
  };
}

/** An axis in the page's style; `text` is its title. */
function axis(text, more = {}) {
  const [muted, line] = [css("--muted"), css("--line")];
  return {
    title: { text, font: { size: 12, color: muted }, standoff: 8 },
    tickfont: { size: 11, color: muted },
    gridcolor: line,
    linecolor: line,
    zeroline: false,
    fixedrange: true,
    automargin: true,
    ...more,
  };
}

/** Rows from top to bottom, by name. */
function nameAxis(rows, width) {
  return axis("", {
    tickvals: rows.map((_, at) => at),
    ticktext: rows.map((row) => plain(clipped(row.label, width < 600 ? 18 : 44)) + "  "),
    range: [rows.length - 0.4, -0.6],
    showgrid: false,
    tickfont: { size: 12, color: css("--ink") },
  });
}

/** A label for hovering, in bold. */
function bold(label) {
  return `<b>${plain(clipped(label, 60))}</b>`;
}

function lines(x, y, line, more = {}) {
  return { type: "scatter", mode: "lines", x, y, line, hoverinfo: "skip", showlegend: false, ...more };
}

function markers(x, y, marker, hovertext, more = {}) {
  return { type: "scatter", mode: "markers", x, y, marker, hovertext, hoverinfo: "text", showlegend: false, ...more };
}

/** The area between two lines. */
function band(x, upper, lower, colour, more = {}) {
  const filled = { fill: "toself", fillcolor: faint(colour, 0.13) };
  return lines([...x, ...[...x].reverse()], [...upper, ...[...lower].reverse()], { width: 0 }, { ...filled, ...more });
}

/** Horizontal bars, one a row, with errors to both sides. */
function bars(rows, x, plus, minus, hovertext, more = {}) {
  return {
    type: "bar",
    orientation: "h",
    x,
    y: rows.map((_, at) => at),
    width: 0.6,
    marker: { color: rows.map((row) => faint(colourOf(row), 0.85)) },
    hovertext,
    hoverinfo: "text",
    error_x: { type: "data", symmetric: false, array: plus, arrayminus: minus, color: css("--ink"), thickness: 1, width: 3 },
    ...more,
  };
}

/** A straight line across a plot. */
function rule(place, dash) {
  return { type: "line", ...place, line: { color: css("--muted"), width: 1, dash } };
}

/** Fractions as a heat map in percent; `text`, where given, is written into the cells. */
function heatMap(values, hovertext, { text = null, size = 12, gap = 2 } = {}) {
  const data = [
    {
      type: "heatmap",
      z: values.map((line) => line.map((value) => (isNumber(value) ? 100 * value : null))),
      hovertext,
      hoverinfo: "text",
      ...{ zmin: 0, zmax: 100, xgap: gap, ygap: gap, showscale: false },
      colorscale: scale().map((colour, at, every) => [at / (every.length - 1), colour]),
    },
  ];
  if (text)
    data.push({
      type: "scatter",
      mode: "text",
      x: values.flatMap((line) => line.map((_, j) => j)),
      y: values.flatMap((line, k) => line.map(() => k)),
      text: text.flat(),
      hoverinfo: "skip",
      textfont: { size, color: values.flat().map(inkOn) },
    });
  return data;
}
