/** Values in the grid: vectors as small bars, images as images. */

import { download, pathOf } from "../api.js";
import { h } from "../dom.js";
import { bytes, digits, isBinary, isBlob, isVector, shorten } from "../format.js";
import { openDialog } from "../parts/dialogs.js";
import { sparkline } from "../parts/charts.js";

// The first base64 characters of image formats.
const PICTURES = { iVBORw0KGgo: "image/png", "/9j/": "image/jpeg", R0lGOD: "image/gif", UklGR: "image/webp" };

/** Return the media type of an image in base64; null for other bytes. */
export function pictureType(text) {
  if (typeof text !== "string") return null;
  const start = Object.keys(PICTURES).find((known) => text.startsWith(known));
  return start ? PICTURES[start] : null;
}

function pictureUrl(text, type) {
  const content = Uint8Array.from(atob(text), (char) => char.charCodeAt(0));
  return URL.createObjectURL(new Blob([content], { type }));
}

function picture(text, type, name, large) {
  const url = pictureUrl(text, type);
  return h("img", {
    class: large ? "picture large" : "picture",
    src: url,
    alt: `Picture in ${name}`,
    onload: () => URL.revokeObjectURL(url),
  });
}

const sizeOf = (text) => Math.floor((text.length * 3) / 4) - (text.endsWith("==") ? 2 : text.endsWith("=") ? 1 : 0);

/** A value in a cell of the grid. */
export function cell(value, field) {
  if (value === null || value === undefined) return h("span.null", {}, "null");
  if (isBinary(field.type)) {
    const type = pictureType(value);
    return type ? picture(value, type, field.name, false) : h("span.muted", {}, `${bytes(sizeOf(value))} binary`);
  }
  if (isBlob(field)) return h("span.muted", {}, `${bytes(value.size ?? 0)} blob`);
  if (isVector(field.type))
    return h(
      "span.row",
      { title: `${value.length} numbers` },
      sparkline(value),
      h("span.muted.small", {}, `${value.length}d`),
    );
  if (typeof value === "object") return shorten(JSON.stringify(value), 80);
  if (typeof value === "number") return digits(value);
  return shorten(String(value), 120);
}

/** A value in full. */
function whole(value, field, table, row) {
  if (value === null || value === undefined) return h("span.null", {}, "null");
  if (isBinary(field.type)) {
    const type = pictureType(value);
    return type
      ? picture(value, type, field.name, true)
      : h("code.wrap", {}, `${bytes(sizeOf(value))}${value && `: ${shorten(value, 400)}`}`);
  }
  if (isBlob(field) && row._rowid !== undefined) {
    return h(
      "button",
      { type: "button", onclick: (event) => openBlob(table, field.name, row._rowid, event.target) },
      `Read ${bytes(value.size ?? 0)}`,
    );
  }
  if (isVector(field.type)) return [sparkline(value), h("code.wrap", {}, `[${value.join(", ")}]`)];
  return typeof value === "object"
    ? h("pre.code", { tabindex: "0" }, JSON.stringify(value, null, 2))
    : h("span.wrap", {}, String(value));
}

async function openBlob(table, column, row, button) {
  const path = `/v1/table/${pathOf(table.names)}/blob/${encodeURIComponent(column)}/${row}/bytes`;
  const content = await download({ method: "GET", path });
  const head = btoa(String.fromCharCode(...new Uint8Array(await content.slice(0, 12).arrayBuffer())));
  const type = pictureType(head);
  const url = URL.createObjectURL(type ? new Blob([content], { type }) : content);
  button.replaceWith(
    type
      ? h("img.picture.large", { src: url, alt: `Picture in ${column}` })
      : h("a", { href: url, download: column }, `Save ${bytes(content.size)}`),
  );
}

/** Show a row in full. */
export function showRow(table, row, fields, more = () => null) {
  const list = fields.map((field) => [
    h("dt", {}, field.name),
    h("dd", {}, whole(row[field.name], field, table, row), more(field)),
  ]);
  openDialog({
    title: row._rowid === undefined ? "Row" : `Row id ${row._rowid}`,
    body: h("dl.facts.one", {}, list),
    wide: true,
  });
}
