// The text: typing, files, and the words marked behind it.

import { byId, element } from "./dom.js";

const area = byId("text");
const backdrop = byId("marks");
const decoder = new TextDecoder("utf-8", { fatal: true });

export const text = () => area.value;

export function setText(value) {
  area.value = value;
  mark([]);
}

/** Mark the spans, counted in code points, of the words that speak for (value > 0) or against. */
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
  // The line break keeps a last empty line as high as the textarea shows it.
  backdrop.replaceChildren(...pieces, "\n");
}

/** A word as it is marked: how, and how strongly, it speaks. */
export function marked(word, value, largest) {
  const made = element("mark", { class: value > 0 ? "for" : "against" }, word);
  made.style.setProperty("--strength", (Math.abs(value) / (largest || 1)).toFixed(3));
  return made;
}

/** Call back on every change of the text, and with a sentence when a text cannot be taken. */
export function watchEditor(onChange, onFile, onProblem, mostCharacters) {
  // Browsers lay out a text of many megabytes for minutes: it stays outside.
  area.addEventListener("beforeinput", (event) => {
    const problem = tooLong("The text", event.data ?? "", mostCharacters());
    if (problem) {
      event.preventDefault();
      onProblem(problem);
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
  // Anywhere on the page: a file dropped beside the text would else replace the page.
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
          `${file.name} is not a text in UTF-8. Save it as plain text and open it again.`,
        );
      }
      const problem = tooLong(file.name, content, mostCharacters());
      if (problem) throw new Error(problem);
      setText(content);
      onFile();
    } catch (error) {
      onProblem(error.message);
    }
  }
}

function tooLong(name, content, most) {
  if (content.length <= most) return null;
  const length = Array.from(content).length;
  if (length <= most) return null;
  const [has, takes] = [length, most].map((n) => n.toLocaleString("en"));
  return `${name} has ${has} characters; the service takes at most ${takes}. Shorten it.`;
}
