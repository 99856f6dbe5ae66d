/** The address of what is shown: all of it is in the part after "#", so it can be kept, sent and gone back to. */

/** @typedef {{page: string, id: string[], rest: string[], params: URLSearchParams, path: string}} Route */

/** Return the route of an address. @returns {Route} */
export function parse(hash) {
  const [path, query = ""] = hash.replace(/^#\/?/, "").split("?");
  const [page = "", id = "", ...rest] = path.split("/").map(decodeURIComponent);
  return { page, id: id ? id.split("$") : [], rest, params: new URLSearchParams(query), path };
}

/** Return the address of a page. @param {(string)[]} parts */
export function address(parts, params = {}) {
  const given = Object.entries(params).filter(([, value]) => value !== null && value !== undefined && value !== "");
  const query = new URLSearchParams(given).toString();
  return `#/${parts.map(encodeURIComponent).join("/")}${query ? `?${query}` : ""}`;
}

export const tableAddress = (names, tab, params) => address(["table", names.join("$"), ...(tab ? [tab] : [])], params);

/** Show the page anew, with what the server knows now. */
export const showAgain = () => window.dispatchEvent(new HashChangeEvent("hashchange"));

/** Go to an address; parameters that change on the same page leave no trail of their own. */
export function go(to, { replace = false } = {}) {
  if (replace) {
    history.replaceState(null, "", to);
    showAgain();
  } else {
    location.hash = to;
  }
}
