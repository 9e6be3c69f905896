// What no other point beats: the front of a trade-off in which less is better on both axes.

/** Indices of the points [x, y] that no other point matches on both and beats on one, from left to right. */
function front(points) {
  const order = points
    .map((_, index) => index)
    .filter((index) => points[index].every(Number.isFinite))
    .sort((a, b) => points[a][0] - points[b][0] || points[a][1] - points[b][1] || a - b);
  const kept = [];
  for (const index of order) {
    const last = kept.length ? points[kept[kept.length - 1]] : null;
    const equal = last && last[0] === points[index][0] && last[1] === points[index][1];
    if (!last || equal || points[index][1] < last[1]) kept.push(index);
  }
  return kept;
}
