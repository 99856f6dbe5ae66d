/** The application: signs in, draws the tree, and shows the page of the URL. */

import { BASE, events, key } from "./api.js";
import { h, put, redraw } from "./dom.js";
import { home, namespacePage } from "./home.js";
import { jobPage } from "./jobs/detail.js";
import { jobsPage } from "./jobs/list.js";
import { emptyState, errorBox } from "./parts/dialogs.js";
import { parse } from "./router.js";
import { identify } from "./session.js";
import { tablePage } from "./table/page.js";
import { Tree } from "./tree.js";

const PAGES = { "": home, namespace: namespacePage, table: tablePage, jobs: jobsPage, job: jobPage };
const RETRY_MILLIS = 2000;

const main = document.getElementById("main");
const banner = document.getElementById("offline");
let leavePage = new AbortController();
let shownPath = null;
let tree = null;

/** Show the page of the URL; the previous one stays until it is ready, to avoid flicker. */
async function show() {
  const route = parse(location.hash);
  const page = PAGES[route.page];
  leavePage.abort();
  leavePage = new AbortController();
  const { signal } = leavePage;
  main.setAttribute("aria-busy", "true");
  tree?.mark(route.page === "table" ? route.id : []);
  for (const link of document.querySelectorAll(".links a")) {
    const here = link.hash.replace("#/", "") === (route.page === "job" ? "jobs" : route.page);
    if (here) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  let content;
  try {
    content = page
      ? await page(route, signal)
      : emptyState("Page not found.", h("a", { href: "#/" }, "Go to the overview"));
  } catch (error) {
    if (signal.aborted || error.status === 401) return;
    content = errorBox(error, show);
  }
  if (signal.aborted) return;
  redraw(main, () => put(main, content));
  main.querySelector(".tabs [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });
  main.setAttribute("aria-busy", "false");
  const heading = main.querySelector("h1");
  document.title = heading ? `${heading.textContent} · Pennon` : "Pennon";
  const path = `${route.page}/${route.id.join("$")}`;
  if (shownPath !== null && shownPath !== path) {
    main.scrollTop = 0;
    main.focus({ preventScroll: true });
  }
  shownPath = path;
}

function signIn(message = "") {
  leavePage.abort();
  const input = h("input", { id: "key", type: "password", autocomplete: "current-password", required: true });
  const form = h(
    "form.signin.card",
    {
      onsubmit: (event) => {
        event.preventDefault();
        key.set(input.value.trim());
        start();
      },
    },
    h("h1", {}, "Sign in"),
    h("p", {}, "This server needs an API key. The browser forgets it when you close this tab."),
    h("div.field", {}, h("label", { for: "key" }, "API key"), input),
    message ? h("p.bad", { role: "alert" }, message) : null,
    h("button.primary", { type: "submit" }, "Sign in"),
    h("p.muted.small", {}, "Your administrator creates keys with ", h("code", {}, "pennon keys create"), "."),
  );
  document.body.classList.add("signed-out");
  put(main, form);
  main.setAttribute("aria-busy", "false");
  input.focus();
}

async function start() {
  let caller;
  try {
    caller = await identify();
  } catch (error) {
    if (error.status === 401) signIn(key.get() ? error.message : "");
    else put(main, errorBox(error, start));
    key.set(error.status === 401 ? null : key.get());
    return;
  }
  document.body.classList.remove("signed-out");
  document.getElementById("caller").textContent = caller.authenticated ? caller.name : "";
  document.getElementById("leave").hidden = !caller.authenticated;
  tree = new Tree(document.getElementById("side"));
  tree.load();
  show();
}

/** Wait for a server that does not respond, and reconnect. */
async function waitForServer() {
  if (!banner.hidden) return;
  banner.textContent = "The server does not respond. Retrying every two seconds…";
  banner.hidden = false;
  for (;;) {
    await new Promise((done) => setTimeout(done, RETRY_MILLIS));
    try {
      if ((await fetch(`${BASE}/healthz`, { cache: "no-store" })).ok) break;
    } catch {
      // Still down.
    }
  }
  banner.hidden = true;
  start();
}

function changeTheme() {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  localStorage.setItem("pennon.theme", root.dataset.theme);
}

function toggleDrawer(open = !document.body.classList.contains("drawer")) {
  document.body.classList.toggle("drawer", open);
  document.getElementById("menu").setAttribute("aria-expanded", String(open));
  if (open) document.querySelector("#side input")?.focus();
}

events.addEventListener("offline", waitForServer);
events.addEventListener(
  "signin",
  () => !document.body.classList.contains("signed-out") && tree && signIn("The key is no longer accepted."),
);
events.addEventListener("catalog", () => tree?.load());
window.addEventListener("hashchange", show);
document.getElementById("theme").addEventListener("click", changeTheme);
document.getElementById("menu").addEventListener("click", () => toggleDrawer());
document.getElementById("leave").addEventListener("click", () => {
  key.set(null);
  location.hash = "#/";
  start();
});
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
main.addEventListener("click", () => toggleDrawer(false));
document.addEventListener("keydown", (event) => {
  const writing = /^(INPUT|TEXTAREA|SELECT)$/.test(document.activeElement.tagName);
  if (event.key === "/" && !writing && !document.querySelector("dialog[open]")) {
    event.preventDefault();
    toggleDrawer(true);
    document.querySelector("#side input")?.focus();
  } else if (event.key === "Escape" && document.body.classList.contains("drawer")) {
    toggleDrawer(false);
    document.getElementById("menu").focus();
  }
});
start();
