/** Plain tables of a few columns. */

import { h } from "../dom.js";

/** A table under its heads; one without words is no head. @param {string[]} heads @param {HTMLElement[]} rows */
export function listTable(heads, rows) {
  const row = heads.map((text) => (text ? h("th", { scope: "col" }, text) : h("td")));
  return h("table.list", {}, h("thead", {}, h("tr", {}, row)), h("tbody", {}, rows));
}

/** The same where it may be wider than its place: then it scrolls, also by the keyboard. */
export function scrollingTable(label, heads, rows, kind = "div.scroll") {
  return h(kind, { tabindex: "0", role: "region", "aria-label": label }, listTable(heads, rows));
}
