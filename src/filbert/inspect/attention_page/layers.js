// One unit through all layers: a column a layer, a row a unit, shaded by the mean over all heads.

const HEAD_ROOM = 30;

VIEWS.layers = {
  title: "Layers",
  about: "Point at a token to follow it from the first layer to the last, averaged over all heads.",
  isOverall: true,
  needs: (panel) => Array.from({ length: panel.numLayers }, (_, layer) => layer),

  place(panel, width) {
    const labelWidth = widthOfLabels(panel, width) + 8;
    const column = Math.min(60, (width - labelWidth) / panel.numLayers);
    return { labelWidth, column, left: Math.max(0, (width - labelWidth - column * panel.numLayers) / 2) };
  },

  units(panel) {
    const { rows, columns } = shown(panel);
    return state.direction === "from" ? columns : rows;
  },

  size(panel, width) {
    return { width, height: HEAD_ROOM + ROW * this.units(panel).length + 6 };
  },

  // Mean over all heads: per layer, of the unit in focus, or how much every unit gets of all.
  profile(panel, layer, focus) {
    const { rows } = shown(panel);
    const size = unitsOf(panel).labels.length;
    const all = panel.overall(layer, levelOf());
    if (focus === null)
      return panel.keep(`received ${layer} ${levelOf()} ${state.way} ${state.specials}`, () => {
        const sum = new Float32Array(size);
        for (const r of rows) for (let c = 0; c < size; c++) sum[c] += all[r * size + c] / rows.length;
        return sum;
      });
    if (state.direction === "from") return all.subarray(focus.unit * size, (focus.unit + 1) * size);
    return Float32Array.from({ length: size }, (_, r) => all[r * size + focus.unit]);
  },

  draw(pen, panel, box, size) {
    const { labelWidth, column, left } = this.place(panel, size.width);
    const { labels } = unitsOf(panel);
    const units = this.units(panel);
    const focus = focusOf(panel);
    const first = Math.max(0, Math.floor((box.y - ROW) / ROW));
    const last = Math.min(units.length - 1, Math.ceil((box.y + box.height) / ROW));
    const top = (at) => HEAD_ROOM + ROW * at;
    const begun = performance.now();
    for (let layer = 0; layer < panel.numLayers; layer++) {
      if (!panel.hasLayer(layer)) continue;
      if (!box.isWhole && !panel.hasOverall(layer, levelOf()) && performance.now() - begun > FRAME) {
        change({});
        break;
      }
      const shares = this.profile(panel, layer, focus);
      const x = left + labelWidth + column * layer;
      for (let at = first; at <= last; at++) {
        const share = shares[units[at]];
        pen.rect(x, top(at), column - 2, ROW - 2, colours.sunk, 1, 4);
        if (share >= 0.002) pen.rect(x, top(at), column - 2, ROW - 2, colours.accent, Math.min(1, Math.sqrt(share)), 4);
        if (column >= 34 && share >= 0.05)
          pen.text(x + column / 2 - 1, top(at) + ROW / 2 - 0.5, String(Math.round(100 * share)), {
            anchor: "center",
            size: 11,
            colour: share > 0.3 ? colours["on-accent"] : colours.ink,
          });
      }
    }
    for (let at = first; at <= last; at++) {
      const isIt = focus !== null && units[at] === focus.unit;
      label(pen, labels[units[at]], left + labelWidth - 4, top(at) + ROW / 2 - 1, labelWidth - 4, { anchor: "end", strong: isIt });
    }
    pen.rect(0, box.y, size.width, HEAD_ROOM - 4, colours.surface);
    for (let layer = 0; layer < panel.numLayers; layer++)
      pen.text(left + labelWidth + column * (layer + 0.5) - 1, box.y + 13, String(layer), {
        anchor: "center",
        size: 12,
        colour: layer === state.layer ? colours.accent : colours.quiet,
        weight: layer === state.layer ? 700 : 400,
      });
    pen.text(left + labelWidth - 11, box.y + 13, "layer", { anchor: "end", size: 12, colour: colours.quiet });
  },

  hit(panel, x, y, size, wanted, box) {
    const { labelWidth, column, left } = this.place(panel, size.width);
    const layer = Math.floor((x - left - labelWidth) / column);
    const isLayer = layer >= 0 && layer < panel.numLayers;
    if (y < box.y + HEAD_ROOM - 4) return isLayer ? { layer } : null;
    const unit = this.units(panel)[Math.floor((y - HEAD_ROOM) / ROW)];
    return unit === undefined ? null : { unit, side: state.direction, other: null, at: isLayer ? layer : null };
  },

  choose(panel, hit) {
    if (hit.unit === undefined) change({ layer: hit.layer });
    else pin(panel, hit);
  },

  reach(panel, unit) {
    const position = this.units(panel).indexOf(unit);
    return { top: ROW * position, bottom: ROW * (position + 1) + HEAD_ROOM + 6 };
  },

  describe(panel, focus) {
    const layers = Array.from({ length: panel.numLayers }, (_, layer) => layer);
    if (focus === null || !layers.every((layer) => panel.hasOverall(layer, levelOf()))) return null;
    const { labels } = unitsOf(panel);
    const units = this.units(panel);
    const best = layers.map((layer) => {
      const shares = this.profile(panel, layer, focus);
      return units.reduce((one, other) => (shares[other] > shares[one] ? other : one), units[0]);
    });
    const runs = [];
    best.forEach((unit, layer) => {
      if (runs.length && runs.at(-1).unit === unit) runs.at(-1).last = layer;
      else runs.push({ unit, first: layer, last: layer });
    });
    const parts = runs.map(({ unit, first, last }) =>
      `${quoted(labels[unit])} in ${first === last ? `layer ${first}` : `layers ${first} to ${last}`}`);
    const verb = state.direction === "from" ? "looks most at" : "is looked at most by";
    return `${quoted(labels[focus.unit])} ${verb} ${parts.join(", ")}`;
  },
};
