/** The rows: filtered, sorted, searched, page by page. */

import { call } from "../api.js";
import { h } from "../dom.js";
import { count, countOf, isText, isVector } from "../format.js";
import { nothing, openDialog, problem, toast } from "../parts/dialogs.js";
import { copyButtons, pythonValue } from "../parts/snippets.js";
import { go } from "../router.js";
import { showRow } from "./cells.js";
import { grid } from "./grid.js";

const PAGE = 50;
const COLUMNS_AT_FIRST = 60;
const RANKS = new Set(["_distance", "_score", "_relevance_score"]);
const PAGE_SIZES = [20, 50, 100, 200];

/** What is asked for, as the address says it. */
function readWishes(table) {
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
    columns: chosen?.length ? chosen : fields.slice(0, COLUMNS_AT_FIRST).map((field) => field.name),
  };
}

/** Return the request for a page of rows. */
function queryOf(table, wishes) {
  const body = { ...table.at, k: wishes.size + 1, offset: wishes.offset, with_row_id: true };
  body.columns = { column_names: wishes.columns };
  if (wishes.where) Object.assign(body, { filter: wishes.where, prefilter: true });
  if (wishes.search === "text" && wishes.text) {
    body.full_text_query = { string_query: { query: wishes.text, ...(wishes.in ? { columns: [wishes.in] } : {}) } };
  } else if (wishes.search === "vector" && wishes.vector) {
    body.vector = { single_vector: parseVector(wishes.vector) };
    if (wishes.in) body.vector_column = wishes.in;
  } else if (wishes.sort) {
    body.order_by = orderOf(wishes.sort);
  }
  return table.on("query", body, pythonOf(table, wishes));
}

const orderOf = (sort) => [{ column_name: sort.name, ascending: !sort.descending }];

function parseVector(text) {
  const numbers = text
    .replace(/[[\]]/g, "")
    .split(",")
    .map((part) => Number(part.trim()));
  if (numbers.some(Number.isNaN))
    throw Object.assign(new Error("The vector is not a list of numbers."), { detail: "Write it as 0.1, 0.2, 0.3." });
  return numbers;
}

function pythonOf(table, wishes) {
  const within = (name) => (wishes.in ? `, ${name}=${pythonValue(wishes.in)}` : "");
  let search = "table.search()";
  if (wishes.search === "text" && wishes.text)
    search = `table.search(${pythonValue(wishes.text)}, query_type="fts"${within("fts_columns")})`;
  else if (wishes.search === "vector" && wishes.vector)
    search = `table.search(${pythonValue(parseVector(wishes.vector))}${within("vector_column_name")})`;
  else if (wishes.sort) search += `.order_by(${pythonValue(orderOf(wishes.sort))})`;
  const steps = [
    search,
    wishes.where ? `.where(${pythonValue(wishes.where)})` : "",
    `.select(${pythonValue(wishes.columns)})`,
    wishes.offset ? `.offset(${wishes.offset})` : "",
    `.limit(${wishes.size})`,
  ];
  return `${table.open}print(${steps.join("")}.to_pandas())`;
}

/** @param {import("./page.js").Table} table */
export async function dataTab(table) {
  if (!table.fields.length) return nothing("This table has no columns yet.", "Write to it with a client.");
  const wishes = readWishes(table);
  const show = (changes) =>
    go(
      table.link("data", {
        where: wishes.where,
        search: wishes.search,
        text: wishes.text,
        vector: wishes.vector,
        in: wishes.in,
        sort: sortText(wishes.sort),
        size: wishes.size === PAGE ? "" : wishes.size,
        offset: wishes.offset || "",
        columns: wishes.chosen?.map(encodeURIComponent).join(","),
        ...changes,
      }),
      { replace: true },
    );
  let found = null;
  let total = null;
  let failure = null;
  let request = null;
  try {
    request = queryOf(table, wishes);
    const counting = table.on("count_rows", { ...table.at, ...(wishes.where ? { predicate: wishes.where } : {}) });
    [found, total] = await Promise.all([
      call(request, table.signal),
      wishes.search ? null : call(counting, table.signal),
    ]);
  } catch (error) {
    if (table.signal.aborted) throw error;
    failure = error;
  }
  return [
    controls(table, wishes, show, request),
    failure ? problem(failure) : rowsOf(table, wishes, show, found, total),
  ];
}

