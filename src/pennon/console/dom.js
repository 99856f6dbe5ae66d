/** Creation of elements. Text is never parsed as markup. */

const SVG = "http://www.w3.org/2000/svg";

/**
 * Create an element.
 * @param {string} tag its name, with classes as in "div.card.wide"
 * @param {Record<string, unknown>} [props] `on…` listeners, `style` as an object, properties or attributes
 * @param {...unknown} children elements, text, lists of them; null and false are left out
 * @returns {HTMLElement}
 */
export function h(tag, props = {}, ...children) {
  const [name, ...classes] = tag.split(".");
  return fill(document.createElement(name), classes, props, children);
}

/** Create an SVG element. */
export function s(tag, props = {}, ...children) {
  const [name, ...classes] = tag.split(".");
  return fill(document.createElementNS(SVG, name), classes, props, children);
}

function fill(element, classes, props, children) {
  if (classes.length) element.classList.add(...classes);
  for (const [name, value] of Object.entries(props)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "style") Object.assign(element.style, value);
    else if (name === "class") element.classList.add(...value.split(" ").filter(Boolean));
    else if (name in element && !(element instanceof SVGElement) && typeof value !== "string") element[name] = value;
    else if (name === "value") element.value = value;
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  add(element, children);
  return element;
}

/** Append children; lists are flattened. */
export function add(element, children) {
  for (const child of children) {
    if (Array.isArray(child)) add(element, child);
    else if (child !== null && child !== undefined && child !== false) element.append(child);
  }
}

/** Replace the children of an element. */
export function put(element, ...children) {
  element.replaceChildren();
  add(element, children);
  return element;
}

/** Call a function once its calls have stopped for a while. */
export function debounce(work, milliseconds = 200) {
  let timer = 0;
  return (...given) => {
    clearTimeout(timer);
    timer = setTimeout(() => work(...given), milliseconds);
  };
}

const nameOf = (element) => element.id || element.getAttribute("aria-label") || element.textContent;

/** Redraw an element and keep the focus and scroll positions. */
export function redraw(root, draw) {
  const active =
    root.contains(document.activeElement) && document.activeElement !== root ? document.activeElement : null;
  const focused = active && { tag: active.tagName, name: nameOf(active) };
  const regions = [...root.querySelectorAll("[role=region][aria-label]")].map((region) => [
    nameOf(region),
    region.scrollTop,
    region.scrollLeft,
  ]);
  draw();
  const now = [...root.querySelectorAll("[role=region][aria-label]")];
  for (const [name, top, left] of regions) {
    const region = top || left ? now.find((candidate) => nameOf(candidate) === name) : null;
    if (region) Object.assign(region, { scrollTop: top, scrollLeft: left });
  }
  if (!focused || root.contains(document.activeElement)) return;
  [...root.querySelectorAll(focused.tag)]
    .find((element) => nameOf(element) === focused.name)
    ?.focus({ preventScroll: true });
}

/** Tell whether text of an element is selected: redrawing it would lose the selection. */
export function hasSelection(root) {
  const selection = getSelection();
  return !selection.isCollapsed && root.contains(selection.anchorNode);
}
