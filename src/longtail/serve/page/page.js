// The page of `longtail serve`: a text, its labels, why, how strict, and corrections.

import { call } from "./api.js";
import { showCard } from "./card.js";
import { isPredicted } from "./decisions.js";
import { byId, count, debounced, element, say } from "./dom.js";
import { setText, text, watchEditor } from "./editor.js";
import { forgetRows, highlightRow, showLabels } from "./labels.js";
import { showReasons } from "./reasons.js";
import { watchSearch } from "./search.js";
import { resetStrictness, showStrictness, watchStrictness } from "./strictness.js";

const PAUSE = 350; // ms without typing before a text is sent
const CANDIDATES = 50; // labels that strictness may bring in, beyond those that are shown

/** What the page knows; everything that is shown follows from it. */
const view = {
  model: null, // what GET /models/{name} said
  result: null, // {model, text, labels} of the last prediction
  ticks: new Map(), // label -> applies or not, where the reader decided
  added: [], // labels that the reader searched for
  strictness: 0,
  topK: 8,
  active: null, // the label whose words are marked

  stale: () => view.result === null || view.result.text !== text(),
  isTicked: (label) => view.ticks.get(label.label) ?? isPredicted(label, view.strictness),
  /** The k best, and every label that is, was or would be predicted or that the reader chose. */
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

let predicting = null; // the AbortController of the request under way

const path = (rest = "") => `models/${encodeURIComponent(view.model.name)}${rest}`;

async function predict() {
  predictLater.cancel();
  predicting?.abort();
  const sent = text();
  if (view.model === null) return;
  if (!sent.trim()) return forget();
  const mine = (predicting = new AbortController());
  byId("labels").setAttribute("aria-busy", "true");
  try {
    const most = Math.min(view.model.n_labels, Math.max(view.topK, CANDIDATES));
    const body = { documents: [{ text: sent }], top_k: most };
    const answer = await call(path("/predict"), { body, signal: mine.signal });
    if (predicting !== mine) return;
    if (view.stale()) forget();
    say(byId("predict-message"));
    view.result = { model: view.model.name, text: sent, labels: answer.documents[0].labels };
    draw();
    activate(null);
  } catch (error) {
    if (error.name === "AbortError" || predicting !== mine) return;
    if (view.stale()) forget();
    const temporary = [0, 401, 408, 503].includes(error.status);
    say(byId("predict-message"), error.message, {
      error: true,
      buttons: temporary ? again(predict) : [],
    });
  } finally {
    if (predicting === mine) byId("labels").removeAttribute("aria-busy");
  }
}

const again = (action) => [
  " ",
  element("button", { type: "button", class: "link", click: action }, "Try again"),
];
const predictLater = debounced(predict, PAUSE);

/** Drop what belonged to another text: labels, ticks, reasons. */
function forget() {
  view.result = null;
  view.ticks.clear();
  view.added = [];
  view.active = null;
  forgetRows();
  say(byId("predict-message"));
  say(byId("save-message"));
  draw();
  activate(null);
}

function draw() {
  showLabels(view, { onTick, onActive: activate });
  const { result } = view;
  byId("labels").classList.toggle("stale", result !== null && view.stale());
  const ticked = view.shown().filter(view.isTicked).length;
  const predicted =
    result?.labels.filter((label) => isPredicted(label, view.strictness)).length ?? 0;
  let counted = "";
  if (result)
    counted =
      ticked === predicted && view.ticks.size === 0
        ? `${predicted} predicted`
        : `${predicted} predicted, ${ticked} ticked`;
  byId("labels-count").textContent = counted;
  byId("correction").hidden = result === null;
  showStrictness(view.strictness, result?.labels ?? []);
}

function onTick(name, applies) {
  const label = view.shown().find((each) => each.label === name);
  if (label && isPredicted(label, view.strictness) === applies) view.ticks.delete(name);
  else view.ticks.set(name, applies);
  say(byId("save-message"));
  draw();
}

function activate(name) {
  view.active = name;
  highlightRow(name);
  showReasons(view, name);
}

function onChoose(label) {
  const known = view.result.labels.some((each) => each.label === label.label);
  if (!known && !view.added.some((each) => each.label === label.label)) {
    view.added.push({
      ...label,
      threshold: null,
      score: null,
      probability: null,
      predicted: false,
    });
  }
  view.ticks.set(label.label, true);
  draw();
  say(byId("save-message"), `${label.label} is added.`);
}

async function save() {
  const message = byId("save-message");
  if (view.result === null || view.stale()) {
    return say(
      message,
      "The text has changed since these labels were predicted. Predict it again, then save.",
      { error: true },
    );
  }
  const labels = view
    .shown()
    .filter(view.isTicked)
    .map(({ label }) => label);
  const predicted = view.result.labels.filter((label) => label.predicted).map(({ label }) => label);
  byId("save").setAttribute("aria-busy", "true");
  try {
    const answer = await call(path("/corrections"), {
      body: { text: view.result.text, labels, predicted },
    });
    const fresh = answer.new_labels?.length
      ? ` New to this model: ${answer.new_labels.join(", ")}.`
      : "";
    say(
      message,
      `Stored with ${count(labels.length, "label")}.${fresh} The next training can read it.`,
    );
  } catch (error) {
    say(message, error.message, { error: true });
  } finally {
    byId("save").removeAttribute("aria-busy");
  }
}

function onText() {
  if (view.result !== null) {
    const ticked = view.ticks.size > 0;
    view.ticks.clear();
    activate(null);
    draw();
    say(
      byId("save-message"),
      ticked ? "Your ticks belonged to the text before this change and are cleared." : "",
    );
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
  const message = byId("model-message");
  try {
    const model = await call(`models/${encodeURIComponent(name)}`);
    if (choosing !== name) return; // another was chosen meanwhile
    view.model = model;
    byId("model").value = name;
  } catch (error) {
    byId("model").value = view.model?.name ?? name;
    return say(message, error.message, { error: true, buttons: again(() => chooseModel(name)) });
  }
  say(message);
  const { n_labels: labels, n_training_documents: documents, scale, examples } = view.model;
  const trained = documents ? `, trained on ${count(documents, "document")}` : "";
  byId("model-facts").textContent = `${count(labels, "label")}${trained}`;
  resetStrictness(scale);
  view.strictness = 0;
  byId("examples").hidden = examples.length === 0;
  byId("example-list").replaceChildren(
    ...examples.map((example) =>
      element(
        "li",
        {},
        element(
          "button",
          { type: "button", class: "example", click: () => replaceText(example) },
          example,
        ),
      ),
    ),
  );
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
      if (models.length === 0)
        say(byId("model-message"), "The service has no model.", { error: true });
      else await chooseModel(models[0].name);
      return;
    } catch (error) {
      const buttons = error.status === 503 ? [] : again(start);
      say(byId("model-message"), error.message, { error: true, buttons });
      if (error.status !== 503) return;
      await new Promise((resolve) => setTimeout(resolve, 1000 * (error.retryAfter ?? 2)));
    }
  }
}

watchEditor(
  onText,
  () => replaceText(text()),
  (problem) => say(byId("predict-message"), problem, { error: true }),
  () => view.model?.limits.max_text_length ?? Infinity,
);
watchSearch(
  () => view.model.name,
  onChoose,
  (problem) => say(byId("save-message"), problem, { error: true }),
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
