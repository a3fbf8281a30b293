// Requests to the service; every failure becomes an error with a message for the reader.

import { byId, say, sayError } from "./dom.js";

export class ServiceError extends Error {
  constructor(message, status = 0, retryAfter = null) {
    super(message);
    this.status = status;
    this.retryAfter = retryAfter;
  }
}

const MESSAGES = {
  401: "The service needs a key.",
  404: "The service has no such address or model. Reload the page.",
  408: "The request took too long to arrive. Try again.",
  413: "The text is too long for this service. Shorten it.",
  422: "The service could not use this request.",
  503: "The service is busy or starting. Try again in a moment.",
};

let key = null; // kept in memory only
let asking = null; // one dialog for all requests that wait for a key

export const modelPath = (name, rest = "") => `models/${encodeURIComponent(name)}${rest}`;

/** The JSON answer of the service; asks for the key if one is needed. */
export async function call(path, { body, signal } = {}) {
  for (;;) {
    const sent = key;
    const answer = await send(path, body, signal);
    if (answer.ok) return answer.json();
    const error = await failure(answer);
    if (error.status !== 401) throw error;
    // Another request may have asked for the key in the meantime.
    if (sent === key) key = await (asking ??= askKey(error, sent).finally(() => (asking = null)));
  }
}

async function send(path, body, signal) {
  const headers = key === null ? {} : { Authorization: `Bearer ${key}` };
  if (body !== undefined) headers["Content-Type"] = "application/json";
  try {
    return await fetch(path, {
      method: body === undefined ? "GET" : "POST",
      body: body === undefined ? undefined : JSON.stringify(body, wellFormed),
      headers,
      signal,
      cache: "no-store",
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ServiceError("No answer from the service. Is it still running? Try again.");
  }
}

// The service refuses JSON with half a surrogate pair.
const wellFormed = (_key, value) =>
  typeof value === "string" ? (value.toWellFormed?.() ?? value) : value;

async function failure(answer) {
  let message =
    MESSAGES[answer.status] ?? `The service failed (status ${answer.status}). Try again.`;
  try {
    const { error } = await answer.json();
    // The error of 401 is about headers, which readers of the page do not see.
    if (typeof error === "string" && error && answer.status !== 401)
      message = error[0].toUpperCase() + error.slice(1);
  } catch {
    // Not JSON, as from a proxy: keep the message for this status.
  }
  const seconds = Number.parseFloat(answer.headers.get("Retry-After"));
  return new ServiceError(message, answer.status, Number.isFinite(seconds) ? seconds : null);
}

/** The key that the reader enters; rejects with `error` if the dialog is closed without one. */
function askKey(error, refused) {
  const [dialog, form, field] = [byId("key-dialog"), byId("key-form"), byId("key")];
  if (refused === null) say("key-message");
  else sayError("key-message", "That key was not accepted. Check it and try again.");
  field.value = "";
  dialog.showModal();
  field.focus();
  return new Promise((resolve, reject) => {
    let entered = null;
    form.onsubmit = (event) => {
      event.preventDefault();
      const value = field.value.trim();
      // Headers take printable ASCII only.
      if (!/^[\x21-\x7e]+$/.test(value))
        return sayError(
          "key-message",
          "A key consists of ASCII letters, digits and punctuation, without spaces.",
        );
      entered = value;
      dialog.close();
    };
    byId("key-cancel").onclick = () => dialog.close();
    dialog.onclose = () => (entered === null ? reject(error) : resolve(entered));
  });
}
