// Writes a table with blobs through the published client of LanceDB for Node.js, twice, and gives their column a name.
// Usage: node blobs.mjs FOLDER_WITH_NODE_MODULES URL FILE TABLE

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";

const [folder, url, file, name] = process.argv.slice(2);
const require = createRequire(`${folder}/package.json`);
const lancedb = require("@lancedb/lancedb");
const arrow = require("apache-arrow");

const db = await lancedb.connect({ uri: "db://lake", apiKey: "none", hostOverride: url });
const data = () => arrow.tableFromIPC(readFileSync(file));
const table = await db.createTable(name, data());
await table.add(data());
await table.alterColumns([{ path: "blob", rename: "renamed" }]);
const found = await table.query().select(["id"]).toArray();
console.log(JSON.stringify({ ids: found.map((row) => Number(row.id)) }));
