// Attention: from which token each head of a layer looks to which.

import { choices, el, percent, svg } from "./elements.js";

const MOST_CHARACTERS = 600;
const MOST_LINES = 80;
const MEAN = -1;

export const attention = {
  id: "attention",
  title: "Attention",
  needs: "attention",
  label: "Text",
  extra: { label: "Second text", hint: "optional" },
  examples: [
    "The keys to the old cabinet are on the table.",
    "The nurse called the doctor because she was late.",
    "Time flies like an arrow; fruit flies like a banana.",
  ],

  missing: ({ text, extra }) =>
    text.length + extra.length > MOST_CHARACTERS
      ? el("p", { class: "hint" }, `Drawn for texts of up to ${MOST_CHARACTERS} characters.`)
      : null,

  // One layer at a time: the maps of all would be megabytes.
  ask({ text, extra, model, view }) {
    view.layer ??= model.num_hidden_layers - 1;
    return {
      path: "attention",
      body: { inputs: extra ? [text, extra] : text, layers: [view.layer] },
    };
  },

  show(answer, { model, view, again }) {
    const [heads] = answer.maps;
    const { tokens } = answer;
    view.head = Math.min(view.head ?? MEAN, heads.length - 1);
    view.way ??= "lines";
    view.from = view.from < tokens.length ? view.from : null;
    const name = `${model.name}-attention`;
    const drawing = el("div", { class: "drawing" });
    const hint = el("p", { class: "hint", "aria-live": "polite" });
    const from = tokenChoice(tokens, view.from, (index) => draw({ from: index }));
    const mean = meanOf(heads);

    function draw(changes = {}) {
      Object.assign(view, changes);
      const map = view.head === MEAN ? mean : heads[view.head];
      const lines = view.way === "lines" && tokens.length <= MOST_LINES;
      const pick = (index) => draw({ from: view.from === index ? null : index });
      from.value = view.from ?? "";
      drawing.replaceChildren((lines ? linesOf : matrixOf)(map, tokens, view.from, pick));
      hint.textContent =
        view.from === null ? "Select a token to see where it looks." : lookOf(map, tokens, view.from);
    }

    const thumbs = [[MEAN, mean], ...heads.entries()].map(([head, map]) => [
      head,
      [thumbnail(map), el("span", {}, head === MEAN ? "mean" : String(head))],
    ]);
    const layers = Array.from({ length: model.num_hidden_layers }, (_, layer) => layer);
    const content = el(
      "div",
      { class: "attention" },
      el(
        "div",
        { class: "controls" },
        labelled(
          "Layer",
          el(
            "select",
            {
              id: `${name}-layer`,
              onchange: ({ target }) => again({ layer: Number(target.value) }),
            },
            layers.map((layer) => el("option", { selected: layer === view.layer }, String(layer))),
          ),
        ),
        labelled("Token", from),
        choices(
          "View",
          `${name}-way`,
          [
            ["lines", "Lines"],
            ["matrix", "Matrix"],
          ],
          view.way,
          (way) => draw({ way }),
        ),
      ),
      el(
        "div",
        { class: "thumbs" },
        choices("Head", `${name}-head`, thumbs, view.head, (head) => draw({ head })),
      ),
      drawing,
      hint,
    );
    draw();
    return { content, summary: `Attention of layer ${view.layer} over ${tokens.length} tokens` };
  },
};

const labelled = (label, control) => el("label", {}, el("span", {}, label), control);

function tokenChoice(tokens, chosen, onchange) {
  const option = (token, index) =>
    el("option", { value: index, selected: index === chosen }, `${index + 1}. ${token}`);
  const read = ({ target }) => onchange(target.value === "" ? null : Number(target.value));
  return el("select", { onchange: read }, el("option", { value: "" }, "all"), tokens.map(option));
}

const meanOf = (heads) =>
  heads[0].map((row, i) =>
    row.map((_, j) => heads.reduce((sum, map) => sum + map[i][j], 0) / heads.length),
  );

