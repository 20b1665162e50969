// The controls: which head, which view, which tokens.

function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (name.startsWith("--")) made.style.setProperty(name, value);
    else made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

let isSeveral = false;
const everyHead = () => Array.from({ length: MOST.heads }, (_, head) => head);

function chooseHead(layer, head, isAdding) {
  if (!isAdding || layer !== state.layer) {
    change({ layer, heads: [head] });
    return;
  }
  const rest = state.heads.filter((other) => other !== head);
  const heads = rest.length === state.heads.length ? [...rest, head] : rest;
  if (heads.length) change({ heads: heads.sort((a, b) => a - b) });
}

function stepHead(step) {
  const from = state.heads.length === 1 ? state.heads[0] : step > 0 ? -1 : MOST.heads;
  change({ heads: [(from + step + MOST.heads) % MOST.heads] });
}

const stepLayer = (step) => change({ layer: (state.layer + step + MOST.layers) % MOST.layers });

// A square for every head: layers downwards, heads across, darker the surer a head is.
function makePicker(host) {
  const [first] = PANELS;
  const cells = [];
  host.style.setProperty("--heads", MOST.heads);
  host.append(element("span"));
  for (let head = 0; head < MOST.heads; head++)
    host.append(element("span", { class: "name", "aria-hidden": "true" }, String(head)));
  for (let layer = 0; layer < MOST.layers; layer++) {
    const whole = element("button", { type: "button", class: "name", tabindex: "-1", "aria-label": `Layer ${layer}, all heads` }, String(layer));
    whole.addEventListener("click", () => change({ layer, heads: everyHead() }));
    host.append(whole);
    for (let head = 0; head < MOST.heads; head++) {
      const sure = first.sureness[layer]?.[head] ?? 0;
      const cell = element("button", {
        type: "button",
        class: "cell",
        "--sure": sure,
        "aria-label": `Layer ${layer}, head ${head}`,
        title: `Layer ${layer}, head ${head}`,
      });
      // No model has it, because it was pruned or its layers have fewer.
      cell.classList.toggle("lost", !PANELS.some((panel) => head < panel.headsOf(layer)));
      cell.addEventListener("click", (event) => chooseHead(layer, head, isSeveral || event.ctrlKey || event.metaKey || event.shiftKey));
      cell.addEventListener("keydown", (event) => {
        const moves = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };
        const move = moves[event.key];
        if (!move) return;
        event.preventDefault();
        const next = [(layer + move[0] + MOST.layers) % MOST.layers, (head + move[1] + MOST.heads) % MOST.heads];
        if (!isSeveral) change({ layer: next[0], heads: [next[1]] });
        cells[next[0] * MOST.heads + next[1]].focus();
      });
      cells.push(cell);
      host.append(cell);
    }
  }
  watchers.push(() => {
    const isGrid = Boolean(VIEWS[state.view].isOverall);
    cells.forEach((cell, at) => {
      const [layer, head] = [Math.floor(at / MOST.heads), at % MOST.heads];
      const isIn = layer === state.layer && state.heads.includes(head);
      const isFirst = layer === state.layer && head === state.heads[0];
      cell.setAttribute("aria-pressed", String(isIn));
      cell.tabIndex = isFirst ? 0 : -1;
      const isColoured = isIn && state.heads.length > 1 && state.view === "lines";
      cell.style.setProperty("--mark", isColoured ? headColour(head) : "");
      cell.classList.toggle("coloured", isColoured);
      cell.classList.toggle("among", isIn && state.heads.length > 1 && !isColoured);
    });
    host.classList.toggle("resting", isGrid);
  });
}

function makeTabs(host) {
  const tabs = Object.entries(VIEWS).map(([name, view]) => {
    const tab = element("button", { type: "button", role: "tab", id: `tab-${name}`, "aria-controls": "panels" }, view.title);
    tab.addEventListener("click", () => changeView(name));
    tab.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!step) return;
      const next = tabs[(tabs.indexOf(tab) + step + tabs.length) % tabs.length];
      next.click();
      next.focus();
    });
    host.append(tab);
    return tab;
  });
  watchers.push(() => {
    tabs.forEach((tab) => {
      const isIt = tab.id === `tab-${state.view}`;
      tab.setAttribute("aria-selected", String(isIt));
      tab.tabIndex = isIt ? 0 : -1;
    });
    $("panels").setAttribute("aria-labelledby", `tab-${state.view}`);
  });
}

