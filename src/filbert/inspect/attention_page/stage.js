// Where a panel is drawn: a window onto a drawing of any size; only what is in it gets drawn.

function pin(panel, { unit, side, other = null }) {
  const { pinned } = state;
  const isSame = pinned?.panel === panel && pinned.unit === unit && pinned.side === side && pinned.other === other;
  change({ pinned: isSame ? null : { panel, unit, side, other }, hover: null });
}

class Stage {
  constructor(panel, host) {
    this.panel = panel;
    this.summary = host.querySelector(".summary");
    this.frame = host.querySelector(".stage");
    this.sheet = host.querySelector(".sheet");
    this.canvas = host.querySelector("canvas");
    this.scale = host.querySelector(".scale");
    this.pen = new CanvasPen(this.canvas.getContext("2d"));
    this.frame.addEventListener("scroll", () => change({}));
    this.canvas.addEventListener("pointermove", (event) => event.pointerType === "touch" || this.point(event));
    this.canvas.addEventListener("pointerleave", () => this.leave());
    this.canvas.addEventListener("click", (event) => this.choose(event));
    this.frame.addEventListener("keydown", (event) => this.press(event));
    new ResizeObserver(() => change({})).observe(this.frame);
  }

  get view() {
    return VIEWS[state.view];
  }

  get box() {
    const { scrollLeft: x, scrollTop: y, clientWidth: width, clientHeight: height } = this.frame;
    return { x, y, width, height, wanted: width };
  }

  hit(event) {
    const { left, top } = this.canvas.getBoundingClientRect();
    const { box, view, panel } = this;
    const size = view.size(panel, box.width);
    return view.hit(panel, event.clientX - left + box.x, event.clientY - top + box.y, size, box.width, box);
  }

  point(event) {
    const hit = this.hit(event);
    this.canvas.style.cursor = hit === null ? "" : "pointer";
    const name = JSON.stringify(hit);
    if (name === this.pointed) return;
    this.pointed = name;
    if (this.view.point) this.view.point(this.panel, hit);
    else change({ hover: hit?.unit === undefined ? null : { panel: this.panel, ...hit } });
  }

  leave() {
    this.pointed = undefined;
    this.view.point?.(this.panel, null);
    if (state.hover?.panel === this.panel) change({ hover: null });
  }

  choose(event) {
    const hit = this.hit(event);
    this.pointed = undefined;
    if (hit === null) return;
    if (this.view.choose) this.view.choose(this.panel, hit);
    else pin(this.panel, hit);
  }

  press(event) {
    const { rows } = shown(this.panel);
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    const turn = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Escape") change({ pinned: null, hover: null });
    else if (event.key === "Enter" && this.view.open) this.view.open();
    else if (step && this.view.reach) {
      const at = rows.indexOf(focusOf(this.panel, state.pinned)?.unit ?? -1);
      const unit = rows[at < 0 ? (step > 0 ? 0 : rows.length - 1) : (at + step + rows.length) % rows.length];
      change({ pinned: { panel: this.panel, unit, side: "from", other: null }, hover: null });
      this.reveal(unit);
    } else if (turn && event.shiftKey) stepLayer(turn);
    else if (turn) stepHead(turn);
    else return;
    event.preventDefault();
  }

  reveal(unit) {
    const { top, bottom } = this.view.reach(this.panel, unit, this.frame.clientWidth);
    const { scrollTop, clientHeight } = this.frame;
    if (top < scrollTop) this.frame.scrollTop = top;
    else if (bottom > scrollTop + clientHeight) this.frame.scrollTop = bottom - clientHeight;
  }

  update() {
    const { panel, view, frame } = this;
    const missing = layersFor(panel).find((layer) => !panel.hasLayer(layer));
    if (missing !== undefined) panel.load(missing).then(() => change({}));
    // The grid and the layers fill up as they come; the others keep what is drawn until then.
    if (missing !== undefined && !view.isOverall) return;
    const lack = lackOf(panel);
    if (lack !== null) {
      this.say(lack);
      this.scale.hidden = true;
      this.sheet.style.height = "0";
      return;
    }
    const size = view.size(panel, frame.clientWidth);
    this.sheet.style.width = `${size.width}px`;
    this.sheet.style.height = `${size.height}px`;
    this.draw();
    const focus = focusOf(panel);
    this.say(view.describe(panel, focus) ?? view.about);
    const most = view.legend?.(panel) ?? null;
    this.scale.hidden = most === null;
    if (most !== null) this.scale.querySelector("b").textContent = percent(most);
  }