const sortText = (sort) => (sort ? `${sort.descending ? "-" : ""}${sort.name}` : "");

function rowsOf(table, wishes, show, found, total) {
  const more = found.rows.length > wishes.size || found.truncated;
  const rows = found.rows.slice(0, wishes.size);
  const [ranks, others] = [true, false].map((wanted) =>
    found.schema.fields.filter((field) => RANKS.has(field.name) === wanted),
  );
  const fields = [...ranks, ...others.filter((field) => field.name !== "_rowid")];
  if (!rows.length)
    return nothing(
      wishes.where || wishes.search ? "No row is like that." : "This table has no rows.",
      wishes.where || wishes.search
        ? h(
            "button",
            { type: "button", onclick: () => show({ where: "", search: "", text: "", vector: "", offset: "" }) },
            "Show all rows",
          )
        : "Write to it with a client.",
    );
  const sortBy = (name) => {
    const descending = wishes.sort?.name === name && !wishes.sort.descending;
    const off = wishes.sort?.name === name && wishes.sort.descending;
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
          "Search like this",
        )
      : null;
  return [
    grid({
      rows,
      fields,
      first: wishes.offset,
      sort: wishes.sort,
      onsort: wishes.search ? null : sortBy,
      onrow: (row) => showRow(table, row, fields, like(row)),
    }),
    pager(wishes, show, rows.length, more, total),
  ];
}

function pager(wishes, show, shown, more, total) {
  const last = wishes.offset + shown;
  const whole = total === null && more ? `${count(last)}+ rows` : countOf(total ?? last, "row");
  const sizes = h(
    "select",
    { id: "page-size", onchange: (event) => show({ size: event.target.value, offset: "" }) },
    PAGE_SIZES.map((size) => h("option", { value: String(size), selected: size === wishes.size }, String(size))),
  );
  return h(
    "div.bar.pager",
    {},
    h("span", { role: "status" }, `${count(wishes.offset + 1)}–${count(last)} of ${whole}`),
    h(
      "button",
      {
        type: "button",
        disabled: wishes.offset === 0,
        onclick: () => show({ offset: Math.max(0, wishes.offset - wishes.size) || "" }),
      },
      "Previous",
    ),
    h("button", { type: "button", disabled: !more, onclick: () => show({ offset: last }) }, "Next"),
    h("span.row", {}, h("label", { for: "page-size" }, "Rows a page"), sizes),
  );
}

function controls(table, wishes, show, request) {
  const { fields } = table;
  const where = h("input", {
    id: "where",
    value: wishes.where,
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
    ].map(([value, text]) => h("option", { value, selected: value === wishes.search }, text)),
  );
  const given = h("input", {
    id: "search-for",
    "aria-label": "Search for",
    spellcheck: "false",
    value: wishes.search === "vector" ? wishes.vector : wishes.text,
  });
  const column = h("select", { id: "search-in", "aria-label": "Search in" });
  const adapt = () => {
    const fit =
      kind.value === "vector"
        ? fields.filter((field) => isVector(field.type))
        : fields.filter((field) => isText(field.type));
    column.replaceChildren(
      h("option", { value: "" }, "any column"),
      ...fit.map((field) => h("option", { value: field.name, selected: field.name === wishes.in }, field.name)),
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
  const some = wishes.columns.length < fields.length;
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
      { type: "button", onclick: () => chooseColumns(fields, wishes, show) },
      some ? `${count(wishes.columns.length)} of ${count(fields.length)} columns` : "Columns",
    ),
    h("span.spring"),
    request ? copyButtons(() => request, "query") : null,
  );
}

function chooseColumns(fields, wishes, show) {
  const picked = new Set(wishes.columns);
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
        names.length === fields.length && names.length <= COLUMNS_AT_FIRST
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
