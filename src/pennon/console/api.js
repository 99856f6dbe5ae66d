/** Requests to the server of this page, and to no other. */

/** The URL of the server, relative to this file, so that it works behind a proxy that serves it under a path. */
export const BASE = new URL("..", import.meta.url).href.replace(/\/$/, "");

const KEY = "pennon.key";
const PAGE = 2000;

/** An error response, or no response (`status` 0). */
export class ApiError extends Error {
  constructor(status, body) {
    super(body?.error ?? `The server responded with status ${status}.`);
    this.status = status;
    this.code = body?.code;
    this.detail = body?.detail ?? "";
    this.requestId = body?.request_id ?? "";
  }
}

export const events = new EventTarget();

// Stored for this tab only: closing it signs out.
export const key = {
  get: () => sessionStorage.getItem(KEY),
  set: (value) => (value ? sessionStorage.setItem(KEY, value) : sessionStorage.removeItem(KEY)),
};

/** @typedef {{method: string, path: string, body?: object, python?: string}} Request */

function headers(more = {}) {
  const secret = key.get();
  return { accept: "application/json", ...(secret ? { "x-api-key": secret } : {}), ...more };
}

async function ask(request, signal, more) {
  const { method, path, body } = request;
  let response;
  try {
    response = await fetch(BASE + path, {
      method,
      signal,
      headers: headers({ ...(body === undefined ? {} : { "content-type": "application/json" }), ...more }),
      body: body === undefined ? undefined : JSON.stringify(body),
      cache: "no-store",
      credentials: "omit",
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    events.dispatchEvent(new Event("offline"));
    throw new ApiError(0, {
      error: "The server does not respond.",
      detail: "Is it running? The page reconnects automatically.",
    });
  }
  if (!response.ok) {
    const failure = await response.json().catch(() => null);
    if (response.status === 401) events.dispatchEvent(new Event("signin"));
    throw new ApiError(response.status, failure);
  }
  return response;
}

/** Send a request and return the JSON of its response. @param {Request} request */
export async function call(request, signal) {
  const response = await ask(request, signal);
  const text = await response.text();
  return text ? JSON.parse(text) : null;
}

/** Return the bytes of a response. */
export async function download(request, signal) {
  const response = await ask(request, signal, { accept: "*/*" });
  return response.blob();
}

/** Return all items of a paged listing; `onPage` is called after each page. */
export async function listAll(make, field, signal, onPage = () => {}) {
  const found = [];
  let token = null;
  do {
    const page = await call(make(token), signal);
    found.push(...(page[field] ?? []));
    onPage(found);
    token = page.page_token || null;
  } while (token);
  return found;
}

/** A request for a page of a listing. */
export function listing(path, token, more = "") {
  const after = token ? `&page_token=${encodeURIComponent(token)}` : "";
  return { method: "GET", path: `${path}?limit=${PAGE}${more}${after}` };
}

/**
 * Read server-sent events; EventSource cannot send a key.
 * @param {(kind: string, data: any) => void} onEvent
 * @returns {Promise<number>} the number of the last event
 */
export async function follow(path, after, onEvent, signal) {
  const response = await ask({ method: "GET", path: `${path}?after=${after}` }, signal, {
    accept: "text/event-stream",
  });
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  let last = after;
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return last;
    const blocks = (rest + value).split("\n\n");
    rest = blocks.pop();
    for (const block of blocks) {
      const event = Object.fromEntries(
        block
          .split("\n")
          .filter((line) => line.includes(": "))
          .map((line) => [line.slice(0, line.indexOf(":")), line.slice(line.indexOf(":") + 2)]),
      );
      if (event.id) last = Number(event.id);
      if (event.event) onEvent(event.event, JSON.parse(event.data));
    }
  }
}

export const pathOf = (names) => encodeURIComponent(names.join("$"));

/** A request about a table. */
export function onTable(names, verb, body = {}, python) {
  return { method: "POST", path: `/v1/table/${pathOf(names)}/${verb}`, body, python };
}

/** A request about a job. */
export function onJob(verb, body, python) {
  return { method: "POST", path: `/v1/jobs/${verb}`, body, python };
}