  say(text) {
    if (this.summary.textContent !== text) this.summary.textContent = text;
  }

  draw() {
    const { frame, canvas, pen, panel, view } = this;
    const { box } = this;
    const dots = window.devicePixelRatio || 1;
    const [wide, high] = [Math.round(box.width * dots), Math.round(box.height * dots)];
    if (canvas.width !== wide || canvas.height !== high) {
      canvas.width = wide;
      canvas.height = high;
      canvas.style.width = `${box.width}px`;
      canvas.style.height = `${box.height}px`;
    }
    pen.context.setTransform(dots, 0, 0, dots, -box.x * dots, -box.y * dots);
    pen.context.textBaseline = "middle";
    pen.context.clearRect(box.x, box.y, box.width, box.height);
    view.draw(pen, panel, box, view.size(panel, frame.clientWidth));
  }
}

const layersFor = (panel) => VIEWS[state.view].needs(panel).filter((layer) => layer < panel.numLayers);

// The whole drawing of all panels, not only what is in their windows.

const EXPORT_WIDTH = 720;
const MARGIN = 24;
const CAPTION = 44;
// Larger canvases are refused by browsers.
const MOST_PIXELS = 16000;

async function exportPlan() {
  const view = VIEWS[state.view];
  const width = PANELS.length > 1 ? 560 : EXPORT_WIDTH;
  await Promise.all(PANELS.flatMap((panel) => layersFor(panel).map((layer) => panel.load(layer))));
  const lacks = PANELS.map(lackOf);
  await Promise.all(PANELS.map((panel, at) => lacks[at] ?? view.ready?.(panel)));
  const sizes = PANELS.map((panel, at) => (lacks[at] === null ? view.size(panel, width) : { width, height: ROW }));
  const total = sizes.reduce((sum, size) => sum + size.width + MARGIN, MARGIN);
  const height = CAPTION + MARGIN + Math.max(...sizes.map((size) => size.height));
  const draw = (pen) => {
    pen.rect(0, 0, total, height, colours.surface);
    let x = MARGIN;
    PANELS.forEach((panel, at) => {
      const quiet = { colour: colours.quiet, size: 12 };
      const box = { x: 0, y: 0, ...sizes[at], wanted: width, isWhole: true };
      pen.text(x, 26, fitted(`${panel.model} · ${captionOf()}`, sizes[at].width), quiet);
      pen.shift(x, CAPTION, () => {
        if (lacks[at] === null) view.draw(pen, panel, box, sizes[at]);
        else pen.text(0, ROW / 2, fitted(lacks[at], width), quiet);
      });
      x += sizes[at].width + MARGIN;
    });
  };
  return { width: total, height, draw };
}

function captionOf() {
  if (VIEWS[state.view].isOverall) return "all layers";
  const heads = state.view === "neurons" ? [state.heads[0]] : state.heads;
  const which = heads.length === MOST.heads ? "all heads" : `head ${heads.join(", ")}`;
  return `layer ${state.layer}, ${which}`;
}

function download(blob, kind) {
  const address = URL.createObjectURL(blob);
  const link = Object.assign(document.createElement("a"), { href: address });
  link.download = `attention-${state.view}-layer-${state.layer}.${kind}`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}

async function exportSvg() {
  const { width, height, draw } = await exportPlan();
  const pen = new SvgPen();
  draw(pen);
  download(new Blob([pen.file(width, height)], { type: "image/svg+xml" }), "svg");
}

async function exportPng() {
  const { width, height, draw } = await exportPlan();
  const scale = Math.min(2, MOST_PIXELS / Math.max(width, height));
  const canvas = Object.assign(document.createElement("canvas"), { width: width * scale, height: height * scale });
  const context = canvas.getContext("2d");
  context.scale(scale, scale);
  draw(new CanvasPen(context));
  canvas.toBlob((blob) => download(blob, "png"), "image/png");
}
