/** The page of a table, in tabs. */

import { call, onTable } from "../api.js";
import { h } from "../dom.js";
import { count } from "../format.js";
import { crumbs } from "../parts/crumbs.js";
import { emptyState } from "../parts/dialogs.js";
import { copyButtons, openTable } from "../parts/snippets.js";
import { go, tableAddress } from "../router.js";
import { canWrite } from "../session.js";
import { describeView } from "../views.js";
import { dataTab } from "./data.js";
import { healthTab } from "./health.js";
import { functionsTab } from "./functions.js";
import { indexesTab } from "./indexes.js";
import { lineageTab } from "./lineage.js";
import { schemaTab } from "./schema.js";
import { statisticsTab } from "./statistics.js";
import { versionsTab } from "./versions.js";
import { viewTab } from "./view.js";

const TABS = [
  ["data", "Data", dataTab],
  ["schema", "Schema", schemaTab],
  ["versions", "Versions", versionsTab],
  ["indexes", "Indexes", indexesTab],
  ["functions", "Functions", functionsTab],
  ["lineage", "Lineage", lineageTab],
  ["statistics", "Statistics", statisticsTab],
  ["health", "Health", healthTab],
];

/** Tabs that are empty for a table that is only declared. */
const DATA_TABS = new Set(["data", "indexes", "statistics", "health"]);

/**
 * The table that a tab shows.
 * @typedef {{names: string[], branch: string, version: number|null, fields: any[], described: any, view: any,
 *   writable: boolean, params: URLSearchParams, signal: AbortSignal, at: object, link: (tab: string, params?: object) => string,
 *   on: (verb: string, body?: object, python?: string) => import("../api.js").Request,
 *   onBranch: (verb: string, body?: object, python?: string) => import("../api.js").Request,
 *   branches: Record<string, {parentBranch?: string, parentVersion: number}>, open: string}} Table
 */

/** Show a table. */
export async function tablePage(route, signal) {
  const names = route.id;
  const branch = route.params.get("branch") ?? "";
  const version = Number(route.params.get("version")) || null;
  const at = { ...(branch ? { branch } : {}), ...(version ? { version } : {}) };
  const open = openTable(names, branch, version);
  const describe = onTable(names, "describe", { ...at, load_detailed_metadata: true }, `${open}print(table.schema)`);
  const [described, branches, view] = await Promise.all([
    call(describe, signal),
    call(onTable(names, "branches/list"), signal).catch(() => ({ branches: {} })),
    describeView(names, signal),
  ]);
  /** @type {Table} */
  const table = {
    names,
    branch,
    version,
    at,
    described,
    view,
    fields: described.schema?.fields ?? [],
    writable: canWrite(names.slice(0, -1)),
    params: route.params,
    signal,
    branches: branches.branches,
    on: (verb, body = {}, python = undefined) => onTable(names, verb, body, python),
    onBranch: (verb, body = {}, python = undefined) =>
      onTable(names, verb, { ...body, ...(branch ? { branch } : {}) }, python),
    open,
    link: (tab, params = {}) => tableAddress(names, tab, { branch, version: version ?? "", ...params }),
  };
  const tabs = [...TABS, ...(view ? [["view", "View", viewTab]] : [])];
  const wanted = route.rest[0] ?? "data";
  const found = tabs.find(([name]) => name === wanted);
  const empty = described.is_only_declared && DATA_TABS.has(wanted);
  const content = empty
    ? emptyState("This table is declared, but has no data yet.", "Write to it with a client; its rows appear here.")
    : found
      ? await found[2](table)
      : emptyState("Tab not found.", h("a", { href: table.link("data") }, "Go to the data"));
  return h(
    "div.page",
    {},
    crumbs(names.slice(0, -1)),
    h(
      "div.title",
      {},
      h("h1", {}, names.at(-1)),
      view ? h("span.chip", {}, `${view.kind ?? "materialized"} view`) : null,
      h("span.spring"),
      refBar(table),
      copyButtons(() => describe, "describe the table"),
    ),
    h(
      "nav.tabs",
      { "aria-label": "Parts of the table" },
      tabs.map(([name, label]) =>
        h("a", { href: table.link(name), "aria-current": name === wanted ? "page" : null }, label),
      ),
    ),
    h("div.tab", { id: `tab-${wanted}` }, content),
  );
}

/** Which branch and version is shown. */
function refBar(table) {
  const change = (params) =>
    go(tableAddress(table.names, currentTab(), { branch: table.branch, version: table.version ?? "", ...params }));
  const names = ["", ...Object.keys(table.branches)];
  return h(
    "span.refs",
    {},
    h("label", { for: "ref-branch", class: "hidden" }, "Branch"),
    h(
      "select",
      { id: "ref-branch", onchange: (event) => change({ branch: event.target.value, version: "" }) },
      names.map((name) => h("option", { value: name, selected: name === table.branch }, name || "main")),
    ),
    h("span.muted", {}, versionText(table)),
    table.version ? h("button.small", { type: "button", onclick: () => change({ version: "" }) }, "Latest") : null,
  );
}

function versionText({ version, described }) {
  if (!described.version) return "no version yet";
  return `version ${count(described.version)}${version ? " (not the latest)" : ""}`;
}

const currentTab = () => location.hash.split("?")[0].split("/")[3] ?? "data";
