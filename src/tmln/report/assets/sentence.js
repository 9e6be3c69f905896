// The summary in words, as tmln.results.sentence writes it, of what the filters leave.

function sentence(rows, benchmark) {
  if (!rows.length) return "Nothing has finished yet.";
  const first = bestOf(rows);
  if (!first) return `No method has an accuracy on ${benchmark} yet.`;
  const others = rows.filter((item) => item !== first);
  const second = bestOf(others.filter((item) => shortName(item) !== shortName(first))) ?? bestOf(others);
  return `${leads(rows, first, second, benchmark)}${forgets(rows, first)}${costs(first, second)}.`;
}

function bestOf(rows) {
  return best(rows, "acc")[0];
}

function shortName(item) {
  const space = item.row.label.indexOf(" ");
  return space < 0 ? item.row.label : item.row.label.slice(0, space);
}

function named(item, rows) {
  const settings = item.row.label.slice(shortName(item).length + 1).replaceAll(" ", ", ");
  if (!settings) return item.row.label;
  const kin = rows.filter((other) => shortName(other) === shortName(item));
  const chosen = kin.length > 1 && bestOf(kin) === item ? `, best of ${kin.length}` : "";
  return `${shortName(item)} (${settings}${chosen})`;
}

function leads(rows, first, second, benchmark) {
  const acc = first.summary("acc"),
    name = named(first, rows);
  const found = `on ${benchmark}: ACC ${meanStd(acc, "acc")}`;
  if (!second) return `${name} is the only method ${found} (${plural(acc.n, "seed")})`;
  const gap = `${fixed(100 * (acc.mean - second.summary("acc").mean), 1)} points above ${named(second, rows)}`;
  const paired = compare(first.values("acc"), second.values("acc"));
  if (Number.isNaN(paired.p)) return `${name} leads ${found}, ${gap}, ${noTest(paired.n)}`;
  if (paired.p < 0.05) return `${name} is best ${found}, ${gap}, paired p ${pText(paired.p)}`;
  return `${name} leads ${found}, ${gap}, which ${paired.n} seeds do not confirm (paired p ${pText(paired.p)})`;
}

function noTest(shared) {
  if (shared > 1) return "by the same on every seed, where no test applies";
  return shared ? "which one shared seed cannot confirm" : "which no shared seed can confirm";
}

function forgets(rows, first) {
  const mine = first.summary("fm").mean;
  if (Number.isNaN(mine)) return "";
  const least = best(rows, "fm")[0];
  const said = `; forgetting ${shown(mine, "fm")}`;
  if (least.summary("fm").mean === mine) return said + (rows.length > 1 ? ", the least" : "");
  return `${said}, where ${named(least, rows)} has the least, ${shown(least.summary("fm").mean, "fm")}`;
}

function costs(first, second) {
  const mine = first.summary("seconds").mean;
  if (Number.isNaN(mine)) return "";
  const other = second ? second.summary("seconds").mean : NaN;
  const than = Number.isNaN(other) ? "" : ` (${shortName(second)} ${duration(other)})`;
  return `; ${duration(mine)} a run${than}`;
}
