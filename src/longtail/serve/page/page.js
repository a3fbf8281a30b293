// The page of `longtail serve`: a text, its labels with reasons, strictness, and corrections.

import { call, modelPath } from "./api.js";
import { showCard } from "./card.js";
import { isPredicted } from "./decisions.js";
import { byId, count, debounced, element, say, sayError } from "./dom.js";
import { setText, text, watchEditor } from "./editor.js";
import { forgetRows, highlightRow, showLabels } from "./labels.js";
import { showReasons } from "./reasons.js";
import { watchSearch } from "./search.js";
import { resetStrictness, showStrictness, watchStrictness } from "./strictness.js";

const PAUSE = 350; // ms without typing before a text is sent
const CANDIDATES = 50; // labels to request, so that a looser strictness can show more

/** The state of the page; everything that is shown follows from it. */
const view = {
  model: null, // the answer of GET /models/{name}
  result: null, // {model, text, labels} of the last prediction
  ticks: new Map(), // label -> whether it applies, where the reader decided
  added: [], // labels that the reader added by search
  strictness: 0,
  topK: 8,
  active: null, // the label whose words are marked

  stale: () => view.result === null || view.result.text !== text(),
  isTicked: (label) => view.ticks.get(label.label) ?? isPredicted(label, view.strictness),
  /** The k best labels, those predicted with or without strictness, and those of the reader. */
  shown() {
    const labels = view.result?.labels ?? [];
    const names = new Set(labels.map(({ label }) => label));
    return [
      ...labels.filter(
        (label, k) =>
          k < view.topK ||
          label.predicted ||
          isPredicted(label, view.strictness) ||
          view.ticks.has(label.label),
      ),
      ...view.added.filter(({ label }) => !names.has(label)),
    ];
  },
};

let predicting = null; // the AbortController of the request in progress

async function predict() {
  predictLater.cancel();
  predicting?.abort();
  const sent = text();
  if (view.model === null) return;
  if (!sent.trim()) return forget();
  const mine = (predicting = new AbortController());
  byId("labels").setAttribute("aria-busy", "true");
  try {
    const topK = Math.min(view.model.n_labels, Math.max(view.topK, CANDIDATES));
    const body = { documents: [{ text: sent }], top_k: topK };
    const path = modelPath(view.model.name, "/predict");
    const answer = await call(path, { body, signal: mine.signal });
    if (predicting !== mine) return;
    if (view.stale()) forget();
    say("predict-message");
    view.result = { model: view.model.name, text: sent, labels: answer.documents[0].labels };
    draw();
    activate(null);
  } catch (error) {
    if (error.name === "AbortError" || predicting !== mine) return;
    if (view.stale()) forget();
    const temporary = [0, 401, 408, 503].includes(error.status);
    sayError("predict-message", error.message, temporary ? tryAgain(predict) : []);
  } finally {
    if (predicting === mine) byId("labels").removeAttribute("aria-busy");
  }
}

const tryAgain = (action) => [
  " ",
  element("button", { type: "button", class: "link", click: action }, "Try again"),
];
const predictLater = debounced(predict, PAUSE);

/** Drop the labels, ticks and reasons of the previous text. */
function forget() {
  view.result = null;
  view.ticks.clear();
  view.added = [];
  forgetRows();
  say("predict-message");
  say("save-message");
  draw();
  activate(null);
}

function draw() {
  showLabels(view, { onTick, onActive: activate });
  const { result } = view;
  byId("labels").classList.toggle("stale", result !== null && view.stale());
  const labels = result?.labels ?? [];
  const predicted = labels.filter((label) => isPredicted(label, view.strictness)).length;
  const ticked = view.shown().filter(view.isTicked).length;
  const edited = ticked !== predicted || view.ticks.size > 0;
  const counts = edited ? `${predicted} predicted, ${ticked} ticked` : `${predicted} predicted`;
  byId("labels-count").textContent = result ? counts : "";
  byId("correction").hidden = result === null;
  showStrictness(view.strictness, labels);
}

function onTick(name, applies) {
  const label = view.shown().find((each) => each.label === name);
  if (label && isPredicted(label, view.strictness) === applies) view.ticks.delete(name);
  else view.ticks.set(name, applies);
  say("save-message");
  draw();
}

function activate(name) {
  view.active = name;
  highlightRow(name);
  showReasons(view, name);
}

function onChoose(label) {
  const known = [...view.result.labels, ...view.added];
  if (!known.some((each) => each.label === label.label)) {
    const unscored = { threshold: null, score: null, probability: null, predicted: false };
    view.added.push({ ...label, ...unscored });
  }
  view.ticks.set(label.label, true);
  draw();
  say("save-message", `${label.label} is added.`);
}

