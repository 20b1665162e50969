// Tagging: entities marked in the text.

import { el, percent } from "./elements.js";

const HUES = 8;

export const entities = {
  id: "entities",
  title: "Entities",
  needs: "tag",
  label: "Text",
  examples: [
    "Ada Lovelace met Charles Babbage in London in 1833.",
    "The Rhine flows from Switzerland through Cologne to the North Sea.",
    "Marta plays the cello in the Helsinki Youth Orchestra.",
  ],

  ask: ({ text }) => ({ path: "tag", body: { inputs: text } }),

  show({ entities: found, tokens, tags }, { text, model }) {
    const kinds = [...new Set((model.labels ?? []).map((tag) => tag.replace(/^[BI]-/, "")))];
    const hue = (label) => `hue-${Math.max(kinds.indexOf(label), 0) % HUES}`;
    const marked = ({ label, score }, part) =>
      el(
        "mark",
        { class: hue(label), title: `${label}, ${percent(score)}` },
        part,
        el("small", {}, label),
      );
    const words = tokens.map((token, index) =>
      el("tr", {}, el("td", {}, token), el("td", {}, tags[index])),
    );
    // Tags without "O" among them stand for words, as parts of speech do.
    const [one, many] = kinds.includes("O") ? ["entity", "entities"] : ["word", "words"];
    const count = `${found.length} ${found.length === 1 ? one : many}`;
    const named = found.map((entity) => `${entity.text}: ${entity.label}`).join("; ");
    return {
      content: el(
        "div",
        {},
        el("p", { class: "passage" }, withMarks(text, found, marked)),
        !found.length && el("p", { class: "hint" }, "No entity found."),
        el(
          "details",
          { class: "more" },
          el("summary", {}, "Every word and its tag"),
          el(
            "table",
            {},
            el("thead", {}, el("tr", {}, ["Word", "Tag"].map((h) => el("th", { scope: "col" }, h)))),
            el("tbody", {}, words),
          ),
        ),
      ),
      summary: found.length ? `${count}. ${named}` : "No entity found",
    };
  },
};

// The text in pieces, those of `spans` through `mark`. The server counts characters as Python
// does, JavaScript as UTF-16: an emoji is one there and two here.
export function withMarks(text, spans, mark) {
  const characters = Array.from(text);
  const cut = (start, end) => characters.slice(start, end).join("");
  const parts = [];
  let at = 0;
  for (const span of [...spans].sort((a, b) => a.start - b.start)) {
    if (span.start < at) continue;
    parts.push(cut(at, span.start), mark(span, cut(span.start, span.end)));
    at = span.end;
  }
  parts.push(cut(at));
  return parts;
}
