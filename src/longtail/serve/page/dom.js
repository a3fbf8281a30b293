// Elements made of attributes and text; nothing from data is ever parsed as HTML.

export const byId = (id) => document.getElementById(id);

/** An element; a string as child becomes text; attributes that are null or false are left out. */
export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") made.addEventListener(name, value);
    else made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.filter((child) => child !== null));
  return made;
}

/** Show a sentence, and perhaps buttons, in a live region; without a sentence, clear it. */
export function say(region, sentence = "", { error = false, buttons = [] } = {}) {
  region.classList.toggle("error", error);
  region.replaceChildren(...(sentence ? [sentence, ...buttons] : []));
}

/** The last call within this many milliseconds of quiet is the one that counts. */
export function debounced(action, milliseconds) {
  let timer = 0;
  const later = (...values) => {
    clearTimeout(timer);
    timer = setTimeout(() => action(...values), milliseconds);
  };
  later.cancel = () => clearTimeout(timer);
  return later;
}

export const count = (n, one, many = `${one}s`) =>
  `${n.toLocaleString("en")} ${n === 1 ? one : many}`;
