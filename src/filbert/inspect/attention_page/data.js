"use strict";

// The page's data: texts as JSON, weights and vectors as compressed bytes, unpacked when needed.

const $ = (id) => document.getElementById(id);
const ABOUT = JSON.parse($("about").textContent);

async function bytesOf(id) {
  const text = atob($(id).textContent);
  const packed = new Uint8Array(text.length);
  for (let at = 0; at < text.length; at++) packed[at] = text.charCodeAt(at);
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

// Maps and pictures kept; of a long text one is a megabyte.
const MOST_KEPT = 60;
// What a frame may spend on what can come in the next one, in milliseconds.
const FRAME = 10;

// A text before a model. A unit is a token ("pieces") or a word ("words").
class Panel {
  constructor(about, number) {
    Object.assign(this, about);
    this.number = number;
    this.bytes = new Map();
    this.found = new Map();
    this.coming = new Map();
    this.kept = new Map();
    this.means = new Map();
    const wordSides = this.words.map((_, word) => this.sequence[this.units.indexOf(word)]);
    const pieces = this.tokens.map((_, piece) => piece);
    this.levels = {
      pieces: { labels: this.tokens, sides: this.sequence, of: pieces, first: pieces },
      words: {
        labels: this.words,
        sides: wordSides,
        of: this.units,
        first: this.words.map((_, word) => this.units.indexOf(word)),
      },
    };
  }

  get isPair() {
    return this.texts.length > 1;
  }

  // Heads of a layer that were not pruned; they come first. 0 where there is no such layer.
  headsOf(layer) {
    return this.heads[layer] ?? 0;
  }

  // "4", or "1 to 4" where some layers have lost heads.
  get headCounts() {
    const [least, most] = [Math.min(...this.heads), Math.max(...this.heads)];
    return least === most ? String(most) : `${least} to ${most}`;
  }

  hasLayer(layer) {
    return this.bytes.get(layer) instanceof Uint8Array;
  }

  async load(layer) {
    if (layer >= this.numLayers || this.hasLayer(layer)) return;
    if (!this.bytes.has(layer)) this.bytes.set(layer, bytesOf(`maps-${this.number}-${layer}`));
    this.bytes.set(layer, await this.bytes.get(layer));
  }

  // What `make` gives, kept while it is among the latest of its kind.
  keep(key, make) {
    let value = this.kept.get(key);
    if (value === undefined) {
      value = make();
      if (this.kept.size >= MOST_KEPT) this.kept.delete(this.kept.keys().next().value);
    } else {
      this.kept.delete(key);
    }
    this.kept.set(key, value);
    return value;
  }

  // Where a head's steps begin in a layer's bytes: [low bytes, high bytes or null].
  places(layer, head) {
    const area = this.length * this.length;
    const isWide = this.bytes.get(layer).length > this.numHeads * area;
    return [head * area, isWide ? (this.numHeads + head) * area : null];
  }

  // Stored by columns, given by rows, from unit to unit. To a word: the sum over its tokens; from a
  // word: the mean.
  byRows(steps, whole, level) {
    const n = this.length;
    const { labels, of } = this.levels[level];
    const size = labels.length;
    const pieces = new Float32Array(size);
    for (const unit of of) pieces[unit] += 1;
    const weights = new Float32Array(size * size);
    for (let j = 0; j < n; j++)
      for (let i = 0; i < n; i++) {
        const step = steps[j * n + i];
        if (step) weights[of[i] * size + of[j]] += step / (whole * pieces[of[i]]);
      }
    return weights;
  }

  // Weights of a head from unit to unit, row by row; the layer is loaded.
  weights(layer, head, level) {
    return this.keep(`${layer}.${head}.${level}`, () => {
      const bytes = this.bytes.get(layer);
      const area = this.length * this.length;
      const [low, high] = this.places(layer, head);
      if (high === null) return this.byRows(bytes.subarray(low, low + area), ABOUT.levels, level);
      const steps = new Uint16Array(area);
      for (let at = 0; at < area; at++) steps[at] = bytes[low + at] + 256 * bytes[high + at];
      return this.byRows(steps, ABOUT.levels, level);
    });
  }

  // The mean over all heads that a layer has; kept for good, as a walk through the layers needs all.
  overall(layer, level) {
    const name = `${layer} ${level}`;
    if (!this.means.has(name)) {
      const bytes = this.bytes.get(layer);
      const area = this.length * this.length;
      const sum = new Uint32Array(area);
      for (let head = 0; head < this.numHeads; head++) {
        const [low, high] = this.places(layer, head);
        for (let at = 0; at < area; at++) sum[at] += bytes[low + at];
        if (high !== null) for (let at = 0; at < area; at++) sum[at] += 256 * bytes[high + at];
      }
      this.means.set(name, this.byRows(sum, ABOUT.levels * this.headsOf(layer), level));
    }
    return this.means.get(name);
  }

  hasOverall(layer, level) {
    return this.means.has(`${layer} ${level}`);
  }

  mean(layer, heads, level) {
    if (heads.length === 1) return this.weights(layer, heads[0], level);
    if (heads.length === this.headsOf(layer)) return this.overall(layer, level);
    return this.keep(`${layer}.${heads}.${level}`, () => {
      const all = heads.map((head) => this.weights(layer, head, level));
      const sum = new Float32Array(all[0].length);
      for (const one of all) for (let i = 0; i < sum.length; i++) sum[i] += one[i] / all.length;
      return sum;
    });
  }

  hasVectors(layer, head) {
    return `${layer}.${head}` in this.scales;
  }

  loadVectors(layer, head) {
    const name = `${layer}-${head}`;
    if (!this.coming.has(name)) {
      const unpack = (bytes) => {
        const all = new Int8Array(bytes.buffer);
        const half = all.length / 2;
        const scales = this.scales[`${layer}.${head}`];
        this.found.set(name, { queries: all.subarray(0, half), keys: all.subarray(half), scales });
      };
      this.coming.set(name, bytesOf(`vectors-${this.number}-${name}`).then(unpack));
    }
    return this.coming.get(name);
  }

  // Queries and keys of a head, {queries, keys: Int8Array (n * D), scales}, or null until loaded.
  vectors(layer, head, ready) {
    const found = this.found.get(`${layer}-${head}`);
    if (found === undefined) this.loadVectors(layer, head).then(ready);
    return found ?? null;
  }
}

const PANELS = ABOUT.views.map((about, number) => new Panel(about, number));
const percent = (share) => (share >= 0.0995 ? `${Math.round(100 * share)} %` : `${(100 * share).toFixed(1)} %`);
const quoted = (label) => `“${label}”`;
