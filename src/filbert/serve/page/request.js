// A request as commands to copy, and where its time went.

import { el } from "./elements.js";
import { addressOf, hasKey } from "./server.js";

// The command line that sends the request.
export function curl(path, body) {
  const lines = [`curl ${quoted(addressOf(path))}`, "-H 'Content-Type: application/json'"];
  if (hasKey()) lines.push('-H "Authorization: Bearer $FILBERT_KEY"');
  lines.push(`-d ${quoted(JSON.stringify(body))}`);
  return lines.join(" \\\n  ");
}

// The same in Python, with nothing to install.
export function python(path, body) {
  const key = hasKey() ? ', "Authorization": "Bearer " + os.environ["FILBERT_KEY"]' : "";
  return [
    key ? "import json, os" : "import json",
    "from urllib.request import Request, urlopen",
    "",
    `body = ${literal(body)}`,
    `headers = {"Content-Type": "application/json"${key}}`,
    `request = Request(${literal(addressOf(path))}, json.dumps(body).encode(), headers)`,
    "print(json.load(urlopen(request)))",
  ].join("\n");
}

const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;

// JSON's strings and numbers are Python's too; its three words are not.
function literal(value) {
  if (value === null) return "None";
  if (typeof value === "boolean") return value ? "True" : "False";
  if (Array.isArray(value)) return `[${value.map(literal).join(", ")}]`;
  if (typeof value === "object") {
    const pairs = Object.entries(value).map(([name, inner]) => `${literal(name)}: ${literal(inner)}`);
    return `{${pairs.join(", ")}}`;
  }
  return JSON.stringify(value);
}

// The foot of an answer: its time, its tokens, and the request to copy.
export function foot(path, body, times, open, ontoggle) {
  return el(
    "details",
    { class: "foot", open, ontoggle },
    el("summary", {}, el("span", {}, "Request"), el("span", { class: "quiet" }, brief(times))),
    timeTable(times),
    snippet("curl", curl(path, body)),
    snippet("Python", python(path, body)),
  );
}

const ms = (time) => `${time < 10 ? time.toFixed(1) : Math.round(time)} ms`;

function brief({ roundTrip, tokens }) {
  return [tokens === null ? "" : `${tokens} tokens`, ms(roundTrip)].filter(Boolean).join(" · ");
}

// Round trip = network and page + the server's own time, which contains the parts.
function timeTable({ roundTrip, total, tokenization, queue, inference }) {
  const known = { Tokenisation: tokenization, Queue: queue, Model: inference };
  const parts = Object.entries(known).filter(([, time]) => time !== null);
  const rest = roundTrip - parts.reduce((sum, [, time]) => sum + time, 0);
  if (total === null || rest < 0) return null;
  const row = ([name, time], index) =>
    el(
      "div",
      {},
      el("dt", {}, el("i", { class: `swatch part-${index}`, "aria-hidden": "true" }), name),
      el("dd", {}, ms(time)),
    );
  parts.push(["Everything else", rest]);
  const piece = ([, time], index) => el("i", { class: `part-${index}`, "--share": time / roundTrip });
  return el(
    "div",
    { class: "times" },
    el("div", { class: "timeline", "aria-hidden": "true" }, parts.map(piece)),
    el("dl", {}, parts.map(row)),
  );
}

function snippet(title, text) {
  const code = el("code", {}, text);
  const status = el("span", { role: "status" });
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
      status.textContent = "Copied";
    } catch {
      // Browsers give the clipboard to https and to this machine only.
      getSelection().selectAllChildren(code);
      status.textContent = "Selected: copy it with your keys";
    }
    setTimeout(() => (status.textContent = ""), 4000);
  };
  return el(
    "div",
    { class: "snippet" },
    el(
      "div",
      { class: "title" },
      el("span", {}, title),
      status,
      el("button", { type: "button", onclick: copy, "aria-label": `Copy ${title}` }, "Copy"),
    ),
    el("pre", { tabindex: "0", role: "group", "aria-label": `${title} request` }, code),
  );
}
