/** Differences between two versions, or between a branch and main. */

import { call } from "../api.js";
import { h, put } from "../dom.js";
import { count } from "../format.js";
import { errorBox } from "../parts/dialogs.js";
import { factList } from "../parts/lists.js";
import { copyButtons } from "../parts/snippets.js";

/** Select two versions and compare them. @param {import("./page.js").Table} table */
export function versionComparison(table, versions) {
  if (versions.length < 2) return null;
  const numbers = versions.map((version) => version.version);
  const choose = (id, chosen) =>
    h(
      "select",
      { id },
      numbers.map((number) => h("option", { value: String(number), selected: number === chosen }, `Version ${number}`)),
    );
  const from = choose("diff-from", numbers[1]);
  const to = choose("diff-to", numbers[0]);
  const request = () => table.onBranch("version/diff", { from: Number(from.value), to: Number(to.value) });
  const result = h("div.diff", { "aria-live": "polite" });
  return h(
    "section.card",
    {},
    h("h2", {}, "What changed"),
    h(
      "div.bar",
      {},
      h("label", { for: "diff-from" }, "From"),
      from,
      h("label", { for: "diff-to" }, "to"),
      to,
      h("button", { type: "button", onclick: () => compare(table, request(), result, versionFacts) }, "Compare"),
      h("span.spring"),
      copyButtons(request, "compare versions"),
    ),
    result,
  );
}

/** Load a comparison and show it; it takes a while if much has changed. */
export async function compare(table, request, place, facts) {
  put(place, h("p.muted", {}, "Comparing…"));
  try {
    put(place, factList(facts(await call(request, table.signal))));
  } catch (error) {
    if (!table.signal.aborted) put(place, errorBox(error));
  }
}

const listed = (texts) => texts.join(", ") || "none";
const columns = (items) => listed(items.map((item) => `${item.name} (${item.dataType})`));

function versionFacts(diff) {
  const rows = diff.exact
    ? [
        ["Rows added", count(diff.rows_added)],
        ["Rows removed", count(diff.rows_removed)],
        ["Rows updated", count(diff.rows_updated)],
      ]
    : [["Rows added, removed, updated", `unknown: ${diff.reason}`]];
  return [
    ["Rows", `${count(diff.rows_before)} → ${count(diff.rows_after)}`],
    ...rows,
    ["Columns added", columns(diff.added_columns)],
    ["Columns removed", columns(diff.removed_columns)],
    ["Columns changed", listed(diff.changed_columns.map((item) => `${item.name} (${item.from} → ${item.to})`))],
    ["Indexes added", listed(diff.added_indexes)],
    ["Indexes removed", listed(diff.removed_indexes)],
  ];
}

/** The differences between a branch and main. */
export function branchFacts(diff) {
  const { rowSummary: rows } = diff;
  const known = (number) => (rows.deltaAvailable ? count(number) : "unknown");
  const changed = diff.changedColumns.map((item) => `${item.name} (${item.main.dataType} → ${item.branch.dataType})`);
  return [
    ["Rows in main", `${count(diff.rowCountMain)} (version ${count(diff.mainVersion)})`],
    ["Rows in the branch", `${count(diff.rowCountBranch)} (version ${count(diff.branchVersion)})`],
    ["Rows only in main", known(rows.newOnBase)],
    ["Rows only in the branch", known(rows.newOnBranch)],
    ["Columns added", columns(diff.addedColumns)],
    ["Columns removed", columns(diff.removedColumns)],
    ["Columns changed", listed(changed)],
    ["Indexes added", listed(diff.addedIndexes.map((index) => index.indexName))],
    ["Indexes removed", listed(diff.removedIndexes.map((index) => index.indexName))],
    ["Can be cherry-picked", diff.errors.length ? `no: ${listed(diff.errors.map((error) => error.message))}` : "yes"],
  ];
}
