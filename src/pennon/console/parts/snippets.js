/** Requests as curl commands and Python programs. */

import { BASE } from "../api.js";
import { h } from "../dom.js";
import { openDialog, toast } from "./dialogs.js";

const quote = (text) => `'${text.replaceAll("'", `'"'"'`)}'`;

/** Return a request as a curl command. @param {import("../api.js").Request} request */
export function asCurl(request) {
  const lines = [`curl -s${request.method === "POST" ? "" : ` -X ${request.method}`} ${quote(BASE + request.path)}`];
  lines.push(`-H "x-api-key: $PENNON_API_KEY"`, `-H 'accept: application/json'`);
  if (request.body !== undefined)
    lines.push(`-H 'content-type: application/json'`, `-d ${quote(JSON.stringify(request.body))}`);
  return lines.join(" \\\n  ");
}

const PYTHON_WORDS = { true: "True", false: "False", null: "None" };

/** Return a JSON value as Python. */
export function pythonValue(value) {
  if (Array.isArray(value)) return `[${value.map(pythonValue).join(", ")}]`;
  if (value !== null && typeof value === "object") {
    return `{${Object.entries(value)
      .map(([name, item]) => `${JSON.stringify(name)}: ${pythonValue(item)}`)
      .join(", ")}}`;
  }
  return typeof value === "string" ? JSON.stringify(value) : (PYTHON_WORDS[String(value)] ?? String(value));
}

/** Return keyword arguments; those without a value are left out. */
export function pythonArguments(given) {
  return Object.entries(given)
    .filter(([, value]) => value !== undefined && value !== null && value !== "" && value !== false)
    .map(([name, value]) => `${name}=${pythonValue(value)}`)
    .join(", ");
}

/** Return the Python code that opens a table, optionally on a branch and at a version. */
export function openTable(names, branch = "", version = null) {
  const open = openBy("table = db.open_table", names);
  if (branch) return `${open}table = table.branches.checkout(${pythonValue(branch)}${version ? `, ${version}` : ""})\n`;
  return version ? `${open}table.checkout(${version})\n` : open;
}

export const openView = (names) => openBy("view = db.open_view", names);

function openBy(verb, names) {
  const path = names.slice(0, -1);
  const where = path.length ? `, namespace_path=${pythonValue(path)}` : "";
  return `${verb}(${pythonValue(names.at(-1))}${where})\n`;
}

/** Return a request as Python, with Pennon's SDK where it covers the request, otherwise with the standard library. */
export function asPython(request) {
  if (request.python) {
    return `import os\n\nimport pennon\n\ndb = pennon.connect(${pythonValue(BASE)}, api_key=os.environ.get("PENNON_API_KEY"))\n${request.python}\n`;
  }
  const data = request.body === undefined ? "" : `,\n    data=json.dumps(${pythonValue(request.body)}).encode()`;
  const kind = request.body === undefined ? "" : `, "content-type": "application/json"`;
  return (
    `import json\nimport os\nfrom urllib.request import Request, urlopen\n\nrequest = Request(\n    ${pythonValue(BASE + request.path)}${data},\n` +
    `    method=${pythonValue(request.method)},\n    headers={"x-api-key": os.environ.get("PENNON_API_KEY", ""), "accept": "application/json"${kind}},\n)\n` +
    "with urlopen(request) as response:\n    print(json.load(response))\n"
  );
}

async function copy(text, what) {
  try {
    await navigator.clipboard.writeText(text);
    toast(`Copied as ${what}.`);
  } catch {
    // Pages without TLS have no access to the clipboard: show the text instead.
    openDialog({ title: `As ${what}`, body: h("pre.code", { tabindex: "0" }, text) });
  }
}

const named = (label) => ({ type: "button", "aria-label": label, title: label });

/** Two small buttons that copy a request. @param {() => import("../api.js").Request} make @param {string} what */
export function copyButtons(make, what) {
  return h(
    "span.copies",
    { role: "group", "aria-label": `Copy: ${what}` },
    h(
      "button.quiet.small",
      { ...named(`Copy as Python: ${what}`), onclick: () => copy(asPython(make()), "Python") },
      "Python",
    ),
    h("button.quiet.small", { ...named(`Copy as curl: ${what}`), onclick: () => copy(asCurl(make()), "curl") }, "curl"),
  );
}
