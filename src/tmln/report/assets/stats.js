// Statistics over seeds, as tmln.results.statistics computes them: the tests hold the two against each other.

function numbers(values) {
  return values.filter((value) => typeof value === "number" && !Number.isNaN(value));
}

/** A sum whose rounding is carried along. */
function total(values) {
  let sum = 0,
    rest = 0;
  for (const value of values) {
    const next = sum + value;
    rest += Math.abs(sum) >= Math.abs(value) ? sum - next + value : value - next + sum;
    sum = next;
  }
  return sum + rest;
}

function mean(values) {
  const kept = numbers(values);
  return kept.length ? total(kept) / kept.length : NaN;
}

/** With n - 1 in the denominator. */
function sampleStd(values) {
  const kept = numbers(values);
  if (kept.length < 2) return NaN;
  const middle = mean(kept);
  return Math.sqrt(total(kept.map((value) => (value - middle) ** 2)) / (kept.length - 1));
}

/** Mean, sample deviation and Student's 95% interval, cut where it leaves what is possible, `within` (null: no end). */
function summarise(values, confidence = 0.95, within = [null, null]) {
  const kept = numbers(values);
  const n = kept.length,
    middle = mean(kept),
    std = sampleStd(kept);
  const half = n > 1 ? (tQuantile(confidence, n - 1) * std) / Math.sqrt(n) : NaN;
  const [least, most] = [within[0] ?? -Infinity, within[1] ?? Infinity];
  const sound = kept.every((value) => least <= value && value <= most);
  const cut = (value) => (sound ? Math.min(Math.max(value, least), most) : value);
  return { n, mean: middle, std, low: cut(middle - half), high: cut(middle + half) };
}

/** Two methods, each a Map of seed to value, by what they differ in on the seeds that both have. */
function compare(first, second) {
  const seeds = [...first.keys()].filter(
    (seed) => second.has(seed) && numbers([first.get(seed), second.get(seed)]).length === 2,
  );
  const found = summarise(seeds.map((seed) => first.get(seed) - second.get(seed)));
  const scale = Math.max(0, ...seeds.map((seed) => Math.max(Math.abs(first.get(seed)), Math.abs(second.get(seed)))));
  return { ...found, p: pairedP(found, scale) };
}

function pairedP(differences, scale) {
  if (differences.n < 2) return NaN;
  const rounding = 1e-12 * scale;
  if (differences.std <= rounding) return Math.abs(differences.mean) <= rounding ? 1 : NaN;
  return tTails(differences.mean / (differences.std / Math.sqrt(differences.n)), differences.n - 1);
}

/** Holm's step-down: the smallest p times m, the next times m - 1, never falling; NaN is no comparison. */
function holm(ps) {
  const order = ps
    .map((p, at) => [p, at])
    .filter(([p]) => !Number.isNaN(p))
    .sort((a, b) => a[0] - b[0] || a[1] - b[1]);
  const found = ps.map(() => NaN);
  let largest = 0;
  order.forEach(([p, at], rank) => {
    largest = Math.max(largest, Math.min(1, (order.length - rank) * p));
    found[at] = largest;
  });
  return found;
}

/** P(|T| >= |t|) of Student's t. */
function tTails(t, freedom) {
  if (Number.isNaN(t)) return NaN;
  if (!Number.isFinite(t)) return 0;
  return incompleteBeta(freedom / 2, 0.5, freedom / (freedom + t * t), (t * t) / (freedom + t * t));
}

const quantiles = new Map();

/** The t with P(|T| < t) = confidence, by bisection. */
function tQuantile(confidence, freedom) {
  const key = `${confidence} ${freedom}`;
  if (!quantiles.has(key))
    quantiles.set(
      key,
      bisect((t) => tTails(t, freedom) > 1 - confidence),
    );
  return quantiles.get(key);
}

function bisect(below) {
  let low = 0,
    high = 1;
  while (below(high)) [low, high] = [high, 2 * high];
  for (let middle = (low + high) / 2; low < middle && middle < high; middle = (low + high) / 2) {
    if (below(middle)) low = middle;
    else high = middle;
  }
  return high;
}

/** I_x(a, b) by Lentz's continued fraction (DLMF 8.17.22); rest = 1 - x with its own digits. */
function incompleteBeta(a, b, x, rest) {
  if (x === 0) return 0;
  if (rest === 0) return 1;
  if (x > (a + 1) / (a + b + 2)) return 1 - incompleteBeta(b, a, rest, x);
  const front = Math.exp(lnGamma(a + b) - lnGamma(a) - lnGamma(b) + a * Math.log(x) + b * Math.log(rest)) / a;
  let fraction = 1,
    upper = 1,
    lower = 0;
  for (let m = 0; m < 10000; m++) {
    let term = 1;
    if (m % 2) {
      const k = (m - 1) / 2;
      term = (-(a + k) * (a + b + k) * x) / ((a + 2 * k) * (a + 2 * k + 1));
    } else if (m) {
      const k = m / 2;
      term = (k * (b - k) * x) / ((a + 2 * k - 1) * (a + 2 * k));
    }
    lower = 1 / (1 + term * lower);
    upper = 1 + term / upper;
    fraction *= lower * upper;
    if (m && Math.abs(lower * upper - 1) < 1e-15) break;
  }
  return front * (fraction - 1);
}

/** ln of the gamma function for x > 0: Stirling's series after the recurrence has carried x far enough out. */
function lnGamma(x) {
  let shift = 0;
  while (x < 12) shift += Math.log(x++);
  const inverse = 1 / (x * x);
  const series = (1 / 12 - inverse * (1 / 360 - inverse * (1 / 1260 - inverse * (1 / 1680 - inverse / 1188)))) / x;
  return (x - 0.5) * Math.log(x) - x + 0.5 * Math.log(2 * Math.PI) + series - shift;
}
