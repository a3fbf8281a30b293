// Elements from attributes and text; data is never parsed as HTML.

export const byId = (id) => document.getElementById(id);

/** An element; strings become text, functions event listeners. */
export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") made.addEventListener(name, value);
    else made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

/** Show a message in the live region with this id; without a message, clear it. */
export function say(id, message = "") {
  byId(id).classList.remove("error");
  byId(id).textContent = message;
}

/** Show an error, with buttons after it. */
export function sayError(id, message, buttons = []) {
  byId(id).classList.add("error");
  byId(id).replaceChildren(message, ...buttons);
}

/** A function that calls the action once it was not called itself for this many milliseconds. */
export function debounced(action, milliseconds) {
  let timer = 0;
  const later = () => {
    clearTimeout(timer);
    timer = setTimeout(action, milliseconds);
  };
  later.cancel = () => clearTimeout(timer);
  return later;
}

export const count = (n, noun) => `${n.toLocaleString("en")} ${n === 1 ? noun : `${noun}s`}`;
