// Calls the published client of LanceDB for Node.js against a server, and prints what each call came to as JSON.
// Usage: node flow.mjs FOLDER_WITH_NODE_MODULES URL SUFFIX

import { createRequire } from "node:module";

const [folder, url, suffix] = process.argv.slice(2);
const require = createRequire(`${folder}/package.json`);
const lancedb = require("@lancedb/lancedb");
const arrow = require("apache-arrow");

const WIDTH = 4;
const COLOURS = ["red", "green", "blue"];
const vector = (number) => Array(WIDTH).fill(number);
const rows = (from, to) =>
  Array.from({ length: to - from }, (_, i) => from + i).map((id) => ({
    id,
    colour: COLOURS[id % 3],
    text: `the ${COLOURS[id % 3]} house ${id}`,
    vector: vector(id),
  }));
const ids = (found) => found.map((row) => Number(row.id));

// The client keeps schemas and handles for a while; what the server says now is in its answers.
const columns = async () => (await table.query().limit(1).toArrow()).schema.fields.map((field) => field.name);

const results = {};
async function call(name, work) {
  try {
    results[name] = (await work()) ?? null;
  } catch (error) {
    results[name] = { error: String(error.message ?? error) };
  }
}

const connect = () => lancedb.connect({ uri: "db://lake", apiKey: "none", hostOverride: url });
const db = await connect();
const name = `node_${suffix}`;
let table;

await call("createTable", async () => {
  table = await db.createTable(name, rows(0, 100));
  return table.countRows();
});
await call("createTable again", () => db.createTable(name, rows(0, 1)));
await call("createTable existOk", async () => (await db.createTable(name, rows(0, 1), { existOk: true })).countRows());
await call("createEmptyTable", async () => {
  const schema = new arrow.Schema([new arrow.Field("id", new arrow.Int32(), true)]);
  const empty = await db.createEmptyTable(`${name}_empty`, schema);
  return [await empty.countRows(), (await empty.schema()).fields.map((field) => String(field.type))];
});
await call("createTable overwrite", async () => {
  const replaced = await db.createTable(`${name}_empty`, rows(0, 2), { mode: "overwrite" });
  return replaced.countRows();
});
await call("tableNames", async () => (await db.tableNames()).filter((found) => found.startsWith(name)));
await call("tableNames after", async () => db.tableNames({ startAfter: name, limit: 1 }));
await call("openTable", async () => (await db.openTable(name)).countRows());
await call("openTable missing", () => db.openTable(`${name}_missing`));
await call("schema", async () => (await table.schema()).fields.map((field) => `${field.name}: ${field.type}`));
await call("version", () => table.version());
await call("countRows filter", () => table.countRows("id < 10"));
await call("query", async () => ids(await table.query().limit(3).toArray()));
await call("query where", async () => ids(await table.query().where("id % 50 = 7").toArray()));
await call("query offset", async () => ids(await table.query().limit(2).offset(5).toArray()));
await call("query select", async () => (await table.query().select(["colour"]).limit(2).toArray()).map((row) => row.colour));
await call("query expression", async () =>
  (await table.query().select({ double: "id * 2" }).limit(3).toArray()).map((row) => Number(row.double)),
);
await call("query order", async () => ids(await table.query().orderBy({ columnName: "id", ascending: false }).limit(2).toArray()));
await call("outputSchema", async () => (await table.query().select(["id"]).outputSchema()).fields.map((field) => field.name));
await call("toArrow", async () => (await table.toArrow()).numRows);
await call("search", async () => ids(await table.search(vector(41.2)).limit(3).toArray()));
await call("vectorSearch postfilter", async () =>
  ids(await table.vectorSearch(vector(10)).where("id >= 50").postfilter().limit(2).toArray()),
);
await call("vectorSearch prefilter", async () =>
  ids(await table.vectorSearch(vector(10)).where("id >= 50").limit(2).toArray()),
);
await call("distance", async () => {
  const found = await table.search(vector(20)).distanceType("l2").distanceRange(3, 17).limit(10).toArray();
  return ids(found).sort();
});
await call("several vectors", async () => {
  const found = await table.query().nearestTo(vector(7)).addQueryVector(vector(90)).limit(1).toArray();
  return found.map((row) => [Number(row.query_index), Number(row.id)]).sort();
});
await call("takeOffsets", async () => ids(await table.takeOffsets([3, 50]).toArray()).sort((a, b) => a - b));
await call("takeRowIds", async () => {
  const found = await table.query().withRowId().where("id = 9").toArray();
  return ids(await table.takeRowIds([found[0]._rowid]).toArray());
});
await call("explainPlan", async () => (await table.search(vector(1)).limit(1).explainPlan()).includes("KNN"));
await call("analyzePlan", async () => (await table.search(vector(1)).limit(1).analyzePlan()).includes("output_rows"));
await call("bad filter", () => table.query().where("id ==== 3").toArray());
await call("narrow vector", () => table.search([1, 2]).limit(1).toArray());

