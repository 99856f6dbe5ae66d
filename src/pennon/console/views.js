/** Which tables are materialized views: asked once for a namespace, and again when the catalog is loaded anew. */

import { call, events, listAll, listing, pathOf } from "./api.js";

const KEPT_MILLIS = 10_000;
const known = new Map();

events.addEventListener("catalog", () => known.clear());

/** A request about a view. */
export function onView(names, verb, body = {}, python = undefined) {
  return { method: "POST", path: `/v1/materialized_view/${pathOf(names)}/${verb}`, body, python };
}

/** Return the names of the views in a namespace. @returns {Promise<Set<string>>} */
export function viewsIn(namespace) {
  const id = namespace.length ? pathOf(namespace) : "%24";
  if (!known.has(id)) {
    const list = (token) => listing(`/v1/namespace/${id}/materialized_view/list`, token);
    const asked = listAll(list, "views").then(
      (found) => new Set(found),
      () => new Set(),
    );
    known.set(id, asked);
    setTimeout(() => known.delete(id), KEPT_MILLIS);
  }
  return known.get(id);
}

/** Return what a view is made of and how fresh it is; null for a table that is none. */
export async function describeView(names, signal) {
  return (await viewsIn(names.slice(0, -1))).has(names.at(-1)) ? call(onView(names, "describe"), signal) : null;
}
