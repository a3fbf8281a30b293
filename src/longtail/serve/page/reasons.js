// The words for and against a label: marked in the text, and listed below it.

import { call, modelPath } from "./api.js";
import { onScale, signed, thresholdText, valueOf } from "./decisions.js";
import { byId, element } from "./dom.js";
import { mark, marked } from "./editor.js";

const panel = byId("reasons");
const words = byId("words");
const MAX_WORDS = 8; // for and against each, in the list; the text shows all
const WEAKEST = 0.05; // share of the strongest word's value; weaker words are not shown
const NO_WORDS = "No word of the text speaks for or against it.";

let requested = null; // {result, answers}: a request per label, on first pointing at it
let pending = new AbortController(); // of the last request: an encoder takes seconds for each

/** Show the reasons of a label of this result instead of the hint. */
export async function showReasons(view, name) {
  const { result } = view;
  panel.hidden = name === null && !result?.labels.length;
  panel.classList.toggle("active", name !== null);
  const label = result?.labels.find((each) => each.label === name);
  if (!label || view.stale()) {
    mark([]);
    const text = label
      ? "The text has changed since these labels were predicted."
      : `${name} is not among the labels returned for this text.`;
    words.replaceChildren(...(name === null ? [] : [note(text)]));
    return;
  }
  const show = (...content) => words.replaceChildren(heading(label, view.strictness), ...content);
  try {
    if (requested?.result !== result) requested = { result, answers: new Map() };
    if (!requested.answers.has(name)) {
      mark([]);
      show(note("Loading the words…"));
      requested.answers.set(name, request(result, label));
    }
    const reasons = await requested.answers.get(name);
    if (view.active !== name || view.result !== result || view.stale()) return;
    mark(reasons);
    show(...(reasons.length ? lists(reasons) : [note(NO_WORDS)]));
  } catch (error) {
    const final = error.status === 422; // such as from a model without reasons
    if (requested.result === result && !final) requested.answers.delete(name); // pointing retries
    if (view.active === name && view.result === result)
      show(note(error.message, final ? "soft" : "message error"));
  }
}

const note = (text, style = "soft") => element("p", { class: style }, text);

/** The reasons of a label; drops the request for another one. */
async function request({ model, text, labels }, label) {
  pending.abort();
  pending = new AbortController();
  const answer = await call(modelPath(model, "/predict"), {
    body: {
      documents: [{ text }],
      top_k: labels.indexOf(label) + 1,
      reasons_for: [label.label],
    },
    signal: pending.signal,
  });
  const row = answer.documents[0].labels.find(({ label: name }) => name === label.label);
  return strong(row?.reasons ?? []);
}

function strong(reasons) {
  const largest = Math.max(...reasons.map(({ value }) => Math.abs(value)));
  return reasons.filter(({ value }) => Math.abs(value) >= WEAKEST * largest);
}

const heading = (label, strictness) =>
  element(
    "p",
    { class: "reasons-label" },
    element("strong", {}, label.label),
    element(
      "span",
      { class: "soft" },
      ` ${onScale(label, valueOf(label))}, ${thresholdText(label, strictness)}`,
    ),
  );

function lists(reasons) {
  const sums = new Map(); // a word may occur several times
  for (const { word, value } of reasons) {
    const [first, sum] = sums.get(word.toLowerCase()) ?? [word, 0];
    sums.set(word.toLowerCase(), [first, sum + value]);
  }
  const ordered = [...sums.values()].sort((a, b) => Math.abs(b[1]) - Math.abs(a[1]));
  const largest = Math.abs(ordered[0][1]);
  const line = (title, words) =>
    element(
      "p",
      { class: "reasons-line" },
      element("span", { class: "soft kind" }, title),
      element(
        "span",
        {},
        ...words
          .slice(0, MAX_WORDS)
          .flatMap(([word, value]) => [
            element("span", { class: "word" }, marked(word, value, largest), ` ${signed(value)}`),
            " ",
          ]),
      ),
    );
  const sides = [
    ["for", ordered.filter(([, value]) => value > 0)],
    ["against", ordered.filter(([, value]) => value < 0)],
  ];
  return sides.filter(([, words]) => words.length > 0).map(([title, words]) => line(title, words));
}
