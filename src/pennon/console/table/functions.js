/** Feature columns: their functions, the state of their rows, and backfills. */

import { call } from "../api.js";
import { h, put } from "../dom.js";
import { countOf, fieldType, percent } from "../format.js";
import { openForm, emptyState, errorBox, toast } from "../parts/dialogs.js";
import { shareBar } from "../parts/charts.js";
import { copyButtons, pythonArguments, pythonValue } from "../parts/snippets.js";
import { address, go } from "../router.js";
import { errorList, SHOWN_ERRORS } from "../parts/errors.js";
import { aboutFunction } from "./about.js";
import { flatten } from "./schema.js";

const LOADED_FIRST = 5;
const MODES = [
  ["default", "missing and stale rows"],
  ["only_missing", "missing rows"],
  ["only_failed", "failed rows"],
  ["all", "every row"],
];

/** Return the feature columns with their paths. */
export function featureColumns(fields) {
  return flatten(fields, [], new Set()).filter(
    ({ field }) => field.metadata?.virtual_column === "true" || field.metadata?.computed_column === "true",
  );
}

/** @param {import("./page.js").Table} table */
export async function functionsTab(table) {
  const columns = featureColumns(table.fields);
  if (!columns.length && table.view)
    return emptyState(
      "This view has no feature columns.",
      h("a", { href: table.link("view") }, "The view tab"),
      " shows what computes its rows.",
    );
  if (!columns.length) {
    return emptyState(
      "This table has no feature columns.",
      "Declare one with ",
      h("code", {}, "@pennon.udf"),
      " and add it: ",
      h("code", {}, `table.add_columns({"name": function})`),
      ".",
    );
  }
  const cards = columns.map((column) => ({
    ...column,
    place: h("section.card.function", { "aria-label": `Function of ${column.path}` }, h("h2", {}, column.path)),
  }));
  await Promise.all(cards.slice(0, LOADED_FIRST).map((card) => loadCard(table, card)));
  loadWhenVisible(table, cards.slice(LOADED_FIRST));
  return cards.map((card) => card.place);
}

/** Load further columns when they become visible: there may be hundreds. */
function loadWhenVisible(table, cards) {
  const seen = new IntersectionObserver((entries) => {
    for (const entry of entries.filter((candidate) => candidate.isIntersecting)) {
      seen.unobserve(entry.target);
      loadCard(
        table,
        cards.find((card) => card.place === entry.target),
      );
    }
  });
  for (const card of cards) seen.observe(card.place);
  table.signal.addEventListener("abort", () => seen.disconnect());
}

async function loadCard(table, { path, field, place }) {
  const at = { column: path };
  const ask = table.onBranch("column_state", at, `${table.open}print(table.column_state(${pythonValue(path)}))`);
  try {
    const [state, made] = await Promise.all([
      call(ask, table.signal),
      call(table.onBranch("column_function", at), table.signal),
    ]);
    put(
      place,
      h(
        "div.section-head",
        {},
        h("h2", {}, path),
        h("span.type", {}, fieldType(field)),
        h("span.spring"),
        copyButtons(() => ask, `state of ${path}`),
      ),
      h(
        "p",
        {},
        h("b", {}, percent(state.computed, state.rows)),
        ` of ${countOf(state.rows, "row")} computed (tracked per ${state.granularity})`,
      ),
      shareBar(
        [
          { label: "computed", value: state.computed, kind: "good" },
          { label: "failed", value: state.failed, kind: "bad" },
          { label: "stale", value: state.stale, kind: "warn" },
          { label: "missing", value: state.missing, kind: "none" },
        ],
        `Rows of ${path}`,
      ),
      h(
        "div.bar",
        {},
        table.writable && !table.version
          ? h(
              "button.primary",
              { type: "button", "aria-label": `Backfill ${path}`, onclick: () => backfill(table, path) },
              "Backfill",
            )
          : null,
        state.active_job ? h("a.button", { href: address(["job", state.active_job]) }, "Running job") : null,
        state.failed
          ? h(
              "button",
              {
                type: "button",
                "aria-label": `Errors of ${path}`,
                "aria-expanded": "false",
                onclick: (event) => toggleErrors(table, at, event.target),
              },
              "Errors",
            )
          : null,
      ),
      aboutFunction(made),
    );
  } catch (error) {
    if (!table.signal.aborted) put(place, h("h2", {}, path), errorBox(error));
  }
}

/** Show the errors of a column below its state, or hide them again. */
async function toggleErrors(table, at, button) {
  const open = button.getAttribute("aria-expanded") === "true";
  button.setAttribute("aria-expanded", String(!open));
  if (open) {
    button.closest(".bar").nextElementSibling.remove();
    return;
  }
  const request = table.onBranch(
    "errors",
    { ...at, limit: SHOWN_ERRORS },
    `${table.open}print(table.errors(${pythonValue(at.column)}, limit=${SHOWN_ERRORS}))`,
  );
  const found = { ...(await call(request)), label: `Errors of ${at.column}` };
  button.closest(".bar").after(h("div", {}, errorList(found, request, table.names, table.branch)));
}

function backfill(table, column) {
  const fields = [
    { name: "mode", label: "Rows", kind: "choice", choices: MODES },
    { name: "where", label: "Where", hint: "SQL condition; other rows are skipped." },
    { name: "num_frags", label: "Maximum fragments", kind: "number" },
    { name: "concurrency", label: "Concurrent tasks", kind: "number" },
    { name: "commit_granularity", label: "Fragments per commit", kind: "number" },
    { name: "checkpoint_size", label: "Rows per checkpoint", kind: "number" },
    { name: "priority", label: "Priority", kind: "number" },
    { name: "timeout_seconds", label: "Timeout (seconds)", kind: "number" },
    { name: "cluster", label: "Cluster" },
    { name: "cascade", label: "Backfill its input columns first", kind: "flag" },
  ];
  const request = (values) => {
    const { timeout_seconds: timeout, ...rest } = values;
    const given = pythonArguments({ ...rest, ...(timeout ? { timeout } : {}) });
    return table.onBranch(
      "backfill_column",
      { column, ...values },
      `${table.open}table.backfill(${pythonValue(column)}${given ? `, ${given}` : ""})`,
    );
  };
  openForm({
    title: `Backfill ${column}`,
    verb: "Backfill",
    fields,
    copies: (read) => copyButtons(() => request(read()), "backfill"),
    more: [
      {
        label: "Plan",
        work: async (values, say) => {
          const plan = await call({ ...request(values), body: { ...request(values).body, dry_run: true } });
          say(
            h(
              "p",
              { role: "status" },
              `Would compute ${countOf(plan.rows, "row")} of ${countOf(plan.fragments, "fragment")} in ${countOf(plan.udf_calls, "function call")}.${plan.before.length ? ` First: ${plan.before.join(", ")}.` : ""}`,
            ),
          );
        },
      },
    ],
    work: async (values) => {
      const { job_id: job } = await call(request(values));
      toast("The backfill was submitted.");
      go(address(["job", job]));
    },
  });
}