function changeView(view) {
  const heads = view === "neurons" ? [state.heads[0]] : state.heads;
  const isMoved = (VIEWS[view].level ?? state.level) !== levelOf();
  change({ view, heads, hover: null, pinned: isMoved ? null : state.pinned });
}

// Radio buttons of which one holds: [[value, name], ...].
function makeChoices(id, options, read, write) {
  const host = $(id).querySelector("div");
  const inputs = options.map(([value, name]) => {
    const input = element("input", { type: "radio", name: id, value });
    input.addEventListener("change", () => write(value));
    host.append(element("label", {}, input, element("span", {}, name)));
    return input;
  });
  watchers.push(() => inputs.forEach((input) => (input.checked = input.value === String(read()))));
}

function makeFollow() {
  const select = $("follow");
  let made = "";
  select.addEventListener("change", () => {
    const [number, unit] = select.value.split(".").map(Number);
    if (select.value === "") change({ pinned: null, hover: null });
    else {
      change({ pinned: { panel: PANELS[number], unit, side: "from", other: null }, hover: null });
      stages[number].reveal?.(unit);
    }
  });
  watchers.push(() => {
    const key = levelOf();
    if (key !== made) {
      made = key;
      const several = PANELS.length > 1;
      const groups = PANELS.map((panel) => {
        const options = panel.levels[key].labels.map((name, unit) =>
          element("option", { value: `${panel.number}.${unit}` }, `${unit + 1}  ${name}`),
        );
        return several ? element("optgroup", { label: `${panel.model}: ${panel.texts[0].slice(0, 40)}` }, ...options) : options;
      });
      select.replaceChildren(element("option", { value: "" }, key === "words" ? "no word" : "no token"), ...groups.flat());
    }
    const { pinned } = state;
    select.value = pinned === null ? "" : `${pinned.panel.number}.${pinned.unit}`;
  });
}

function makeControls() {
  makeTabs($("tabs"));
  makePicker($("picker"));
  $("all-heads").addEventListener("click", () => change({ heads: everyHead() }));
  $("several").addEventListener("click", () => {
    isSeveral = !isSeveral;
    change({});
  });
  makeChoices("level", [["pieces", "Pieces"], ["words", "Words"]], () => state.level, changeLevel);
  makeChoices("direction", [["from", "looks at"], ["to", "is looked at by"]], () => state.direction, (direction) => change({ direction }));
  makeChoices("size", [["false", "Fit"], ["true", "Readable"]], () => state.large, (value) => change({ large: value === "true" }));
  makeFollow();
  $("way").addEventListener("change", ({ target }) => change({ way: target.value, hover: null }));
  $("specials").addEventListener("change", ({ target }) => change({ specials: target.checked, hover: null }));
  const least = $("least");
  least.addEventListener("input", () => change({ least: 10 ** Number(least.value) }));
  $("svg").addEventListener("click", exportSvg);
  $("png").addEventListener("click", exportPng);

  const hasWords = PANELS.some((panel) => panel.words.length < panel.tokens.length);
  const hasPair = PANELS.some((panel) => panel.isPair);
  watchers.push(() => {
    const { view } = state;
    const isAll = Boolean(VIEWS[view].isOverall);
    $("level").hidden = !hasWords || view === "neurons";
    $("way-field").hidden = !hasPair;
    $("direction").hidden = view !== "layers";
    $("size").hidden = view !== "matrix" || LONGEST < 30;
    $("least-field").hidden = view !== "lines";
    least.value = Math.log10(state.least);
    $("least-value").textContent = percent(state.least);
    $("all-heads").setAttribute("aria-pressed", String(allHeads()));
    $("all-heads").hidden = isAll || view === "neurons";
    $("several").hidden = isAll || view === "neurons";
    $("several").setAttribute("aria-pressed", String(isSeveral));
    const heads = state.heads.length === 1 || view === "neurons" ? `head ${state.heads[0]}` : allHeads() ? "all heads" : `heads ${state.heads.join(", ")}`;
    $("chosen").textContent = isAll ? "all layers" : `layer ${state.layer}, ${heads}`;
  });
}
