// The page comes together: who is shown, then everything is drawn once.

const stages = [];

function bodyOf(text) {
  const MOST = 220;
  if (text.length <= MOST) return element("p", { class: "text" }, text);
  const start = text.slice(0, MOST).replace(/\s+\S*$/, "");
  return element("details", { class: "text" }, element("summary", {}, `${start} …`), element("p", {}, text));
}

function textsOf(panel) {
  if (!panel.isPair) return [bodyOf(panel.texts[0])];
  return panel.texts.map((text, at) => element("div", { class: "side" }, element("b", {}, "AB"[at]), bodyOf(text)));
}

function sizesOf(panel) {
  const cut = panel.truncated ? ` (the first of ${panel.numTokens})` : "";
  return `${panel.model} · ${panel.numLayers} layers of ${panel.headCounts} heads · ${panel.length} tokens${cut}`;
}

function makeHead() {
  const [first] = PANELS;
  const isOneText = PANELS.every((panel) => panel.texts.join("\n") === first.texts.join("\n"));
  const isOneModel = PANELS.every((panel) => panel.model === first.model);
  if (isOneText) $("texts").append(...textsOf(first));
  else {
    const texts = new Set(PANELS.map((panel) => panel.texts.join("\n"))).size;
    const models = isOneModel ? first.model : `${PANELS.length / texts} models`;
    $("texts").append(element("p", { class: "text" }, `${texts} texts before ${models}`));
  }
  $("facts").textContent = PANELS.length === 1 ? sizesOf(first) : "";
  $("facts").hidden = PANELS.length > 1;
  for (const panel of PANELS) {
    const host = $("panel").content.firstElementChild.cloneNode(true);
    const head = host.querySelector("header");
    if (PANELS.length === 1) head.remove();
    else head.append(...(isOneText ? [] : textsOf(panel)), element("p", { class: "quiet" }, sizesOf(panel)));
    host.querySelector(".stage").setAttribute("aria-label", `Drawing of ${panel.model}. Arrow keys: tokens and heads.`);
    $("panels").append(host);
    stages.push(new Stage(panel, host));
  }
  $("panels").classList.toggle("many", PANELS.length > 1);
  $("steps").textContent = ABOUT.levels >= 4095 ? "" : `Weights are kept to within ${(50 / ABOUT.levels).toFixed(2)} percentage points. `;
}

if (typeof DecompressionStream === "undefined") {
  $("old").hidden = false;
} else {
  Object.assign(state, ABOUT.start);
  if (state.heads === null) state.heads = everyHead();
  readColours();
  makeHead();
  makeControls();
  watchers.push(() => stages.forEach((stage) => stage.update()));
  const repaint = () => {
    readColours();
    change({});
  };
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", repaint);
  addEventListener("keydown", (event) => {
    const views = Object.keys(VIEWS);
    const isTyping = event.target.matches?.("select, textarea, input:not([type=radio], [type=checkbox], [type=range])");
    if (isTyping || event.ctrlKey || event.metaKey || event.altKey) return;
    if (Number(event.key) >= 1 && Number(event.key) <= views.length) changeView(views[Number(event.key) - 1]);
  });
  change({});
}
