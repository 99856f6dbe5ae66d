/** A function: its source and properties. */

import { h } from "../dom.js";
import { factList } from "../parts/lists.js";

/** @param {any} made the server's description of a function */
export function aboutFunction(made) {
  const packages = Object.entries(made.packages).map(([name, version]) => `${name} ${version}`);
  const facts = [
    ["Function", made.name],
    ["Kind", made.kind],
    ["Inputs", made.inputs.join(", ") || "none"],
    ["Columns", made.columns.join(", ")],
    ["Version", made.version || "—"],
    ["Digest", made.digest],
    ["Python", made.python ?? "—"],
    ["Packages", packages.join(", ") || "—"],
    ["On error", made.options?.error_policy?.on_error ?? "—"],
  ];
  if (made.auto_backfill !== undefined) facts.push(["Automatic backfill", made.auto_backfill ? "yes" : "no"]);
  const source = made.expression ?? made.source;
  return [
    source
      ? h("pre.code", { tabindex: "0", role: "region", "aria-label": `Source of ${made.name}` }, source)
      : h("p.muted", {}, "This function was packaged without its source."),
    h("details", {}, h("summary", {}, "About the function"), factList(facts)),
  ];
}
