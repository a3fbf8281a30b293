// The list of labels: a row each, with a checkbox, a bar with the threshold, and what changed.

import {
  barRange,
  isPredicted,
  onScale,
  shiftedThreshold,
  thresholdText,
  valueOf,
} from "./decisions.js";
import { byId, element } from "./dom.js";

const list = byId("labels");
const rows = new Map(); // label -> its elements; reused for a text, so that focus is not lost

/** Draw the rows; `onActive` is called with the label under the pointer or focus, or null. */
export function showLabels(view, { onTick, onActive }) {
  const range = barRange(view.result?.labels ?? []);
  const shown = view.shown();
  for (const label of shown) {
    if (!rows.has(label.label)) rows.set(label.label, makeRow(label, onTick, onActive));
    update(rows.get(label.label), label, view, range);
  }
  const items = shown.map((label) => rows.get(label.label).item);
  if (items.length !== list.children.length || items.some((item, k) => item !== list.children[k])) {
    list.replaceChildren(...items);
  }
  byId("labels-empty").hidden = items.length > 0;
}

export function forgetRows() {
  rows.clear();
}

/** Highlight the label whose words are marked in the text. */
export function highlightRow(name) {
  for (const [label, { item }] of rows) item.classList.toggle("active", label === name);
}

function makeRow({ label, group }, onTick, onActive) {
  const tick = element("input", { type: "checkbox", "aria-label": label });
  const name = element("button", { type: "button", class: "name", dir: "auto" }, label);
  const value = element("span", { class: "value" });
  const mark = element("span", { class: "change" });
  const bar = element(
    "span",
    { class: "bar", role: "img" },
    element("span", { class: "fill" }),
    element("span", { class: "trained" }),
    element("span", { class: "threshold" }),
  );
  const about = element("span", { class: "about-label" }, badge(group), mark);
  const item = element(
    "li",
    { class: "row" },
    tick,
    element("span", { class: "title" }, name, about),
    value,
    bar,
  );
  tick.addEventListener("change", () => onTick(label, tick.checked));
  item.addEventListener("pointerenter", () => onActive(label));
  item.addEventListener("pointerleave", () => onActive(focused()));
  item.addEventListener("focusin", () => onActive(label));
  item.addEventListener("focusout", () => onActive(null));
  return { item, tick, value, mark, bar };
}

const focused = () =>
  [...rows].find(([, { item }]) => item.contains(document.activeElement))?.[0] ?? null;

export const badge = (group) => element("span", { class: `badge ${group}` }, group);

function update({ item, tick, value, mark, bar }, label, view, range) {
  const predicted = isPredicted(label, view.strictness);
  tick.checked = view.isTicked(label);
  item.classList.toggle("ticked", tick.checked);
  const [sign, change] = changed(label, predicted, tick.checked);
  mark.replaceChildren(
    ...(change ? [element("span", { "aria-hidden": "true" }, `${sign} `), change] : []),
  );
  const known = valueOf(label) !== null;
  value.textContent = known ? onScale(label, valueOf(label)) : "";
  bar.hidden = !known;
  if (known) drawBar(bar, label, view.strictness, range);
}

/** A sign and a word for what differs from the model's decision. */
function changed(label, predicted, ticked) {
  if (ticked !== predicted) return ticked ? ["+", "added by you"] : ["−", "removed by you"];
  if (predicted === label.predicted) {
    return ["", label.threshold === null && label.score !== null ? "never predicted" : ""];
  }
  return predicted ? ["+", "appears"] : ["−", "vanishes"];
}

function drawBar(bar, label, strictness, [low, high]) {
  const place = (x) => `${(100 * Math.min(1, Math.max(0, (x - low) / (high - low)))).toFixed(2)}%`;
  const threshold = shiftedThreshold(label, strictness);
  bar.style.setProperty("--value", place(valueOf(label)));
  bar.classList.toggle("unthresholded", threshold === null);
  bar.classList.toggle("shifted", strictness !== 0);
  if (threshold !== null) {
    bar.style.setProperty("--threshold", place(threshold));
    bar.style.setProperty("--trained", place(label.threshold));
  }
  bar.title = thresholdText(label, strictness);
  bar.setAttribute("aria-label", `${onScale(label, valueOf(label))}, ${bar.title}`);
}
