// Elements without markup in strings: whatever a text holds, it stays text.

const SVG = "http://www.w3.org/2000/svg";

// el("p", {class: "hint", onclick: act, "--share": 0.4}, "text", child, ...): an element.
// false, null and undefined leave an attribute or a child out; "--x" sets a custom property.
export function el(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

// The same for the elements of a drawing.
export function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === false || value === null || value === undefined) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name.startsWith("--")) element.style.setProperty(name, value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  const kept = children.flat(Infinity).filter((child) => child !== false && child != null);
  element.append(...kept);
  return element;
}

// 0.1234 -> "12.3 %"
export const percent = (share) => `${(100 * share).toFixed(1)} %`;

// A row of a bar chart: a name, its bar, its share. `line` is a threshold; `of` is the share whose
// bar is full, less than 1 where small shares must stay distinguishable.
export function bar(name, share, { line = null, strong = false, note = null, of = 1 } = {}) {
  const track = el(
    "span",
    { class: "track", "aria-hidden": "true" },
    el("span", { class: "length", "--share": share / of }),
    line !== null && el("span", { class: "line", "--share": line }),
  );
  return el(
    "li",
    { class: strong ? "bar strong" : "bar" },
    el("span", { class: "name" }, name),
    track,
    el("span", { class: "share" }, percent(share)),
    note && el("span", { class: "note" }, note),
  );
}

// Choices of which one holds, as radio buttons: [[value, label or element], ...].
export function choices(legend, name, options, chosen, onchoice) {
  const one = ([value, label]) =>
    el(
      "label",
      {},
      el("input", {
        type: "radio",
        name,
        value,
        checked: value === chosen,
        onchange: () => onchoice(value),
      }),
      el("span", {}, label),
    );
  return el(
    "fieldset",
    { class: "choices" },
    el("legend", {}, legend),
    el("div", {}, options.map(one)),
  );
}
