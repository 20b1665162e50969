// Two pens with the same strokes: one draws on the screen, one writes SVG.

const FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", "Liberation Sans", Arial, sans-serif';
const colours = {};
const NUM_HUES = 12;

// The page's colours as #rrggbb, which every drawing program reads.
function readColours() {
  const dot = Object.assign(document.createElement("canvas"), { width: 1, height: 1 });
  const pen = dot.getContext("2d", { willReadFrequently: true });
  const plain = (css) => {
    pen.fillStyle = css;
    pen.fillRect(0, 0, 1, 1);
    const channels = pen.getImageData(0, 0, 1, 1).data;
    return `#${[0, 1, 2].map((at) => channels[at].toString(16).padStart(2, "0")).join("")}`;
  };
  const style = getComputedStyle(document.documentElement);
  for (const name of ["paper", "surface", "sunk", "ink", "quiet", "line", "accent", "on-accent", "contrast"])
    colours[name] = plain(style.getPropertyValue(`--${name}`).trim());
  const light = style.getPropertyValue("--head-light").trim();
  colours.heads = Array.from({ length: NUM_HUES }, (_, i) =>
    plain(`oklch(${light} 0.13 ${(165 + (360 / NUM_HUES) * ((i * 5) % NUM_HUES)) % 360})`),
  );
}

const headColour = (head) => colours.heads[head % NUM_HUES];
const channelsOf = (colour) => [1, 3, 5].map((at) => Number.parseInt(colour.slice(at, at + 2), 16));

const measurer = document.createElement("canvas").getContext("2d");
const widths = new Map();
function widthOf(text, size = 13) {
  const key = `${size} ${text}`;
  if (!widths.has(key)) {
    measurer.font = `${size}px ${FONT}`;
    widths.set(key, measurer.measureText(text).width);
  }
  return widths.get(key);
}

// The text, or as much of it as fits, with an ellipsis.
function fitted(text, space, size = 13) {
  if (widthOf(text, size) <= space) return text;
  const characters = [...text];
  while (characters.length > 1 && widthOf(`${characters.join("")}…`, size) > space) characters.pop();
  return `${characters.join("")}…`;
}

class CanvasPen {
  constructor(context) {
    this.context = context;
    context.textBaseline = "middle";
  }

  rect(x, y, width, height, colour, alpha = 1, radius = 0) {
    const { context } = this;
    context.globalAlpha = alpha;
    context.fillStyle = colour;
    if (radius) {
      context.beginPath();
      context.roundRect(x, y, width, height, radius);
      context.fill();
    } else {
      context.fillRect(x, y, width, height);
    }
    context.globalAlpha = 1;
  }

  text(x, y, text, { anchor = "start", colour = colours.ink, size = 13, weight = 400, turned = false } = {}) {
    const { context } = this;
    context.fillStyle = colour;
    context.font = `${weight} ${size}px ${FONT}`;
    context.textAlign = anchor;
    if (turned) {
      context.save();
      context.translate(x, y);
      context.rotate(-Math.PI / 2);
      context.fillText(text, 0, 0);
      context.restore();
    } else {
      context.fillText(text, x, y);
    }
  }

  // Curves from left to right, [x1, y1, x2, y2, ...] end to end, all in one style.
  strands(points, colour, alpha, width) {
    const { context } = this;
    context.beginPath();
    for (let i = 0; i < points.length; i += 4) {
      const [x1, y1, x2, y2] = [points[i], points[i + 1], points[i + 2], points[i + 3]];
      const bend = (x2 - x1) * 0.45;
      context.moveTo(x1, y1);
      context.bezierCurveTo(x1 + bend, y1, x2 - bend, y2, x2, y2);
    }
    context.globalAlpha = alpha;
    context.strokeStyle = colour;
    context.lineWidth = width;
    context.stroke();
    context.globalAlpha = 1;
  }

