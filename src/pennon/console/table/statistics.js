/** Statistics of a table and its fragments. */

import { call, listAll } from "../api.js";
import { h } from "../dom.js";
import { bytes, count } from "../format.js";
import { histogram } from "../parts/charts.js";
import { factList } from "../parts/lists.js";
import { copyButtons } from "../parts/snippets.js";

/** @param {import("./page.js").Table} table */
export async function statisticsTab(table) {
  const ask = table.onBranch("stats", {}, `${table.open}print(table.stats())`);
  const list = (token) => table.on("fragments", { ...table.at, ...(token ? { page_token: token } : {}) });
  const [stats, fragments] = await Promise.all([call(ask, table.signal), listAll(list, "fragments", table.signal)]);
  const known = stats.fragment_stats;
  const deleted = fragments.reduce((sum, fragment) => sum + fragment.deleted_rows, 0);
  const facts = [
    ["Rows", count(stats.num_rows)],
    ["Bytes", bytes(stats.total_bytes)],
    ["Fragments", count(known.num_fragments)],
    ["Fragments below 100,000 rows", count(known.num_small_fragments)],
    ["Deleted rows on storage", count(deleted)],
    ["Indexes", count(stats.num_indices)],
    ["Columns", count(table.fields.length)],
    ["Median rows per fragment", count(known.lengths.p50)],
  ];
  return [
    h(
      "div.bar",
      {},
      h("span.spring"),
      copyButtons(() => ask, "statistics"),
    ),
    factList(facts, "dl.facts.big"),
    h(
      "div.section-head",
      {},
      h("h2", {}, "Rows per fragment"),
      h("span.spring"),
      copyButtons(() => list(null), "list fragments"),
    ),
    histogram(
      fragments.map((fragment) => fragment.rows),
      "Rows per fragment",
    ),
    h("h2", {}, "Bytes per fragment"),
    histogram(
      fragments.map((fragment) => fragment.bytes),
      "Bytes per fragment",
      bytes,
    ),
  ];
}
