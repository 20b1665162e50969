// The page: reads what the models can do, and shows what each makes of a text.

import { answers } from "./answer.js";
import { attention } from "./attention.js";
import { choice } from "./choice.js";
import { classes } from "./classes.js";
import { el } from "./elements.js";
import { entities } from "./entities.js";
import { fill } from "./fill.js";
import { foot } from "./request.js";
import { Refusal, ask, useKey } from "./server.js";
import { similarity } from "./similarity.js";
import { tokens } from "./tokens.js";

// A panel is {id, title, needs, label, extra, examples, missing, ask, show}:
//   needs    what a model must be able to do, of the `can` of GET /info
//   extra    {label, hint, first} of a second field, if there is one; `first` puts it first
//   missing  what to show while the input will not do, or null
//   ask      {path, body} of the request
//   show     {content, summary} of its answer: an element, and a sentence to be read out
const PANELS = [fill, classes, choice, entities, answers, similarity, tokens, attention];
const PAUSE_MS = 450;

const $ = (id) => document.getElementById(id);

let models = [];
let panels = [];
let panel = null;
let pending = new AbortController();
let timer = 0;
let openFoots = false;
const written = new Map();
const silent = new Set();

async function start() {
  try {
    const { answer } = await ask("info");
    open(answer);
  } catch (error) {
    if (!(error instanceof Refusal)) throw error;
    const isShut = error.status === 401;
    $("sign-in").hidden = !isShut;
    $("problem").hidden = isShut;
    $("problem").textContent = error.message;
    $("sign-in-error").textContent = $("key").value && "The server does not accept this key.";
    if (isShut) $("key").focus();
  }
}

function open(info) {
  models = info.models;
  $("models").lastElementChild.replaceChildren(...models.map(toggle));
  $("models").hidden = models.length === 1;
  $("version").textContent = `filbert ${info.version}`;
  panels = PANELS.filter(({ needs }) => models.some(({ can }) => can.includes(needs)));
  $("sign-in").hidden = $("problem").hidden = true;
  $("content").hidden = false;
  $("tabs").replaceChildren(...panels.map(tab));
  const asked = location.hash.slice(1);
  choose(panels.find(({ id }) => id === asked) ?? panels[0]);
}

// Of several models, those that are asked.

const toggle = (model) =>
  el(
    "label",
    {},
    el("input", {
      type: "checkbox",
      checked: true,
      onchange: ({ target }) => {
        if (target.checked) silent.delete(model);
        else silent.add(model);
        run();
      },
    }),
    el("span", {}, model.name),
  );

// Tabs: arrow keys move between them, as in every desktop program.

const tab = ({ id, title }) =>
  el(
    "button",
    { type: "button", id: `tab-${id}`, role: "tab", "aria-controls": "panel" },
    title,
  );

function choose(next) {
  if (panel) remember(input());
  panel = next;
  for (const { id } of panels) {
    const chosen = id === panel.id;
    $(`tab-${id}`).setAttribute("aria-selected", String(chosen));
    $(`tab-${id}`).tabIndex = chosen ? 0 : -1;
  }
  $(`tab-${panel.id}`).scrollIntoView({ block: "nearest", inline: "nearest" });
  $("panel").setAttribute("aria-labelledby", `tab-${panel.id}`);
  history.replaceState(null, "", `#${panel.id}`);
  labelFields();
  write(written.get(panel.label) ?? written.get(panel.id) ?? exampleOf(panel.examples[0]));
  $("results").replaceChildren();
  run();
}

$("tabs").addEventListener("click", ({ target }) => {
  const found = panels.find(({ id }) => target.id === `tab-${id}`);
  if (found && found !== panel) choose(found);
});

$("tabs").addEventListener("keydown", (event) => {
  const at = panels.indexOf(panel);
  const last = panels.length - 1;
  const to = {
    ArrowRight: at === last ? 0 : at + 1,
    ArrowLeft: at === 0 ? last : at - 1,
    Home: 0,
    End: last,
  }[event.key];
  if (to === undefined) return;
  event.preventDefault();
  choose(panels[to]);
  $(`tab-${panel.id}`).focus();
});

// The text and the second field

const exampleOf = (example) =>
  typeof example === "string" ? { text: example, extra: "" } : example;

const input = () => ({ text: $("text").value, extra: panel.extra ? $("extra").value : "" });

function labelFields() {
  const { extra } = panel;
  document.querySelector("label[for=text]").textContent = panel.label;
  $("extra-field").hidden = !extra;
  if (extra) {
    const hint = el("span", { class: "quiet" }, ` ${extra.hint}`);
    document.querySelector("label[for=extra]").replaceChildren(extra.label, hint);
  }
  const fields = [$("text").parentElement, $("extra-field")];
  $("ask").prepend(...(extra?.first ? fields.reverse() : fields));
  const button = (example) => {
    const { text, extra: more } = exampleOf(example);
    const take = () => {
      write({ text, extra: more });
      run();
    };
    return el("button", { type: "button", title: text, onclick: take }, text.replaceAll("\n", " / "));
  };
  $("examples").lastElementChild.replaceChildren(...panel.examples.map(button));
}

