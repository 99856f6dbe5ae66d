/** The catalog as a tree: namespaces and tables, searched by any part of their names. */

import { events, listAll, listing, pathOf } from "./api.js";
import { h, debounce } from "./dom.js";
import { count, countOf } from "./format.js";
import { address, go, tableAddress } from "./router.js";
import { viewsIn } from "./views.js";
import { virtualList } from "./parts/virtual.js";

const ROW = 28;

class Branch {
  constructor(name, names) {
    this.name = name;
    this.names = names;
    this.namespaces = new Map();
    this.tables = [];
    this.open = names.length === 0;
    this.loaded = false;
  }

  below(name) {
    if (!this.namespaces.has(name)) this.namespaces.set(name, new Branch(name, [...this.names, name]));
    return this.namespaces.get(name);
  }
}

const byName = (a, b) => (a.name < b.name ? -1 : 1);

export class Tree {
  /** @param {HTMLElement} place */
  constructor(place) {
    this.root = new Branch("", []);
    this.total = 0;
    this.current = "";
    this.search = h("input", {
      type: "search",
      placeholder: "Search tables",
      "aria-label": "Search tables",
      spellcheck: "false",
    });
    this.status = h("div.tree-status.muted.small", { role: "status" }, "Loading…");
    this.list = virtualList({
      height: ROW,
      draw: (row, at) => this.draw(row, at),
      props: {
        role: "tree",
        "aria-label": "Namespaces and tables",
        class: "tree",
        onkeydown: (event) => this.press(event),
      },
    });
    this.rows = [];
    this.active = 0;
    this.search.addEventListener(
      "input",
      debounce(() => this.show(), 80),
    );
    this.search.addEventListener("keydown", (event) => {
      if (event.key === "ArrowDown") this.move(0);
    });
    const refresh = h(
      "button.quiet",
      {
        type: "button",
        "aria-label": "Reload the catalog",
        onclick: () => events.dispatchEvent(new Event("catalog")),
      },
      "⟳",
    );
    place.replaceChildren(h("div.tree-head", {}, this.search, refresh), this.list.element, this.status);
  }

  /** Load all names, and show them page by page. */
  async load() {
    const opened = new Set(this.openBranches(this.root).map((branch) => branch.names.join("$")));
    this.root = new Branch("", []);
    let seen = 0;
    try {
      await listAll(
        (token) => listing("/v1/table", token, "&include_declared=true"),
        "tables",
        undefined,
        (found) => {
          for (; seen < found.length; seen += 1) this.enter(found[seen].split("$"), opened);
          this.total = found.length;
          this.show();
        },
      );
      await this.loadChildren(this.root);
      await Promise.all(this.openBranches(this.root).map((branch) => this.loadChildren(branch)));
      const current = this.current;
      this.current = "";
      if (current) this.mark(current.split("$"));
    } catch (error) {
      this.status.textContent = error.message;
      return;
    }
    this.show();
  }

  openBranches(branch) {
    const below = [...branch.namespaces.values()].filter((child) => child.open);
    return below.flatMap((child) => [child, ...this.openBranches(child)]);
  }

  enter(names, opened) {
    let branch = this.root;
    for (const name of names.slice(0, -1)) {
      branch = branch.below(name);
      branch.open ||= opened.has(branch.names.join("$"));
    }
    branch.tables.push({ name: names.at(-1), names, text: names.join(".").toLowerCase() });
  }

  /** Load the child namespaces, which may be empty and so missing from the list of tables. */
  async loadChildren(branch) {
    if (branch.loaded) return;
    branch.loaded = true;
    const id = branch.names.length ? pathOf(branch.names) : "%24";
    const [found, views] = await Promise.all([
      listAll((token) => listing(`/v1/namespace/${id}/list`, token), "namespaces"),
      viewsIn(branch.names),
    ]);
    for (const name of found) branch.below(name);
    for (const table of branch.tables) table.view = views.has(table.name);
  }

