/** The timeline: versions, tags and branches, and what changed between two versions. */

import { call } from "../api.js";
import { h, put } from "../dom.js";
import { ago, count, moment } from "../format.js";
import { askFor, nothing, problem, toast } from "../parts/dialogs.js";
import { copyButtons, pythonValue } from "../parts/snippets.js";
import { go, tableAddress } from "../router.js";

const PAGE = 50;

/** @param {import("./page.js").Table} table */
export async function versionsTab(table) {
  const branch = table.branch ? { branch: table.branch } : {};
  const list = table.on(
    "version/list",
    {
      ...branch,
      descending: true,
      limit: PAGE,
      ...(table.params.get("after") ? { page_token: table.params.get("after") } : {}),
    },
    `${table.open}print(table.list_versions())`,
  );
  const [listed, tagged] = await Promise.all([call(list, table.signal), call(table.on("tags/list"), table.signal)]);
  const tags = Object.entries(tagged.tags ?? {});
  const starts = Object.entries(table.branches).filter(([, known]) => (known.parentBranch ?? "") === table.branch);
  if (!listed.versions.length) return nothing("There are no versions yet.", "The first write makes one.");
  return [
    comparison(table, listed.versions),
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
      listed.versions.map((version) => entry(table, version, tags, starts)),
    ),
    listed.page_token
      ? h("p", {}, h("a", { href: table.link("versions", { after: listed.page_token }) }, "Older versions"))
      : null,
    branchList(table),
  ];
}

