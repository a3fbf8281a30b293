// The text: typing, files, and the marked words behind it.

import { byId, element } from "./dom.js";

const area = byId("text");
const backdrop = byId("marks");
const decoder = new TextDecoder("utf-8", { fatal: true });

export const text = () => area.value;

export function setText(value) {
  area.value = value;
  mark([]);
}

/** Mark words for (value > 0) and against a label; their positions count code points. */
export function mark(reasons) {
  const pieces = [];
  if (reasons.length === 0) pieces.push(area.value);
  else {
    const points = Array.from(area.value);
    const largest = Math.max(...reasons.map(({ value }) => Math.abs(value)));
    let end = 0;
    for (const reason of reasons) {
      if (reason.start < end || reason.end > points.length) continue;
      pieces.push(points.slice(end, reason.start).join(""));
      pieces.push(marked(points.slice(reason.start, reason.end).join(""), reason.value, largest));
      end = reason.end;
    }
    pieces.push(points.slice(end).join(""));
  }
  // The line break gives a last empty line the height that it has in the textarea.
  backdrop.replaceChildren(...pieces, "\n");
}

/** A marked word; the larger its value, the stronger its colour. */
export function marked(word, value, largest) {
  const made = element("mark", { class: value > 0 ? "for" : "against" }, word);
  made.style.setProperty("--strength", (Math.abs(value) / (largest || 1)).toFixed(3));
  return made;
}

/** Call back on every change of the text, on a file, and with the reason if a text is refused. */
export function watchEditor(onChange, onFile, onError, maxCharacters) {
  // Browsers take minutes to lay out a text of many megabytes.
  area.addEventListener("beforeinput", (event) => {
    const error = tooLong("The text", event.data ?? "", maxCharacters());
    if (error) {
      event.preventDefault();
      onError(error);
    }
  });
  area.addEventListener("input", () => {
    mark([]);
    onChange();
  });
  byId("open").addEventListener("click", () => byId("file").click());
  byId("file").addEventListener("change", ({ target }) => {
    if (target.files.length > 0) read(target.files[0]);
    target.value = ""; // the same file may be chosen again
  });
  // On the whole page: the browser would open a file that is dropped beside the text.
  for (const name of ["dragover", "dragleave", "drop"]) {
    document.addEventListener(name, (event) => {
      if (!event.dataTransfer?.types.includes("Files")) return;
      event.preventDefault();
      byId("editor").classList.toggle("dropping", name === "dragover");
      if (name === "drop" && event.dataTransfer.files.length > 0) read(event.dataTransfer.files[0]);
    });
  }

  async function read(file) {
    try {
      let content = "";
      try {
        content = decoder.decode(await file.arrayBuffer());
      } catch {
        throw new Error(
          `${file.name} is not a text file in UTF-8. Save it as plain text and open it again.`,
        );
      }
      const error = tooLong(file.name, content, maxCharacters());
      if (error) throw new Error(error);
      setText(content);
      onFile();
    } catch (error) {
      onError(error.message);
    }
  }
}

function tooLong(name, content, limit) {
  if (content.length <= limit) return null; // UTF-16 units: never fewer than characters
  const length = Array.from(content).length;
  if (length <= limit) return null;
  const [has, takes] = [length, limit].map((n) => n.toLocaleString("en"));
  return `${name} has ${has} characters; the service takes at most ${takes}. Shorten it.`;
}