await call("add", async () => (await table.add(rows(100, 110))).version);
await call("add overwrite", async () => {
  const other = await db.createTable(`${name}_other`, rows(0, 3));
  await other.add(rows(5, 7), { mode: "overwrite" });
  return ids(await other.query().toArray());
});
await call("mergeInsert conditions", async () => {
  const other = await db.openTable(`${name}_other`);
  const merged = await other
    .mergeInsert("id")
    .whenMatchedUpdateAll({ where: "target.id > 5" })
    .whenNotMatchedInsertAll()
    .whenNotMatchedBySourceDelete({ where: "id = 5" })
    .useIndex(false)
    .execute(rows(6, 8));
  return [merged.numUpdatedRows, merged.numInsertedRows, merged.numDeletedRows];
});
await call("mergeInsert", async () => {
  const merged = await table.mergeInsert("id").whenMatchedUpdateAll().whenNotMatchedInsertAll().execute(rows(105, 115));
  return [merged.numUpdatedRows, merged.numInsertedRows];
});
await call("update", async () => (await table.update({ where: "id = 1", values: { colour: "x'y" } })).rowsUpdated);
await call("updated", async () => (await table.query().where("id = 1").toArray())[0].colour);
await call("update by SQL", async () => (await table.update({ where: "id = 2", valuesSql: { text: "upper(text)" } })).rowsUpdated);
await call("delete", async () => {
  await table.delete("id >= 110");
  return table.countRows();
});
await call("listVersions", async () => (await table.listVersions()).map((version) => version.version));
await call("checkout", async () => {
  await table.checkout(1);
  const count = await table.countRows();
  await table.checkoutLatest();
  return [count, await table.countRows()];
});
await call("tags", async () => {
  const tags = await table.tags();
  await tags.create("first", 1);
  await tags.update("first", 2);
  const listed = Object.keys(await tags.list());
  const version = await tags.getVersion("first");
  await table.checkout("first");
  const count = await table.countRows();
  await table.checkoutLatest();
  await tags.delete("first");
  return [listed, version, count, Object.keys(await tags.list())];
});
await call("restore", async () => {
  await table.checkout(2);
  await table.restore();
  return table.countRows();
});
await call("addColumns", async () => {
  await table.addColumns([{ name: "double", valueSql: "id * 2" }]);
  return Number((await table.query().where("id = 7").toArray())[0].double);
});
await call("alterColumns", async () => {
  await table.alterColumns([{ path: "double", rename: "twice" }]);
  return columns();
});
await call("dropColumns", async () => {
  await table.dropColumns(["twice"]);
  return columns();
});
await call("updateFieldMetadata", async () => {
  await table.updateFieldMetadata([{ path: "id", metadata: { unit: "one" } }]);
  return Object.fromEntries((await (await connect()).openTable(name).then((fresh) => fresh.schema())).fields[0].metadata);
});
await call("unknown column", () => table.dropColumns(["colur"]));
await call("createIndex btree", async () => {
  await table.createIndex("id", { config: lancedb.Index.btree() });
  await table.waitForIndex(["id_idx"], 60);
  return (await table.listIndices()).map((index) => [index.name, index.indexType]);
});
await call("createIndex fts", async () => {
  await table.createIndex("text", { config: lancedb.Index.fts({ withPosition: true }) });
  await table.waitForIndex(["text_idx"], 60);
  return ids(await table.search("green", "fts").limit(2).toArray()).every((id) => id % 3 === 1);
});
await call("phrase", async () => {
  const query = new lancedb.PhraseQuery("red house", "text");
  return ids(await table.query().fullTextSearch(query).limit(3).toArray()).every((id) => id % 3 === 0);
});
const { BooleanQuery, BoostQuery, MatchQuery, MultiMatchQuery, Occur } = lancedb;
const found = async (query) => ids(await table.query().fullTextSearch(query).limit(100).toArray()).sort((a, b) => a - b);
await call("match", () => found(new MatchQuery("blue 5", "text", { operator: lancedb.Operator.And })));
await call("boost", async () => {
  const query = new BoostQuery(new MatchQuery("5", "text"), new MatchQuery("blue", "text"));
  return ids(await table.query().fullTextSearch(query).toArray());
});
await call("multi match", () => found(new MultiMatchQuery("7", ["text"])));
await call("boolean", () =>
  found(new BooleanQuery([[Occur.Must, new MatchQuery("green", "text")], [Occur.Must, new MatchQuery("7", "text")]])),
);
await call("tokenize", async () => (await table.tokenize("Red houses", { column: "text" })).map((token) => token.text));
await call("hybrid", async () => {
  const reranker = await lancedb.rerankers.RRFReranker.create();
  const both = table.query().nearestTo(vector(31)).fullTextSearch("green").rerank(reranker);
  return ids(await both.limit(10).toArray()).includes(31);
});
await call("createIndex others", async () => {
  const { Index } = lancedb;
  await table.createIndex("vector", { config: Index.ivfPq(), name: "pq" });
  await table.createIndex("vector", { config: Index.hnswSq(), name: "hnsw" });
  await table.createIndex("colour", { config: Index.bitmap() });
  await (await table.createIndexAsync("text", { config: Index.fm(), name: "fm" })).wait();
  // Not for the first: Lance covers rows with codes only where there are enough of them to learn from.
  await table.waitForIndex(["hnsw", "colour_idx", "fm"], 60);
  for (const index of ["pq", "hnsw", "colour_idx", "fm"]) await table.dropIndex(index);
});
await call("createIndex ivfFlat", async () => {
  await table.createIndex("vector", { config: lancedb.Index.ivfFlat({ numPartitions: 1 }) });
  await table.waitForIndex(["vector_idx"], 60);
  return ids(await table.search(vector(33)).limit(1).toArray());
});
await call("index options", async () => {
  const search = () => table.search(vector(3)).limit(4);
  const plans = [
    await search().minimumNprobes(1).maximumNprobes(4).explainPlan(),
    await search().refineFactor(3).explainPlan(),
    await search().bypassVectorIndex().explainPlan(),
  ];
  const [few] = await search().nprobes(2).ef(50).fastSearch().toArray();
  return [plans[0].includes("maximum_nprobes=Some(4)"), plans[1].includes("k=12,"), plans[2].includes("ANN"), Number(few.id)];
});
await call("prewarm", async () => {
  await table.prewarmIndex("vector_idx");
  await table.prewarmData(["id"]);
});
await call("indexStats", async () => {
  const stats = await table.indexStats("vector_idx");
  return [stats.indexType, stats.numIndexedRows, stats.numUnindexedRows];
});
await call("indexStats missing", async () => (await table.indexStats("nothing")) ?? "none");
await call("stats", async () => {
  const stats = await table.stats();
  return [stats.numRows, stats.numIndices];
});
await call("dropIndex", async () => {
  await table.dropIndex("id_idx");
  return (await table.listIndices()).map((index) => index.name).sort();
});
await call("branches", async () => {
  const branches = await table.branches();
  const dev = await branches.create("dev");
  await dev.add(rows(500, 505));
  const counts = [await dev.countRows(), await table.countRows()];
  const listed = Object.keys(await branches.list());
  await branches.delete("dev");
  return [counts, listed, Object.keys(await branches.list())];
});
await call("branches diff and merge", async () => {
  const branches = await table.branches();
  await branches.create("dev");
  const dev = await branches.checkout("dev");
  await dev.add(rows(600, 602));
  const compared = await branches.diff("dev");
  const outcomes = [await branches.merge("dev", true), await branches.merge("dev"), await branches.merge("dev")];
  const count = await table.countRows();
  await table.delete("id >= 600");
  await branches.delete("dev");
  return [dev.currentBranch(), compared.rowSummary.newOnBranch, outcomes.map((outcome) => outcome.status), count];
});
await call("cloneTable", async () => {
  const answer = await fetch(`${url}/v1/table/${name}/describe/`, { method: "POST" });
  const clone = await db.cloneTable(`${name}_clone`, (await answer.json()).location);
  const count = await clone.countRows();
  await db.dropTable(`${name}_clone`);
  return count;
});
await call("jobs", async () => [
  Array.isArray(await db.listJobs()),
  (await db.getJob("nothing")) ?? "none",
  await db.cancelJob("nothing"),
  (await db.jobHistory()).numRows >= 0,
]);
await call("write buffer", async () => [(await table.getLsmWriteSpec()) ?? "none"]);
await call("unset write buffer", () => table.unsetLsmWriteSpec());
await call("namespaces", async () => {
  await db.createNamespace([name], { properties: { owner: "me" } });
  const { properties } = await db.describeNamespace([name]);
  const listed = (await db.listNamespaces([], { limit: 10000 })).namespaces.includes(name);
  const inner = await db.createTable("inner", rows(0, 3), [name]);
  const found = [properties, listed, await inner.countRows(), await db.tableNames([name])];
  await db.dropTable("inner", [name]);
  await db.dropNamespace([name]);
  return found;
});
await call("renameTable", async () => {
  await db.renameTable(name, `${name}_renamed`);
  return (await (await connect()).openTable(`${name}_renamed`)).countRows();
});
await call("dropTable", async () => {
  await db.dropTable(`${name}_renamed`);
  await db.dropTable(`${name}_empty`);
  await db.dropTable(`${name}_other`);
  return (await db.tableNames()).filter((found) => found.startsWith(name));
});

console.log(JSON.stringify(results, (_, value) => (typeof value === "bigint" ? Number(value) : value)));
