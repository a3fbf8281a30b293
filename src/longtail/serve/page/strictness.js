// The slider that shifts all thresholds, only on this page, and the labels that this changes.

import { isPredicted } from "./decisions.js";
import { byId } from "./dom.js";

const slider = byId("strictness");
const MAX_NAMES = 5; // of labels that appear or vanish; the list shows them all
const MAX_CHARACTERS = 30; // of each name
const RANGES = { logit: { max: 5, step: 0.1 }, margin: { max: 2, step: 0.05 } };

/** Call back with the strictness when it changes. */
export function watchStrictness(onMove) {
  slider.addEventListener("input", () => onMove(slider.valueAsNumber));
  byId("strictness-reset").addEventListener("click", () => {
    slider.value = 0;
    slider.focus();
    onMove(0);
  });
}

/** Set the slider to 0, with the range and step of a model's scale. */
export function resetStrictness(scale) {
  const { max, step } = RANGES[scale];
  Object.assign(slider, { min: -max, max, step, value: 0 });
}

/** Show the value of the slider, and which of these labels appear or vanish. */
export function showStrictness(strictness, labels) {
  const digits = slider.step < 0.1 ? 2 : 1;
  const by = `${strictness > 0 ? "stricter" : "looser"} by ${Math.abs(strictness).toFixed(digits)}`;
  const value = strictness === 0 ? "as trained" : by;
  byId("strictness-value").textContent = value;
  slider.setAttribute("aria-valuetext", value);
  byId("strictness-reset").hidden = strictness === 0;

  const now = (label) => isPredicted(label, strictness);
  const appear = labels.filter((label) => now(label) && !label.predicted);
  const vanish = labels.filter((label) => !now(label) && label.predicted);
  const changes = [phrase(appear, "appear"), phrase(vanish, "vanish")].filter(Boolean);
  const nothing = strictness !== 0 && labels.length > 0 ? "No label appears or vanishes." : "";
  byId("strictness-effect").textContent = changes.length ? `${changes.join("; ")}.` : nothing;
}

function phrase(labels, verb) {
  if (labels.length === 0) return "";
  const names = labels.slice(0, MAX_NAMES).map(({ label }) => shortened(label));
  const rest = labels.length > MAX_NAMES ? ` and ${labels.length - MAX_NAMES} more` : "";
  const ending = labels.length > 1 ? "" : verb === "vanish" ? "es" : "s";
  return `${names.join(", ")}${rest} ${verb}${ending}`;
}

function shortened(name) {
  const characters = [...name];
  return characters.length > MAX_CHARACTERS
    ? `${characters.slice(0, MAX_CHARACTERS - 1).join("")}…`
    : name;
}
