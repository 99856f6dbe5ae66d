/** The schema: fields with types, nested fields and metadata. */

import { h, debounce } from "../dom.js";
import { count, countOf, fieldType } from "../format.js";
import { emptyState, openDialog } from "../parts/dialogs.js";
import { factList } from "../parts/lists.js";
import { copyButtons } from "../parts/snippets.js";
import { virtualList } from "../parts/virtual.js";

const ROW = 30;

/** @param {import("./page.js").Table} table */
export function schemaTab(table) {
  if (!table.fields.length) return emptyState("This table has no columns yet.", "Write to it with a client.");
  const closed = new Set();
  const search = h("input", {
    type: "search",
    "aria-label": "Search columns",
    placeholder: "Search columns",
    spellcheck: "false",
  });
  const status = h("span.muted", { role: "status" });
  const list = virtualList({
    height: ROW,
    draw: (row) => drawField(row, closed, show),
    props: { role: "list", "aria-label": "Columns", class: "fields", tabindex: "0" },
  });
  function show() {
    const wanted = search.value.trim().toLowerCase();
    const rows = flatten(table.fields, [], closed);
    const shown = wanted ? rows.filter((row) => row.path.toLowerCase().includes(wanted)) : rows;
    list.set(shown);
    list.element.style.height = `${Math.min(shown.length * ROW + 2, 620)}px`;
    status.textContent = wanted
      ? `${count(shown.length)} of ${countOf(rows.length, "field")}`
      : countOf(table.fields.length, "column");
  }
  search.addEventListener("input", debounce(show, 80));
  show();
  return [
    h(
      "div.bar",
      {},
      search,
      status,
      h("span.spring"),
      copyButtons(
        () => table.on("describe", { ...table.at, load_detailed_metadata: true }, `${table.open}print(table.schema)`),
        "schema",
      ),
    ),
    list.element,
    h("h2", {}, "Table"),
    factList([
      ["Location", table.described.location],
      ["Versions managed by", table.described.managed_versioning ? "Pennon" : "storage"],
      ...Object.entries(table.described.properties ?? {}),
      ...Object.entries(table.described.metadata ?? {}),
    ]),
  ];
}

/** Return fields and nested fields in order. */
export function flatten(fields, above, closed) {
  return fields.flatMap((field) => {
    const names = [...above, field.name];
    const path = names.join(".");
    const nested =
      field.type.type === "struct" || field.type.fields?.[0]?.type?.type === "struct"
        ? field.type.type === "struct"
          ? field.type.fields
          : field.type.fields[0].type.fields
        : [];
    const row = { field, path, level: above.length, nested: nested.length };
    return [row, ...(nested.length && !closed.has(path) ? flatten(nested, names, closed) : [])];
  });
}

function drawField(row, closed, show) {
  const { field, path, level } = row;
  const metadata = Object.entries(field.metadata ?? {});
  const flip = () => {
    if (!closed.delete(path)) closed.add(path);
    show();
  };
  return h(
    "div.field-row",
    { role: "listitem" },
    h(
      "span.field-name",
      { style: { paddingLeft: `${level * 18 + 4}px` }, title: path },
      row.nested
        ? h(
            "button.quiet.twist",
            {
              type: "button",
              "aria-expanded": String(!closed.has(path)),
              "aria-label": `Fields of ${path}`,
              onclick: flip,
            },
            closed.has(path) ? "▸" : "▾",
          )
        : h("span.twist"),
      field.name,
    ),
    h("span.type", {}, fieldType(field)),
    field.nullable ? null : h("span.muted.small", {}, "not null"),
    kindOf(field),
    metadata.length
      ? h(
          "button.quiet.small",
          { type: "button", "aria-label": `Metadata of ${path}`, onclick: () => showMetadata(path, metadata) },
          h("span.wordy", {}, "metadata "),
          `(${metadata.length})`,
        )
      : null,
  );
}

function kindOf(field) {
  if (field.metadata?.virtual_column === "true") return h("span.chip", {}, "function");
  if (field.metadata?.computed_column === "true") return h("span.chip", {}, "expression");
  return null;
}

function showMetadata(path, metadata) {
  openDialog({
    title: `Metadata of ${path}`,
    body: factList(metadata, "dl.facts.one"),
  });
}
