/** The maintenance policy of a table: its values, where they are set, and a form that changes them. */

import { call } from "../api.js";
import { h } from "../dom.js";
import { bytes, count, seconds } from "../format.js";
import { openForm, toast } from "../parts/dialogs.js";
import { scrollingTable } from "../parts/lists.js";
import { copyButtons, pythonValue } from "../parts/snippets.js";
import { reloadPage } from "../router.js";

const yes = (value) => (value ? "yes" : "no");
const duration = (value) => (value >= 172800 ? `${count(value / 86400)} days` : seconds(value));

/** The fields for people; the first three are those that most tables need. */
const FIELDS = [
  { name: "enabled", label: "Automatic maintenance", show: yes, kind: "flag" },
  { name: "max_version_seconds", label: "Keep versions for (seconds)", show: duration },
  { name: "max_versions", label: "Keep at most this many versions", show: count },
  { name: "min_version_seconds", label: "Always keep versions for (seconds)", show: duration },
  { name: "snapshot_seconds", label: "Keep the last version of each (seconds)", show: duration },
  { name: "min_file_seconds", label: "Keep files of removed versions for (seconds)", show: duration },
  { name: "target_fragment_bytes", label: "Size of a compacted fragment (bytes)", show: bytes },
  { name: "target_fragment_rows", label: "Most rows in a compacted fragment", show: count },
  { name: "max_small_fragments", label: "Small fragments before they are merged", show: count },
  { name: "max_deleted_share", label: "Share of deleted rows before a rewrite", show: count, kind: "text" },
  { name: "max_unindexed_rows", label: "Rows outside an index before it is updated", show: count },
  { name: "max_unindexed_seconds", label: "Time before an index is updated (seconds)", show: duration },
  { name: "max_index_segments", label: "Segments of an index before they are merged", show: count },
  { name: "quiet_hours", label: "Quiet hours in UTC, such as 08:00-18:30", show: (text) => text || "none", kind: "text" },
  { name: "max_bytes_per_second", label: "Most bytes rewritten per second (0: no limit)", show: bytes },
];
const FIRST = 3;

/** The card with the policy. @param {import("./page.js").Table} table */
export function policyCard(table, policy, describe) {
  const known = FIELDS.filter((field) => policy[field.name]);
  const row = (field) => {
    const value = policy[field.name];
    return h("tr", {}, h("td", {}, field.label), h("td.number", {}, field.show(value.value)), h("td", {}, origin(value)));
  };
  const list = (label, fields) => scrollingTable(label, ["Field", "Value", "Set by"], fields.map(row));
  return h(
    "section.card",
    { "aria-label": "Maintenance policy" },
    h(
      "div.section-head",
      {},
      h("h2", {}, "Policy"),
      h("span.spring"),
      table.writable
        ? h("button", { type: "button", onclick: () => changePolicy(table, policy, known) }, "Change policy")
        : null,
      copyButtons(() => describe, "describe the policy"),
    ),
    list("Policy", known.slice(0, FIRST)),
    h("details", {}, h("summary", {}, "All fields"), list("Further fields of the policy", known.slice(FIRST))),
  );
}

function origin(value) {
  if (value.level !== "namespace") return value.level === "table" ? "this table" : "the server";
  return value.namespace ? `namespace ${value.namespace.replaceAll("$", ".")}` : "a namespace";
}

function changePolicy(table, policy, known) {
  const fields = known.map((field, at) => formField(field, policy[field.name], at >= FIRST));
  const make = (values) => {
    const changes = changed(policy, known, values);
    const keywords = Object.entries(changes).map(([name, value]) => `${name}=${pythonValue(value)}`);
    return table.on(
      "maintenance_policy/alter",
      { policy: changes },
      `${table.open}table.alter_maintenance_policy(${keywords.join(", ")})`,
    );
  };
  openForm({
    title: "Maintenance policy",
    verb: "Change policy",
    fields,
    intro: h("p", {}, "An empty field takes the value of the namespace or the server."),
    copies: (read) => copyButtons(() => make(read()), "change the policy"),
    work: async (values) => {
      const request = make(values);
      if (Object.keys(request.body.policy).length) await call(request);
      toast("The policy was changed.");
      reloadPage();
    },
  });
}

/** A field of the form: its own value, and what applies without it. */
function formField(field, value, folded) {
  const own = value.level === "table";
  const hint = own ? `Without a value: ${field.show(value.inherited)}.` : `Now: ${field.show(value.value)}, from ${origin(value)}.`;
  const shared = { name: field.name, label: field.label, hint, folded };
  if (field.kind !== "flag") return { ...shared, kind: field.kind ?? "number", value: own ? value.value : undefined };
  const choices = [
    ["", `as inherited (${field.show(value.inherited)})`],
    ["true", "yes"],
    ["false", "no"],
  ];
  return { ...shared, kind: "choice", choices, value: own ? String(value.value) : "" };
}

/** Return the fields to set, and those to reset by null. */
function changed(policy, known, values) {
  const changes = {};
  for (const { name, kind } of known) {
    const { value, level } = policy[name];
    const given = values[name];
    if (given === undefined) {
      if (level === "table") changes[name] = null;
    } else if (level !== "table" || String(value) !== String(given)) {
      changes[name] = kind === "flag" ? given === "true" : given;
    }
  }
  return changes;
}
