// Draws the plots with hover and zoom, and makes tables sortable. Each plot is the JSON inside it.
"use strict";
const NS = document.querySelector("svg").namespaceURI;

function svg(parent, tag, attributes, text) {
  const node = document.createElementNS(NS, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  if (text !== undefined) node.textContent = text;
  return parent.appendChild(node);
}

function html(parent, tag, properties) {
  return parent.appendChild(Object.assign(document.createElement(tag), properties));
}

const clipped = (text, most) => text.length > most ? text.slice(0, most - 9) + "…" + text.slice(-8) : text;
// Beyond eight models colours repeat: lines are dashed then, and dots are hollow.
const DASHES = ["", "9 2", "2 2", "9 2 2 2"];
const round = (number) => number < 0 ? 0 : Math.floor(number / 8) % 4;
const colour = (number) => number < 0 ? "var(--edge)" : `var(--s${number % 8})`;

function written(value) {
  if (value === null || value === undefined) return "–";
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e7)) return value.toExponential(2);
  return value.toLocaleString("en", { maximumSignificantDigits: size >= 1e4 ? 7 : 4 });
}

// Round numbers from low to high, about `count` of them.
function ticks(low, high, count, log) {
  if (log && high / low > 3) {
    const wanted = high / low > 300 ? [1] : high / low > 30 ? [1, 3] : [1, 2, 5];
    const found = [];
    for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power++) {
      for (const part of wanted) found.push(Number((part * 10 ** power).toPrecision(3)));
    }
    return found.filter((value) => value >= low && value <= high);
  }
  const rough = (high - low) / count;
  const unit = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].find((part) => part * unit >= rough * 0.999) * unit;
  const found = [];
  for (let value = Math.ceil(low / step - 1e-9) * step; value <= high + step * 1e-6; value += step) {
    found.push(Number(value.toPrecision(12)));
  }
  return found;
}

// A scale from values to pixels, with its inverse.
function scale(low, high, from, to, log) {
  const [put, take] = log ? [Math.log10, (v) => 10 ** v] : [(v) => v, (v) => v];
  const a = put(low), b = put(high);
  const at = (value) => from + (put(value) - a) / (b - a || 1) * (to - from);
  return Object.assign(at, { low, high, log, back: (pixel) => take(a + (pixel - from) / (to - from) * (b - a)) });
}

function range(values, [low, high], log) {
  const known = values.filter((value) => value !== null && Number.isFinite(value) && (!log || value > 0));
  let least = Math.min(...known), most = Math.max(...known);
  if (!known.length) [least, most] = [log ? 0.1 : 0, 1];
  if (least === most) [least, most] = log ? [least / 2, most * 2] : [least - 0.5, most + 0.5];
  const edge = log ? (most / least) ** 0.04 : (most - least) * 0.04;
  return [low ?? (log ? least / edge : least - edge), high ?? (log ? most * edge : most + edge)];
}

// A tooltip of a plot, which a screen reader reads out.
function tip(box) {
  const node = html(box, "div", { className: "tip", hidden: true });
  node.setAttribute("aria-live", "polite");
  return (text, x, y) => {
    node.hidden = !text;
    if (!text) return;
    node.textContent = text;
    const isRight = x > box.clientWidth / 2;
    node.style.left = isRight ? "" : `${x + 14}px`;
    node.style.right = isRight ? `${box.clientWidth - x + 14}px` : "";
    node.style.top = `${Math.max(0, y - 20)}px`;
  };
}

