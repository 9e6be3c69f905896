// Accuracy on each task over time, a panel a task.

function taskPlots(items, width) {
  const tasks = tasksOf(items).length;
  const columns = Math.min(tasks, width < 480 ? 2 : width < 800 ? 3 : 5),
    rows = Math.ceil(tasks / columns);
  const panel = width < 480 ? 150 : 170,
    gapY = 52,
    top = 26 + legendRows(items, width) * 20;
  const height = top + rows * panel + (rows - 1) * gapY + 44;
  const inner = height - top - 44;
  const layout = { height, margin: { l: 40, r: 8, t: top, b: 44 }, showlegend: true, annotations: [], shapes: [] };
  layout.legend = { ...base().legend, y: 1 + 26 / inner, yanchor: "bottom" };
  const gapX = 12 / width;
  const data = [];
  for (let j = 0; j < tasks; j++) {
    const column = j % columns,
      line = Math.floor(j / columns);
    const x0 = column * (1 / columns) + (column ? gapX : 0),
      x1 = (column + 1) / columns - (column < columns - 1 ? gapX : 0);
    const y1 = 1 - (line * (panel + gapY)) / inner,
      y0 = y1 - panel / inner;
    const [x, y] = [axisName("x", j), axisName("y", j)];
    layout[layoutName("x", j)] = axis("", {
      domain: [x0, x1],
      anchor: y,
      range: [0.7, tasks + 0.3],
      dtick: tasks > 6 ? Math.ceil(tasks / 5) : 1,
      automargin: false,
    });
    layout[layoutName("y", j)] = axis("", {
      domain: [y0, y1],
      anchor: x,
      range: [-3, 105],
      tickvals: [0, 50, 100],
      showticklabels: column === 0,
      automargin: false,
    });
    layout.annotations.push({
      text: plain(clipped(taskName(items[0].row, j), Math.floor(width / columns / 7))),
      x: x0,
      y: y1,
      xref: "paper",
      yref: "paper",
      xanchor: "left",
      yanchor: "bottom",
      showarrow: false,
      font: { size: 12, color: css("--ink") },
    });
    layout.shapes.push({
      type: "line",
      xref: x,
      yref: `${y} domain`,
      x0: j + 1,
      x1: j + 1,
      y0: 0,
      y1: 1,
      line: { color: css("--muted"), width: 1, dash: "dot" },
      layer: "below",
    });
    for (const item of items)
      data.push(
        ...curveTraces(
          item,
          curve(item, (run) => run.accuracy.map((at) => at[j])),
          j,
          { xaxis: x, yaxis: y },
          j === 0,
          `on task ${j + 1}, `,
        ),
      );
  }
  layout.annotations.push({
    text: "after learning task",
    x: 0.5,
    y: 0,
    yshift: -26,
    xref: "paper",
    yref: "paper",
    yanchor: "top",
    showarrow: false,
    font: { size: 12, color: css("--muted") },
  });
  return { data, layout };
}

/** About how many lines a legend takes. */
function legendRows(items, width) {
  const widths = items.map((item) => 50 + 7 * Math.min([...item.row.label].length, 60));
  const widest = Math.max(...widths);
  return Math.ceil(items.length / Math.max(1, Math.floor((width - 50) / widest)));
}
