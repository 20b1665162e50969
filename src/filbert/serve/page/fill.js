// Fill-mask: the words that a model expects in place of every [MASK].

import { bar, el, percent } from "./elements.js";

const MASK = /\[MASK\]|<mask>/g;

export const fill = {
  id: "fill",
  title: "Fill in",
  needs: "fill",
  label: "Text with a [MASK]",
  examples: [
    "Paris is the [MASK] of France.",
    "She put the kettle on and made a cup of [MASK].",
    "The [MASK] was so good that we stayed until the [MASK].",
  ],

  // Without a mask: the text's own words, each a button that hides it.
  missing({ text }, setText) {
    if (text.match(MASK)) return null;
    const parts = text.split(/([\p{L}\p{N}]+)/u);
    const hide = (index) => setText(parts.with(index, "[MASK]").join(""));
    const word = (part, index) =>
      index % 2
        ? el(
            "button",
            { type: "button", "aria-label": `Hide ${part}`, onclick: () => hide(index) },
            part,
          )
        : part;
    return el(
      "div",
      {},
      el("p", { class: "hint" }, "Choose a word to hide, or write [MASK] where one is missing."),
      el("p", { class: "words" }, parts.map(word)),
    );
  },

  ask: ({ text }) => ({ path: "fill", body: { inputs: text, top: 5 } }),

  show(answer, { text, setText }) {
    const { candidates } = answer;
    const gap = (found, index) => {
      const most = found[0]?.score || 1;
      const rows = found.map(({ token, score, sequence }) => {
        const take = el(
          "button",
          {
            type: "button",
            class: "take",
            "aria-label": `${token}: put it in the text`,
            onclick: () => setText(sequence),
          },
          token.trim() || token,
        );
        return bar(take, score, { of: most });
      });
      const where = candidates.length > 1 ? around(text, index) : null;
      return el("li", {}, where, el("ol", { class: "bars ranked" }, rows));
    };
    const best = candidates.map(([first]) => `${first.token.trim()}, ${percent(first.score)}`);
    return {
      content: el("ol", { class: "gaps" }, candidates.map(gap)),
      summary: best.join("; "),
    };
  },
};

// The words next to the mask of this number, to distinguish several masks.
function around(text, index) {
  const found = [...text.matchAll(MASK)][index];
  if (!found) return null;
  const end = found.index + found[0].length;
  const before = text.slice(0, found.index).split(/\s+/).slice(-4).join(" ");
  const after = text.slice(end).split(/\s+/).slice(0, 4).join(" ");
  return el("p", { class: "around" }, `… ${before}`, el("b", {}, "[MASK]"), `${after} …`);
}
