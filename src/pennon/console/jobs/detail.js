/** The page of a job: progress, events, errors and actions. */

import { call, follow, onJob, onTable } from "../api.js";
import { h, hasSelection, put, redraw } from "../dom.js";
import { bytes, count, countOf, moment, percent, seconds } from "../format.js";
import { emptyState, errorBox, toast } from "../parts/dialogs.js";
import { progressBar, ratePlot, shareBar } from "../parts/charts.js";
import { errorList, SHOWN_ERRORS } from "../parts/errors.js";
import { factList, scrollingTable } from "../parts/lists.js";
import { copyButtons, openTable, pythonArguments } from "../parts/snippets.js";
import { address, go, tableAddress } from "../router.js";
import { canWrite } from "../session.js";
import { describeView } from "../views.js";
import { bottleneck, ratesOf, timeSplit } from "./bottleneck.js";
import { jobName, MAINTENANCE, progressOf, stateChip } from "./list.js";

const TERMINAL = new Set(["done", "failed", "cancelled", "timed_out"]);
const SHOWN_EVENTS = 500;
const RETRY_MILLIS = 1000;

/** The page of a job. */
export async function jobPage(route, signal) {
  const id = route.id[0] ?? "";
  const describe = onJob("describe", { job_id: id }, `print(db.job(${JSON.stringify(id)}))`);
  const view = new JobView(await call(describe, signal), describe);
  view.draw();
  listen(view, signal);
  return view.page;
}

class JobView {
  constructor(job, request) {
    this.job = job;
    this.request = request;
    this.events = [];
    this.points = [];
    this.errors = null;
    this.last = 0;
    const part = (name) => (this[name] = h(`div.${name}`));
    this.page = h("div.page.job", {}, part("head"), part("facts"), part("plot"), part("failed"), part("log"));
  }

  /** Apply an event of the stream. */
  receive(kind, data) {
    if (kind === "progress" || kind === "end") {
      Object.assign(this.job, { state: data.state, counters: data.counters });
      if (!TERMINAL.has(data.state) && data.state !== "pending")
        this.points.push({ at: Date.now(), rows: data.counters.rows_computed ?? 0 });
      return;
    }
    this.events.push(data);
    if (kind === "claimed" || kind === "taken_over") {
      const { worker, attempt } = data.data;
      Object.assign(this.job, { worker, attempt, started_ms: this.job.started_ms ?? data.at, waiting_for: "" });
    }
    if (kind === "waiting") this.job.waiting_for = data.data.reason;
    if (kind === "claimed") this.points.push({ at: data.at, rows: 0 });
    if (kind === "committed") this.committed = (this.committed ?? 0) + (data.data.rows ?? 0);
    if (kind === "committed" && !this.live) this.points.push({ at: data.at, rows: this.committed });
  }

  /** Reload the job; once it has ended, only its events name the worker. */
  async reload(signal) {
    const { worker } = this.job;
    this.job = { worker, ...(await call(this.request, signal)) };
  }

  /** Return the progress reports, including the end of the job. */
  moments() {
    const { job } = this;
    const known = this.points.toSorted((a, b) => a.at - b.at);
    const rows = job.counters.rows_computed ?? 0;
    if (job.finished_ms && rows > (known.at(-1)?.rows ?? 0))
      known.push({ at: Math.max(job.finished_ms, known.at(-1)?.at ?? 0), rows });
    return known;
  }

  /** Redraw the page. */
  show() {
    redraw(this.page, () => this.draw());
  }

