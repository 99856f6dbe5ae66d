/** Indexes and their coverage. */

import { call } from "../api.js";
import { h } from "../dom.js";
import { bytes, count, isText, isVector, percent } from "../format.js";
import { openForm, emptyState, toast } from "../parts/dialogs.js";
import { progressBar } from "../parts/charts.js";
import { copyButtons, pythonValue } from "../parts/snippets.js";
import { scrollingTable } from "../parts/lists.js";
import { reloadPage } from "../router.js";

const KINDS = [
  ["", "automatic"],
  "BTREE",
  "BITMAP",
  "LABEL_LIST",
  "FTS",
  "IVF_FLAT",
  "IVF_PQ",
  "IVF_HNSW_PQ",
  "IVF_HNSW_SQ",
];

/** @param {import("./page.js").Table} table */
export async function indexesTab(table) {
  const list = table.on("index/list", table.at, `${table.open}print(table.list_indices())`);
  const { indexes } = await call(list, table.signal);
  const make =
    table.writable && !table.version
      ? h("button.primary", { type: "button", onclick: () => createIndex(table) }, "Create index")
      : null;
  return [
    h(
      "div.bar",
      {},
      make,
      h("span.spring"),
      copyButtons(() => list, "list indexes"),
    ),
    indexes.length
      ? indexTable(table, indexes)
      : emptyState("No indexes.", "An index speeds up filters and searches on a column."),
  ];
}

function indexTable(table, indexes) {
  const rows = indexes.map((index) => {
    const covered = index.num_indexed_rows ?? 0;
    const whole = covered + (index.num_unindexed_rows ?? 0);
    const drop = table.onBranch(
      `index/${encodeURIComponent(index.index_name)}/drop`,
      {},
      `${table.open}table.drop_index(${pythonValue(index.index_name)})`,
    );
    const remove = () =>
      openForm({
        title: `Drop ${index.index_name}`,
        verb: "Drop index",
        danger: true,
        fields: [],
        intro: h("p", {}, "Queries still work, but are slower."),
        copies: () => copyButtons(() => drop, "drop the index"),
        work: async () => {
          await call(drop);
          toast(`Dropped ${index.index_name}.`);
          reloadPage();
        },
      });
    return h(
      "tr",
      {},
      h("td", {}, index.index_name),
      h("td", {}, index.index_type ?? "—"),
      h("td", {}, (index.columns ?? []).join(", ")),
      h(
        "td",
        {},
        h("span.row", {}, progressBar(covered, whole, `Coverage of ${index.index_name}`), percent(covered, whole)),
      ),
      h("td.number", {}, count(index.num_unindexed_rows ?? 0)),
      h("td.number", {}, bytes(index.size_bytes)),
      h("td", {}, index.status ?? "—"),
      h(
        "td",
        {},
        table.writable && !table.version
          ? h(
              "button.quiet.small",
              { type: "button", "aria-label": `Drop ${index.index_name}`, onclick: remove },
              "Drop",
            )
          : "",
      ),
    );
  });
  const heads = ["Name", "Type", "Columns", "Coverage", "Unindexed rows", "Size", "State", ""];
  return scrollingTable("Indexes", heads, rows);
}

function createIndex(table) {
  const columns = table.fields.map((field) => field.name);
  const kindFor = (name) => {
    const field = table.fields.find((known) => known.name === name);
    return isVector(field.type) ? "IVF_PQ" : isText(field.type) ? "FTS" : "BTREE";
  };
  const metrics = ["", "l2", "cosine", "dot"];
  const fields = [
    { name: "column", label: "Column", kind: "choice", choices: columns },
    {
      name: "index_type",
      label: "Type",
      kind: "choice",
      choices: KINDS,
      hint: "FTS for full-text search, IVF for vectors, BTREE for filters.",
    },
    {
      name: "distance_type",
      label: "Distance",
      kind: "choice",
      choices: metrics.map((metric) => [metric, metric || "l2 (vectors only)"]),
    },
    { name: "name", label: "Name", hint: "Derived from the column by default." },
  ];
  const request = (values) =>
    table.onBranch("create_index", { ...values, index_type: values.index_type ?? kindFor(values.column) });
  openForm({
    title: "Create index",
    verb: "Create",
    fields,
    copies: (read) => copyButtons(() => request(read()), "create the index"),
    work: async (values) => {
      await call(request(values));
      toast(`Building the index of ${values.column}.`);
      reloadPage();
    },
  });
}