  // A part of a picture, [x, y, width, height] of its pixels.
  image(picture, part, x, y, width, height) {
    this.context.imageSmoothingEnabled = width < part[2];
    this.context.drawImage(picture, ...part, x, y, width, height);
  }

  clip(x, y, width, height, draw) {
    this.context.save();
    this.context.beginPath();
    this.context.rect(x, y, width, height);
    this.context.clip();
    draw();
    this.context.restore();
  }

  shift(x, y, draw) {
    this.context.save();
    this.context.translate(x, y);
    draw();
    this.context.restore();
  }
}

const escaped = (text) =>
  text.replace(/[&<>"]/g, (c) => `&#${c.charCodeAt(0)};`).replace(/[\u0000-\u0008\u000b\u000c\u000e-\u001f]/g, "\ufffd");
const round = (value) => Math.round(value * 100) / 100;

class SvgPen {
  constructor() {
    this.parts = [];
    this.clips = 0;
  }

  rect(x, y, width, height, colour, alpha = 1, radius = 0) {
    this.parts.push(
      `<rect x="${round(x)}" y="${round(y)}" width="${round(width)}" height="${round(height)}" fill="${colour}"` +
        `${alpha < 1 ? ` fill-opacity="${round(alpha)}"` : ""}${radius ? ` rx="${radius}"` : ""}/>`,
    );
  }

  text(x, y, text, { anchor = "start", colour = colours.ink, size = 13, weight = 400, turned = false } = {}) {
    const place = turned
      ? `transform="translate(${round(x)} ${round(y)}) rotate(-90)"`
      : `x="${round(x)}" y="${round(y)}"`;
    const where = { start: "start", center: "middle", end: "end", right: "end" }[anchor];
    this.parts.push(
      `<text ${place} text-anchor="${where}" dominant-baseline="central" font-size="${size}" ` +
        `font-weight="${weight}" fill="${colour}" xml:space="preserve">${escaped(text)}</text>`,
    );
  }

  strands(points, colour, alpha, width) {
    if (!points.length) return;
    let path = "";
    for (let i = 0; i < points.length; i += 4) {
      const [x1, y1, x2, y2] = [0, 1, 2, 3].map((at) => round(points[i + at]));
      const bend = (x2 - x1) * 0.45;
      path += `M${x1} ${y1}C${round(x1 + bend)} ${y1} ${round(x2 - bend)} ${y2} ${x2} ${y2}`;
    }
    this.parts.push(
      `<path d="${path}" fill="none" stroke="${colour}" stroke-opacity="${round(alpha)}" stroke-width="${round(width)}"/>`,
    );
  }

  image(picture, [left, top, across, down], x, y, width, height) {
    const part = Object.assign(document.createElement("canvas"), { width: across, height: down });
    part.getContext("2d").drawImage(picture, -left, -top);
    this.parts.push(
      `<image x="${round(x)}" y="${round(y)}" width="${round(width)}" height="${round(height)}" ` +
        `preserveAspectRatio="none" style="image-rendering:pixelated" href="${part.toDataURL("image/png")}"/>`,
    );
  }

  clip(x, y, width, height, draw) {
    this.clips += 1;
    const id = `clip-${this.clips}`;
    this.parts.push(
      `<clipPath id="${id}"><rect x="${round(x)}" y="${round(y)}" width="${round(width)}" height="${round(height)}"/></clipPath>`,
      `<g clip-path="url(#${id})">`,
    );
    draw();
    this.parts.push("</g>");
  }

  shift(x, y, draw) {
    this.parts.push(`<g transform="translate(${round(x)} ${round(y)})">`);
    draw();
    this.parts.push("</g>");
  }

  file(width, height) {
    return (
      `<svg xmlns="http://www.w3.org/2000/svg" width="${round(width)}" height="${round(height)}" ` +
      `viewBox="0 0 ${round(width)} ${round(height)}" font-family='${FONT}'>${this.parts.join("\n")}</svg>\n`
    );
  }
}
