/** Who is signed in, and what that key may do: what it may not is not offered. */

import { call } from "./api.js";

const ORDER = { reader: 0, writer: 1, admin: 2 };

let caller = { name: "", recognised_by_key: false, grants: [] };

/** Ask the server who it takes us for. */
export async function recognise() {
  caller = await call({ method: "GET", path: "/v1/whoami" });
  return caller;
}

export const who = () => caller;

/** Tell whether the key may write to tables of a namespace. @param {string[]} namespace */
export function mayWrite(namespace) {
  return caller.grants.some(
    (grant) => ORDER[grant.role] >= ORDER.writer && grant.namespace.every((name, at) => namespace[at] === name),
  );
}
