// The search in all labels of the model: an ARIA combobox with a listbox.

import { call, modelPath } from "./api.js";
import { count, debounced, element, byId } from "./dom.js";
import { percent } from "./decisions.js";
import { badge } from "./labels.js";

const input = byId("search");
const list = byId("matches");
const MAX_MATCHES = 8;

let options = []; // {item, label}
let current = -1;
let request = null;

/** Call back with the chosen label, as the service describes it; model() is the model's name. */
export function watchSearch(model, onChoose, onError) {
  const search = debounced(async () => {
    request?.abort();
    request = new AbortController();
    const words = input.value.trim();
    if (!words) return close();
    const query = new URLSearchParams({ search: words, limit: MAX_MATCHES });
    try {
      const { signal } = request;
      show(words, await call(modelPath(model(), `/labels?${query}`), { signal }));
    } catch (error) {
      if (error.name === "AbortError") return;
      close();
      onError(error.message);
    }
  }, 150);

  function show(words, { labels, total }) {
    options = labels.map((label) => ({ label, item: option(label) }));
    if (!labels.some(({ label }) => label === words)) {
      const label = { label: words, group: "unseen", threshold: null };
      const text = [
        element("span", { class: "option-name" }, `Add “${words}”`),
        element("span", { class: "soft" }, "new to this model"),
      ];
      options.push({ label, item: element("li", { role: "option", class: "new" }, ...text) });
    }
    options.forEach(({ item, label }, k) => {
      item.id = `match-${k}`;
      item.addEventListener("pointerdown", (event) => event.preventDefault()); // keeps the focus
      item.addEventListener("click", () => choose(label));
    });
    const more = total > labels.length;
    const rest = element(
      "li",
      { class: "soft rest", role: "presentation" },
      `${count(total, "label")} found; type more to narrow the list`,
    );
    list.replaceChildren(...options.map(({ item }) => item), ...(more ? [rest] : []));
    list.hidden = false;
    input.setAttribute("aria-expanded", "true");
    point(0);
  }

  function point(k) {
    current = k;
    options.forEach(({ item }, j) => item.setAttribute("aria-selected", String(j === k)));
    input.setAttribute("aria-activedescendant", options[k].item.id);
    options[k].item.scrollIntoView({ block: "nearest" });
  }

  function close() {
    search.cancel();
    request?.abort();
    options = [];
    current = -1;
    list.hidden = true;
    list.replaceChildren();
    input.setAttribute("aria-expanded", "false");
    input.removeAttribute("aria-activedescendant");
  }

  function choose(label) {
    input.value = "";
    close();
    onChoose(label);
  }

  input.addEventListener("input", search);
  input.addEventListener("blur", close);
  input.addEventListener("keydown", (event) => {
    if (event.isComposing) return;
    const steps = { ArrowDown: 1, ArrowUp: -1 };
    if (event.key in steps && options.length > 0) {
      event.preventDefault();
      point((current + steps[event.key] + options.length) % options.length);
    } else if (event.key === "Enter" && current >= 0) {
      event.preventDefault();
      choose(options[current].label);
    } else if (event.key === "Escape") {
      close();
    }
  });
}

function option({ label, group, training_documents: documents, precision, recall }) {
  const scores =
    precision === null || recall === null
      ? "no held-out scores"
      : `precision ${percent(precision)}, recall ${percent(recall)}`;
  return element(
    "li",
    { role: "option" },
    element("span", { class: "option-name" }, label, " ", badge(group)),
    element("span", { class: "soft" }, `${count(documents, "training document")} · ${scores}`),
  );
}
