// Takes a column of every Arrow type through the published client of LanceDB for Node.js, and prints what it read as JSON.
// Usage: node types.mjs FOLDER_WITH_NODE_MODULES URL FOLDER_WITH_COLUMNS

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";

const [folder, url, columns] = process.argv.slice(2);
const require = createRequire(`${folder}/package.json`);
const lancedb = require("@lancedb/lancedb");
const arrow = require("apache-arrow");

const db = await lancedb.connect({ uri: "db://lake", apiKey: "none", hostOverride: url });

const encode = (table) => Buffer.from(arrow.tableToIPC(table, "stream")).toString("base64");
const read = async (table) => encode(await table.query().toArrow());

async function goThrough({ file, more, given, made, cast }) {
  const found = {};
  async function step(name, work) {
    try {
      found[name] = await work();
    } catch (error) {
      found[name] = { error: String(error.message ?? error) };
    }
  }
  const load = (name) => arrow.tableFromIPC(readFileSync(`${columns}/${name}`));
  const data = () => load(file);
  // What the client's own Arrow makes of it, without a server.
  await step("alone", () => encode(data()));
  await step("read", async () => read(await db.openTable(given)));
  await step("create", async () => read(await db.createTable(made, data())));
  await step("insert", async () => {
    const table = await db.openTable(made);
    await table.add(load(more));
    return read(table);
  });
  // What the client cannot write, others wrote.
  const table = await db.openTable(found.create.error ? given : made);
  const alter = (name, alteration) =>
    step(name, async () => {
      await table.alterColumns([alteration]);
      return read(table);
    });
  await table.delete("id > 0");
  await alter("forbid nulls", { path: "column", nullable: false });
  await alter("rename", { path: "column", rename: "renamed", nullable: true });
  await step("add by schema", () => table.addColumns(new arrow.Field("empty", data().schema.fields[1].type, true)));
  await step("add", async () => {
    await table.addColumns([{ name: "copied", valueSql: "renamed" }]);
    return read(table);
  });
  if (cast) await alter("cast", { path: "renamed", dataType: cast });
  await step("drop", async () => {
    await table.dropColumns(["renamed", "copied"]);
    return read(table);
  });
  return found;
}

const kinds = JSON.parse(readFileSync(`${columns}/kinds.json`));
const results = {};
for (const [kind, of] of Object.entries(kinds)) {
  results[kind] = await goThrough(of);
}
console.log(JSON.stringify(results));
