// The slider that moves all thresholds, in the page alone, and what that changes.

import { isPredicted } from "./decisions.js";
import { byId } from "./dom.js";

const slider = byId("strictness");
const NAMED = 5; // labels that are named as they appear or vanish; the list shows all
const RANGES = { logit: { max: 5, step: 0.1 }, margin: { max: 2, step: 0.05 } };

/** Call back with the strictness as it is moved. */
export function watchStrictness(onMove) {
  slider.addEventListener("input", () => onMove(slider.valueAsNumber));
  byId("strictness-reset").addEventListener("click", () => {
    slider.value = 0;
    slider.focus();
    onMove(0);
  });
}

/** Make the slider fit the scale of a model's scores, and stand at 0. */
export function resetStrictness(scale) {
  const { max, step } = RANGES[scale] ?? RANGES.logit;
  Object.assign(slider, { min: -max, max, step, value: 0 });
}

/** Say where the slider stands, and which of these labels appear or vanish by it. */
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
  const names = labels.slice(0, NAMED).map(({ label }) => label);
  const rest = labels.length > NAMED ? ` and ${labels.length - NAMED} more` : "";
  const ending = labels.length > 1 ? "" : verb === "vanish" ? "es" : "s";
  return `${names.join(", ")}${rest} ${verb}${ending}`;
}
