/** A materialized view: its definition, freshness and refreshes. */

import { call, events } from "../api.js";
import { h } from "../dom.js";
import { count, countOf, moment } from "../format.js";
import { openForm, toast } from "../parts/dialogs.js";
import { errorList, SHOWN_ERRORS } from "../parts/errors.js";
import { factList, scrollingTable } from "../parts/lists.js";
import { copyButtons, openView, pythonArguments, pythonValue } from "../parts/snippets.js";
import { address, go, reloadPage, tableAddress } from "../router.js";
import { onView } from "../views.js";
import { aboutFunction } from "./about.js";

const STATES = {
  fresh: "Up to date with its sources.",
  stale: "Its sources have changed since the last refresh.",
  empty: "Not refreshed yet.",
  failed: "The last refresh failed; the view has the rows of the one before.",
};
const CHANGES = ["ignore_new", "rebuild", "fail"];

/** @param {import("./page.js").Table} table */
export async function viewTab(table) {
  const { view, names } = table;
  const describe = onView(names, "describe", {}, `${openView(names)}print(view.freshness())`);
  const askErrors = table.on(
    "errors",
    { limit: SHOWN_ERRORS },
    `${openView(names)}print(view.errors(limit=${SHOWN_ERRORS}))`,
  );
  const [functions, errors] = await Promise.all([
    call(onView(names, "functions"), table.signal),
    call(askErrors, table.signal),
  ]);
  const facts = [
    ["Kind", `${view.kind}, computed by ${view.engine}`],
    [
      "Refresh mode",
      view.incremental ? "incremental" : `full: ${view.rebuild_reason ?? ""}`,
    ],
    ["Refreshed", moment(view.refreshed_at_millis)],
    ["Version", count(view.refreshed_version)],
    ["Automatic refresh", view.auto_refresh ? "when its sources change" : "no"],
    ["Schedule", view.schedule ?? "none"],
    ["When a source's schema changes", view.on_schema_change.replace("_", " ")],
    ["Created", moment(view.created_at_millis)],
    ...["partition_by", "partition_by_indexed_column"]
      .filter((name) => view.function?.[name])
      .map((name) => [`P${name.slice(1).replaceAll("_", " ")}`, view.function[name]]),
  ];
  return [
    h(
      "div.bar",
      {},
      actions(table),
      h("span.spring"),
      copyButtons(() => describe, "describe the view"),
    ),
    h(
      "p.sentence",
      {},
      h(
        "span.chip",
        { class: `state-${view.state === "fresh" ? "done" : view.state === "failed" ? "failed" : "paused"}` },
        view.state,
      ),
      " ",
      view.reason ?? STATES[view.state] ?? "",
      view.active_job ? [" ", h("a", { href: address(["job", view.active_job]) }, "A refresh is running.")] : null,
      view.failed_job ? [" ", h("a", { href: address(["job", view.failed_job]) }, "Failed job")] : null,
    ),
    h("h2", {}, "Sources"),
    sources(view),
    h("h2", {}, "Query"),
    h("pre.code", { tabindex: "0", role: "region", "aria-label": "Query of the view" }, view.query),
    functions.functions.map((made) =>
      h(
        "section.card.function",
        { "aria-label": `Function ${made.name}` },
        h("div.section-head", {}, h("h2", {}, made.name), h("span.muted", {}, `computes ${made.columns.join(", ")}`)),
        aboutFunction(made),
      ),
    ),
    errors.records.length
      ? errorList({ ...errors, label: "Failed rows" }, askErrors, view.sources[0].id)
      : null,
    h("h2", {}, "About the view"),
    factList(facts),
  ];
}

function sources(view) {
  const rows = view.sources.map((source) => {
    const behind =
      source.version !== null && source.newest_version !== undefined && source.version !== undefined
        ? source.newest_version - source.version
        : null;
    return h(
      "tr",
      {},
      h("td", {}, h("a", { href: tableAddress(source.id) }, source.table)),
      h("td.number", {}, count(source.version)),
      h(
        "td.number",
        {},
        source.pinned_version ? `always ${count(source.pinned_version)}` : count(source.newest_version),
      ),
      h(
        "td",
        {},
        source.pinned_version
          ? "pinned"
          : behind === null
            ? "—"
            : behind && view.state !== "fresh"
              ? `${countOf(behind, "version")} behind`
              : "up to date",
      ),
      h("td.wrap", {}, source.columns.join(", ")),
    );
  });
  return scrollingTable("Sources", ["Table", "Version in the view", "Latest", "Freshness", "Columns read"], rows);
}