function drawPlot(box, plot) {
  const figure = box.parentNode, hidden = new Set(), say = tip(box);
  const panels = plot.below ? [plot, plot.below] : [plot];
  const names = plot.rows;
  let zoom = null, cursor = null, areas = [], drawing = null, dragged = null;

  const legend = html(figure, "div", { className: "legend" });
  box.after(legend);
  const named = plot.series.filter((one) => one.name);
  for (const one of named.length > 1 && !names.length ? named : []) {
    const button = html(legend, "button", { type: "button" });
    button.setAttribute("aria-pressed", "true");
    html(button, "i", {}).style.background = colour(one.color);
    button.append(one.name);
    button.onclick = () => {
      if (!hidden.delete(one)) hidden.add(one);
      button.setAttribute("aria-pressed", String(!hidden.has(one)));
      draw();
    };
  }
  const reset = html(legend, "button", { type: "button", className: "reset", textContent: "Reset zoom", hidden: true });
  reset.onclick = () => zoomTo(null);

  function zoomTo(area) {
    zoom = area;
    reset.hidden = !zoom;
    draw();
  }

  function draw() {
    drawing?.remove();
    say("");
    const width = Math.max(box.clientWidth, 200);
    const low = plot.below ? 92 : 0, high = names.length ? 30 + 28 * names.length : width < 400 ? 230 : 280;
    drawing = svg(box, "svg", { height: high + low + 46, viewBox: `0 0 ${width} ${high + low + 46}`, "aria-hidden": true });
    areas = [];
    let top = names.length ? 6 : 22;
    const xs = panels.flatMap((one) => one.series.flatMap((s) => [...s.x, ...(names.length && s.low ? [...s.low, ...s.high] : [])]));
    const xRange = zoom?.x ?? range([...xs, ...plot.borders.filter((b) => b[0] === "x").map((b) => b[1])], plot.xlim, plot.log.includes("x"));
    panels.forEach((panel, number) => {
      const height = number ? low - 18 : high - top, log = panel.log.includes("y");
      const shown = panel.series.filter((one) => !hidden.has(one));
      const ys = shown.flatMap((one) => [...one.y, ...(one.low && !names.length ? [...one.low, ...one.high] : [])]);
      const marks = panel.borders.filter((b) => b[0] === "y").map((b) => b[1]);
      const yRange = names.length ? [names.length - 0.4, -0.6] : (!number && zoom?.y) || range([...ys, ...marks], panel.ylim, log);
      const yTicks = names.length ? names.map((_, i) => i) : ticks(...yRange, number ? 2 : 5, log);
      const labels = yTicks.map((value) => names.length ? clipped(names[value], 24) : written(value));
      const widest = names.length ? Math.max(...labels.map((text) => text.length)) : 7;
      const left = Math.min(12 + 6.6 * widest, width * 0.42), right = width - 12;
      const x = scale(...xRange, left, right, plot.log.includes("x"));
      const y = scale(...yRange, top + height, top, log);
      yTicks.forEach((value, i) => {
        svg(drawing, "line", { class: "grid", x1: left, x2: right, y1: y(value), y2: y(value) });
        svg(drawing, "text", { x: left - 7, y: y(value) + 4, "text-anchor": "end" }, labels[i]);
      });
      const isLast = number === panels.length - 1;
      for (const value of ticks(...xRange, width < 400 ? 4 : 6, x.log)) {
        svg(drawing, "line", { class: "grid", x1: x(value), x2: x(value), y1: top, y2: top + height });
        if (isLast) svg(drawing, "text", { x: x(value), y: top + height + 17, "text-anchor": "middle" }, written(value));
      }
      if (panel.ylabel) svg(drawing, "text", { x: 0, y: top - 9 }, panel.ylabel);
      if (isLast) svg(drawing, "text", { x: (left + right) / 2, y: top + height + 35, "text-anchor": "middle" }, panel.xlabel);
      const inside = svg(drawing, "svg", { x: left, y: top - 4, width: right - left, height: height + 8, viewBox: `${left} ${top - 4} ${right - left} ${height + 8}` });
      svg(drawing, "line", { class: "axis", x1: left, x2: right, y1: top + height, y2: top + height });
      for (const one of shown) drawSeries(inside, one, x, y, names.length);
      for (const [axis, value] of panel.borders) {
        const place = axis === "x" ? { x1: x(value), x2: x(value), y1: top, y2: top + height } : { x1: left, x2: right, y1: y(value), y2: y(value) };
        svg(inside, "line", { class: "border", ...place });
      }
      for (const [axis, value, name] of panel.borders) {
        const isEnd = axis === "y" || x(value) > width * 0.7;
        const place = axis === "x" ? { x: x(value) + (isEnd ? -5 : 5), y: top + height - 6 } : { x: right - 4, y: y(value) - 5 };
        if (axis === "y" || (value >= x.low && value <= x.high)) svg(drawing, "text", { ...place, "text-anchor": isEnd ? "end" : "start" }, name);
      }
      areas.push({ panel, shown, x, y, left, right, top, bottom: top + height });
      top += height + 26;
    });
    cursor = svg(drawing, "g", {});
  }

  // The nearest point of every series to a place in pixels; across counts more than down.
  function near(area, px, py, down) {
    return area.shown.filter((one) => one.name && one.mark !== "dashes").map((one) => {
      let best = null;
      one.x.forEach((value, i) => {
        if (one.y[i] === null || value < area.x.low || value > area.x.high) return;
        const at = [area.x(value), area.y(one.y[i])];
        const distance = (at[0] - px) ** 2 + down * (at[1] - py) ** 2;
        if (!best || distance < best.distance) best = { one, i, at, distance };
      });
      return best;
    }).filter(Boolean);
  }

  function point(px, py) {
    const area = areas.find((one) => py <= one.bottom + 12) ?? areas.at(-1);
    const isCloud = area.shown.every((one) => ["dots", "dashes"].includes(one.mark));
    let found = near(area, px, py, isCloud ? 1 : 0.02);
    cursor.replaceChildren();
    if (!found.length) return say("");
    const first = found.reduce((a, b) => a.distance <= b.distance ? a : b);
    const across = area.panel.xlabel.replace(" (logarithmic)", "");
    const value = ({ one, i }) => written(one.y[i]) + (one.low && !names.length ? ` [${written(one.low[i])}, ${written(one.high[i])}]` : "");
    if (isCloud) found = [first];
    else svg(cursor, "line", { class: "cursor", x1: first.at[0], x2: first.at[0], y1: areas[0].top, y2: areas.at(-1).bottom });
    for (const { one, at } of found) svg(cursor, "circle", { cx: at[0], cy: at[1], r: 4.5, fill: colour(one.color) });
    const at = `${across} ${written(first.one.x[first.i])}`;
    const ends = first.one.low ? ` [${written(first.one.low[first.i])}, ${written(first.one.high[first.i])}]` : "";
    if (names.length) say(`${first.one.name}\n${at}${ends}`, ...first.at);
    else if (isCloud) say(`${first.one.name}\n${at}\n${area.panel.ylabel} ${value(first)}`, ...first.at);
    else {
      const own = ({ one, i }) => one.x[i] === first.one.x[first.i] ? "" : ` (at ${written(one.x[i])})`;
      say([at, ...found.map((one) => `${one.one.name}: ${value(one)}${own(one)}`)].join("\n"), first.at[0], py);
    }
    point.last = first;
  }

  const place = (event) => { const at = box.getBoundingClientRect(); return [event.clientX - at.left, event.clientY - at.top]; };
  box.onpointerdown = (event) => { if (event.pointerType === "mouse" && event.button === 0) dragged = place(event); };
  box.onpointermove = (event) => {
    const [px, py] = place(event);
    point(px, py);
    if (!dragged || Math.abs(px - dragged[0]) < 6 || names.length) return;
    const { top, bottom } = areas[0], isBand = Math.abs(py - dragged[1]) < 16;
    const [y1, y2] = isBand ? [top, bottom] : [Math.min(py, dragged[1]), Math.max(py, dragged[1])];
    svg(cursor, "rect", { class: "frame", x: Math.min(px, dragged[0]), width: Math.abs(px - dragged[0]), y: y1, height: y2 - y1 });
  };
  box.onpointerup = (event) => {
    const [px, py] = place(event), start = dragged, { x, y, top, bottom } = areas[0];
    dragged = null;
    if (!start || Math.abs(px - start[0]) < 6 || names.length) return;
    const within = (pixel) => Math.min(Math.max(pixel, top), bottom);
    const across = [px, start[0]].sort((a, b) => a - b).map(x.back);
    const down = [within(py), within(start[1])].sort((a, b) => b - a).map(y.back);
    zoomTo({ x: [Math.max(across[0], x.low), Math.min(across[1], x.high)], y: Math.abs(py - start[1]) < 16 ? zoom?.y : down });
  };
  box.onpointerleave = () => { dragged = null; cursor.replaceChildren(); say(""); };
  box.ondblclick = () => zoomTo(null);
  box.onkeydown = (event) => {
    const { x, left, right, shown } = areas[0], step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    const main = shown.find((one) => one.name && one.mark !== "dashes");
    if (step && main) {
      const order = main.x.map((value, i) => i).filter((i) => main.y[i] !== null).sort((a, b) => main.x[a] - main.x[b]);
      const now = point.last?.one === main ? order.indexOf(point.last.i) : -1;
      const i = order[Math.min(Math.max(now + step, 0), order.length - 1)];
      point(x(main.x[i]), areas[0].y(main.y[i]));
      point.last = { one: main, i, at: [x(main.x[i]), 0] };
    } else if (event.key === "+" && !names.length) {
      const middle = point.last?.at[0] ?? (left + right) / 2, reach = (right - left) / 4;
      const start = Math.min(Math.max(middle - reach, left), right - 2 * reach);
      zoomTo({ x: [x.back(start), x.back(start + 2 * reach)], y: zoom?.y });
    } else if (event.key === "Escape") zoomTo(null);
    else return;
    event.preventDefault();
  };
  new ResizeObserver(draw).observe(box);
}

