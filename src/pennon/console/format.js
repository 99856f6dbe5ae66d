/** Formatting of values for people. */

const COUNT = new Intl.NumberFormat("en", { maximumFractionDigits: 2 });
const UNITS = ["B", "KB", "MB", "GB", "TB", "PB"];

export const count = (value) => (value === null || value === undefined ? "—" : COUNT.format(value));

/** Return a count with its noun: "1 row", "2 rows". */
export const countOf = (value, word) => `${count(value)} ${word}${value === 1 ? "" : "s"}`;

export function bytes(value) {
  if (value === null || value === undefined) return "—";
  let unit = 0;
  while (value >= 1000 && unit < UNITS.length - 1) {
    value /= 1000;
    unit += 1;
  }
  return `${unit ? value.toFixed(value < 10 ? 2 : 1) : value} ${UNITS[unit]}`;
}

export function percent(part, whole) {
  if (!whole) return "0%";
  const share = (100 * part) / whole;
  // Rounding must not yield 100% before everything is done.
  if (part < whole && share >= 99) return `${Math.min(99.9, Math.floor(share * 10) / 10)}%`;
  if (share > 0 && share < 0.1) return "< 0.1%";
  return `${share >= 10 || Number.isInteger(share) ? Math.round(share) : share.toFixed(1)}%`;
}

export function seconds(value) {
  if (value === null || value === undefined) return "—";
  if (value < 0.001) return value > 0 ? "< 1 ms" : "0 s";
  if (value < 1) return `${Math.round(value * 1000)} ms`;
  if (value < 120) return `${value.toFixed(value < 10 ? 1 : 0)} s`;
  if (value < 7200) return `${Math.floor(value / 60)} min ${Math.round(value % 60)} s`;
  return `${Math.floor(value / 3600)} h ${Math.round((value % 3600) / 60)} min`;
}

export function moment(milliseconds) {
  if (!milliseconds) return "—";
  return new Date(milliseconds).toLocaleString("en-GB", { dateStyle: "medium", timeStyle: "medium" });
}

export function ago(milliseconds) {
  const past = (Date.now() - milliseconds) / 1000;
  if (past < 5) return "just now";
  if (past < 120) return `${Math.round(past)} s ago`;
  if (past < 7200) return `${Math.round(past / 60)} min ago`;
  if (past < 172800) return `${Math.round(past / 3600)} h ago`;
  return `${Math.round(past / 86400)} days ago`;
}

/** Return an Arrow type of the server in one line. */
export function typeText(type) {
  if (!type) return "";
  const inner = type.fields ?? [];
  switch (type.type) {
    case "fixed_size_list":
      return `${typeText(inner[0]?.type)}[${type.length}]`;
    case "list":
    case "large_list":
      return `list<${typeText(inner[0]?.type)}>`;
    case "struct":
      return `struct<${inner.map((field) => field.name).join(", ")}>`;
    default:
      return plainType(type.type);
  }
}

/** Return a type without children in Arrow's notation; the server sends "timestamp:us:UTC". */
function plainType(text) {
  const [name, first, ...rest] = text.split(":");
  if (name === "decimal") return `decimal${first}(${rest.join(", ")})`;
  if (name.startsWith("date") || first === undefined) return name;
  const zone = rest.join(":");
  return `${name}[${first}${zone && zone !== "-" ? `, ${zone}` : ""}]`;
}

/** Return the type of a field; "blob" for a blob column, however it is stored. */
export const fieldType = (field) => (isBlob(field) ? "blob" : typeText(field.type));

/** Return a number with at most seven significant digits. */
export const digits = (value) => String(Number.isInteger(value) ? value : Number(value.toPrecision(7)));

const FLOATS = new Set(["float", "double", "halffloat", "float16", "float32", "float64"]);

/** Tell whether a type is a list of floats. */
export function isVector(type) {
  const lists = ["fixed_size_list", "list", "large_list"];
  return lists.includes(type?.type) && FLOATS.has(type.fields?.[0]?.type?.type);
}

export const isBinary = (type) => ["binary", "large_binary", "fixed_size_binary"].includes(type?.type?.split(":")[0]);
export const isText = (type) => ["string", "large_string"].includes(type?.type);
export const isBlob = (field) =>
  field?.metadata?.["lance-encoding:blob"] === "true" || /blob/.test(field?.metadata?.["ARROW:extension:name"] ?? "");
export const shorten = (text, most = 120) => (text.length > most ? `${text.slice(0, most)}…` : text);
