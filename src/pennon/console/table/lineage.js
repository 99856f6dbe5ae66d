/** The lineage of a table and its columns, as a graph with links. */

import { call } from "../api.js";
import { h, s } from "../dom.js";
import { countOf } from "../format.js";
import { emptyState } from "../parts/dialogs.js";
import { copyButtons } from "../parts/snippets.js";
import { tableAddress } from "../router.js";

const WIDTH = 220;
const ROW = 22;
const HEAD = 38;
const GAP_X = 110;
const GAP_Y = 26;
const MARGIN = 20;
const MAX_COLUMNS = 30;

/**
 * @typedef {{id: string, names: string[], kind: "table"|"view", columns: Map<string, string>, here?: boolean}} Entity
 * @typedef {{from: {id: string, column: string|null}, to: {id: string, column: string|null}}} Edge
 */

/** @param {import("./page.js").Table} table */
export async function lineageTab(table) {
  const ask = table.on("lineage", {});
  const { entities, edges } = read(await call(ask, table.signal), table);
  const bar = h(
    "div.bar",
    {},
    h(
      "p.muted",
      {},
      "Data flows from left to right. Click a table, a view or a column to open it.",
    ),
    h("span.spring"),
    copyButtons(() => ask, "lineage"),
  );
  if (entities.size < 2 && !edges.length)
    return [
      bar,
      emptyState(
        "Nothing is computed from this table yet.",
        "Feature columns and materialized views appear here.",
      ),
    ];
  return [bar, draw(entities, edges), edgeList(entities, edges)];
}

/** Read the response: columns belong to tables; an edge between tables is dropped if edges of columns join them. */
function read(answer, table) {
  const entities = new Map();
  const ends = new Map();
  const here = table.names.join("$");
  for (const node of answer.nodes) {
    if (node.table) continue;
    entities.set(node.id, {
      id: node.id,
      names: node.name.split("$"),
      kind: node.kind,
      columns: new Map(),
      here: node.id === here,
    });
    ends.set(node.id, { id: node.id, column: null });
  }
  for (const node of answer.nodes) {
    if (!node.table) continue;
    entities.get(node.table).columns.set(node.name, node.kind === "feature_column" ? "function" : "");
    ends.set(node.id, { id: node.table, column: node.name });
  }
  const edges = answer.edges
    .map((edge) => ({ from: ends.get(edge.source), to: ends.get(edge.target) }))
    .filter((edge) => edge.from && edge.to);
  const byColumns = new Set(
    edges.filter((edge) => edge.from.column !== null).map((edge) => `${edge.from.id} ${edge.to.id}`),
  );
  const shown = edges.filter((edge) => edge.from.column !== null || !byColumns.has(`${edge.from.id} ${edge.to.id}`));
  return { entities, edges: shown };
}

/** Return the layer of each entity: to the right of all its sources. */
function layers(entities, edges) {
  const depth = new Map([...entities.keys()].map((id) => [id, 0]));
  for (let round = 0; round < entities.size; round += 1) {
    let moved = false;
    for (const { from, to } of edges) {
      if (from.id !== to.id && depth.get(to.id) <= depth.get(from.id)) {
        depth.set(to.id, depth.get(from.id) + 1);
        moved = true;
      }
    }
    if (!moved) break;
  }
  return depth;
}

/** Return the position of each entity. */
function place(entities, edges) {
  const depth = layers(entities, edges);
  const bottoms = [];
  const places = new Map();
  for (const entity of entities.values()) {
    const layer = depth.get(entity.id);
    const shown = [...entity.columns.keys()].slice(0, MAX_COLUMNS);
    const more = entity.columns.size - shown.length;
    const height = HEAD + shown.length * ROW + (more ? ROW : 0) + 4;
    const y = bottoms[layer] ?? MARGIN;
    places.set(entity.id, { x: MARGIN + layer * (WIDTH + GAP_X), y, height, shown, more });
    bottoms[layer] = y + height + GAP_Y;
  }
  return {
    places,
    width: Math.max(...[...places.values()].map((spot) => spot.x)) + WIDTH + GAP_X / 2 + MARGIN,
    height: Math.max(...bottoms.filter(Boolean)),
  };
}