function drawSeries(parent, one, x, y, isFlat) {
  const ink = colour(one.color), points = one.x.map((value, i) => one.y[i] === null || value === null ? null : [x(value), y(one.y[i])]);
  points.forEach((at, i) => {
    if (!at || !one.low) return;
    const ends = isFlat ? { x1: x(one.low[i]), x2: x(one.high[i]), y1: at[1], y2: at[1] } : { x1: at[0], x2: at[0], y1: y(one.low[i]), y2: y(one.high[i]) };
    svg(parent, "line", { ...ends, stroke: ink, "stroke-width": isFlat ? 4 : 2.5, "stroke-opacity": 0.45 });
  });
  if (one.mark === "bars") {
    const size = points.length > 1 ? Math.abs(points[1][0] - points[0][0]) * 0.88 : 12, floor = y(Math.max(y.low, 0));
    for (const [px, py] of points) svg(parent, "rect", { x: px - size / 2, width: size, y: py, height: Math.max(floor - py, 0), fill: ink });
    return;
  }
  if (one.mark !== "dots") {
    let path = "", isOpen = false;
    for (const at of points) {
      if (at && at.every(Number.isFinite)) path += isOpen && one.mark === "steps" ? `H${at[0].toFixed(1)}V${at[1].toFixed(1)}` : `${isOpen ? "L" : "M"}${at[0].toFixed(1)} ${at[1].toFixed(1)}`;
      isOpen = Boolean(at);
    }
    const style = { faint: { "stroke-opacity": 0.35, "stroke-width": 1 }, dashes: { "stroke-dasharray": "5 4", "stroke-width": 1.2 } }[one.mark] ?? { "stroke-width": 2, "stroke-dasharray": DASHES[round(one.color)] };
    svg(parent, "path", { d: path, fill: "none", stroke: ink, "stroke-linejoin": "round", ...style });
  }
  if (["dots", "both"].includes(one.mark)) {
    const [radius, opacity] = points.length > 400 ? [2.2, 0.4] : points.length > 60 ? [3, 0.6] : [isFlat && one.color < 0 ? 2.5 : 4.5, 1];
    for (const at of points) if (at) svg(parent, "circle", { cx: at[0], cy: at[1], r: radius, fill: ink, "fill-opacity": round(one.color) ? 0 : opacity, stroke: ink });
  }
}

