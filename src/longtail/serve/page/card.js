// What is known of the model: its held-out figures and its card.

import { percent } from "./decisions.js";
import { byId, element } from "./dom.js";

const GROUPS = ["all", "head", "medium", "tail"];
// What a rendered Markdown file is made of. Anything else is dropped, its text kept.
const ALLOWED = new Set(
  (
    "h1 h2 h3 h4 h5 h6 p ul ol li dl dt dd table thead tbody tr th td pre code " +
    "strong em b i br hr blockquote a"
  ).split(" "),
);
const DROPPED = new Set([
  "script",
  "style",
  "template",
  "iframe",
  "object",
  "svg",
  "math",
  "title",
]);

export function showCard({ held_out: heldOut, card_html: html }) {
  byId("held-out").replaceChildren(table(heldOut));
  byId("card").hidden = !html;
  // The parsed document runs nothing and loads nothing; only copies of known elements leave it.
  const parsed = new DOMParser().parseFromString(html || "", "text/html");
  byId("card-body").replaceChildren(...copies(parsed.body));
}

function table(heldOut) {
  const known = GROUPS.filter((group) => typeof heldOut?.[group]?.micro_f1 === "number");
  if (known.length === 0)
    return element("p", { class: "soft" }, "No held-out figures came with this model.");
  const figure = (x) => element("td", {}, x === null || x === undefined ? "–" : percent(x));
  return element(
    "table",
    {},
    element(
      "caption",
      { class: "soft" },
      "On documents held out from training, by frequency of the labels.",
    ),
    element(
      "thead",
      {},
      element(
        "tr",
        {},
        ...["Group", "Labels", "Micro-F1", "Macro-F1"].map((name) =>
          element("th", { scope: "col" }, name),
        ),
      ),
    ),
    element(
      "tbody",
      {},
      ...known.map((group) => {
        const { n_labels: n, micro_f1: micro, macro_f1: macro } = heldOut[group];
        return element(
          "tr",
          {},
          element("th", { scope: "row" }, group),
          element("td", {}, (n ?? "–").toLocaleString("en")),
          figure(micro),
          figure(macro),
        );
      }),
    ),
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

/** The card's headings stand below those of the page; a header without a word heads nothing. */
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