function entry(table, version, tags, starts) {
  const here = tags.filter(([, tag]) => tag.version === version.version && (tag.branch ?? "") === table.branch);
  const newest = version.version === table.described.version && !table.version;
  return h(
    "li",
    {},
    h(
      "div.row",
      {},
      h("b", {}, `Version ${count(version.version)}`),
      newest ? h("span.chip", {}, "newest") : null,
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
  );
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

const again = () => window.dispatchEvent(new HashChangeEvent("hashchange"));

/** Carry out a change, say so, and show the page anew. */
async function change(request, said) {
  await call(request);
  toast(said);
  again();
}

function createTag(table, version) {
  const make = (values) =>
    table.on(
      "tags/create",
      { tag: values.tag ?? "", version, ...(table.branch ? { branch: table.branch } : {}) },
      `${table.open}table.tags.create(${pythonValue(values.tag ?? "")}, ${version})`,
    );
  askFor({
    title: `Tag version ${version}`,
    verb: "Create tag",
    fields: [{ name: "tag", label: "Name", required: true }],
    copies: (read) => copyButtons(() => make(read()), "create the tag"),
    work: (values) => change(make(values), `Tagged version ${version} as ${values.tag}.`),
  });
}

function changeTag(table, name, tag) {
  const move = (values) =>
    table.on(
      "tags/update",
      { tag: name, version: values.version, ...(table.branch ? { branch: table.branch } : {}) },
      `${table.open}table.tags.update(${pythonValue(name)}, ${values.version})`,
    );
  const remove = table.on("tags/delete", { tag: name }, `${table.open}table.tags.delete(${pythonValue(name)})`);
  askFor({
    title: `Tag ${name}`,
    verb: "Move tag",
    fields: [{ name: "version", label: "Version", kind: "number", value: tag.version, required: true }],
    intro: h(
      "p.row",
      {},
      "The tag keeps its version from being cleaned up.",
      h("span.spring"),
      copyButtons(() => remove, "delete the tag"),
    ),
    copies: (read) => copyButtons(() => move(read()), "move the tag"),
    more: [
      {
        label: "Delete tag",
        work: async () => {
          await change(remove, `Deleted the tag ${name}.`);
          document.querySelector("dialog[open]")?.close();
        },
      },
    ],
    work: (values) => change(move(values), `Moved ${name} to version ${values.version}.`),
  });
}

function restore(table, version) {
  const request = table.on(
    "restore",
    { version, ...(table.branch ? { branch: table.branch } : {}) },
    `${table.open}table.restore(${version})`,
  );
  askFor({
    title: `Restore version ${version}`,
    verb: "Restore",
    fields: [],
    intro: h("p", {}, "This makes a new version with the content of this one. Nothing is lost."),
    copies: () => copyButtons(() => request, "restore"),
    work: () => change(request, `Restored version ${version}.`),
  });
}

function createBranch(table, version) {
  const make = (values) =>
    table.on("branches/create", {
      name: values.name ?? "",
      from_version: version,
      ...(table.branch ? { from_branch: table.branch } : {}),
    });
  askFor({
    title: `Branch from version ${version}`,
    verb: "Create branch",
    fields: [{ name: "name", label: "Name", required: true }],
    copies: (read) => copyButtons(() => make(read()), "create the branch"),
    work: async (values) => {
      await call(make(values));
      toast(`Created the branch ${values.name}.`);
      go(tableAddress(table.names, "versions", { branch: values.name }));
    },
  });
}

function branchList(table) {
  const names = Object.entries(table.branches);
  if (!names.length) return null;
  return [
    h("h2", {}, "Branches"),
    h(
      "ul.plain",
      {},
      names.map(([name, known]) => {
        const remove = table.on("branches/delete", { name });
        const gone = () =>
          askFor({
            title: `Delete the branch ${name}`,
            verb: "Delete branch",
            danger: true,
            fields: [],
            intro: h("p", {}, "Its versions are lost; main is not touched."),
            copies: () => copyButtons(() => remove, "delete the branch"),
            work: async () => {
              await call(remove);
              toast(`Deleted the branch ${name}.`);
              go(tableAddress(table.names, "versions"));
              again();
            },
          });
        return h(
          "li.row",
          {},
          h("a", { href: tableAddress(table.names, "data", { branch: name }) }, name),
          h("span.muted", {}, `from version ${count(known.parentVersion)} of ${known.parentBranch || "main"}`),
          table.writable
            ? h(
                "button.quiet.small",
                { type: "button", "aria-label": `Delete the branch ${name}`, onclick: gone },
                "Delete",
              )
            : null,
        );
      }),
    ),
  ];
}

/** Compare two versions. */
function comparison(table, versions) {
  if (versions.length < 2) return null;
  const numbers = versions.map((version) => version.version);
  const choose = (id, chosen) =>
    h(
      "select",
      { id },
      numbers.map((number) => h("option", { value: String(number), selected: number === chosen }, `Version ${number}`)),
    );
  const from = choose("diff-from", numbers[1]);
  const to = choose("diff-to", numbers[0]);
  const result = h("div.diff", { "aria-live": "polite" });
  const request = () =>
    table.on("version/diff", {
      from: Number(from.value),
      to: Number(to.value),
      ...(table.branch ? { branch: table.branch } : {}),
    });
  const run = async () => {
    try {
      put(result, difference(await call(request(), table.signal)));
    } catch (error) {
      put(result, problem(error));
    }
  };
  return h(
    "section.card",
    {},
    h("h2", {}, "What changed"),
    h(
      "div.bar",
      {},
      h("label", { for: "diff-from" }, "From"),
      from,
      h("label", { for: "diff-to" }, "to"),
      to,
      h("button", { type: "button", onclick: run }, "Compare"),
      h("span.spring"),
      copyButtons(request, "compare versions"),
    ),
    result,
  );
}

function difference(diff) {
  const columns = (items) =>
    items
      .map((item) => (item.from ? `${item.name} (${item.from} → ${item.to})` : `${item.name} (${item.dataType})`))
      .join(", ") || "none";
  const rows = diff.exact
    ? [
        ["Rows added", count(diff.rows_added)],
        ["Rows removed", count(diff.rows_removed)],
        ["Rows updated", count(diff.rows_updated)],
      ]
    : [["Rows added, removed, updated", `not known: ${diff.reason}`]];
  const facts = [
    ["Rows", `${count(diff.rows_before)} → ${count(diff.rows_after)}`],
    ...rows,
    ["Columns added", columns(diff.added_columns)],
    ["Columns removed", columns(diff.removed_columns)],
    ["Columns changed", columns(diff.changed_columns)],
    ["Indexes added", diff.added_indexes.join(", ") || "none"],
    ["Indexes removed", diff.removed_indexes.join(", ") || "none"],
  ];
  return h(
    "dl.facts",
    {},
    facts.map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]),
  );
}
