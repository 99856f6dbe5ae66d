/** The list of jobs, which polls the server. */

import { call, onJob } from "../api.js";
import { h, hasSelection, put, redraw, debounce } from "../dom.js";
import { ago, count, moment, percent, seconds } from "../format.js";
import { emptyState } from "../parts/dialogs.js";
import { copyButtons, pythonArguments } from "../parts/snippets.js";
import { address, go, tableAddress } from "../router.js";
import { progressBar } from "../parts/charts.js";
import { scrollingTable } from "../parts/lists.js";

const STATES = ["", "in_progress", "pending", "running", "paused", "done", "failed", "cancelled", "timed_out"];
const KINDS = ["", "backfill", "refresh", "maintenance", "maintain", "compact", "optimize_indices", "cleanup"];
const REFRESH_MILLIS = 1500;
const PAGE = 100;

export const stateChip = (state) => h("span.chip", { class: `state-${state}` }, state.replace("_", " "));

/** The kinds of jobs that keep tables fast. */
export const MAINTENANCE = new Set(["maintain", "compact", "optimize_indices", "cleanup"]);

/**
 * The progress of a job. A condition may leave fewer rows to compute than were planned.
 *
 * A backfill counts failed rows as computed. Rows are in the table only when the job is done.
 */
export function progressOf({ counters, state, job_type: type }) {
  const failed = counters.rows_failed ?? 0;
  const computed = counters.rows_computed ?? 0;
  const good = type === "backfill" ? Math.max(0, computed - failed) : computed;
  if (state === "done") return { done: good, planned: good + failed };
  const planned = counters.rows_planned ?? 0;
  return { done: Math.min(good, planned * 0.999), planned };
}

/** The kind of a job, and the column that a backfill computes. */
export const jobName = ({ job_type: type, target }) =>
  MAINTENANCE.has(type) || !target ? type.replaceAll("_", " ") : `${type} ${target}`;

/** Jobs as a table. */
export function jobTable(jobs) {
  const rows = jobs.map((job) => {
    const { done, planned } = progressOf(job);
    const started = job.started_at_millis;
    const took = started ? ((job.finished_at_millis ?? Date.now()) - started) / 1000 : null;
    return h(
      "tr",
      {},
      h("td", {}, stateChip(job.state)),
      h(
        "td",
        {},
        h("a", { href: address(["job", job.job_id]) }, jobName(job)),
      ),
      h("td", {}, h("a", { href: tableAddress(job.table.split("$")) }, job.table.replaceAll("$", "."))),
      h(
        "td",
        {},
        planned
          ? h(
              "span.row",
              {},
              progressBar(done, planned, `Progress of ${jobName(job)}`),
              h("span.small", {}, percent(done, planned)),
            )
          : "",
      ),
      h("td.number", {}, count(job.counters.rows_computed ?? 0)),
      h("td.number", {}, job.counters.rows_failed ? h("span.bad", {}, count(job.counters.rows_failed)) : "0"),
      h("td", { title: moment(job.created_at_millis) }, ago(job.created_at_millis)),
      h("td.number", {}, seconds(took)),
      h("td", {}, job.submitted_by),
    );
  });
  const heads = ["State", "Job", "Table", "Progress", "Rows", "Failed", "Submitted", "Duration", "By"];
  return scrollingTable("Jobs", heads, rows);
}

/** The page of all jobs. */
export async function jobsPage(route, signal) {
  const state = route.params.get("state") ?? "";
  const table = route.params.get("table") ?? "";
  const kind = route.params.get("kind") ?? "";
  const token = route.params.get("after") ?? "";
  const request = () => {
    const given = { ...(state ? { state } : {}), ...(kind ? { kind } : {}), ...(table ? { table } : {}) };
    return onJob(
      "list",
      { ...given, limit: PAGE, ...(token ? { page_token: token } : {}) },
      `print(db.jobs(${pythonArguments({ ...given, limit: PAGE })}))`,
    );
  };
  const body = h("div.list-body");
  const draw = (found) =>
    put(
      body,
      found.jobs.length
        ? jobTable(found.jobs)
        : emptyState(
            "No jobs found.",
            state || kind || table ? "Choose another state, kind or table." : "A backfill or a refresh of a view starts one.",
          ),
      found.page_token
        ? h("p", {}, h("a", { href: address(["jobs"], { state, kind, table, after: found.page_token }) }, "Older jobs"))
        : null,
    );
  draw(await call(request(), signal));
  poll(signal, async () => {
    const found = await call(request(), signal);
    if (!hasSelection(body)) redraw(body, () => draw(found));
  });
  const change = (params) => go(address(["jobs"], { state, kind, table, ...params }), { replace: true });
  return h(
    "div.page",
    {},
    h("h1", {}, "Jobs"),
    h(
      "div.bar",
      {},
      h(
        "span.row",
        {},
        h("label", { for: "job-state" }, "State"),
        h(
          "select",
          { id: "job-state", onchange: (event) => change({ state: event.target.value }) },
          STATES.map((value) => h("option", { value, selected: value === state }, value.replace("_", " ") || "any")),
        ),
      ),
      h(
        "span.row",
        {},
        h("label", { for: "job-kind" }, "Kind"),
        h(
          "select",
          { id: "job-kind", onchange: (event) => change({ kind: event.target.value }) },
          KINDS.map((value) =>
            h("option", { value, selected: value === kind }, value.replace("_", " ") || "all but automatic maintenance"),
          ),
        ),
      ),
      h(
        "span.row",
        {},
        h("label", { for: "job-table" }, "Table"),
        h("input", {
          id: "job-table",
          value: table,
          placeholder: "namespace$table",
          spellcheck: "false",
          oninput: debounce((event) => change({ table: event.target.value.trim() }), 500),
        }),
      ),
      h("span.spring"),
      copyButtons(request, "list jobs"),
    ),
    body,
  );
}

/** Call a function at intervals until the page is left; not while the tab is hidden. */
function poll(signal, work) {
  const timer = setInterval(() => document.hidden || work().catch(() => {}), REFRESH_MILLIS);
  signal.addEventListener("abort", () => clearInterval(timer));
}
