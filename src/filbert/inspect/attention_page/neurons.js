// Why a head looks where it looks: the query of one token, the keys of all, their products.

const TOP = 78;
const WEIGHT = 74;

VIEWS.neurons = {
  title: "Neurons",
  about: "Query times key, element by element; the sum over the root of their number is the score, and the softmax of the scores the weight.",
  level: "pieces",
  needs: () => [state.layer],

  place(panel, width) {
    const inner = Math.min(width, 860);
    const labelWidth = widthOfLabels(panel, inner);
    const left = (width - inner) / 2;
    const strip = Math.max(40, (inner - labelWidth - WEIGHT - 24) / 2);
    return { labelWidth, left: left + labelWidth + 4, strip, second: left + labelWidth + 16 + strip, weight: left + inner - WEIGHT };
  },

  size(panel, width) {
    return { width, height: TOP + ROW * shown(panel).columns.length + 6 };
  },

  head: (panel) => Math.min(state.heads[0] ?? 0, panel.headsOf(state.layer) - 1),

  // Resolved when what `draw` shows is unpacked.
  async ready(panel) {
    const head = this.head(panel);
    if (panel.hasVectors(state.layer, head)) await panel.loadVectors(state.layer, head);
  },

  query(panel) {
    return focusOf(panel, state.pinned)?.unit ?? shown(panel).rows[0] ?? 0;
  },

  // Keys and products as pictures, n rows of D pixels: green above zero, orange below.
  pictures(panel, vectors, query) {
    const depth = panel.headSize;
    const { queries, keys, scales } = vectors;
    return panel.keep(`neurons ${state.layer}.${this.head(panel)} ${query} ${colours.accent}`, () => {
      const products = new Float32Array(keys.length);
      for (let i = 0; i < keys.length; i++) products[i] = keys[i] * queries[query * depth + (i % depth)];
      const scores = Float32Array.from({ length: panel.length }, (_, row) => {
        let sum = 0;
        for (let at = row * depth; at < (row + 1) * depth; at++) sum += products[at];
        return (sum * scales[0] * scales[1]) / Math.sqrt(depth);
      });
      return {
        scores,
        keys: strips(keys, depth),
        products: strips(products, depth),
        query: strips(queries.subarray(query * depth, (query + 1) * depth), depth),
      };
    });
  },

  draw(pen, panel, box, size) {
    const { labelWidth, left, strip, second, weight } = this.place(panel, size.width);
    const head = this.head(panel);
    const { columns } = shown(panel);
    const { labels } = unitsOf(panel);
    if (!panel.hasVectors(state.layer, head)) {
      const lines = [
        "The queries and keys of this head are not in this page: with those of all",
        `heads it would be too large. Make it with --neurons ${state.layer}.${head} to have them.`,
      ];
      lines.forEach((line, at) => pen.text(size.width / 2, 30 + 22 * at, line, { anchor: "center", colour: colours.quiet, size: 14 }));
      return;
    }
    const vectors = panel.vectors(state.layer, head, () => change({}));
    if (vectors === null) return;
    const query = this.query(panel);
    const found = this.pictures(panel, vectors, query);
    const weights = panel.weights(state.layer, head, "pieces");
    const depth = panel.headSize;
    const first = Math.max(0, Math.floor((box.y - 8) / ROW));
    const last = Math.min(columns.length - 1, Math.ceil((box.y + box.height - TOP) / ROW));
    for (let at = first; at <= last; at++) {
      const unit = columns[at];
      const y = TOP + ROW * at;
      const share = weights[query * labels.length + unit];
      label(pen, labels[unit], left - 6, y + ROW / 2 - 1, labelWidth, { anchor: "end", tint: state.hover?.panel === panel && state.hover.unit === unit ? 0.2 : 0 });
      pen.image(found.keys, [0, unit, depth, 1], left, y + 2, strip, ROW - 6);
      pen.image(found.products, [0, unit, depth, 1], second, y + 2, strip, ROW - 6);
      pen.rect(weight, y + 2, WEIGHT - 34, ROW - 6, colours.sunk, 1, 3);
      if (share > 0.004) pen.rect(weight, y + 2, (WEIGHT - 34) * Math.min(1, share), ROW - 6, colours.accent, 1, 3);
      pen.text(weight + WEIGHT, y + ROW / 2 - 1, share >= 0.0005 ? (100 * share).toFixed(share >= 0.0995 ? 0 : 1) : "0", { anchor: "end", size: 11.5, colour: colours.quiet });
    }
    pen.rect(0, box.y, size.width, TOP - 6, colours.surface);
    const quiet = { colour: colours.quiet, size: 12 };
    label(pen, labels[query], left - 6, box.y + 34, labelWidth, { anchor: "end", strong: true });
    pen.text(left, box.y + 12, "query", quiet);
    pen.image(found.query, [0, 0, depth, 1], left, box.y + 25, strip, ROW - 6);
    pen.text(left, box.y + 60, "keys", quiet);
    pen.text(second, box.y + 60, "query × key", quiet);
    pen.text(weight + WEIGHT, box.y + 60, "weight, %", { ...quiet, anchor: "end" });
  },

  hit(panel, x, y, size, wanted, box) {
    if (y < box.y + TOP) return null;
    const unit = shown(panel).columns[Math.floor((y - TOP) / ROW)];
    return unit === undefined ? null : { unit, side: "from", other: null };
  },

  reach(panel, unit) {
    const position = shown(panel).columns.indexOf(unit);
    return { top: ROW * position, bottom: ROW * (position + 1) + TOP + 6 };
  },

  describe(panel) {
    const head = this.head(panel);
    const vectors = panel.hasVectors(state.layer, head) ? panel.vectors(state.layer, head, () => change({})) : null;
    if (vectors === null) return null;
    const query = this.query(panel);
    const { labels } = unitsOf(panel);
    if (state.hover?.panel !== panel)
      return `Layer ${state.layer}, head ${head}: the query of ${quoted(labels[query])}. Green is above zero, orange below. Choose a row to take its query.`;
    const { unit } = state.hover;
    const { scores } = this.pictures(panel, vectors, query);
    const share = panel.weights(state.layer, head, "pieces")[query * labels.length + unit];
    return `${quoted(labels[query])} to ${quoted(labels[unit])}: score ${scores[unit].toFixed(1)}, weight ${percent(share)}`;
  },
};

function strips(values, depth) {
  const rows = values.length / depth;
  const canvas = Object.assign(document.createElement("canvas"), { width: depth, height: rows });
  const pixels = new ImageData(depth, rows);
  let most = 1e-9;
  for (const value of values) most = Math.max(most, Math.abs(value));
  const [above, below] = [channelsOf(colours.accent), channelsOf(colours.contrast)];
  const back = channelsOf(colours.sunk);
  values.forEach((value, at) => {
    const share = Math.sqrt(Math.abs(value) / most);
    const colour = value > 0 ? above : below;
    pixels.data.set([...colour.map((channel, i) => back[i] + share * (channel - back[i])), 255], 4 * at);
  });
  canvas.getContext("2d").putImageData(pixels, 0, 0);
  return canvas;
}