function drawMatrix(box, { labels, counts }) {
  const say = tip(box), num = labels.length, sums = counts.map((row) => row.reduce((a, b) => a + b, 0));
  let drawing = null, cells = [], at = null;
  function show(row, column) {
    cells.flat().forEach((cell) => cell.classList.remove("on"));
    at = [row, column];
    const cell = cells[row][column], share = sums[row] ? (100 * counts[row][column] / sums[row]).toFixed(1) : "0";
    cell.classList.add("on");
    say(`gold ${labels[row]}\npredicted ${labels[column]}\n${written(counts[row][column])} rows, ${share} % of the gold label`,
      Number(cell.getAttribute("x")) + Number(cell.getAttribute("width")) / 2, Number(cell.getAttribute("y")));
  }
  function draw() {
    drawing?.remove();
    const width = Math.max(box.clientWidth, 200), most = width < 400 ? 16 : 24;
    const longest = Math.max(...labels.map((text) => Math.min(text.length, most))) * 6.2 + 10;
    const left = longest + 14, size = Math.min((width - left - 4) / num, 72), height = Math.max(Math.min(size, 48), num > 12 ? size : 30);
    const turned = size < longest, foot = turned ? longest + 22 : 38;
    drawing = svg(box, "svg", { height: num * height + foot, viewBox: `0 0 ${width} ${num * height + foot}`, "aria-hidden": true });
    const font = `font-size: ${Math.min(11.5, Math.max(height, 7))}px`;
    cells = labels.map((label, row) => {
      svg(drawing, "text", { x: left - 6, y: (row + 0.5) * height + 4, "text-anchor": "end", style: font }, clipped(label, most));
      return labels.map((_, column) => {
        const share = sums[row] ? counts[row][column] / sums[row] : 0, x = left + column * size;
        const cell = svg(drawing, "rect", { class: "cell", x, y: row * height, width: size, height, style: `fill: color-mix(in oklab, var(--accent) calc(var(--most) * ${share.toFixed(3)}), var(--sunk))` });
        cell.onpointerenter = () => show(row, column);
        if (num <= 12) svg(drawing, "text", { class: "on-cell", x: x + size / 2, y: (row + 0.5) * height + 4, "text-anchor": "middle", "pointer-events": "none" }, written(counts[row][column]));
        return cell;
      });
    });
    labels.forEach((label, column) => {
      const x = left + (column + 0.5) * size, y = num * height + 15;
      const place = turned ? { transform: `translate(${x + 4} ${y - 7}) rotate(-90)`, "text-anchor": "end" } : { x, y, "text-anchor": "middle" };
      svg(drawing, "text", { ...place, style: font }, clipped(label, most));
    });
    svg(drawing, "text", { x: left + num * size / 2, y: num * height + foot - 4, "text-anchor": "middle" }, "predicted");
    svg(drawing, "text", { transform: `translate(10 ${num * height / 2}) rotate(-90)`, "text-anchor": "middle" }, "gold");
  }
  box.onpointerleave = () => { say(""); cells.flat().forEach((cell) => cell.classList.remove("on")); };
  box.onkeydown = (event) => {
    const step = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
    if (event.key === "Escape") return box.onpointerleave();
    if (!step) return;
    event.preventDefault();
    show(...(at ? at.map((value, i) => Math.min(Math.max(value + step[i], 0), num - 1)) : [0, 0]));
  };
  new ResizeObserver(draw).observe(box);
}

