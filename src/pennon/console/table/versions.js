/** Versions, tags and branches. */

import { call } from "../api.js";
import { h } from "../dom.js";
import { ago, count, moment } from "../format.js";
import { openForm, emptyState, toast } from "../parts/dialogs.js";
import { copyButtons, pythonValue } from "../parts/snippets.js";
import { reloadPage, tableAddress } from "../router.js";
import { branchList, createBranch } from "./branches.js";
import { versionComparison } from "./comparison.js";

const PAGE = 50;

/** @param {import("./page.js").Table} table */
export async function versionsTab(table) {
  const list = table.onBranch(
    "version/list",
    {
      descending: true,
      limit: PAGE,
      ...(table.params.get("after") ? { page_token: table.params.get("after") } : {}),
    },
    `${table.open}print(table.list_versions())`,
  );
  const [listed, tagged] = await Promise.all([call(list, table.signal), call(table.on("tags/list"), table.signal)]);
  const tags = Object.entries(tagged.tags ?? {});
  const starts = Object.entries(table.branches).filter(([, known]) => (known.parentBranch ?? "") === table.branch);
  if (!listed.versions.length) return emptyState("No versions yet.", "The first write creates one.");
  const retention = await call(
    table.onBranch("version/retention", { versions: listed.versions.map((version) => version.version) }),
    table.signal,
  );
  const kept = new Map(retention.versions.map((version) => [version.version, version]));
  return [
    versionComparison(table, listed.versions),
    branchList(table),
    h(
      "div.section-head",
      {},
      h("h2", {}, "Versions"),
      h("span.spring"),
      copyButtons(() => list, "list versions"),
    ),
    h(
      "ol.timeline",
      {},
      listed.versions.map((version) => entry(table, version, tags, starts, kept.get(version.version))),
    ),
    listed.page_token
      ? h("p", {}, h("a", { href: table.link("versions", { after: listed.page_token }) }, "Older versions"))
      : null,
  ];
}

function entry(table, version, tags, starts, kept) {
  const here = tags.filter(([, tag]) => tag.version === version.version && (tag.branch ?? "") === table.branch);
  const newest = version.version === table.described.version && !table.version;
  return h(
    "li",
    {},
    h(
      "div.row",
      {},
      h("b", {}, `Version ${count(version.version)}`),
      newest ? h("span.chip", {}, "latest") : null,
      here.map(([name, tag]) => tagChip(table, name, tag)),
      starts
        .filter(([, known]) => known.parentVersion === version.version)
        .map(([name]) =>
          h("a.chip.branch", { href: tableAddress(table.names, "versions", { branch: name }) }, `branch ${name}`),
        ),
    ),
    h(
      "div.row.small",
      {},
      h("span.muted", { title: moment(version.timestamp_millis) }, ago(version.timestamp_millis)),
      h("a", { href: table.link("data", { version: version.version }) }, "Show"),
      table.writable
        ? [
            h(
              "button.quiet.small",
              {
                type: "button",
                "aria-label": `Tag version ${version.version}`,
                onclick: () => createTag(table, version.version),
              },
              "Tag",
            ),
            h(
              "button.quiet.small",
              {
                type: "button",
                "aria-label": `Branch from version ${version.version}`,
                onclick: () => createBranch(table, version.version),
              },
              "Branch",
            ),
            newest
              ? null
              : h(
                  "button.quiet.small",
                  {
                    type: "button",
                    "aria-label": `Restore version ${version.version}`,
                    onclick: () => restore(table, version.version),
                  },
                  "Restore",
                ),
          ]
        : null,
    ),
    kept ? h("p.small.muted", {}, keptText(kept)) : null,
  );
}

/** Why a version is kept, or that it is not. */
function keptText({ reasons }) {
  return reasons.length ? `Kept: ${reasons.join(" ")}` : "Removed by the next cleanup.";
}

function tagChip(table, name, tag) {
  return table.writable
    ? h(
        "button.chip.tag",
        { type: "button", "aria-label": `Tag ${name}: move or delete`, onclick: () => changeTag(table, name, tag) },
        `# ${name}`,
      )
    : h("span.chip.tag", {}, `# ${name}`);
}

/** Send a request, show a message, and reload the page. */
async function change(request, message) {
  await call(request);
  toast(message);
  reloadPage();
}

function createTag(table, version) {
  const make = (values) =>
    table.onBranch(
      "tags/create",
      { tag: values.tag ?? "", version },
      `${table.open}table.tags.create(${pythonValue(values.tag ?? "")}, ${version})`,
    );
  openForm({
    title: `Tag version ${version}`,
    verb: "Create tag",
    fields: [{ name: "tag", label: "Name", required: true }],
    copies: (read) => copyButtons(() => make(read()), "create the tag"),
    work: (values) => change(make(values), `Tagged version ${version} as ${values.tag}.`),
  });
}

function changeTag(table, name, tag) {
  const move = (values) =>
    table.onBranch(
      "tags/update",
      { tag: name, version: values.version },
      `${table.open}table.tags.update(${pythonValue(name)}, ${values.version})`,
    );
  const remove = table.on("tags/delete", { tag: name }, `${table.open}table.tags.delete(${pythonValue(name)})`);
  openForm({
    title: `Tag ${name}`,
    verb: "Move tag",
    fields: [{ name: "version", label: "Version", kind: "number", value: tag.version, required: true }],
    intro: h(
      "p.row",
      {},
      "The tag protects its version from cleanup.",
      h("span.spring"),
      copyButtons(() => remove, "delete the tag"),
    ),
    copies: (read) => copyButtons(() => move(read()), "move the tag"),
    more: [
      {
        label: "Delete tag",
        work: () => change(remove, `Deleted the tag ${name}.`),
      },
    ],
    work: (values) => change(move(values), `Moved ${name} to version ${values.version}.`),
  });
}

function restore(table, version) {
  const request = table.onBranch("restore", { version }, `${table.open}table.restore(${version})`);
  openForm({
    title: `Restore version ${version}`,
    verb: "Restore",
    fields: [],
    intro: h("p", {}, "Creates a new version with the content of this one. No version is lost."),
    copies: () => copyButtons(() => request, "restore"),
    work: () => change(request, `Restored version ${version}.`),
  });
}
