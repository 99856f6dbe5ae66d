/** The caller and its grants: the console hides actions that the caller may not perform. */

import { call } from "./api.js";

const ORDER = { reader: 0, writer: 1, admin: 2 };

let caller = { name: "", authenticated: false, grants: [] };

/** Ask the server who the caller is. */
export async function identify() {
  caller = await call({ method: "GET", path: "/v1/whoami" });
  return caller;
}

export const who = () => caller;

/** Tell whether the key may write to tables of a namespace. @param {string[]} namespace */
export function canWrite(namespace) {
  return caller.grants.some(
    (grant) => ORDER[grant.role] >= ORDER.writer && grant.namespace.every((name, at) => namespace[at] === name),
  );
}
