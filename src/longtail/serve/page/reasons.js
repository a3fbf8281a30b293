// The words that speak for or against a label: marked in the text, and listed under it.

import { call } from "./api.js";
import { onScale, shiftedThreshold, signed, valueOf } from "./decisions.js";
import { byId, element } from "./dom.js";
import { mark, marked } from "./editor.js";

const panel = byId("reasons");
const MOST_WORDS = 8; // of each kind in the list; the text shows all that came
const HINT =
  "Point at a label, or move to it with the Tab key, to see which words speak for and against it.";
const NO_WORDS = "No word of the text speaks for it or against it.";
const NO_REASONS = "The service gives reasons for the best labels alone; this one is further down.";

const WEAKEST = 0.05; // of the strongest word's value: below, a mark would be noise

let asked = null; // {result, answer}: one request per text, made when a label is first pointed at

/** Show the reasons of a label of this result, or the hint. */
export async function showReasons(view, name) {
  const { result } = view;
  panel.classList.toggle("active", name !== null);
  const label = result?.labels.find((each) => each.label === name);
  if (!label || view.stale()) {
    mark([]);
    const none = name && !label ? `${name} is not among the labels that came with this text.` : "";
    const told = none || (result?.labels.length ? HINT : "");
    panel.replaceChildren(...(told ? [element("p", { class: "soft" }, told)] : []));
    return;
  }
  try {
    if (asked?.result !== result || !asked.names.has(name)) {
      panel.replaceChildren(
        heading(label, view.strictness),
        element("p", { class: "soft" }, "Asking for the words…"),
      );
      asked = { result, names: new Set(view.shown().map((each) => each.label)), answer: ask(view) };
    }
    const found = (await asked.answer).get(name);
    if (view.active !== name || view.result !== result || view.stale()) return;
    mark(found ?? []);
    const words = found?.length
      ? lists(found)
      : [element("p", { class: "soft" }, found ? NO_WORDS : NO_REASONS)];
    panel.replaceChildren(heading(label, view.strictness), ...words);
  } catch (error) {
    if (asked?.result === result) asked = null; // the next pointing asks again
    if (view.active === name && view.result === result) {
      panel.replaceChildren(
        heading(label, view.strictness),
        element("p", { class: "message error" }, error.message),
      );
    }
  }
}

/** Reasons by label, of the labels that are shown. */
async function ask(view) {
  const { result } = view;
  const last = Math.max(0, ...view.shown().map((label) => result.labels.indexOf(label))) + 1;
  const answer = await call(`models/${encodeURIComponent(result.model)}/predict`, {
    body: { documents: [{ text: result.text }], top_k: last, reasons: true },
  });
  return new Map(
    answer.documents[0].labels.map(({ label, reasons }) => [label, reasons && strong(reasons)]),
  );
}

function strong(reasons) {
  const largest = Math.max(...reasons.map(({ value }) => Math.abs(value)));
  return reasons.filter(({ value }) => Math.abs(value) >= WEAKEST * largest);
}

function heading(label, strictness) {
  const threshold = shiftedThreshold(label, strictness);
  const at = threshold === null ? "never predicted" : `threshold ${onScale(label, threshold)}`;
  return element(
    "p",
    { class: "reasons-label" },
    element("strong", {}, label.label),
    element("span", { class: "soft" }, ` ${onScale(label, valueOf(label))}, ${at}`),
  );
}

function lists(reasons) {
  const sums = new Map(); // a word may occur several times
  for (const { word, value } of reasons) {
    const key = word.toLowerCase();
    sums.set(key, [sums.get(key)?.[0] ?? word, (sums.get(key)?.[1] ?? 0) + value]);
  }
  const ordered = [...sums.values()].sort((a, b) => Math.abs(b[1]) - Math.abs(a[1]));
  const largest = Math.abs(ordered[0][1]);
  const line = (title, chosen) =>
    chosen.length === 0
      ? null
      : element(
          "p",
          { class: "reasons-line" },
          element("span", { class: "soft kind" }, title),
          element(
            "span",
            {},
            ...chosen
              .slice(0, MOST_WORDS)
              .flatMap(([word, value]) => [
                element(
                  "span",
                  { class: "word" },
                  marked(word, value, largest),
                  ` ${signed(value)}`,
                ),
                " ",
              ]),
          ),
        );
  return [
    line(
      "for",
      ordered.filter(([, value]) => value > 0),
    ),
    line(
      "against",
      ordered.filter(([, value]) => value < 0),
    ),
  ].filter((each) => each !== null);
}
