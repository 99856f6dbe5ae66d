/** URLs of pages: all state is in the part after "#", so that pages can be bookmarked, shared and gone back to. */

/** @typedef {{page: string, id: string[], rest: string[], params: URLSearchParams, path: string}} Route */

/** Parse a URL hash. @returns {Route} */
export function parse(hash) {
  const [path, query = ""] = hash.replace(/^#\/?/, "").split("?");
  const [page = "", id = "", ...rest] = path.split("/").map(decodeURIComponent);
  return { page, id: id ? id.split("$") : [], rest, params: new URLSearchParams(query), path };
}

/** Return the URL of a page. @param {(string)[]} parts */
export function address(parts, params = {}) {
  const given = Object.entries(params).filter(([, value]) => value !== null && value !== undefined && value !== "");
  const query = new URLSearchParams(given).toString();
  return `#/${parts.map(encodeURIComponent).join("/")}${query ? `?${query}` : ""}`;
}

export const tableAddress = (names, tab, params) => address(["table", names.join("$"), ...(tab ? [tab] : [])], params);

/** Load the page again from the server. */
export const reloadPage = () => window.dispatchEvent(new HashChangeEvent("hashchange"));

/** Go to a URL; with `replace`, without a new entry in the history. */
export function go(to, { replace = false } = {}) {
  if (replace) {
    history.replaceState(null, "", to);
    reloadPage();
  } else {
    location.hash = to;
  }
}
