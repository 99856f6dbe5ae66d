/** Tables and lists of facts. */

import { h } from "../dom.js";

/** A table; an empty head has no header cell. @param {string[]} heads @param {HTMLElement[]} rows */
export function listTable(heads, rows) {
  // Heads are aligned like their values: numbers to the right.
  const kinds = heads.map((_, at) => (rows[0]?.children[at]?.classList.contains("number") ? "number" : ""));
  const row = heads.map((text, at) => (text ? h("th", { scope: "col", class: kinds[at] }, text) : h("td")));
  return h("table.list", {}, h("thead", {}, h("tr", {}, row)), h("tbody", {}, rows));
}

/** A list of names and values. @param {[string, unknown][]} facts */
export function factList(facts, kind = "dl.facts") {
  return h(
    kind,
    {},
    facts.map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]),
  );
}

/** A table that scrolls where it is too wide, also by keyboard. */
export function scrollingTable(label, heads, rows, kind = "div.scroll") {
  return h(kind, { tabindex: "0", role: "region", "aria-label": label }, listTable(heads, rows));
}
