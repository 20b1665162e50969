// What is looked at, and which units of a panel that leaves.

const MOST = {
  layers: Math.max(...PANELS.map((panel) => panel.numLayers)),
  heads: Math.max(...PANELS.map((panel) => panel.numHeads)),
};
const LONGEST = Math.max(...PANELS.map((panel) => panel.length));

const state = {
  view: "lines",
  layer: Math.floor(MOST.layers / 2),
  heads: Array.from({ length: MOST.heads }, (_, head) => head),
  level: "pieces",
  way: "all",
  specials: true,
  least: Math.min(0.05, 4 / LONGEST),
  direction: "from",
  large: false,
  // {panel, unit, side: "from" | "to", other}: the unit under the pointer, and the one that stays.
  hover: null,
  pinned: null,
};

const VIEWS = {};
const watchers = [];
let isAsked = false;

// Change what is looked at; everything is drawn once, in the next frame.
function change(changes) {
  Object.assign(state, changes);
  if (isAsked) return;
  isAsked = true;
  requestAnimationFrame(() => {
    isAsked = false;
    for (const watcher of watchers) watcher();
  });
}

const allHeads = () => state.heads.length === MOST.heads;
const headsOf = (panel) => state.heads.filter((head) => head < panel.headsOf(state.layer));

// What a panel lacks of that which is to be drawn, in words; null: nothing.
function lackOf(panel) {
  if (VIEWS[state.view].isOverall || headsOf(panel).length) return null;
  const isPruned = state.layer < panel.numLayers && state.heads.some((head) => head < panel.numHeads);
  return isPruned
    ? `Layer ${state.layer} of ${panel.model} has ${panel.headsOf(state.layer)} of ${panel.numHeads} heads left; this one was pruned.`
    : `${panel.model} has ${panel.numLayers} layers of ${panel.headCounts} heads: there is no such head.`;
}
const unitsOf = (panel) => panel.levels[VIEWS[state.view].level ?? state.level];
const levelOf = () => VIEWS[state.view].level ?? state.level;

// Units that look and units that are looked at.
function shown(panel) {
  const key = `shown ${levelOf()} ${state.way} ${state.specials}`;
  return panel.keep(key, () => {
    const { sides } = unitsOf(panel);
    const [from, to] = state.way === "all" || !panel.isPair ? [null, null] : [...state.way].map(Number);
    const some = (side) =>
      [...sides.keys()].filter(
        (unit) =>
          (side === null || sides[unit] === side) && (state.specials || sides[unit] >= 0),
      );
    return { rows: some(from), columns: some(to) };
  });
}

const plainLabel = (label) => label.toLowerCase().replace(/^##/, "");

// The unit of this panel that the pointer or the last click is about: in another panel the word of
// the same name, counted from the start.
function focusOf(panel, focus = state.hover ?? state.pinned) {
  if (focus === null) return null;
  if (focus.panel === panel) return focus;
  const labels = focus.panel.levels[levelOf()].labels.map(plainLabel);
  const name = labels[focus.unit];
  const before = labels.slice(0, focus.unit).filter((label) => label === name).length;
  const found = unitsOf(panel).labels.map(plainLabel);
  const places = [...found.keys()].filter((unit) => found[unit] === name);
  const unit = places[Math.min(before, places.length - 1)];
  return unit === undefined ? null : { panel, unit, side: focus.side, other: null };
}

// The pinned unit at another level: a piece's word, a word's first piece.
function changeLevel(level) {
  const moved = (focus) => {
    if (focus === null) return null;
    const { of, first } = focus.panel.levels.words;
    return { ...focus, other: null, unit: level === "words" ? of[focus.unit] : first[focus.unit] };
  };
  change({ level, hover: null, pinned: moved(state.pinned) });
}

// In words: where a unit looks, or who looks at it.
function summaryOf(panel, weights, focus) {
  const { labels } = unitsOf(panel);
  const { rows, columns } = shown(panel);
  const size = labels.length;
  if (focus.other !== null && focus.other !== undefined) {
    const share = weights[focus.unit * size + focus.other];
    return `${quoted(labels[focus.unit])} to ${quoted(labels[focus.other])}: ${percent(share)}`;
  }
  const isFrom = focus.side !== "to";
  const best = (isFrom ? columns : rows)
    .map((unit) => [unit, weights[isFrom ? focus.unit * size + unit : unit * size + focus.unit]])
    .sort((a, b) => b[1] - a[1])
    .slice(0, 4)
    .filter(([, share]) => share >= 0.001)
    .map(([unit, share]) => `${quoted(labels[unit])} ${percent(share)}`);
  if (!best.length) return `${quoted(labels[focus.unit])}: nothing above 0.1 %`;
  return isFrom
    ? `${quoted(labels[focus.unit])} looks at ${best.join(", ")}`
    : `${quoted(labels[focus.unit])} is looked at by ${best.join(", ")}`;
}