// Sorting by a click on a heading, and a filter over long tables. Units are rows, or a row with its texts.
function equip(table) {
  const units = table.tBodies.length > 1 ? [...table.tBodies] : [...(table.tBodies[0]?.rows ?? [])];
  if (units.length < 4) return;
  const parent = units[0].parentNode, key = (unit, column) => {
    const text = (unit.rows?.[0] ?? unit).cells[column].textContent.trim();
    const number = parseFloat(text.replace(/[, ]/g, "").replace(/^</, ""));
    return Number.isNaN(number) ? text.toLowerCase() : number;
  };
  [...table.tHead.rows[0].cells].forEach((cell, column) => {
    if (!cell.textContent) return;
    const button = document.createElement("button");
    button.type = "button";
    button.append(...cell.childNodes);
    cell.append(button);
    button.onclick = () => {
      const isText = units.every((unit) => typeof key(unit, column) === "string");
      const order = cell.getAttribute("aria-sort") === (isText ? "ascending" : "descending") ? (isText ? -1 : 1) : (isText ? 1 : -1);
      for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
      cell.setAttribute("aria-sort", order > 0 ? "ascending" : "descending");
      const rank = (value) => value === "–" || value === "" ? 1 : 0;
      units.sort((a, b) => {
        const [one, two] = [key(a, column), key(b, column)];
        return rank(one) - rank(two) || order * (typeof one === typeof two && typeof one === "number" ? one - two : String(one).localeCompare(String(two)));
      });
      parent.append(...units);
    };
  });
  if (units.length < 12) return;
  const holder = table.closest(".table"), tools = holder.querySelector(".tools") ?? html(holder, "div", { className: "tools" });
  holder.prepend(tools);
  const field = html(tools, "input", { type: "search", placeholder: "Filter rows" }), count = html(tools, "span", { className: "quiet" });
  field.setAttribute("aria-label", "Filter rows");
  count.setAttribute("role", "status");
  field.oninput = () => {
    const wanted = field.value.toLowerCase();
    for (const unit of units) unit.hidden = !unit.textContent.toLowerCase().includes(wanted);
    count.textContent = wanted ? `${units.filter((unit) => !unit.hidden).length} of ${units.length}` : "";
  };
}

for (const box of document.querySelectorAll(".plot")) {
  const plot = JSON.parse(box.querySelector("script").textContent);
  (plot.counts ? drawMatrix : drawPlot)(box, plot);
}
document.querySelectorAll("table.rows").forEach(equip);
