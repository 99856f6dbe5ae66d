/** Columns that functions fill: what fills them, how far that is, and filling the rest. */

import { call } from "../api.js";
import { h, put } from "../dom.js";
import { countOf, fieldType, percent } from "../format.js";
import { askFor, nothing, problem, toast } from "../parts/dialogs.js";
import { shareBar } from "../parts/charts.js";
import { copyButtons, pythonArguments, pythonValue } from "../parts/snippets.js";
import { address, go } from "../router.js";
import { errorList, SHOWN_ERRORS } from "../parts/errors.js";
import { aboutFunction } from "./about.js";
import { flatten } from "./schema.js";

const AT_ONCE = 5;
const MODES = [
  ["default", "missing and stale rows"],
  ["only_missing", "missing rows"],
  ["only_failed", "failed rows"],
  ["all", "every row"],
];

/** Return the columns that something fills, with their paths. */
export function filledColumns(fields) {
  return flatten(fields, [], new Set()).filter(
    ({ field }) => field.metadata?.virtual_column === "true" || field.metadata?.computed_column === "true",
  );
}

/** @param {import("./page.js").Table} table */
export async function functionsTab(table) {
  const columns = filledColumns(table.fields);
  if (!columns.length && table.view)
    return nothing(
      "No function was added to this view.",
      h("a", { href: table.link("view") }, "What makes its rows"),
      " is told with the view itself.",
    );
  if (!columns.length) {
    return nothing(
      "No function fills a column of this table.",
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
  await Promise.all(cards.slice(0, AT_ONCE).map((card) => fillCard(table, card)));
  fillWhenSeen(table, cards.slice(AT_ONCE));
  return cards.map((card) => card.place);
}

/** Ask about further columns when one comes to them: there may be hundreds. */
function fillWhenSeen(table, cards) {
  const seen = new IntersectionObserver((entries) => {
    for (const entry of entries.filter((candidate) => candidate.isIntersecting)) {
      seen.unobserve(entry.target);
      fillCard(
        table,
        cards.find((card) => card.place === entry.target),
      );
    }
  });
  for (const card of cards) seen.observe(card.place);
  table.signal.addEventListener("abort", () => seen.disconnect());
}

async function fillCard(table, { path, field, place }) {
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
        ` of ${countOf(state.rows, "row")} computed (known per ${state.granularity})`,
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
    if (!table.signal.aborted) put(place, h("h2", {}, path), problem(error));
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
    { name: "mode", label: "Which rows", kind: "choice", choices: MODES },
    { name: "where", label: "Where", hint: "An SQL condition; other rows are left out." },
    { name: "num_frags", label: "Fragments at most", kind: "number" },
    { name: "concurrency", label: "Tasks at a time", kind: "number" },
    { name: "commit_granularity", label: "Fragments a commit", kind: "number" },
    { name: "checkpoint_size", label: "Rows a checkpoint", kind: "number" },
    { name: "priority", label: "Priority", kind: "number" },
    { name: "timeout_seconds", label: "Give up after (seconds)", kind: "number" },
    { name: "cluster", label: "Cluster" },
    { name: "cascade", label: "Fill the columns it is computed from first", kind: "flag" },
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
  askFor({
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
              `It would compute ${countOf(plan.rows, "row")} of ${countOf(plan.fragments, "fragment")}, in ${countOf(plan.udf_calls, "call")}.${plan.before.length ? ` First: ${plan.before.join(", ")}.` : ""}`,
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
