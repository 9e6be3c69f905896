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
  const host = el("div", {
    class: "plot",
    role: "img",
    "aria-label": `${title}. The numbers are in its CSV.`,
    style: `min-height:${height}px`,
  });
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
  return Plotly.toImage(plot.host, {
    format,
    width: Math.round(width),
    height: Math.round(height),
    scale: format === "png" ? 2 : 1,
  });
}

function base() {
  const [ink, muted, line, surface] = [css("--ink"), css("--muted"), css("--line"), css("--surface")];
  return {
    font: { family: css("--sans"), size: 12, color: ink },
    paper_bgcolor: surface,
    plot_bgcolor: surface,
    margin: { l: 52, r: 16, t: 12, b: 44 },
    hoverlabel: {
      bgcolor: css("--raised"),
      bordercolor: line,
      font: { family: css("--sans"), size: 12, color: ink },
      align: "left",
    },
    legend: {
      orientation: "h",
      x: 0,
      xanchor: "left",
      y: 1.02,
      yanchor: "bottom",
      itemclick: false,
      itemdoubleclick: false,

      font: { size: 12, color: ink },
    },
    modebar: { color: muted },
    dragmode: false,
    showlegend: false,
  };
}

/** An axis in the page's hand; `text` is its title. */
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

/** Plotly's name of the n-th axis: x, x2, x3. */
function axisName(letter, number) {
  return number ? `${letter}${number + 1}` : letter;
}

function layoutName(letter, number) {
  return `${letter}axis${number ? number + 1 : ""}`;
}

/** A note where a picture would be, and what would bring it. */
function empty(text, command = "") {
  return el("p", { class: "empty" }, text, command ? [" ", el("code", {}, command)] : "");
}

/** Where pictures show only the first rows: say so, and offer the rest. */
function more(items, limit = LIMIT) {
  if (items.length <= limit) return null;
  const text = state.all
    ? `Showing all ${items.length} configurations.`
    : `Showing ${readable(items, limit).length} of ${items.length} configurations, one of each method at least.`;
  return offer(text);
}

function offer(text) {
  return el(
    "p",
    { class: "more" },
    text,
    " ",
    el(
      "button",
      {
        type: "button",
        class: "link",
        "data-focus": "more",
        on: { click: () => update({ all: state.all ? "" : "1" }) },
      },
      state.all ? "Show fewer" : "Show all",
    ),
  );
}
