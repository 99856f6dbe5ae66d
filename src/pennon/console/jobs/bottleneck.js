/** Where a job spends its time, and one sentence about it. */

import { count, percent, seconds } from "../format.js";

const MIN_STEP_MILLIS = 500;
const MAX_STEPS = 120;

const PARTS = [
  {
    name: "read_seconds",
    label: "Reading",
    kind: "a",
    advice: "Reading the inputs takes most of the time; faster or closer storage would help.",
  },
  {
    name: "udf_seconds",
    label: "Function",
    kind: "b",
    advice: "The function takes most of the time; a faster function, larger batches or more cores would help.",
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
    advice: "Committing takes most of the time; a larger commit_granularity would reduce the number of commits.",
  },
];

/** Return the seconds of all tasks by phase. */
export function timeSplit(counters) {
  return PARTS.map(({ name, label, kind }) => ({
    label,
    kind,
    value: counters[name] ?? 0,
    text: seconds(counters[name] ?? 0),
  }));
}

/** Return one sentence that names the bottleneck. */
export function bottleneck(job) {
  if (job.state === "pending")
    return job.waiting_for ? `Waiting: ${lower(job.waiting_for)}.` : "Waiting for a worker.";
  if (job.state === "paused") return "Paused until it is resumed.";
  if (job.state === "cancelled") {
    const rows = job.counters.rows_computed;
    if (rows) return `Cancelled after ${count(rows)} rows were computed.`;
    return `Cancelled before ${job.started_ms ? "any row was computed" : "it started"}.`;
  }
  if (job.failure) return `Failed in the phase "${job.failure.phase}": ${job.failure.message}`;
  const split = PARTS.map((part) => ({ ...part, value: job.counters[part.name] ?? 0 }));
  const busy = split.reduce((sum, part) => sum + part.value, 0);
  const started = job.started_ms ?? job.creation_ms;
  const wall = ((job.finished_ms ?? Date.now()) - started) / 1000;
  const waited = (started - job.creation_ms) / 1000;
  if (waited > 1 && waited > wall)
    return `It waited ${seconds(waited)} for a worker, longer than it ran; more workers would help.`;
  if (job.finished_ms && !job.counters.rows_planned && !busy) return "Nothing to compute.";
  if (!busy && job.counters.rows_computed)
    return "Rows are being computed; the time is broken down once the first fragment is finished.";
  if (!busy && job.waiting_for) return `Waiting: ${lower(job.waiting_for)}.`;
  if (!busy) return "Just started; no task has reported yet.";
  // While the job runs, unfinished tasks have not reported their time.
  if (job.finished_ms && busy < wall / 4)
    return `Planning and starting tasks took most of its ${seconds(wall)}; the work took ${seconds(busy)}. Larger jobs use Spark better.`;
  const most = split.reduce((found, part) => (part.value > found.value ? part : found));
  return `${most.advice.replace("most of the time", `${percent(most.value, busy)} of the time`)}`;
}

const lower = (text) => text.charAt(0).toLowerCase() + text.slice(1);

/** Return the rows per second between the progress reports of a job. */
export function ratesOf(points) {
  const spans = [];
  if (points.length < 2) return spans;
  // Reports in quick succession count as one: the time between them says nothing about the work.
  const least = Math.max(MIN_STEP_MILLIS, (points.at(-1).at - points[0].at) / MAX_STEPS);
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