  draw() {
    const { job } = this;
    const names = job.table.split("$");
    put(
      this.head,
      h("h1", {}, jobName(job)),
      h(
        "p",
        {},
        stateChip(job.state),
        " on ",
        h("a", { href: tableAddress(names) }, names.join(".")),
        job.branch ? ` (branch ${job.branch})` : "",
        job.stop_request ? h("span.muted", {}, ` ${job.stop_request} requested`) : "",
      ),
      h(
        "div.bar",
        {},
        this.actions(names),
        h("span.spring"),
        this.sparkLink(),
        copyButtons(() => this.request, "describe the job"),
      ),
    );
    const { done, planned } = progressOf(job);
    put(
      this.facts,
      h("div.row", {}, progressBar(done, planned, "Progress"), h("b", {}, planned ? percent(done, planned) : "—")),
      h("p.sentence", {}, bottleneck(job)),
      factList(facts(job), "dl.facts.two"),
      h("h2", {}, "Time breakdown"),
      shareBar(timeSplit(job.counters), "Time of all tasks"),
    );
    put(this.plot, h("h2", {}, "Rows per second"), ratePlot(ratesOf(this.moments()), "Rows per second"));
    this.drawErrors();
    put(this.log, h("h2", {}, "Events"), eventTable(this.events));
  }

  drawErrors() {
    const { job, errors } = this;
    const failed = job.counters.rows_failed;
    if (errors?.records.length) put(this.failed, errorList(errors, this.errorRequest(), errors.home, job.branch));
    else
      put(
        this.failed,
        failed ? h("p.muted", {}, `${countOf(failed, "row")} failed; they are listed once they are committed.`) : null,
      );
  }

  errorRequest() {
    const { job } = this;
    const names = job.table.split("$");
    const column = job.target ? { column: job.target } : {};
    const given = pythonArguments({ ...column, job: job.job_id, limit: SHOWN_ERRORS });
    return onTable(
      names,
      "errors",
      { ...column, job_id: job.job_id, limit: SHOWN_ERRORS, ...(job.branch ? { branch: job.branch } : {}) },
      `${openTable(names, job.branch)}print(table.errors(${given}))`,
    );
  }

  /** Load the failed rows; those of a refresh are rows of the view's source. */
  async findErrors(signal) {
    if (!this.job.counters.rows_failed) return;
    const names = this.job.table.split("$");
    const [found, view] = await Promise.all([
      call(this.errorRequest(), signal).catch(() => null),
      this.job.job_type === "refresh" ? describeView(names, signal).catch(() => null) : null,
    ]);
    if (found) this.errors = { ...found, label: "Failed rows", home: view?.sources[0].id ?? names };
  }

  sparkLink() {
    const link = this.events.findLast((event) => event.data?.spark_ui)?.data.spark_ui;
    return link?.startsWith("http")
      ? h("a.button", { href: link, target: "_blank", rel: "noreferrer" }, "Spark UI")
      : null;
  }

  actions(names) {
    if (!canWrite(names.slice(0, -1))) return h("span.muted.small", {}, "Your key may view this job, but not control it.");
    const { job } = this;
    const id = JSON.stringify(job.job_id);
    const buttons = [];
    const offer = (label, verb, more = {}, python = `db.job(${id}).${verb}()`) => {
      const request = onJob(verb, { job_id: job.job_id, ...more }, python);
      buttons.push(
        h(
          "span.action",
          {},
          h("button", { type: "button", onclick: () => this.send(label, request) }, label),
          copyButtons(() => request, label.toLowerCase()),
        ),
      );
    };
    if (job.state === "paused") offer("Resume", "resume");
    else if (!TERMINAL.has(job.state)) offer("Pause", "pause");
    if (!TERMINAL.has(job.state)) offer("Cancel", "cancel");
    if (TERMINAL.has(job.state) && job.state !== "done") offer("Retry", "retry");
    if (TERMINAL.has(job.state) && job.counters.rows_failed && job.job_type === "backfill")
      offer("Retry failed rows", "retry", { only_failed: true }, `db.job(${id}).retry(only_failed=True)`);
    return buttons;
  }

  async send(label, request) {
    try {
      const answer = await call(request);
      if (answer.retry_of) go(address(["job", answer.job_id]));
      else toast(`${label}: ${answer.status.replace("_", " ")}.`);
      await this.reload();
      this.show();
    } catch (error) {
      toast(error.message, "bad");
    }
  }
}

