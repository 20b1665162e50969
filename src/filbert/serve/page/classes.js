// Classification and regression: every label's probability against its threshold, or a value.

import { bar, el, percent } from "./elements.js";

export const classes = {
  id: "classes",
  title: "Classes",
  needs: "predict",
  label: "Text",
  extra: { label: "Second text", hint: "optional, for models of pairs" },
  examples: [
    "My parcel has not arrived yet. Where is it?",
    "The film is long, but I enjoyed every minute of it.",
    "The central bank raised interest rates on Thursday.",
  ],

  ask: ({ text, extra }) => ({
    path: "predict",
    body: { inputs: extra ? [[text, extra]] : text, truncate: true },
  }),

  show(answer, { model }) {
    const scores = Array.isArray(answer[0]) ? answer[0] : answer;
    if (model.task === "regression") return value(scores[0].score);
    const lines = thresholdsOf(model);
    const given = decide(scores, lines, model);
    const row = ({ label, score }) =>
      bar(label, score, {
        line: lines[label] ?? null,
        strong: given.includes(label),
        note: lines[label] == null ? null : `threshold ${percent(lines[label])}`,
      });
    return {
      content: el(
        "div",
        {},
        el("p", { class: "verdict" }, given.length ? given.join(", ") : "No label"),
        el("ul", { class: "bars" }, scores.map(row)),
      ),
      summary: `${given.join(", ") || "No label"}; ${percent(scores[0].score)} ${scores[0].label}`,
    };
  },
};

const value = (number) => ({
  content: el("p", { class: "verdict" }, number.toFixed(3)),
  summary: number.toFixed(3),
});

// {label: threshold}: one for every label, one for the positive label alone, or none.
function thresholdsOf({ threshold, labels, positive }) {
  if (threshold === null) return {};
  if (typeof threshold === "number") return { [positive]: threshold };
  return Object.fromEntries(labels.map((label, index) => [label, threshold[index]]));
}

// The labels that the model gives; of two with one threshold, the other below it.
function decide(scores, lines, { threshold, labels, positive }) {
  if (threshold === null) return [scores.reduce((a, b) => (b.score > a.score ? b : a)).label];
  const passed = scores.filter(({ label, score }) => score >= (lines[label] ?? Infinity));
  if (passed.length || Array.isArray(threshold)) return passed.map(({ label }) => label);
  return labels.filter((label) => label !== positive);
}