// A text of one's own goes along to the panels that want the same kind; an example stays behind.
function remember(given) {
  const isExample = panel.examples.some((example) => exampleOf(example).text === given.text);
  written.delete(panel.label);
  written.set(isExample ? panel.id : panel.label, given);
}

function write({ text, extra }) {
  $("text").value = text;
  $("extra").value = extra ?? "";
}

// From a button in the answers, which is about to go: the focus stays near.
function setText(text) {
  $("text").value = text;
  $("results").focus();
  run();
}

$("ask").addEventListener("input", () => {
  clearTimeout(timer);
  timer = setTimeout(run, PAUSE_MS);
});

$("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  run();
});

$("ask").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) run();
});

// Answers

const views = new Map();

function viewOf(model) {
  const key = `${panel.id} ${model.name}`;
  if (!views.has(key)) views.set(key, {});
  return views.get(key);
}

// Ask every model that can; a new run abandons the one before, and so does the server.
async function run() {
  clearTimeout(timer);
  pending.abort();
  pending = new AbortController();
  const given = input();
  remember(given);
  const able = ableModels();
  const instead = insteadOf(given, able);
  if (instead) {
    $("results").replaceChildren(el("article", {}, instead));
    $("summary").textContent = "";
    return;
  }
  const blocks = able.map((model) => blockOf(model));
  const shown = [...$("results").children];
  if (shown.length !== blocks.length || shown.some((block, index) => block !== blocks[index])) {
    $("results").replaceChildren(...blocks);
  }
  const { signal } = pending;
  const sentences = await Promise.all(
    able.map((model, index) => answerInto(blocks[index], model, given, signal)),
  );
  if (!signal.aborted) $("summary").textContent = sentences.join(". ");
}

// Those that are made for the panel's question come first: `can` begins with what a model does best.
function ableModels() {
  const { needs } = panel;
  const able = models.filter((model) => model.can.includes(needs) && !silent.has(model));
  return able.sort((a, b) => a.can.indexOf(needs) - b.can.indexOf(needs));
}

// What is shown when there is nothing to ask; null when there is.
function insteadOf(given, able) {
  const hint = (text) => el("p", { class: "hint" }, text);
  if (!able.length) return hint("None of the models that are ticked can do this.");
  if (!given.text.trim()) return hint("Write a text, or choose an example.");
  return panel.missing?.(given, setText);
}

// A model's block stays in place while it is asked again, so that nothing jumps.
function blockOf(model) {
  const id = `block-${panel.id}-${models.indexOf(model)}`;
  return $(id) ?? el("article", { id, "aria-label": model.name }, heading(model));
}

const heading = ({ name, task }) =>
  el("h2", {}, name, el("span", { class: "quiet" }, task && task !== name ? task : ""));

async function answerInto(block, model, given, signal) {
  const view = viewOf(model);
  const asked = panel;
  const { path, body } = asked.ask({ ...given, model, view });
  if (models.length > 1) body.model = model.name;
  block.setAttribute("aria-busy", "true");
  try {
    const { answer, times, truncated } = await ask(path, body, signal);
    const again = (changes) => {
      Object.assign(view, changes);
      run();
    };
    const { content, summary } = asked.show(answer, { ...given, model, view, setText, again });
    const remember = ({ target }) => (openFoots = target.open);
    const held = block.contains(document.activeElement) ? document.activeElement.id : "";
    block.replaceChildren(
      heading(model),
      truncated ? cutNote(answer, model) : "",
      content,
      foot(path, body, times, openFoots, remember),
    );
    if (held) $(held)?.focus();
    return models.length > 1 ? `${model.name}: ${summary}` : summary;
  } catch (error) {
    if (error.name === "AbortError") return "";
    if (!(error instanceof Refusal)) throw error;
    block.replaceChildren(heading(model), el("p", { class: "caution" }, error.message));
    return error.message;
  } finally {
    if (!signal.aborted) block.removeAttribute("aria-busy");
  }
}

function cutNote({ num_tokens: count }, { max_length: most }) {
  const all = count ? ` of ${count}` : "";
  return el("p", { class: "caution" }, `The text was cut: the model reads ${most}${all} tokens.`);
}

$("sign-in").addEventListener("submit", (event) => {
  event.preventDefault();
  useKey($("key").value.trim());
  start();
});

// Drawings take their colour from the scheme of the page.
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => panel && run());

start();
