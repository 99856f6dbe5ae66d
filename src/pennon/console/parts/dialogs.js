/** Dialogs, forms, errors and toasts. */

import { h, put } from "../dom.js";

/** Show a message for a few seconds. */
export function toast(text, kind = "") {
  const element = h("div.toast", { class: kind }, text);
  document.getElementById("toasts").append(element);
  setTimeout(() => element.remove(), kind === "bad" ? 8000 : 3500);
}

/** An error, with advice and a button to retry. */
export function errorBox(error, retry) {
  return h(
    "div.problem",
    { role: "alert" },
    h("strong", {}, error.message),
    error.detail ? h("p", {}, error.detail) : null,
    error.requestId ? h("p.muted.small", {}, `Request ${error.requestId}`) : null,
    retry ? h("button", { type: "button", onclick: retry }, "Retry") : null,
  );
}

/** A placeholder where there is nothing to show. */
export const emptyState = (title, ...advice) => h("div.nothing", {}, h("strong", {}, title), h("p", {}, ...advice));

/** Open a dialog, and return a function that closes it; going to another page closes it, too. */
export function openDialog({ title, body, foot = [], wide = false }) {
  const close = () => dialog.close();
  const leave = () => {
    window.removeEventListener("hashchange", close);
    dialog.remove();
  };
  const dialog = h(
    "dialog",
    { class: wide ? "wide" : "", "aria-label": title, onclose: leave },
    h(
      "div.dialog-head",
      {},
      h("h2", {}, title),
      h("button.quiet", { type: "button", "aria-label": "Close", onclick: close }, "✕"),
    ),
    h("div.dialog-body", { tabindex: "-1" }, body),
    foot.length ? h("div.dialog-foot", {}, foot) : null,
  );
  window.addEventListener("hashchange", close);
  document.body.append(dialog);
  dialog.showModal();
  return close;
}

/**
 * @typedef {{name: string, label: string, kind?: "text"|"number"|"choice"|"flag"|"long", value?: any,
 *   choices?: (string|[string, string])[], hint?: string, required?: boolean, folded?: boolean}} Field
 */

/** Create the control of a field. @param {Field} field */
export function control(field) {
  const id = `field-${field.name}`;
  const shared = {
    id,
    name: field.name,
    required: field.required,
    "aria-describedby": field.hint ? `${id}-hint` : null,
  };
  let input;
  if (field.kind === "choice") {
    input = h(
      "select",
      shared,
      (field.choices ?? []).map((choice) => {
        const [value, text] = Array.isArray(choice) ? choice : [choice, choice];
        return h("option", { value, selected: value === field.value }, text);
      }),
    );
  } else if (field.kind === "flag") {
    input = h("input", { ...shared, type: "checkbox", checked: Boolean(field.value) });
  } else if (field.kind === "long") {
    input = h("textarea", { ...shared, rows: "3", spellcheck: "false", value: field.value ?? "" });
  } else {
    input = h("input", {
      ...shared,
      type: field.kind ?? "text",
      value: field.value === undefined ? "" : String(field.value),
      autocomplete: "off",
      spellcheck: "false",
    });
  }
  const hint = field.hint ? h("span.hint", { id: `${id}-hint` }, field.hint) : null;
  const label = h("label", { for: id }, field.label);
  if (field.kind === "flag") return h("div.field.flag", {}, input, label, hint);
  return h("div.field", { class: field.kind === "number" ? "half" : "" }, label, input, hint);
}

/** Read the values of a form; empty ones are left out. @param {Field[]} fields */
export function valuesOf(form, fields) {
  const found = {};
  for (const field of fields) {
    const input = form.elements[field.name];
    if (field.kind === "flag") {
      if (input.checked) found[field.name] = true;
    } else if (input.value.trim() !== "") {
      found[field.name] = field.kind === "number" ? Number(input.value) : input.value.trim();
    }
  }
  return found;
}

/**
 * Open a form in a dialog, and run an action with its values; an error keeps the dialog open.
 * @param {{title: string, fields: Field[], verb: string, work: (values: any) => Promise<any>, danger?: boolean,
 *   intro?: any, copies?: (read: () => any) => any, more?: {label: string, work: (values: any, say: (node: any) => void) => any}[]}} given
 */
export function openForm({ title, fields, verb, work, danger = false, intro = null, copies = null, more = [] }) {
  const message = h("div.message", { "aria-live": "polite" });
  const folded = fields.filter((field) => field.folded).map(control);
  const form = h(
    "form",
    {
      onsubmit: (event) => {
        event.preventDefault();
        run(() => work(valuesOf(form, fields)), true);
      },
    },
    intro,
    fields.filter((field) => !field.folded).map(control),
    folded.length ? h("details", {}, h("summary", {}, "More fields"), folded) : null,
    message,
  );
  const submit = h(
    "button.primary",
    { type: "button", class: danger ? "danger" : "", onclick: () => form.requestSubmit() },
    verb,
  );
  async function run(step, closes) {
    submit.disabled = true;
    try {
      await step();
      if (closes) close();
    } catch (error) {
      put(message, errorBox(error));
    } finally {
      submit.disabled = false;
    }
  }
  const others = more.map((extra) =>
    h(
      "button",
      {
        type: "button",
        onclick: () =>
          form.reportValidity() && run(() => extra.work(valuesOf(form, fields), (node) => put(message, node)), false),
      },
      extra.label,
    ),
  );
  const foot = [copies ? copies(() => valuesOf(form, fields)) : null, h("span.spring"), ...others, submit];
  const close = openDialog({ title, body: form, foot });
  form.elements[0]?.focus();
}
