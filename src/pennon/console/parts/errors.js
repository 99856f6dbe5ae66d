/** Rows on which functions failed. */

import { h } from "../dom.js";
import { count } from "../format.js";
import { tableAddress } from "../router.js";
import { scrollingTable } from "./lists.js";
import { copyButtons } from "./snippets.js";

/** The number of errors to load. */
export const SHOWN_ERRORS = 20;

/**
 * Errors as a table with links to their rows.
 * @param {{label: string, records: any[], truncated: boolean}} found
 * @param {import("../api.js").Request} request
 * @param {string[]} home the table that has the rows: of a view, its source
 */
export function errorList({ label, records, truncated }, request, home, branch = "") {
  const rows = records.map((error) =>
    h(
      "tr",
      {},
      h("td", {}, locationOf(error, home, branch)),
      h("td", {}, error.column),
      h("td.bad", {}, error.error_type),
      h("td", {}, error.error_message),
      h("td.number", {}, count(error.attempt)),
    ),
  );
  return [
    h(
      "div.section-head",
      {},
      h("h2", {}, label),
      truncated ? h("span.muted.small", {}, `the first ${count(records.length)}`) : null,
      h("span.spring"),
      copyButtons(() => request, "list errors"),
    ),
    scrollingTable(label, ["Row", "Column", "Error", "Message", "Attempt"], rows),
  ];
}

/** The location of an error; a function of a view fails on a row or on a partition of its source. */
function locationOf(error, home, branch) {
  if (error.partition !== undefined) return error.partition;
  const row = error.source_row_id ?? error.row_id;
  if (row === undefined || row === null) return `${error.fragment_id}:${error.row_offset}`;
  return h("a", { href: tableAddress(home, "data", { where: `_rowid = ${row}`, branch }) }, String(row));
}
