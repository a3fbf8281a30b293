// About the model: its scores on held-out documents, and its card.

import { percent } from "./decisions.js";
import { byId, element } from "./dom.js";

const GROUPS = ["all", "head", "medium", "tail"];
// Elements of rendered Markdown. Of any other element only the text is kept.
const ALLOWED = new Set(
  (
    "h1 h2 h3 h4 h5 h6 p ul ol li dl dt dd table thead tbody tr th td pre code " +
    "strong em b i br hr blockquote a"
  ).split(" "),
);
const DROPPED = new Set("script style template iframe object svg math title".split(" "));

export function showCard({ held_out: heldOut, card_html: html }) {
  byId("held-out").replaceChildren(table(heldOut));
  byId("card").hidden = !html;
  // A parsed document runs and loads nothing; only copies of allowed elements get into the page.
  const parsed = new DOMParser().parseFromString(html || "", "text/html");
  byId("card-body").replaceChildren(...copies(parsed.body));
}

function table(heldOut) {
  const known = GROUPS.filter((group) => typeof heldOut?.[group]?.micro_f1 === "number");
  if (known.length === 0)
    return element("p", { class: "soft" }, "This model has no scores on held-out documents.");
  const caption = "On documents held out from training, by frequency of the labels.";
  const columns = ["Group", "Labels", "Micro-F1", "Macro-F1"];
  const header = columns.map((column) => element("th", { scope: "col" }, column));
  const score = (x) => element("td", {}, typeof x === "number" ? percent(x) : "–");
  const rows = known.map((group) => {
    const { n_labels: n, micro_f1: micro, macro_f1: macro } = heldOut[group];
    return element(
      "tr",
      {},
      element("th", { scope: "row" }, group),
      element("td", {}, (n ?? "–").toLocaleString("en")),
      score(micro),
      score(macro),
    );
  });
  return element(
    "table",
    {},
    element("caption", { class: "soft" }, caption),
    element("thead", {}, element("tr", {}, ...header)),
    element("tbody", {}, ...rows),
  );
}

function* copies(parent) {
  for (const node of parent.childNodes) {
    if (node.nodeType === Node.TEXT_NODE) yield node.data;
    if (node.nodeType !== Node.ELEMENT_NODE || DROPPED.has(node.localName)) continue;
    if (!ALLOWED.has(node.localName)) yield* copies(node);
    else yield element(name(node), attributes(node), ...copies(node));
  }
}

/** Headings move two levels down, below those of the page; an empty header cell is plain. */
function name({ localName, textContent }) {
  if (localName === "th" && !textContent.trim()) return "td";
  return /^h[1-6]$/.test(localName) ? `h${Math.min(6, Number(localName[1]) + 2)}` : localName;
}

function attributes(node) {
  if (name(node) === "th") return { scope: node.closest("thead") ? "col" : "row" };
  const href = node.localName === "a" ? node.getAttribute("href") : null;
  return href && /^https?:\/\//i.test(href)
    ? { href, rel: "noreferrer noopener", target: "_blank" }
    : {};
}