function actions(table) {
  if (!table.writable) return null;
  const offer = (label, work, kind = "") => h("button", { type: "button", class: kind, onclick: work }, label);
  return [
    offer("Refresh", () => refresh(table), "primary"),
    offer("Schedule", () => alter(table)),
    offer("Drop view", () => drop(table)),
  ];
}

function refresh(table) {
  const fields = [
    { name: "src_version", label: "Source version", kind: "number", hint: "The latest by default." },
    { name: "concurrency", label: "Concurrent tasks", kind: "number" },
    { name: "max_rows_per_fragment", label: "Maximum rows per fragment", kind: "number" },
    { name: "priority", label: "Priority", kind: "number" },
    { name: "cluster", label: "Cluster" },
    { name: "full", label: "Full refresh", kind: "flag" },
    { name: "cascade", label: "Refresh the views it reads first", kind: "flag" },
  ];
  const request = (values) =>
    onView(table.names, "refresh", values, `${openView(table.names)}view.refresh(${pythonArguments(values)})`);
  openForm({
    title: `Refresh ${table.names.at(-1)}`,
    verb: "Refresh",
    fields,
    copies: (read) => copyButtons(() => request(read()), "refresh"),
    more: [
      {
        label: "Plan",
        work: async (values, say) => {
          const plan = await call({ ...request(values), body: { ...values, dry_run: true } });
          const changes = [
            ["to add", plan.rows_to_add],
            ["to update", plan.rows_to_update],
            ["to remove", plan.rows_to_remove],
          ]
            .filter(([, rows]) => rows)
            .map(([word, rows]) => `${countOf(rows, "row")} ${word}`);
          say(
            h(
              "p",
              { role: "status" },
              `${plan.mode === "no_op" ? "nothing to do" : plan.mode}: ${plan.reason} ${changes.join(", ")}${plan.before?.length ? `. First: ${plan.before.join(", ")}` : ""}`,
            ),
          );
        },
      },
    ],
    work: async (values) => {
      const { job_id: job } = await call(request(values));
      toast("The refresh was submitted.");
      go(address(["job", job]));
    },
  });
}

function alter(table) {
  const { view } = table;
  const fields = [
    { name: "auto_refresh", label: "Refresh when its sources change", kind: "flag", value: view.auto_refresh },
    {
      name: "schedule",
      label: "Schedule",
      value: view.schedule ?? "",
      hint: "A cron expression such as 0 3 * * *; empty for none.",
    },
    {
      name: "on_schema_change",
      label: "When a source's schema changes",
      kind: "choice",
      choices: CHANGES.map((name) => [name, name.replace("_", " ")]),
      value: view.on_schema_change,
    },
  ];
  const request = (values) => {
    const body = {
      auto_refresh: Boolean(values.auto_refresh),
      schedule: values.schedule ?? "",
      on_schema_change: values.on_schema_change,
    };
    const given = Object.entries(body)
      .map(([name, value]) => `${name}=${pythonValue(value)}`)
      .join(", ");
    return onView(table.names, "alter", body, `${openView(table.names)}view.alter(${given})`);
  };
  openForm({
    title: "Refresh schedule",
    verb: "Save",
    fields,
    copies: (read) => copyButtons(() => request(read()), "alter the view"),
    work: async (values) => {
      await call(request(values));
      toast("Saved.");
      reloadPage();
    },
  });
}

function drop(table) {
  const fields = [{ name: "cascade", label: "Drop the views over it, too", kind: "flag" }];
  const request = (values) =>
    onView(table.names, "drop", values, `${openView(table.names)}view.drop(${pythonArguments(values)})`);
  openForm({
    title: `Drop ${table.names.at(-1)}`,
    verb: "Drop view",
    danger: true,
    fields,
    intro: h("p", {}, "Deletes its rows; its sources do not change."),
    copies: (read) => copyButtons(() => request(read()), "drop the view"),
    work: async (values) => {
      await call(request(values));
      toast("The view was dropped.");
      go("#/");
      events.dispatchEvent(new Event("catalog"));
    },
  });
}
