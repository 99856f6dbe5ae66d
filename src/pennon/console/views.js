/** Which tables are materialized views; cached per namespace until the catalog is reloaded. */

import { call, events, listAll, listing, pathOf } from "./api.js";

const CACHE_MILLIS = 10_000;
const cache = new Map();

events.addEventListener("catalog", () => cache.clear());

/** A request about a view. */
export function onView(names, verb, body = {}, python = undefined) {
  return { method: "POST", path: `/v1/materialized_view/${pathOf(names)}/${verb}`, body, python };
}

/** Return the names of the views in a namespace. @returns {Promise<Set<string>>} */
export function viewsIn(namespace) {
  const id = namespace.length ? pathOf(namespace) : "%24";
  if (!cache.has(id)) {
    const list = (token) => listing(`/v1/namespace/${id}/materialized_view/list`, token);
    const names = listAll(list, "views").then(
      (found) => new Set(found),
      () => new Set(),
    );
    cache.set(id, names);
    setTimeout(() => cache.delete(id), CACHE_MILLIS);
  }
  return cache.get(id);
}

/** Return the description of a view; null for a table that is not a view. */
export async function describeView(names, signal) {
  return (await viewsIn(names.slice(0, -1))).has(names.at(-1)) ? call(onView(names, "describe"), signal) : null;
}
