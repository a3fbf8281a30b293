// Requests to the service; every failure becomes an error with a sentence for people.

import { byId, say } from "./dom.js";

export class ServiceError extends Error {
  constructor(message, status = 0, retryAfter = null) {
    super(message);
    this.status = status;
    this.retryAfter = retryAfter;
  }
}

const SENTENCES = {
  401: "The service asks for a key.",
  404: "The service does not know this address or model. Reload the page.",
  408: "The request took too long to arrive. Try again.",
  413: "The text is too long for this service. Shorten it.",
  422: "The service could not use this request.",
  503: "The service is busy or starting. Try again in a moment.",
};

let key = null; // in memory alone
let asking = null; // one dialog for all requests that wait for a key

/** The JSON answer of the service; asks for the key where one is needed. */
export async function call(path, { body, signal } = {}) {
  for (;;) {
    const sent = key;
    const answer = await send(path, body, signal);
    if (answer.ok) return answer.json();
    const error = await failure(answer);
    if (error.status !== 401) throw error;
    // Another request may have brought a key meanwhile.
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

// Half a surrogate pair is no character, and JSON with one is refused.
const wellFormed = (_key, value) =>
  typeof value === "string" ? (value.toWellFormed?.() ?? value) : value;

async function failure(answer) {
  let sentence =
    SENTENCES[answer.status] ?? `The service failed (status ${answer.status}). Try again.`;
  try {
    const told = (await answer.json()).error;
    // That of 401 is about headers, which a reader of the page has no part in.
    if (typeof told === "string" && told && answer.status !== 401)
      sentence = told[0].toUpperCase() + told.slice(1);
  } catch {
    // No JSON, as from a proxy: the sentence by status stands.
  }
  const seconds = Number.parseFloat(answer.headers.get("Retry-After"));
  return new ServiceError(sentence, answer.status, Number.isFinite(seconds) ? seconds : null);
}

/** The key that the reader gives; an error if none is given. */
function askKey(error, refused) {
  const [dialog, form, field] = [byId("key-dialog"), byId("key-form"), byId("key")];
  say(
    byId("key-message"),
    refused === null ? "" : "That key was not accepted. Check it and try again.",
    {
      error: refused !== null,
    },
  );
  field.value = "";
  dialog.showModal();
  field.focus();
  return new Promise((resolve, reject) => {
    let given = null;
    form.onsubmit = (event) => {
      event.preventDefault();
      const value = field.value.trim();
      // A header takes printable ASCII alone.
      if (!/^[\x21-\x7e]+$/.test(value)) {
        say(
          byId("key-message"),
          "A key consists of ASCII letters, digits and punctuation, without spaces.",
          { error: true },
        );
        return;
      }
      given = value;
      dialog.close();
    };
    byId("key-cancel").onclick = () => dialog.close();
    dialog.onclose = () => (given === null ? reject(error) : resolve(given));
  });
}
