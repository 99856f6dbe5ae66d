/** The rows of a table: filter, sort, search and page. */

import { call } from "../api.js";
import { h } from "../dom.js";
import { count, countOf, isText, isVector } from "../format.js";
import { emptyState, openDialog, errorBox, toast } from "../parts/dialogs.js";
import { copyButtons, pythonValue } from "../parts/snippets.js";
import { go } from "../router.js";
import { showRow } from "./cells.js";
import { grid } from "./grid.js";

const PAGE = 50;
const DEFAULT_COLUMNS = 60;
const RANKS = new Set(["_distance", "_score", "_relevance_score"]);
const PAGE_SIZES = [20, 50, 100, 200];

/** Read the query options from the URL. */
function readOptions(table) {
  const { params, fields } = table;
  const chosen = params
    .get("columns")
    ?.split(",")
    .map(decodeURIComponent)
    .filter((name) => fields.some((field) => field.name === name));
  const sort = params.get("sort");
  return {
    where: params.get("where") ?? "",
    search: params.get("search") ?? "",
    text: params.get("text") ?? "",
    vector: params.get("vector") ?? "",
    in: params.get("in") ?? "",
    sort: sort ? { name: sort.replace(/^-/, ""), descending: sort.startsWith("-") } : null,
    size: Number(params.get("size")) || PAGE,
    offset: Number(params.get("offset")) || 0,
    chosen: chosen?.length ? chosen : null,
    columns: chosen?.length ? chosen : fields.slice(0, DEFAULT_COLUMNS).map((field) => field.name),
  };
}

/** Return the request for a page of rows. */
function queryOf(table, options) {
  const body = { ...table.at, k: options.size + 1, offset: options.offset, with_row_id: true };
  body.columns = { column_names: options.columns };
  if (options.where) Object.assign(body, { filter: options.where, prefilter: true });
  if (options.search === "text" && options.text) {
    body.full_text_query = { string_query: { query: options.text, ...(options.in ? { columns: [options.in] } : {}) } };
  } else if (options.search === "vector" && options.vector) {
    body.vector = { single_vector: parseVector(options.vector) };
    if (options.in) body.vector_column = options.in;
  } else if (options.sort) {
    body.order_by = orderOf(options.sort);
  }
  return table.on("query", body, pythonOf(table, options));
}

const orderOf = (sort) => [{ column_name: sort.name, ascending: !sort.descending }];

function parseVector(text) {
  const numbers = text
    .replace(/[[\]]/g, "")
    .split(",")
    .map((part) => Number(part.trim()));
  if (numbers.some(Number.isNaN))
    throw Object.assign(new Error("Invalid vector: must be a list of numbers."), { detail: "Write it as 0.1, 0.2, 0.3." });
  return numbers;
}

function pythonOf(table, options) {
  const within = (name) => (options.in ? `, ${name}=${pythonValue(options.in)}` : "");
  let search = "table.search()";
  if (options.search === "text" && options.text)
    search = `table.search(${pythonValue(options.text)}, query_type="fts"${within("fts_columns")})`;
  else if (options.search === "vector" && options.vector)
    search = `table.search(${pythonValue(parseVector(options.vector))}${within("vector_column_name")})`;
  else if (options.sort) search += `.order_by(${pythonValue(orderOf(options.sort))})`;
  const steps = [
    search,
    options.where ? `.where(${pythonValue(options.where)})` : "",
    `.select(${pythonValue(options.columns)})`,
    options.offset ? `.offset(${options.offset})` : "",
    `.limit(${options.size})`,
  ];
  return `${table.open}print(${steps.join("")}.to_pandas())`;
}

/** @param {import("./page.js").Table} table */
export async function dataTab(table) {
  if (!table.fields.length) return emptyState("This table has no columns yet.", "Write to it with a client.");
  const options = readOptions(table);
  const show = (changes) =>
    go(
      table.link("data", {
        where: options.where,
        search: options.search,
        text: options.text,
        vector: options.vector,
        in: options.in,
        sort: sortText(options.sort),
        size: options.size === PAGE ? "" : options.size,
        offset: options.offset || "",
        columns: options.chosen?.map(encodeURIComponent).join(","),
        ...changes,
      }),
      { replace: true },
    );
  let found = null;
  let total = null;
  let failure = null;
  let request = null;
  try {
    request = queryOf(table, options);
    const counting = table.on("count_rows", { ...table.at, ...(options.where ? { predicate: options.where } : {}) });
    [found, total] = await Promise.all([
      call(request, table.signal),
      options.search ? null : call(counting, table.signal),
    ]);
  } catch (error) {
    if (table.signal.aborted) throw error;
    failure = error;
  }
  return [
    controls(table, options, show, request),
    failure ? errorBox(failure) : rowsOf(table, options, show, found, total),
  ];
}

const sortText = (sort) => (sort ? `${sort.descending ? "-" : ""}${sort.name}` : "");

