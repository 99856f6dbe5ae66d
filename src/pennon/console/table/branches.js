/** Branches: create, compare, cherry-pick and delete them. */

import { call } from "../api.js";
import { h } from "../dom.js";
import { count } from "../format.js";
import { openForm, toast } from "../parts/dialogs.js";
import { copyButtons, openTable, pythonArguments, pythonValue } from "../parts/snippets.js";
import { go, reloadPage, tableAddress } from "../router.js";
import { branchFacts, compare } from "./comparison.js";

/** Open a form for a new branch. @param {import("./page.js").Table} table */
export function createBranch(table, version) {
  const make = ({ name = "" }) => {
    const given = pythonArguments({ from_ref: table.branch, from_version: version });
    return table.on(
      "branches/create",
      { name, from_version: version, ...(table.branch ? { from_branch: table.branch } : {}) },
      `${openTable(table.names)}table.branches.create(${pythonValue(name)}, ${given})`,
    );
  };
  openForm({
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

/** The branches of a table with their actions. @param {import("./page.js").Table} table */
export function branchList(table) {
  const branches = Object.entries(table.branches);
  if (!branches.length) return null;
  return [
    h("h2", {}, "Branches"),
    h(
      "ul.branches",
      {},
      branches.map((branch) => branchEntry(table, ...branch)),
    ),
  ];
}

function branchEntry(table, name, known) {
  const result = h("div.diff", { "aria-live": "polite" });
  const python = (call_) => `${openTable(table.names)}${call_}`;
  const diff = table.on(
    "branches/diff",
    { from_branch: name },
    python(`print(table.branches.diff(${pythonValue(name)}))`),
  );
  const fromMain = !known.parentBranch;
  const button = (text, label, onclick) =>
    h("button.quiet.small", { type: "button", "aria-label": label, onclick }, text);
  return h(
    "li",
    {},
    h(
      "div.row",
      {},
      h("a", { href: tableAddress(table.names, "versions", { branch: name }) }, name),
      h("span.muted", {}, `from version ${count(known.parentVersion)} of ${known.parentBranch || "main"}`),
      // The server compares with main only branches that start from main.
      fromMain
        ? [
            button("Compare with main", `Compare ${name} with main`, () => compare(table, diff, result, branchFacts)),
            copyButtons(() => diff, `compare ${name} with main`),
          ]
        : null,
      table.writable && fromMain
        ? button("Cherry-pick", `Cherry-pick ${name} to main`, () => cherryPick(table, name, python))
        : null,
      table.writable ? button("Delete", `Delete the branch ${name}`, () => deleteBranch(table, name, python)) : null,
    ),
    result,
  );
}

function cherryPick(table, name, python) {
  const pick = table.on(
    "branches/cherry_pick",
    { from_branch: name },
    python(`print(table.branches.cherry_pick(${pythonValue(name)}))`),
  );
  openForm({
    title: `Cherry-pick ${name} to main`,
    verb: "Cherry-pick",
    fields: [],
    intro: h("p", {}, "Adds the columns and rows that only the branch has to main. The branch stays."),
    copies: () => copyButtons(() => pick, "cherry-pick the branch"),
    work: async () => {
      await call(pick);
      toast(`Cherry-picked ${name} to main.`);
      go(tableAddress(table.names, "versions"));
      reloadPage();
    },
  });
}

function deleteBranch(table, name, python) {
  const remove = table.on("branches/delete", { name }, python(`table.branches.delete(${pythonValue(name)})`));
  openForm({
    title: `Delete the branch ${name}`,
    verb: "Delete branch",
    danger: true,
    fields: [],
    intro: h("p", {}, "Deletes its versions; main does not change."),
    copies: () => copyButtons(() => remove, "delete the branch"),
    work: async () => {
      await call(remove);
      toast(`Deleted the branch ${name}.`);
      go(tableAddress(table.names, "versions"));
      reloadPage();
    },
  });
}
