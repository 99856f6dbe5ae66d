/** The health of a table: what maintenance has done, what it would do now, and its policy. */

import { call } from "../api.js";
import { h, put } from "../dom.js";
import { ago, bytes, count, countOf, moment, percent } from "../format.js";
import { toast } from "../parts/dialogs.js";
import { factList, scrollingTable } from "../parts/lists.js";
import { copyButtons } from "../parts/snippets.js";
import { address, go } from "../router.js";
import { stateChip } from "../jobs/list.js";
import { policyCard } from "./policy.js";

/** The steps of maintenance, for people. */
const STEPS = { compact: "Compact", optimize_indices: "Update indexes", cleanup: "Remove versions" };

/** @param {import("./page.js").Table} table */
export async function healthTab(table) {
  const ask = table.onBranch("health", {}, `${table.open}print(table.health())`);
  const describe = table.on("maintenance_policy/describe", {}, `${table.open}print(table.maintenance_policy())`);
  const [health, policy] = await Promise.all([call(ask, table.signal), call(describe, table.signal)]);
  return [healthCard(table, health, ask), indexList(health), runs(health), policyCard(table, policy.policy, describe)];
}

function healthCard(table, health, ask) {
  const facts = [
    ["Fragments", count(health.fragments)],
    ["Small fragments", count(health.small_fragments)],
    ["Rows", count(health.rows)],
    ["Deleted rows on storage", count(health.deleted_rows)],
    ["Bytes", bytes(health.bytes_live)],
    ["Bytes of deleted rows", `${bytes(health.bytes_deleted)} (${percent(health.bytes_deleted, health.bytes_live)})`],
    ["Versions", count(health.versions)],
    ["Rows outside an index", count(Math.max(0, ...health.indices.map((index) => index.rows_unindexed)))],
  ];
  return h(
    "section.card",
    { "aria-label": "Health" },
    h(
      "div.bar",
      {},
      table.writable ? runAction(table) : null,
      h("span.spring"),
      copyButtons(() => ask, "measure the health"),
    ),
    factList(facts, "dl.facts.big"),
    h("h2", {}, "What maintenance would do now"),
    dueList(health.due),
    table.writable ? planAction(table) : null,
  );
}

function dueList(due) {
  if (!due.length) return h("p.sentence", {}, h("span.chip.state-done", {}, "healthy"), " Nothing is due.");
  return due.map((step) =>
    h("p.sentence", {}, h("span.chip.state-paused", {}, STEPS[step.action] ?? step.action), " ", step.reason),
  );
}

function runAction(table) {
  const run = table.onBranch("maintain", {}, `${table.open}job = table.maintain()`);
  const start = async () => {
    try {
      const job = await call(run);
      toast(job.submitted ? "Maintenance was submitted." : "Maintenance is active already.");
      go(address(["job", job.job_id]));
    } catch (error) {
      toast(error.message, "bad");
    }
  };
  return h(
    "span.action",
    {},
    h("button.primary", { type: "button", onclick: start }, "Run maintenance now"),
    copyButtons(() => run, "run maintenance"),
  );
}

function planAction(table) {
  const plan = table.onBranch("maintain", { dry_run: true }, `${table.open}print(table.maintain(dry_run=True))`);
  const shown = h("div.message", { "aria-live": "polite" });
  const explain = async () => {
    try {
      put(shown, planText(await call(plan)));
    } catch (error) {
      toast(error.message, "bad");
    }
  };
  return [
    h(
      "span.action",
      {},
      h("button", { type: "button", onclick: explain }, "Why?"),
      copyButtons(() => plan, "plan maintenance"),
    ),
    shown,
  ];
}

/** What a maintenance job would do, and which versions it would keep. */
function planText(plan) {
  const { cleanup } = plan;
  const kept = (cleanup?.kept ?? []).map((entry) =>
    h("tr", {}, h("td.number", {}, count(entry.count)), h("td.wrap", {}, entry.reason)),
  );
  return h(
    "div",
    {},
    h("p", {}, "A run that you start now merges all small fragments and indexes all rows, however few:"),
    dueList(plan.due),
    cleanup
      ? h(
          "p",
          {},
          `${count(cleanup.versions_to_remove)} versions would be removed, and the ${countOf(cleanup.versions_recent, "recent version")} kept.`,
        )
      : null,
    kept.length ? scrollingTable("Kept versions", ["Versions", "Kept because"], kept) : null,
  );
}

function indexList(health) {
  if (!health.indices.length) return null;
  const rows = health.indices.map((index) =>
    h(
      "tr",
      {},
      h("td", {}, index.name),
      h("td", {}, index.index_type),
      h("td.number", {}, count(index.segments)),
      h("td.number", {}, count(index.rows_indexed)),
      h("td.number", {}, count(index.rows_unindexed)),
    ),
  );
  const heads = ["Index", "Type", "Segments", "Rows in it", "Rows outside"];
  return [h("h2", {}, "Indexes"), scrollingTable("Coverage of indexes", heads, rows)];
}

function runs({ active, last, next }) {
  const facts = [
    ["Active", active ? runText(active) : "no"],
    ["Last", last ? runText(last) : "never"],
    ["Next", next ? [next.at_millis ? `${moment(next.at_millis)}: ` : "", next.reason] : "—"],
  ];
  return [h("h2", {}, "Maintenance"), factList(facts)];
}

function runText(run) {
  const when = run.finished_at_millis ?? run.created_at_millis;
  return [
    stateChip(run.state),
    " ",
    h("a", { href: address(["job", run.job_id]) }, run.job_type.replace("_", " ")),
    ` ${ago(when)}, by ${run.submitted_by}`,
    run.message ? `: ${run.message}` : "",
  ];
}