function rowsOf(table, options, show, found, total) {
  const more = found.rows.length > options.size || found.truncated;
  const rows = found.rows.slice(0, options.size);
  const [ranks, others] = [true, false].map((wanted) =>
    found.schema.fields.filter((field) => RANKS.has(field.name) === wanted),
  );
  const fields = [...ranks, ...others.filter((field) => field.name !== "_rowid")];
  if (!rows.length)
    return emptyState(
      options.where || options.search ? "No rows match." : "This table has no rows.",
      options.where || options.search
        ? h(
            "button",
            { type: "button", onclick: () => show({ where: "", search: "", text: "", vector: "", offset: "" }) },
            "Show all rows",
          )
        : "Write to it with a client.",
    );
  const sortBy = (name) => {
    const descending = options.sort?.name === name && !options.sort.descending;
    const off = options.sort?.name === name && options.sort.descending;
    show({ sort: off ? "" : sortText({ name, descending }), offset: "" });
  };
  const like = (row) => (field) =>
    isVector(field.type) && row[field.name]
      ? h(
          "button.small",
          {
            type: "button",
            onclick: (event) => {
              event.target.closest("dialog").close();
              show({ search: "vector", vector: row[field.name].join(","), in: field.name, offset: "" });
            },
          },
          "Find similar",
        )
      : null;
  return [
    grid({
      rows,
      fields,
      first: options.offset,
      sort: options.sort,
      onsort: options.search ? null : sortBy,
      onrow: (row) => showRow(table, row, fields, like(row)),
    }),
    pager(options, show, rows.length, more, total),
  ];
}

function pager(options, show, shown, more, total) {
  const last = options.offset + shown;
  const whole = total === null && more ? `${count(last)}+ rows` : countOf(total ?? last, "row");
  const sizes = h(
    "select",
    { id: "page-size", onchange: (event) => show({ size: event.target.value, offset: "" }) },
    PAGE_SIZES.map((size) => h("option", { value: String(size), selected: size === options.size }, String(size))),
  );
  return h(
    "div.bar.pager",
    {},
    h("span", { role: "status" }, `${count(options.offset + 1)}–${count(last)} of ${whole}`),
    h(
      "button",
      {
        type: "button",
        disabled: options.offset === 0,
        onclick: () => show({ offset: Math.max(0, options.offset - options.size) || "" }),
      },
      "Previous",
    ),
    h("button", { type: "button", disabled: !more, onclick: () => show({ offset: last }) }, "Next"),
    h("span.row", {}, h("label", { for: "page-size" }, "Rows per page"), sizes),
  );
}

function controls(table, options, show, request) {
  const { fields } = table;
  const where = h("input", {
    id: "where",
    value: options.where,
    placeholder: "SQL filter, such as price > 3",
    "aria-label": "Filter (SQL)",
    spellcheck: "false",
  });
  const kind = h(
    "select",
    { id: "search-kind", "aria-label": "Kind of search" },
    [
      ["", "No search"],
      ["text", "Full text"],
      ["vector", "Vector"],
    ].map(([value, text]) => h("option", { value, selected: value === options.search }, text)),
  );
  const given = h("input", {
    id: "search-for",
    "aria-label": "Search for",
    spellcheck: "false",
    value: options.search === "vector" ? options.vector : options.text,
  });
  const column = h("select", { id: "search-in", "aria-label": "Search in" });
  const adapt = () => {
    const fit =
      kind.value === "vector"
        ? fields.filter((field) => isVector(field.type))
        : fields.filter((field) => isText(field.type));
    column.replaceChildren(
      h("option", { value: "" }, "any column"),
      ...fit.map((field) => h("option", { value: field.name, selected: field.name === options.in }, field.name)),
    );
    given.placeholder = kind.value === "vector" ? "0.1, 0.2, …" : "words";
    for (const element of [given, column]) element.hidden = !kind.value;
  };
  kind.addEventListener("change", adapt);
  adapt();
  const submit = (event) => {
    event.preventDefault();
    const search = given.value.trim() ? kind.value : "";
    show({
      where: where.value.trim(),
      search,
      text: search === "text" ? given.value.trim() : "",
      vector: search === "vector" ? given.value.trim() : "",
      in: search ? column.value : "",
      offset: "",
    });
  };
  const some = options.columns.length < fields.length;
  return h(
    "form.bar.query",
    { role: "search", "aria-label": "Rows", onsubmit: submit },
    where,
    kind,
    given,
    column,
    h("button.primary", { type: "submit" }, "Show"),
    h(
      "button",
      { type: "button", onclick: () => chooseColumns(fields, options, show) },
      some ? `${count(options.columns.length)} of ${count(fields.length)} columns` : "Columns",
    ),
    h("span.spring"),
    request ? copyButtons(() => request, "query") : null,
  );
}

function chooseColumns(fields, options, show) {
  const picked = new Set(options.columns);
  const filter = h("input", { type: "search", "aria-label": "Search columns", placeholder: "Search columns" });
  const list = h("div.choices");
  const draw = () => {
    const wanted = filter.value.toLowerCase();
    const fit = fields.filter((field) => field.name.toLowerCase().includes(wanted)).slice(0, 300);
    list.replaceChildren(
      ...fit.map((field) =>
        h(
          "label.choice",
          {},
          h("input", {
            type: "checkbox",
            checked: picked.has(field.name),
            onchange: (event) => (event.target.checked ? picked.add(field.name) : picked.delete(field.name)),
          }),
          field.name,
        ),
      ),
    );
  };
  filter.addEventListener("input", draw);
  draw();
  const all = (names) => () => {
    picked.clear();
    for (const name of names) picked.add(name);
    draw();
  };
  const apply = () => {
    if (!picked.size) {
      toast("Choose at least one column.", "bad");
      return;
    }
    close();
    const names = fields.map((field) => field.name).filter((name) => picked.has(name));
    show({
      columns:
        names.length === fields.length && names.length <= DEFAULT_COLUMNS
          ? ""
          : names.map(encodeURIComponent).join(","),
    });
  };
  const close = openDialog({
    title: "Columns",
    body: [
      h(
        "div.bar",
        {},
        filter,
        h("button", { type: "button", onclick: all(fields.map((field) => field.name)) }, "All"),
        h("button", { type: "button", onclick: all([]) }, "None"),
      ),
      list,
    ],
    foot: [h("span.spring"), h("button.primary", { type: "button", onclick: apply }, "Show")],
  });
}