let stored = null; // the last correction, with its model: a second click does not store it again

async function save() {
  const button = byId("save");
  if (button.hasAttribute("aria-busy")) return;
  if (view.result === null || view.stale()) {
    return sayError(
      "save-message",
      "The text has changed since these labels were predicted. Predict it again, then save.",
    );
  }
  const labels = view
    .shown()
    .filter(view.isTicked)
    .map(({ label }) => label);
  const predicted = view.result.labels.filter((label) => label.predicted).map(({ label }) => label);
  const body = { text: view.result.text, labels, predicted };
  const correction = JSON.stringify([view.result.model, body]);
  if (correction === stored) return say("save-message", "This correction is stored already.");
  button.setAttribute("aria-busy", "true");
  try {
    const answer = await call(modelPath(view.model.name, "/corrections"), { body });
    stored = correction;
    const names = answer.new_labels.join(", ");
    const fresh = names ? ` New to this model: ${names}.` : "";
    const number = count(labels.length, "label");
    say("save-message", `Stored with ${number}.${fresh} The next training can use it.`);
  } catch (error) {
    sayError("save-message", error.message);
  } finally {
    button.removeAttribute("aria-busy");
  }
}

function onText() {
  if (view.result !== null) {
    const ticked = view.ticks.size > 0;
    view.ticks.clear();
    activate(null);
    draw();
    say("save-message", ticked ? "The text has changed, so your ticks were cleared." : "");
  }
  drawSize();
  if (byId("live").checked) predictLater();
}

function drawSize() {
  const words = text().match(/\S+/g)?.length ?? 0;
  byId("text-size").textContent = words ? count(words, "word") : "";
  byId("clear").disabled = !text();
}

function replaceText(value) {
  setText(value);
  drawSize();
  predict();
}

let choosing = null; // the model chosen last

async function chooseModel(name) {
  choosing = name;
  try {
    const model = await call(modelPath(name));
    if (choosing !== name) return; // another one was chosen in the meantime
    view.model = model;
    byId("model").value = name;
  } catch (error) {
    byId("model").value = view.model?.name ?? name;
    return sayError("model-message", error.message, tryAgain(() => chooseModel(name)));
  }
  say("model-message");
  const { n_labels: labels, n_training_documents: documents, scale, examples } = view.model;
  const trained = documents ? `, trained on ${count(documents, "document")}` : "";
  byId("model-facts").textContent = `${count(labels, "label")}${trained}`;
  resetStrictness(scale);
  view.strictness = 0;
  byId("examples").hidden = examples.length === 0;
  const items = examples.map((example) => {
    const attributes = { type: "button", class: "example", click: () => replaceText(example) };
    return element("li", {}, element("button", attributes, example));
  });
  byId("example-list").replaceChildren(...items);
  showCard(view.model);
  forget();
  predict();
}

async function start() {
  const chooser = byId("model");
  for (;;) {
    try {
      const { models } = await call("models");
      chooser.replaceChildren(
        ...models.map(({ name }) => element("option", { value: name }, name)),
      );
      chooser.disabled = false;
      await chooseModel(models[0].name);
      return;
    } catch (error) {
      const starting = error.status === 503;
      sayError("model-message", error.message, starting ? [] : tryAgain(start));
      if (!starting) return;
      await new Promise((resolve) => setTimeout(resolve, 1000 * (error.retryAfter ?? 2)));
    }
  }
}

watchEditor(
  onText,
  () => replaceText(text()),
  (error) => sayError("predict-message", error),
  () => view.model?.limits.max_text_length ?? Infinity,
);
watchSearch(
  () => view.model.name,
  onChoose,
  (error) => sayError("save-message", error),
);
byId("model").addEventListener("change", ({ target }) => chooseModel(target.value));
byId("predict").addEventListener("click", predict);
byId("live").addEventListener("change", ({ target }) => target.checked && predict());
byId("clear").addEventListener("click", () => {
  replaceText("");
  byId("text").focus();
});
byId("text").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) predict();
});
watchStrictness((strictness) => {
  view.strictness = strictness;
  draw();
});
byId("top-k").addEventListener("change", ({ target }) => {
  view.topK = Math.min(200, Math.max(1, Math.round(target.valueAsNumber) || 8));
  target.value = view.topK;
  if (view.result && view.topK > CANDIDATES) predict();
  else draw();
});
byId("save").addEventListener("click", save);
document.addEventListener("focusin", ({ target }) => {
  if (view.active !== null && !target.closest("#labels")) activate(null);
});
drawSize();
forget();
start();
