// Mean and interval of each row on a line that all rows share.

const BULLET = { width: 136, height: 20, edge: 4 };

/** The least and the largest number of all rows that the table has. */
function bulletEnds(items) {
  const found = items.map((one) => one.summary(state.by));
  const ends = numbers(found.flatMap((one) => [one.mean, one.low, one.high]));
  return ends.length ? [Math.min(...ends), Math.max(...ends)] : null;
}

function bullet(ends, item) {
  const mine = item.summary(state.by);
  if (!ends || Number.isNaN(mine.mean)) return null;
  const [low, high] = ends,
    { width, height, edge } = BULLET,
    middle = height / 2;
  const place = (value) =>
    edge + ((width - 2 * edge) * (Math.min(Math.max(value, low), high) - low)) / (high - low || 1);
  const colour = colourOf(item.row);
  return svg(
    "svg",
    { class: "bullet", viewBox: `0 0 ${width} ${height}`, width, height, "aria-hidden": "true" },
    svg("line", { x1: edge, x2: width - edge, y1: middle, y2: middle, class: "track" }),
    Number.isNaN(mine.low)
      ? null
      : svg("line", {
          x1: place(mine.low) - 1,
          x2: place(mine.high) + 1,
          y1: middle,
          y2: middle,
          stroke: colour,
          "stroke-width": 11,
        }),
    Number.isNaN(mine.low)
      ? svg("circle", { cx: place(mine.mean), cy: middle, r: 5, fill: colour })
      : svg("line", { x1: place(mine.mean), x2: place(mine.mean), y1: 1, y2: height - 1, class: "mean" }),
  );
}

/** What the line's ends are, for its heading. */
function bulletScale(ends) {
  if (!ends) return null;
  return el("span", { class: "ends", "aria-hidden": "true" }, ...ends.map((end) => el("span", {}, shown(end, state.by))));
}