/** Follow the job until it has ended or the page is left, and redraw at most every 250 ms. */
async function listen(view, signal) {
  let due = false;
  const drawSoon = () => {
    if (due) return;
    due = true;
    setTimeout(() => {
      due = false;
      if (!signal.aborted && !hasSelection(view.page)) view.show();
    }, 250);
  };
  view.live = !TERMINAL.has(view.job.state);
  while (!signal.aborted) {
    try {
      view.last = await follow(
        `/v1/jobs/${view.job.job_id}/events`,
        view.last,
        (kind, data) => {
          view.receive(kind, data);
          drawSoon();
        },
        signal,
      );
      await view.reload(signal);
      await view.findErrors(signal);
      view.show();
      if (TERMINAL.has(view.job.state)) return;
    } catch (error) {
      if (signal.aborted) return;
      put(view.log, errorBox(error));
    }
    await new Promise((done) => setTimeout(done, RETRY_MILLIS));
  }
}

function facts(job) {
  const { counters } = job;
  const ran = (job.finished_ms ?? Date.now()) - job.started_ms;
  const known = [
    ["Job", job.job_id],
    ["Submitted", `${moment(job.creation_ms)} by ${job.submitted_by}`],
    ["Started", job.started_ms ? moment(job.started_ms) : "—"],
    [job.finished_ms ? "Duration" : "Running for", job.started_ms ? seconds(ran / 1000) : "—"],
    ["Worker", job.worker ?? "—"],
    ["Attempt", count(job.attempt)],
    ["Priority", count(job.priority)],
    ["Rows planned", count(counters.rows_planned)],
    ["Rows computed", count(counters.rows_computed)],
    ["Rows failed", count(counters.rows_failed ?? 0)],
    ["Read", bytes(counters.bytes_read)],
    ["Written", bytes(counters.bytes_written)],
    ["Peak memory per task", bytes(counters.peak_memory_bytes)],
  ];
  if (counters.fragments_planned !== undefined) {
    const committed = `${count(counters.fragments_committed ?? 0)} of ${count(counters.fragments_planned)}`;
    known.push(["Fragments committed", committed]);
  }
  if (job.retry_of) known.push(["Retry of", h("a", { href: address(["job", job.retry_of]) }, job.retry_of)]);
  if (job.result?.mode)
    known.push(["Result", `${job.result.mode}${job.result.reason ? `: ${job.result.reason}` : ""}`]);
  for (const name of ["rows_added", "rows_updated", "rows_removed"])
    if (job.result?.[name] !== undefined) known.push([`R${name.slice(1).replace("_", " ")}`, count(job.result[name])]);
  if (MAINTENANCE.has(job.job_type)) known.push(...maintenanceFacts(job));
  return known;
}

/** Why a maintenance job was submitted, and what it has done. */
function maintenanceFacts({ spec, result }) {
  const known = spec.reasons?.length ? [["Reason", spec.reasons.join("; ")]] : [];
  for (const [name, value] of Object.entries(result ?? {})) {
    const label = `${name[0].toUpperCase()}${name.slice(1).replaceAll("_", " ")}`;
    if (name.startsWith("bytes")) known.push([label, bytes(value)]);
    else if (typeof value === "number") known.push([label, count(value)]);
  }
  for (const [step, error] of Object.entries(result?.failures ?? {})) known.push([`Step ${step} failed`, error]);
  return known;
}

function eventTable(events) {
  if (!events.length) return emptyState("No events yet.", "Events appear here as they happen.");
  const rows = events
    .slice(-SHOWN_EVENTS)
    .toReversed()
    .map((event) =>
      h(
        "tr",
        {},
        h("td.number", {}, count(event.seq)),
        h("td", {}, moment(event.at)),
        h("td", {}, event.kind.replaceAll("_", " ")),
        h("td", {}, event.unit),
        h("td.small.wrap", {}, summary(event.data)),
      ),
    );
  return scrollingTable("Events", ["No.", "Time", "Event", "Unit", "Details"], rows, "div.scroll.events");
}

const asText = (value) => (typeof value === "object" ? JSON.stringify(value) : value);

function summary(data) {
  const { counters, result, ...rest } = data;
  const flat = Object.entries(rest).filter(([, value]) => value !== null && value !== "");
  return flat
    .map(([name, value]) => `${name.replaceAll("_", " ")}: ${value.message ?? asText(value)}`)
    .join(", ");
}
