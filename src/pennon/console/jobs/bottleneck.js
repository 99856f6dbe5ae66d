/** What a job's time goes to, and one sentence about it. */

import { count, percent, seconds } from "../format.js";

const SHORTEST_STEP = 500;
const MOST_STEPS = 120;

const PARTS = [
  {
    name: "read_seconds",
    label: "Reading",
    kind: "a",
    advice: "Reading the inputs takes most of the time; storage that is nearer or faster would help.",
  },
  {
    name: "udf_seconds",
    label: "Function",
    kind: "b",
    advice: "The function itself takes most of the time; a faster function, larger batches or more cores would help.",
  },
  {
    name: "write_seconds",
    label: "Writing",
    kind: "c",
    advice: "Writing the results takes most of the time; faster storage or smaller results would help.",
  },
  {
    name: "commit_seconds",
    label: "Committing",
    kind: "d",
    advice: "Committing takes most of the time; a larger commit_granularity would make fewer commits.",
  },
];

/** Return the parts of the work, in seconds of all tasks together. */
export function timeSplit(counters) {
  return PARTS.map(({ name, label, kind }) => ({
    label,
    kind,
    value: counters[name] ?? 0,
    text: seconds(counters[name] ?? 0),
  }));
}

/** Name the bottleneck in one plain sentence. */
export function bottleneck(job) {
  if (job.state === "pending")
    return job.waiting_for ? `It waits: ${lower(job.waiting_for)}.` : "It waits for a worker.";
  if (job.state === "paused") return "It rests until it is resumed.";
  if (job.state === "cancelled") {
    const rows = job.counters.rows_computed;
    if (rows) return `It was cancelled when ${count(rows)} rows were computed.`;
    return `It was cancelled before ${job.started_ms ? "anything was computed" : "it began"}.`;
  }
  if (job.failure) return `It ended in the phase "${job.failure.phase}": ${job.failure.message}`;
  const split = PARTS.map((part) => ({ ...part, value: job.counters[part.name] ?? 0 }));
  const busy = split.reduce((sum, part) => sum + part.value, 0);
  const started = job.started_ms ?? job.creation_ms;
  const wall = ((job.finished_ms ?? Date.now()) - started) / 1000;
  const waited = (started - job.creation_ms) / 1000;
  if (waited > 1 && waited > wall)
    return `It waited ${seconds(waited)} for a worker, longer than it ran; more workers would help.`;
  if (job.finished_ms && !job.counters.rows_planned && !busy) return "There was nothing to compute.";
  if (!busy && job.counters.rows_computed)
    return "Rows are being computed; where the time goes is known once a first fragment is finished.";
  if (!busy && job.waiting_for) return `It waits: ${lower(job.waiting_for)}.`;
  if (!busy) return "It has only begun; the tasks have not told anything yet.";
  // While it runs, tasks that are not finished have not told their share.
  if (job.finished_ms && busy < wall / 4)
    return `Starting tasks and planning took most of its ${seconds(wall)}; the work itself took ${seconds(busy)}. Larger jobs use Spark better.`;
  const most = split.reduce((found, part) => (part.value > found.value ? part : found));
  return `${most.advice.replace("most of the time", `${percent(most.value, busy)} of the time`)}`;
}

const lower = (text) => text.charAt(0).toLowerCase() + text.slice(1);

/** Return the rows a second between the moments at which rows were known to be done. */
export function ratesOf(points) {
  const spans = [];
  if (points.length < 2) return spans;
  // What is known at almost the same moment is one step: the time between would say nothing about the work.
  const least = Math.max(SHORTEST_STEP, (points.at(-1).at - points[0].at) / MOST_STEPS);
  let before = points[0];
  points.slice(1).forEach((point, at) => {
    const last = at === points.length - 2;
    if (point.at - before.at < least && !last) return;
    if (point.at > before.at)
      spans.push({
        from: before.at,
        to: point.at,
        rate: Math.max(0, (1000 * (point.rows - before.rows)) / Math.max(point.at - before.at, least)),
      });
    before = point;
  });
  return spans;
}
