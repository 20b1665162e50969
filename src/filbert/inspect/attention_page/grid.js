// All heads of all layers, each in little; layers are unpacked one after the other.

VIEWS.grid = {
  title: "All heads",
  about: "A layer each row, a head each column. Choose one to open it.",
  isOverall: true,
  needs: (panel) => Array.from({ length: panel.numLayers }, (_, layer) => layer),

  place(panel, width) {
    const edge = 26;
    const cell = Math.min(104, (width - edge) / panel.numHeads);
    return { edge, cell, gap: cell > 40 ? 8 : 3 };
  },

  size(panel, width) {
    const { edge, cell } = this.place(panel, width);
    return { width, height: edge + cell * panel.numLayers };
  },

  draw(pen, panel, box, size) {
    const { edge, cell, gap } = this.place(panel, size.width);
    const { rows, columns } = shown(panel);
    const focus = focusOf(panel, state.pinned);
    const begun = performance.now();
    for (let head = 0; head < panel.numHeads; head++)
      pen.text(edge + cell * (head + 0.5) - gap / 2, edge / 2, String(head), { anchor: "center", colour: colours.quiet, size: 11.5 });
    for (let layer = 0; layer < panel.numLayers; layer++) {
      const y = edge + cell * layer;
      pen.text(edge - 10, y + (cell - gap) / 2, String(layer), { anchor: "end", colour: colours.quiet, size: 11.5 });
      if (y > box.y + box.height || y + cell < box.y) continue;
      for (let head = 0; head < panel.numHeads; head++) {
        const x = edge + cell * head;
        const side = cell - gap;
        const isLost = head >= panel.headsOf(layer);
        pen.rect(x, y, side, side, colours.sunk, isLost ? 0.4 : 1, 3);
        if (isLost || !panel.hasLayer(layer)) continue;
        const isLate = !box.isWhole && performance.now() - begun > FRAME;
        const small = thumbnail(panel, layer, head, rows, columns, isLate);
        if (small === null) {
          change({});
          continue;
        }
        pen.image(small, [0, 0, small.width, small.height], x, y, side, side);
        const r = focus === null ? -1 : rows.indexOf(focus.unit);
        if (r >= 0) {
          const thick = Math.max(1.5, side / rows.length);
          pen.rect(x, y + (side * (r + 0.5)) / rows.length - thick / 2, side, thick, colours.contrast, 0.28);
        }
        const isHovered = this.under?.panel === panel && this.under.layer === layer && this.under.head === head;
        const isChosen = layer === state.layer && state.heads.length === 1 && state.heads[0] === head;
        if (isHovered || isChosen) {
          const [colour, thick] = [isHovered ? colours.ink : colours.accent, 2];
          pen.rect(x - thick, y - thick, side + 2 * thick, thick, colour);
          pen.rect(x - thick, y + side, side + 2 * thick, thick, colour);
          pen.rect(x - thick, y, thick, side, colour);
          pen.rect(x + side, y, thick, side, colour);
        }
      }
    }
  },

  hit(panel, x, y, size) {
    const { edge, cell } = this.place(panel, size.width);
    const [layer, head] = [Math.floor((y - edge) / cell), Math.floor((x - edge) / cell)];
    const isIn = layer >= 0 && head >= 0 && head < panel.headsOf(layer);
    return isIn ? { layer, head } : null;
  },

  point(panel, hit) {
    this.under = hit === null ? null : { panel, ...hit };
    change({});
  },

  choose(panel, hit) {
    change({ view: "lines", layer: hit.layer, heads: [hit.head] });
  },

  open: () => change({ view: "lines" }),

  describe(panel) {
    if (this.under?.panel !== panel) return null;
    const { layer, head } = this.under;
    return `Layer ${layer}, head ${head}: its largest weight is ${percent(panel.sureness[layer][head])} in the mean over tokens`;
  },
};

const THUMB = 64;

// A map of at most 64 by 64 pixels: of the cells that share one, the strongest. null when it is not
// made yet and it is too late for this frame.
function thumbnail(panel, layer, head, rows, columns, isLate) {
  const key = `thumb ${layer}.${head} ${levelOf()} ${state.way} ${state.specials} ${colours.accent}`;
  panel.thumbs ??= new Map();
  if (!panel.thumbs.has(key) && isLate) return null;
  if (!panel.thumbs.has(key)) panel.thumbs.set(key, drawn(panel, layer, head, rows, columns));
  return panel.thumbs.get(key);
}

function drawn(panel, layer, head, rows, columns) {
  const isLong = panel.length > 160;
  const size = unitsOf(panel).labels.length;
  // A long text's maps would push all others out of what is kept.
  const weights = panel.weights(layer, head, levelOf());
  if (isLong) panel.kept.delete(`${layer}.${head}.${levelOf()}`);
  const [wide, high] = [Math.min(THUMB, columns.length) || 1, Math.min(THUMB, rows.length) || 1];
  const strongest = new Float32Array(wide * high);
  let most = 1e-6;
  rows.forEach((r, at) => {
    const y = Math.floor((at * high) / rows.length);
    columns.forEach((c, place) => {
      const to = y * wide + Math.floor((place * wide) / columns.length);
      const weight = weights[r * size + c];
      if (weight > strongest[to]) strongest[to] = weight;
      if (weight > most) most = weight;
    });
  });
  const canvas = Object.assign(document.createElement("canvas"), { width: wide, height: high });
  const pixels = new ImageData(wide, high);
  const [red, green, blue] = channelsOf(colours.accent);
  strongest.forEach((weight, at) => {
    pixels.data.set([red, green, blue, Math.round(255 * Math.sqrt(weight / most))], 4 * at);
  });
  canvas.getContext("2d").putImageData(pixels, 0, 0);
  return canvas;
}
