// The summary in words, as tmln.results.sentence writes it, of what the filters leave.

function sentence(rows, benchmark) {
  if (!rows.length) return "Nothing has finished yet.";
  const found = choices(rows);
  if (!found.length) return `No method has an accuracy on ${benchmark} yet.`;
  const fair = found.filter((choice) => choice.fair).map((choice) => choice.item);
  const names = new Map(found.map((choice) => [choice.item, named(choice)]));
  const aside = found
    .filter((choice) => !choice.fair)
    .map((choice) => `${named(choice)} with ACC ${shown(choice.item.summary("acc").mean, "acc")}`)
    .join(", ");
  const first = bestOf(fair);
  if (!first)
    return `No method on ${benchmark} was chosen without its test data: ${aside}. benchmark.validation=0.1 is to choose by.`;
  const second = bestOf(fair.filter((item) => item !== first));
  const said = `${leads(names, first, second, benchmark)}${forgets(names, fair, first)}${costs(first, second)}`;
  return aside ? `${said}; left out: ${aside}.` : `${said}.`;
}

/** Of each method the row that was chosen, from how many, and whether without its test data: tmln.results.chosen. */
function choices(rows) {
  const methods = new Map();
  for (const item of rows.filter((one) => one.row.competes))
    methods.set(shortName(item), [...(methods.get(shortName(item)) ?? []), item]);
  return [...methods.values()].flatMap((kin) => {
    const known = kin.every((item) => item.summary("val_acc").n === item.summary("acc").n);
    const item = best(kin, known && kin.length > 1 ? "val_acc" : "acc")[0];
    return item ? [{ item, among: kin.length, fair: known || kin.length === 1 }] : [];
  });
}

function bestOf(rows) {
  return best(rows, "acc")[0];
}

function shortName(item) {
  const space = item.row.label.indexOf(" ");
  return space < 0 ? item.row.label : item.row.label.slice(0, space);
}

function named({ item, among, fair }) {
  const settings = item.row.label.slice(shortName(item).length + 1).replaceAll(" ", ", ");
  if (!settings) return item.row.label;
  const chosen = among > 1 ? `, chosen on ${fair ? "validation" : "the test"} data from ${among}` : "";
  return `${shortName(item)} (${settings}${chosen})`;
}

function leads(names, first, second, benchmark) {
  const acc = first.summary("acc"),
    name = names.get(first);
  const found = `on ${benchmark}: ACC ${meanStd(acc, "acc")}`;
  if (!second) return `${name} is the only method ${found} (${plural(acc.n, "seed")})`;
  const gap = `${fixed(100 * (acc.mean - second.summary("acc").mean), 1)} points above ${names.get(second)}`;
  const paired = compare(first.values("acc"), second.values("acc"));
  if (Number.isNaN(paired.p)) return `${name} leads ${found}, ${gap}, ${noTest(paired.n)}`;
  if (paired.p < 0.05) return `${name} is best ${found}, ${gap}, paired p ${pText(paired.p)}`;
  return `${name} leads ${found}, ${gap}, which ${paired.n} seeds do not confirm (paired p ${pText(paired.p)})`;
}

function noTest(shared) {
  if (shared > 1) return "by the same on every seed, where no test applies";
  return shared ? "which one shared seed cannot confirm" : "which no shared seed can confirm";
}

function forgets(names, rows, first) {
  const mine = first.summary("fm").mean;
  if (Number.isNaN(mine)) return "";
  const least = best(rows, "fm")[0];
  const said = `; forgetting ${shown(mine, "fm")}`;
  if (least.summary("fm").mean === mine) return said + (rows.length > 1 ? ", the least" : "");
  return `${said}, where ${names.get(least)} has the least, ${shown(least.summary("fm").mean, "fm")}`;
}

function costs(first, second) {
  const mine = first.summary("seconds").mean;
  if (Number.isNaN(mine)) return "";
  const other = second ? second.summary("seconds").mean : NaN;
  const than = Number.isNaN(other) ? "" : ` (${shortName(second)} ${duration(other)})`;
  return `; ${duration(mine)} a run${than}`;
}
