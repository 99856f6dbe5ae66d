/** Plain tables of a few columns, and lists of facts. */

import { h } from "../dom.js";

/** A table under its heads; one without words is no head. @param {string[]} heads @param {HTMLElement[]} rows */
export function listTable(heads, rows) {
  // Heads stand above their values: those of numbers to the right.
  const kinds = heads.map((_, at) => (rows[0]?.children[at]?.classList.contains("number") ? "number" : ""));
  const row = heads.map((text, at) => (text ? h("th", { scope: "col", class: kinds[at] }, text) : h("td")));
  return h("table.list", {}, h("thead", {}, h("tr", {}, row)), h("tbody", {}, rows));
}

/** Names and what they stand for. @param {[string, unknown][]} facts */
export function factList(facts, kind = "dl.facts") {
  return h(
    kind,
    {},
    facts.map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]),
  );
}

/** A table that may be wider than its place: then it scrolls, also by the keyboard. */
export function scrollingTable(label, heads, rows, kind = "div.scroll") {
  return h(kind, { tabindex: "0", role: "region", "aria-label": label }, listTable(heads, rows));
}