function lookOf(map, tokens, from) {
  const best = [...map[from].entries()].sort((a, b) => b[1] - a[1]).slice(0, 4);
  const parts = best.map(([index, share]) => `“${tokens[index]}” ${percent(share)}`);
  return `“${tokens[from]}” looks at ${parts.join(", ")}.`;
}

// A head in little, one pixel a pair of tokens, in the colour of the page.
function thumbnail(map) {
  const size = map.length;
  const canvas = el("canvas", { width: size, height: size, "aria-hidden": "true" });
  const pen = canvas.getContext("2d");
  const accent = getComputedStyle(document.documentElement).getPropertyValue("--accent").trim();
  const colour = [1, 3, 5].map((at) => Number.parseInt(accent.slice(at, at + 2), 16));
  const most = Math.max(...map.map((row) => Math.max(...row)));
  const pixels = map.flatMap((row) =>
    row.flatMap((share) => [...colour, Math.round((255 * share) / most)]),
  );
  pen.putImageData(new ImageData(new Uint8ClampedArray(pixels), size), 0, 0);
  return canvas;
}

const ROW = 22;

// Two columns of tokens; a line is as strong as the attention of the left one to the right one.
function linesOf(map, tokens, from, pick) {
  const [left, right, width] = [120, 240, 360];
  const middle = (index) => ROW * (index + 0.5);
  const lines = [];
  for (const [i, row] of map.entries()) {
    if (from !== null && from !== i) continue;
    for (const [j, share] of row.entries()) {
      if (share < (from === null ? 0.04 : 0.005)) continue;
      const place = { x1: left, y1: middle(i), x2: right, y2: middle(j) };
      lines.push(svg("line", { ...place, "stroke-opacity": share, "stroke-width": 1 + 3 * share }));
    }
  }
  const token = (x, anchor, act) => (text, index) =>
    svg(
      "text",
      {
        x,
        y: middle(index),
        "text-anchor": anchor,
        class: act ? (index === from ? "from chosen" : "from") : null,
        onclick: act && (() => act(index)),
      },
      text,
    );
  return svg(
    "svg",
    {
      viewBox: `0 0 ${width} ${ROW * tokens.length}`,
      class: "lines",
      role: "img",
      "aria-label": "Lines from every token to the tokens that it looks at",
    },
    lines,
    tokens.map(token(left - 8, "end", pick)),
    tokens.map(token(right + 8, "start", null)),
  );
}

// Rows look at columns.
function matrixOf(map, tokens, from, pick) {
  const cell = 20;
  const longest = Math.max(...tokens.map((token) => token.length));
  const edge = Math.min(20 + 8 * longest, 120);
  const size = edge + cell * tokens.length;
  const most = Math.max(...map.map((row) => Math.max(...row)));
  const cells = [];
  for (const [i, row] of map.entries()) {
    for (const [j, share] of row.entries()) {
      if (share / most < 0.01) continue;
      const place = { x: edge + cell * j, y: edge + cell * i, width: cell - 1, height: cell - 1 };
      const title = svg("title", {}, `“${tokens[i]}” to “${tokens[j]}”: ${percent(share)}`);
      const act = { onclick: () => pick(i) };
      cells.push(svg("rect", { ...place, ...act, "fill-opacity": share / most }, title));
    }
  }
  const at = (index) => edge + cell * (index + 0.5);
  const rowName = (text, index) =>
    svg(
      "text",
      {
        x: edge - 6,
        y: at(index),
        "text-anchor": "end",
        class: index === from ? "from chosen" : "from",
        onclick: () => pick(index),
      },
      text,
    );
  const columnName = (text, index) =>
    svg("text", { transform: `translate(${at(index)} ${edge - 6}) rotate(-90)` }, text);
  const band = { x: 0, y: edge + cell * from, width: size, height: cell, class: "band" };
  return svg(
    "svg",
    {
      viewBox: `0 0 ${size} ${size}`,
      class: "matrix",
      role: "img",
      "aria-label": "Matrix of attention: rows look at columns",
      "--size": size,
    },
    from !== null && svg("rect", band),
    cells,
    tokens.map(rowName),
    tokens.map(columnName),
  );
}
