/** Charts: bars, histograms, lines. Each has a text alternative. */

import { h, s } from "../dom.js";
import { count, countOf, percent, seconds } from "../format.js";

/** A bar of shares with a legend. @param {{label: string, value: number, text?: string, kind: string}[]} parts */
export function shareBar(parts, label) {
  const whole = parts.reduce((sum, part) => sum + part.value, 0);
  const shown = parts.filter((part) => part.value > 0);
  const words = shown.map((part) => `${part.label} ${percent(part.value, whole)}`).join(", ") || "no data yet";
  return h(
    "div.share",
    {},
    h(
      "div.share-bar",
      { role: "img", "aria-label": `${label}: ${words}` },
      shown.map((part) => h("span", { class: `fill-${part.kind}`, style: { width: `${(100 * part.value) / whole}%` } })),
    ),
    h(
      "div.legend",
      {},
      parts.map((part) =>
        h(
          "span",
          {},
          h("i", { class: `dot fill-${part.kind}` }),
          `${part.label} `,
          h("b", {}, part.text ?? count(part.value)),
          whole ? ` ${percent(part.value, whole)}` : "",
        ),
      ),
    ),
  );
}

/** A progress bar. */
export function progressBar(done, whole, label) {
  const share = whole ? Math.min(1, done / whole) : 0;
  return h(
    "div.progress",
    {
      role: "progressbar",
      "aria-label": label,
      "aria-valuemin": "0",
      "aria-valuemax": "100",
      "aria-valuenow": String(Math.floor(share * 100)), // 100 only when everything is done
    },
    h("span", { style: { width: `${share * 100}%` } }),
  );
}

/** The labels below the two ends of a chart. */
const ends = (left, right) => h("div.ends.muted.small", {}, h("span", {}, left), h("span", {}, right));

/** A histogram of values, in bars of the same width. */
export function histogram(values, label, format = count) {
  if (!values.length) return h("p.muted", {}, "No data yet.");
  const low = values.reduce((least, value) => Math.min(least, value));
  const high = values.reduce((most, value) => Math.max(most, value));
  const buckets = low === high ? 1 : Math.min(24, Math.max(12, new Set(values).size));
  const width = (high - low) / buckets || 1;
  const counts = Array.from({ length: buckets }, () => 0);
  for (const value of values) counts[Math.min(buckets - 1, Math.floor((value - low) / width))] += 1;
  const tallest = Math.max(...counts);
  const step = 480 / buckets;
  const bars = counts.map((number, at) => {
    const height = number ? Math.max(2, (number / tallest) * 100) : 0;
    const [from, to] = [low + at * width, Math.min(high, low + (at + 1) * width)].map(Math.round);
    return s(
      "rect.bar",
      { x: at * step + 1, y: 110 - height, width: Math.min(step, 40) - 2, height },
      s("title", {}, `${format(from)} – ${format(to)}: ${count(number)}`),
    );
  });
  const range = low === high ? `of ${format(low)}` : `from ${format(low)} to ${format(high)}`;
  const sentence = `${label}: ${countOf(values.length, "value")} ${range}`;
  return h(
    "figure.chart",
    {},
    s(
      "svg",
      { viewBox: "0 0 480 112", role: "img", "aria-label": sentence },
      bars,
      s("line.axis", { x1: 0, x2: 480, y1: 110, y2: 110 }),
    ),
    ends(format(low), low === high ? "" : format(high)),
    h("figcaption.muted.small", {}, `${sentence}; the tallest bar is ${count(tallest)}.`),
  );
}

/** A rate over time as steps. @param {{from: number, to: number, rate: number}[]} spans times in milliseconds */
export function ratePlot(spans, label) {
  if (!spans.length) return h("p.muted.plot-empty", {}, "Shown once rows are computed.");
  const start = spans[0].from;
  const end = Math.max(spans.at(-1).to, start + 1);
  const most = Math.max(...spans.map((span) => span.rate), 1e-9);
  const peak = count(most < 10 ? most : Math.round(most));
  const x = (at) => (((at - start) / (end - start)) * 480).toFixed(1);
  const y = (rate) => (100 - (rate / most) * 90).toFixed(1);
  const path = spans
    .map((span, at) => `${at ? "L" : "M"}${x(span.from)} ${y(span.rate)} L${x(span.to)} ${y(span.rate)}`)
    .join(" ");
  return h(
    "figure.chart",
    {},
    s(
      "svg",
      { viewBox: "0 0 480 102", role: "img", "aria-label": `${label}: at most ${peak} rows per second` },
      s("path.area", { d: `${path} L480 100 L0 100 Z` }),
      s("path.line", { d: path }),
      s("line.axis", { x1: 0, x2: 480, y1: 100, y2: 100 }),
    ),
    ends(`at most ${peak} rows/s`, seconds((end - start) / 1000)),
  );
}

/** The values of a vector as small bars. */
export function sparkline(numbers) {
  const most = 48;
  const step = Math.max(1, Math.ceil(numbers.length / most));
  const shown = numbers.filter((_, at) => at % step === 0).map(Number);
  const known = shown.filter(Number.isFinite);
  const reach = Math.max(...known.map(Math.abs), 1e-9);
  // Without negative values, the bars use the whole height.
  const base = known.some((value) => value < 0) ? 10 : 19;
  const bars = shown.map((value, at) => {
    const height = Math.max(0.6, (Number.isFinite(value) ? Math.abs(value) / reach : 0) * (base - 1));
    return s("rect", { x: at * 2, y: value < 0 ? base : base - height, width: 1.4, height });
  });
  return s(
    "svg.spark",
    {
      viewBox: `0 0 ${Math.max(shown.length * 2, 16)} 20`,
      width: Math.max(shown.length * 2, 16),
      height: 20,
      "aria-hidden": "true",
    },
    bars,
  );
}
