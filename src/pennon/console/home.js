/** The overview, and the page of a namespace. */

import { BASE, call, onJob, pathOf } from "./api.js";
import { h } from "./dom.js";
import { count, countOf } from "./format.js";
import { jobTable } from "./jobs/list.js";
import { crumbs } from "./parts/crumbs.js";
import { emptyState } from "./parts/dialogs.js";
import { copyButtons } from "./parts/snippets.js";
import { address, tableAddress } from "./router.js";
import { who } from "./session.js";
import { viewsIn } from "./views.js";

const SHOWN = 500;

const FIRST_STEPS = () =>
  `import pennon\n\ndb = pennon.connect("${BASE}")\ndb.create_table("teas", [{"id": 1, "name": "Assam"}])`;

/** The overview. */
export async function home(route, signal) {
  const newest = onJob("list", { limit: 8 }, "print(db.jobs(limit=8))");
  const [tables, jobs] = await Promise.all([
    call({ method: "GET", path: "/v1/table?limit=1" }, signal),
    call(newest, signal),
  ]);
  const caller = who();
  return h(
    "div.page",
    {},
    h("h1", {}, "Overview"),
    h(
      "p.muted",
      {},
      `Pennon ${caller.server_version} at ${BASE}. `,
      caller.authenticated
        ? `You are ${caller.name}: ${caller.grants.map((grant) => `${grant.role} of ${grant.namespace.join(".") || "everything"}`).join(", ")}.`
        : "The server has no API keys: everyone on this machine has full access.",
    ),
    tables.tables.length
      ? null
      : h(
          "section.card",
          {},
          h("h2", {}, "No tables yet"),
          h("p", {}, "Create one with Pennon's SDK or any client for Lance tables:"),
          h("pre.code", { tabindex: "0" }, FIRST_STEPS()),
        ),
    h(
      "section.card",
      {},
      h(
        "div.section-head",
        {},
        h("h2", {}, "Latest jobs"),
        h("span.spring"),
        copyButtons(() => newest, "list jobs"),
      ),
      jobs.jobs.length
        ? jobTable(jobs.jobs)
        : emptyState("No job has run yet.", "A backfill or a refresh of a view starts one."),
    ),
  );
}

const atLeast = (found, word, more) => (more ? `${count(found.length)}+ ${word}s` : countOf(found.length, word));

/** The page of a namespace. */
export async function namespacePage(route, signal) {
  const id = pathOf(route.id);
  const list = { method: "GET", path: `/v1/namespace/${id}/table/list?limit=${SHOWN}&include_declared=true` };
  const children = { method: "GET", path: `/v1/namespace/${id}/list?limit=${SHOWN}` };
  const [tables, namespaces, views] = await Promise.all([call(list, signal), call(children, signal), viewsIn(route.id)]);
  return h(
    "div.page",
    {},
    crumbs(route.id.slice(0, -1)),
    h("h1", {}, route.id.at(-1)),
    h(
      "div.section-head",
      {},
      h(
        "p.muted",
        {},
        `${atLeast(tables.tables, "table", tables.page_token)}, ${atLeast(namespaces.namespaces, "namespace", namespaces.page_token)}`,
      ),
      h("span.spring"),
      copyButtons(() => list, "list tables"),
    ),
    tables.page_token || namespaces.page_token
      ? h("p.muted", {}, `Only the first ${SHOWN} are listed; use the search on the left for the others.`)
      : null,
    tables.tables.length || namespaces.namespaces.length
      ? h(
          "ul.plain",
          {},
          namespaces.namespaces.map((name) =>
            h("li", {}, h("a", { href: address(["namespace", [...route.id, name].join("$")]) }, `${name}/`)),
          ),
          tables.tables.map((name) =>
            h(
              "li",
              {},
              h("a", { href: tableAddress([...route.id, name]) }, name),
              views.has(name) ? h("span.muted.small", {}, " view") : null,
            ),
          ),
        )
      : emptyState(
          "This namespace is empty.",
          "Create a table in it with a client: ",
          h("code", {}, `db.create_table("name", rows, namespace_path=${JSON.stringify(route.id)})`),
        ),
  );
}
