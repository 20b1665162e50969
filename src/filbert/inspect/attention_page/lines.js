// Two columns of units, and a line from each to those it looks at, as strong as the weight.

const ROW = 24;
const SHADES = 8;

function widthOfLabels(panel, width) {
  const { labels } = unitsOf(panel);
  const widest = panel.keep(`widest ${levelOf()}`, () => Math.max(...labels.map((label) => widthOf(label))));
  return Math.ceil(Math.min(widest + 20, 168, width * 0.32));
}

const tintOf = (weight) => (weight < state.least ? 0 : 0.12 + 0.5 * Math.sqrt(weight));

// A unit's name, with a pill behind it when it is looked at.
function label(pen, text, x, y, labelWidth, { anchor = "start", strong = false, tint = 0, colour = colours.accent } = {}) {
  const name = fitted(text, labelWidth - 14);
  // Bold letters are wider.
  const width = widthOf(name) * (strong ? 1.08 : 1) + 14;
  const left = anchor === "end" ? x - width : x;
  if (strong) pen.rect(left, y - 10, width, 20, colours.accent, 1, 6);
  else if (tint > 0.01) pen.rect(left, y - 10, width, 20, colour, Math.min(0.5, tint), 6);
  pen.text(anchor === "end" ? x - 7 : x + 7, y, name, {
    anchor,
    colour: strong ? colours["on-accent"] : colours.ink,
    weight: strong ? 600 : 400,
  });
}

VIEWS.lines = {
  title: "Lines",
  about: "Each token on the left looks at tokens on the right.",
  needs: () => [state.layer],

  size(panel, width) {
    const { rows, columns } = shown(panel);
    return { width, height: ROW * Math.max(rows.length, columns.length, 1) + 8 };
  },

  place(panel, width) {
    const inner = Math.min(width, 680);
    const labelWidth = widthOfLabels(panel, inner);
    const left = (width - inner) / 2;
    return { labelWidth, left: left + labelWidth, right: left + inner - labelWidth };
  },

  draw(pen, panel, box, size) {
    const { rows, columns } = shown(panel);
    const { labels } = unitsOf(panel);
    const count = labels.length;
    const { labelWidth, left, right } = this.place(panel, size.width);
    const heads = headsOf(panel);
    const focus = focusOf(panel);
    const middle = (position) => 4 + ROW * (position + 0.5);
    const [top, bottom] = [Math.floor((box.y - 4) / ROW) - 1, Math.ceil((box.y + box.height - 4) / ROW)];
    const isIn = (position) => position >= top && position <= bottom;
    const mean = panel.mean(state.layer, heads, levelOf());

    for (const head of heads) {
      const weights = panel.weights(state.layer, head, levelOf());
      // Side by side, or one head's lines would hide another's.
      const shift = heads.length > 1 ? (12 * (heads.indexOf(head) + 0.5)) / heads.length - 6 : 0;
      const strands = Array.from({ length: SHADES }, () => []);
      const visit = (r, c) => {
        const weight = weights[rows[r] * count + columns[c]];
        if (weight < state.least) return;
        const shade = Math.min(SHADES - 1, Math.floor(SHADES * Math.sqrt(weight)));
        strands[shade].push(left + 4, middle(r) + shift, right - 4, middle(c) + shift);
      };
      if (focus === null) {
        for (let r = 0; r < rows.length; r++)
          if (isIn(r)) for (let c = 0; c < columns.length; c++) visit(r, c);
          else for (let c = Math.max(0, top); c <= Math.min(bottom, columns.length - 1); c++) visit(r, c);
      } else if (focus.side === "to") {
        const c = columns.indexOf(focus.unit);
        if (c >= 0) for (let r = 0; r < rows.length; r++) visit(r, c);
      } else {
        const r = rows.indexOf(focus.unit);
        if (r >= 0) for (let c = 0; c < columns.length; c++) visit(r, c);
      }
      const colour = heads.length > 1 ? headColour(head) : colours.accent;
      strands.forEach((points, shade) => {
        const strength = (shade + 0.6) / SHADES;
        if (points.length) pen.strands(points, colour, 0.12 + 0.78 * strength * strength, 0.8 + 2.4 * strength);
      });
    }
    for (let r = Math.max(0, top); r <= Math.min(bottom, rows.length - 1); r++) {
      const isIt = focus !== null && focus.side !== "to" && rows[r] === focus.unit;
      const tint = focus?.side === "to" ? tintOf(mean[rows[r] * count + focus.unit]) : 0;
      label(pen, labels[rows[r]], left, middle(r), labelWidth, { anchor: "end", strong: isIt, tint });
    }
    for (let c = Math.max(0, top); c <= Math.min(bottom, columns.length - 1); c++) {
      const isIt = focus !== null && focus.side === "to" && columns[c] === focus.unit;
      const tint =
        focus !== null && focus.side !== "to" ? tintOf(mean[focus.unit * count + columns[c]]) : 0;
      label(pen, labels[columns[c]], right, middle(c), labelWidth, { strong: isIt, tint });
    }
  },

  hit(panel, x, y, size) {
    const { left, right } = this.place(panel, size.width);
    const position = Math.floor((y - 4) / ROW);
    const isRight = x > (left + right) / 2;
    const { rows, columns } = shown(panel);
    const unit = (isRight ? columns : rows)[position];
    return unit === undefined ? null : { unit, side: isRight ? "to" : "from", other: null };
  },

  // Where a unit is, so that it can be scrolled to.
  reach(panel, unit) {
    const position = shown(panel).rows.indexOf(unit);
    return { top: ROW * position, bottom: ROW * (position + 1) + 8 };
  },

  describe(panel, focus) {
    if (focus === null) return null;
    return summaryOf(panel, panel.mean(state.layer, headsOf(panel), levelOf()), focus);
  },
};
