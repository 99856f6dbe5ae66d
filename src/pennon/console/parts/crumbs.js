/** Breadcrumbs: links to the parent namespaces. */

import { h } from "../dom.js";
import { address } from "../router.js";

/** @param {string[]} namespace */
export function crumbs(namespace) {
  const links = namespace.map((name, at) => [
    h("a", { href: address(["namespace", namespace.slice(0, at + 1).join("$")]) }, name),
    " / ",
  ]);
  return h("nav.crumbs", { "aria-label": "Namespaces" }, links);
}
