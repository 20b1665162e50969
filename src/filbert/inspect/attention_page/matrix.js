// Rows look at columns: a cell is as dark as the root of its weight, so that small ones show.

// A picture of a map, one pixel a cell: `colour` on nothing.
function picture(panel, key, weights, rows, columns, colour) {
  return panel.keep(`picture ${key} ${colour} ${state.way} ${state.specials}`, () => {
    const canvas = document.createElement("canvas");
    canvas.width = Math.max(1, columns.length);
    canvas.height = Math.max(1, rows.length);
    const size = Math.sqrt(weights.length);
    let most = 1e-6;
    for (const r of rows) for (const c of columns) most = Math.max(most, weights[r * size + c]);
    const pixels = new ImageData(canvas.width, canvas.height);
    const [red, green, blue] = channelsOf(colour);
    let at = 0;
    for (const r of rows) {
      for (const c of columns) {
        pixels.data[at] = red;
        pixels.data[at + 1] = green;
        pixels.data[at + 2] = blue;
        pixels.data[at + 3] = Math.round(255 * Math.sqrt(weights[r * size + c] / most));
        at += 4;
      }
    }
    canvas.getContext("2d").putImageData(pixels, 0, 0);
    return { canvas, most };
  });
}

VIEWS.matrix = {
  title: "Matrix",
  about: "Rows look at columns.",
  needs: () => [state.layer],

  place(panel, width) {
    const { rows, columns } = shown(panel);
    const edge = widthOfLabels(panel, width) * (columns.length > 60 && !state.large ? 0 : 1) || 28;
    const wide = (width - edge - 2) / Math.max(1, columns.length);
    // In one window, unless its names could be read only in a larger one, or the window is low.
    const high = Math.max((innerHeight - 330 - edge) / Math.max(1, rows.length), Math.min(4, wide));
    const fit = Math.min(32, wide, high < 13 && wide >= 13 ? 16 : high);
    const cell = state.large ? Math.max(18, fit) : fit;
    const left = Math.max(0, (width - edge - cell * columns.length) / 2);
    return { top: edge, edge: edge + left, labelWidth: edge, cell, rows, columns };
  },

  size(panel, width) {
    const { top, edge, cell, rows, columns } = this.place(panel, width);
    return { width: Math.max(width, edge + cell * columns.length + 2), height: top + cell * rows.length + 2 };
  },

  draw(pen, panel, box, size) {
    const { top, edge, labelWidth, cell, rows, columns } = this.place(panel, box.wanted);
    const { labels } = unitsOf(panel);
    const heads = headsOf(panel);
    const weights = panel.mean(state.layer, heads, levelOf());
    const colour = heads.length === 1 || allHeads() ? colours.accent : headColour(heads[0]);
    const key = `${state.layer}.${heads}.${levelOf()}`;
    const { canvas } = picture(panel, key, weights, rows, columns, colour);
    const focus = focusOf(panel);
    const r = focus === null || focus.side === "to" ? -1 : rows.indexOf(focus.unit);
    const c = focus === null ? -1 : columns.indexOf(focus.side === "to" ? focus.unit : focus.other);
    const [wide, high] = [cell * columns.length, cell * rows.length];
    const [x0, y0] = [box.x + edge, box.y + top];
    pen.clip(x0, y0, box.width - edge, box.height - top, () => {
      pen.rect(edge, top, wide, high, colours.sunk, 1, 3);
      // At most the part in the window: a large picture is slow to stretch.
      pen.image(canvas, [0, 0, canvas.width, canvas.height], edge, top, wide, high);
      if (cell >= 9) {
        for (let i = 1; i < columns.length; i++) pen.rect(edge + cell * i - 0.5, top, 1, high, colours.surface);
        for (let i = 1; i < rows.length; i++) pen.rect(edge, top + cell * i - 0.5, wide, 1, colours.surface);
      }
      const thick = Math.max(cell, 1);
      if (cell < 4) {
        if (r >= 0) pen.rect(edge, top + cell * (r + 0.5), wide, 1, colours.ink, 0.5);
        if (c >= 0) pen.rect(edge + cell * (c + 0.5), top, 1, high, colours.ink, 0.5);
        return;
      }
      if (r >= 0) {
        pen.rect(edge, top + cell * r - 1, wide, 1, colours.ink, 0.75);
        pen.rect(edge, top + cell * r + thick, wide, 1, colours.ink, 0.75);
      }
      if (c >= 0) {
        pen.rect(edge + cell * c - 1, top, 1, high, colours.ink, 0.75);
        pen.rect(edge + cell * c + thick, top, 1, high, colours.ink, 0.75);
      }
    });
    if (labelWidth < 40) {
      pen.text(edge + 2, box.y + top / 2, `columns: looked at, 1 to ${columns.length}`, { colour: colours.quiet, size: 12 });
      pen.text(box.x + edge - 14, top + 2, "rows: look", { colour: colours.quiet, size: 12, turned: true, anchor: "right" });
      return;
    }
    const every = Math.ceil(13 / cell);
    rows.forEach((unit, at) => {
      const y = top + cell * (at + 0.5);
      if ((at % every && at !== r) || y < box.y + top || y > box.y + box.height) return;
      const name = fitted(labels[unit], labelWidth - 10);
      pen.text(box.x + edge - 8, y, name, { anchor: "end", weight: at === r ? 600 : 400, colour: r < 0 || at === r ? colours.ink : colours.quiet });
    });
    columns.forEach((unit, at) => {
      const x = edge + cell * (at + 0.5);
      if ((at % every && at !== c) || x < box.x + edge || x > box.x + box.width) return;
      const name = fitted(labels[unit], labelWidth - 10);
      pen.text(x, box.y + top - 8, name, { turned: true, weight: at === c ? 600 : 400, colour: c < 0 || at === c ? colours.ink : colours.quiet });
    });
  },

  hit(panel, x, y, size, wanted, box) {
    const { top, edge, cell, rows, columns } = this.place(panel, wanted);
    const unit = rows[Math.floor((y - top) / cell)];
    const other = columns[Math.floor((x - edge) / cell)];
    if (y < box.y + top) return other === undefined || x < box.x + edge ? null : { unit: other, side: "to", other: null };
    if (unit === undefined) return null;
    return { unit, side: "from", other: x < box.x + edge || other === undefined ? null : other };
  },

  reach(panel, unit, wanted) {
    const { top: header, cell, rows } = this.place(panel, wanted);
    const top = cell * rows.indexOf(unit);
    return { top, bottom: top + cell + header };
  },

  legend(panel) {
    const heads = headsOf(panel);
    if (!heads.length || !panel.hasLayer(state.layer)) return null;
    const { rows, columns } = shown(panel);
    const weights = panel.mean(state.layer, heads, levelOf());
    return picture(panel, `${state.layer}.${heads}.${levelOf()}`, weights, rows, columns,
      heads.length === 1 || allHeads() ? colours.accent : headColour(heads[0])).most;
  },

  describe: VIEWS.lines.describe,
};