function draw(entities, edges) {
  const { places, width, height } = place(entities, edges);
  const yOf = ({ id, column }) => {
    const spot = places.get(id);
    const at = column === null ? -1 : spot.shown.indexOf(column);
    return at < 0 ? spot.y + HEAD / 2 : spot.y + HEAD + at * ROW + ROW / 2;
  };
  const curves = edges.map((edge) => {
    const [from, to] = [places.get(edge.from.id), places.get(edge.to.id)];
    const [y1, y2] = [yOf(edge.from), yOf(edge.to)];
    const x1 = from.x + WIDTH;
    if (edge.from.id === edge.to.id)
      return s("path.edge", {
        d: `M${x1} ${y1} C${x1 + 50} ${y1} ${x1 + 50} ${y2} ${x1} ${y2}`,
        "marker-end": "url(#arrow)",
      });
    return s("path.edge", {
      d: `M${x1} ${y1} C${x1 + GAP_X / 2} ${y1} ${to.x - GAP_X / 2} ${y2} ${to.x} ${y2}`,
      "marker-end": "url(#arrow)",
    });
  });
  const arrow = s(
    "defs",
    {},
    s(
      "marker",
      { id: "arrow", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto" },
      s("path.tip", { d: "M0 0 L8 4 L0 8 z" }),
    ),
  );
  const svg = s(
    "svg",
    { width, height, viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": "Lineage graph" },
    arrow,
    curves,
    [...entities.values()].map((entity) => box(entity, places.get(entity.id))),
  );
  return h("div.lineage", { tabindex: "0", role: "region", "aria-label": "Lineage" }, svg);
}

function box(entity, spot) {
  const title = fit(entity.names.at(-1), 26);
  const columns = spot.shown.map((name, at) => {
    const tab = entity.columns.get(name) ? "functions" : "schema";
    return s(
      "a.column",
      { href: tableAddress(entity.names, tab), "aria-label": `Column ${name} of ${entity.names.join(".")}` },
      s("title", {}, name),
      s("rect.hit", { x: spot.x + 1, y: spot.y + HEAD + at * ROW, width: WIDTH - 2, height: ROW }),
      s("text", { x: spot.x + 12, y: spot.y + HEAD + at * ROW + 15 }, fit(name, entity.columns.get(name) ? 20 : 26)),
      entity.columns.get(name)
        ? s(
            "text.under",
            { x: spot.x + WIDTH - 10, y: spot.y + HEAD + at * ROW + 15, "text-anchor": "end" },
            entity.columns.get(name),
          )
        : null,
    );
  });
  const tab = entity.kind === "view" ? "view" : "data";
  return s(
    "g",
    { class: entity.here ? "here" : "" },
    s("rect.box", { x: spot.x, y: spot.y, width: WIDTH, height: spot.height, rx: 6 }),
    s(
      "a",
      { href: tableAddress(entity.names, tab), "aria-label": `${entity.kind} ${entity.names.join(".")}` },
      s("title", {}, entity.names.join(".")),
      s("rect.hit", { x: spot.x + 1, y: spot.y + 1, width: WIDTH - 2, height: HEAD - 2, rx: 5 }),
      s("text.name", { x: spot.x + 12, y: spot.y + 16 }, title),
      s(
        "text.under",
        { x: spot.x + 12, y: spot.y + 30 },
        `${entity.kind}${entity.names.length > 1 ? ` in ${fit(entity.names.slice(0, -1).join("."), 24)}` : ""}`,
      ),
    ),
    columns,
    spot.more
      ? s(
          "text.under",
          { x: spot.x + 12, y: spot.y + HEAD + spot.shown.length * ROW + 15 },
          countOf(spot.more, "more column"),
        )
      : null,
  );
}

const fit = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);

/** The edges as a list, for screen readers. */
function edgeList(entities, edges) {
  const nameOf = ({ id, column }) => `${entities.get(id).names.join(".")}${column === null ? "" : `.${column}`}`;
  return h(
    "details",
    {},
    h("summary", {}, `As a list (${edges.length})`),
    h(
      "ul",
      {},
      edges.slice(0, 500).map((edge) => h("li", {}, `${nameOf(edge.from)} → ${nameOf(edge.to)}`)),
    ),
  );
}