  /** Highlight the current table, and expand its namespaces. */
  mark(names) {
    if (this.current === names.join("$")) return;
    this.current = names.join("$");
    let branch = this.root;
    for (const name of names.slice(0, -1)) {
      branch = branch.namespaces.get(name);
      if (!branch) break;
      branch.open = true;
      this.loadChildren(branch).then(
        () => this.show(),
        () => {},
      );
    }
    this.show();
  }

  show() {
    const wanted = this.search.value.trim().toLowerCase();
    this.rows = [];
    if (wanted) this.matching(this.root, wanted);
    else this.flatten(this.root, 1);
    this.active = Math.min(this.active, Math.max(this.rows.length - 1, 0));
    this.list.set(this.rows);
    const found = this.rows.filter((row) => row.table).length;
    if (wanted) this.status.textContent = `${count(found)} of ${countOf(this.total, "table")}`;
    else
      this.status.textContent = this.total
        ? countOf(this.total, "table")
        : "No tables yet. The overview shows how to create one.";
  }

  flatten(branch, level) {
    for (const child of [...branch.namespaces.values()].toSorted(byName)) {
      this.rows.push({ branch: child, level });
      if (child.open) this.flatten(child, level + 1);
    }
    for (const table of branch.tables) this.rows.push({ table, level });
  }

  matching(branch, wanted) {
    for (const table of branch.tables)
      if (table.text.includes(wanted)) this.rows.push({ table, level: 1, whole: true });
    for (const child of branch.namespaces.values()) this.matching(child, wanted);
  }

  draw(row, at) {
    const shared = {
      role: "treeitem",
      "aria-level": row.level,
      tabindex: at === this.active ? "0" : "-1",
      onclick: () => this.choose(at),
    };
    const indent = { paddingLeft: `${(row.level - 1) * 14 + 8}px` };
    if (row.branch) {
      const { open, name } = row.branch;
      return h(
        "div.node",
        { ...shared, "aria-expanded": String(open), style: indent, title: name },
        h("span.twist", { "aria-hidden": "true" }, open ? "▾" : "▸"),
        h("span.cut", {}, name),
      );
    }
    const chosen = row.table.names.join("$") === this.current;
    const label = row.whole ? row.table.names.join(".") : row.table.name;
    return h(
      "div.node.leaf",
      { ...shared, "aria-selected": String(chosen), class: chosen ? "chosen" : "", style: indent, title: label },
      h("span.twist", { "aria-hidden": "true" }, row.table.view ? "◇" : "▦"),
      h("span.cut", {}, label),
      row.table.view ? h("span.hidden", {}, " (view)") : null,
    );
  }

  async choose(at) {
    const row = this.rows[at];
    this.active = at;
    if (row.table) {
      document.body.classList.remove("drawer");
      go(tableAddress(row.table.names));
      return;
    }
    await this.toggle(row.branch);
    if (this.active === at) this.list.focus(at); // otherwise the focus has moved meanwhile
  }

  async toggle(branch) {
    branch.open = !branch.open;
    if (branch.open) await this.loadChildren(branch).catch(() => {});
    this.show();
    if (branch.open && !branch.tables.length && !branch.namespaces.size)
      go(address(["namespace", branch.names.join("$")]));
  }

  move(at) {
    this.active = Math.max(0, Math.min(at, this.rows.length - 1));
    this.list.focus(this.active);
  }

  press(event) {
    const row = this.rows[this.active];
    const moves = { ArrowDown: this.active + 1, ArrowUp: this.active - 1, Home: 0, End: this.rows.length - 1 };
    if (event.key in moves) this.move(moves[event.key]);
    else if (event.key === "Enter" || event.key === " ") this.choose(this.active);
    else if (event.key === "ArrowRight" && row?.branch && !row.branch.open) this.choose(this.active);
    else if (event.key === "ArrowLeft" && row?.branch?.open) this.choose(this.active);
    else if (event.key === "ArrowLeft")
      this.move(this.rows.findLastIndex((other, at) => at < this.active && other.level < row.level));
    else return;
    event.preventDefault();
  }
}
