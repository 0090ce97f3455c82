// Weights between words that look (rows) and words that are looked at (columns), drawn on canvases so that 512 tokens
// stay fluid: what never changes is drawn once; pointing at a word redraws rectangles, no elements.
// `layout`, `paint`, `shades`, `rgb`, `number` and `textWidth` are those of every report (report.js).
/* global layout, paint, shades, rgb, number, textWidth */

import { h, svg } from "./dom.js";
import { t } from "./text.js";

const ROW = 20, LINE = 27, FAINT = 3;
const NUMBERED = 34; // pixels of a cell that has room for its number
const WIDEST = 76, PRESENTED = 130, SMALLEST = 18; // pixels of a cell: at most, at most on the whole screen, at least
const LEGIBLE = 100; // words up to which a map scrolls rather than shrinks
const LONG = 24; // letters of a label; the whole word is in the tip
const STRETCH = 1.8; // how much wider than high a cell may be where the window has the room
const SUMS = 16; // pixels of the strip of sums
const brief = (text, letters = LONG) => [...text].length > letters ? `${[...text].slice(0, letters - 1).join("")}…` : text;
const family = () => getComputedStyle(document.body).fontFamily;
const ink = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
// The colours of the present theme, read once: a style that is asked for in every frame is slow.
const colours = () => ({ text: ink("--text"), read: ink("--source"), asks: ink("--target"), accent: ink("--target"), line: ink("--context"), high: rgb("--accent"), low: rgb("--bad") });
const shade = ({ high, low }, share) => `rgba(${share < 0 ? low : high},${(0.55 * Math.abs(share)).toFixed(3)})`;
function fillBox(context, colour, ...box) { context.fillStyle = colour; context.fillRect(...box); }
function outline(context, colour, ...box) { context.strokeStyle = colour; context.lineWidth = 2;
  context.strokeRect(...box); }

// A token as a reader knows it: without the mark of a word start, as in the drawing of the model (views/diagrams).
export const shownToken = text => text === "</s>" ? "⏎" : text.replace(/^▁(?=.)/u, "").replaceAll("▁", "␣");

export function decode(text) {
  const raw = atob(text), bytes = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i++) bytes[i] = raw.charCodeAt(i);
  return bytes;
}
// `image` is the name of an image that was sent; the server knows its content only.
export function unpacked(map, image) {
  const values = new Float32Array(decode(map.values).buffer);
  const [rows, columns] = [map.rows, map.columns].map(texts => texts.map(shownToken));
  return { rows, columns, values, widest: WIDEST, peak: map.peak, signed: values.some(value => value < 0),
    title: map.title.replace(/data:image\S+/, image) };
}
export const rowOf = (map, row) => map.values.subarray(row * map.columns.length, (row + 1) * map.columns.length);
export const columnOf = (map, column) => map.rows.map((_, row) => map.values[row * map.columns.length + column]);
const most = weights => weights.reduce((best, weight) => Math.max(best, Math.abs(weight)), 0) || 1;
// The indices of the largest weights, largest first.
export const largest = (weights, count) => Array.from(weights, (weight, n) => [Math.abs(weight), n])
  .sort((one, other) => other[0] - one[0]).slice(0, count).map(([, n]) => n);

function canvasOf(width, height, properties = {}) {
  const ratio = Math.min(devicePixelRatio || 1, 8192 / Math.max(width, height));
  const canvas = h("canvas", { width: Math.ceil(width * ratio), height: Math.ceil(height * ratio), ...properties,
    style: { width: `${width}px`, height: `${height}px` } });
  const context = canvas.getContext("2d");
  context.scale(ratio, ratio);
  context.font = `14px ${family()}`;
  context.textBaseline = "middle";
  return [canvas, context];
}

// ------------------------------------------------------------------------------------------------------- heat map

// The same map with its rows as columns.
export function transposed(map) {
  const values = new Float32Array(map.values.length), [wide, high] = [map.columns.length, map.rows.length], drawn = map.byRow ? byRow(map) : map;
  drawn.values.forEach((value, i) => { values[i % wide * high + Math.floor(i / wide)] = value; });
  return { ...map, rows: map.columns, columns: map.rows, values, peak: drawn.peak, byRow: false, turned: true, roles: map.roles?.toReversed() };
}
// The same map with every row divided by its largest weight.
function byRow(map) {
  const values = map.values.slice(), wide = map.columns.length;
  map.rows.forEach((_, row) => {
    const peak = most(rowOf(map, row));
    for (let i = row * wide; i < (row + 1) * wide; i++) values[i] /= peak;
  });
  return { ...map, values, peak: 1 };
}
// The same map, as large as a figure of this size has room for with its labels; `zoom` times as large, it scrolls.
export function fitted(map, width, height, zoom = 1, letters = LONG) {
  const labels = { rows: map.rows.map(text => brief(text, letters)), columns: map.columns.map(text => brief(text)) }, widest = texts => Math.max(...texts.map(text => textWidth(text, 15)));
  const left = widest(labels.rows) + 24, across = (width - left) / map.columns.length, wide = widest(labels.columns), slanted = wide >= Math.min(across, WIDEST);
  const room = { width: width - left - (slanted ? wide / 2 : 0), height: height - SUMS - (slanted ? 0.87 * wide + 30 : 30) };
  const least = Math.max(map.rows.length, map.columns.length) <= LEGIBLE ? SMALLEST : 0;
  return { ...map, labels, stretch: map.rows.length > 1 ? STRETCH : 1, widest: (document.body.classList.contains("presenting") ? PRESENTED : WIDEST) * zoom, room: { width: zoom * Math.max(room.width, least * map.columns.length), height: zoom * Math.max(room.height, least * map.rows.length) } };
}
// The weights that are not small, where the cells have the room.
function writeNumbers(context, map, drawn) {
  const { left, top, cell, wide } = map.at, count = map.columns.length;
  if (map.yesNo || cell < NUMBERED || map.peak > 1) return;
  context.textAlign = "center"; context.textBaseline = "middle";
  context.font = `${Math.min(15, Math.floor(cell / 3))}px ${family()}`;
  const [ground, high, low] = ["--ground", "--accent", "--bad"].map(rgb);
  map.values.forEach((value, i) => {
    const share = Math.abs(drawn.values[i]) / drawn.peak;
    if (share < 0.1) return;
    context.fillStyle = readableOn(ground.map((c, k) => c + share * ((value < 0 ? low : high)[k] - c)));
    context.fillText(number(value), left + (i % count + .5) * wide, top + (Math.floor(i / count) + .5) * cell);
  });
}
// Black or white, whichever has the higher contrast: it is 4.5:1 or more on every colour (WCAG 2, relative luminance).
function readableOn(colour) {
  const linear = colour.map(c => c / 255).map(c => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
  const luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
  return luminance > 0.179 ? "#000" : "#fff";
}

// The labels of a map's rows or columns as a picture of their own, which stays in view while the map is scrolled.
function axisOf(canvas, name, width, height) {
  const ratio = canvas.width / parseFloat(canvas.style.width);
  const axis = h("canvas", { class: `axis ${name}`, width: Math.ceil(width * ratio), height: Math.ceil(height * ratio), "aria-hidden": "true",
    style: { width: `${width}px`, height: `${height}px` } });
  const context = axis.getContext("2d");
  context.fillStyle = ink("--ground");
  context.fillRect(0, 0, axis.width, axis.height);
  context.drawImage(canvas, 0, 0);
  return axis;
}
// How much of each column was read by all rows together.
function sumsOf(map) {
  const { left, wide: cell } = map.at, count = map.columns.length, sums = map.columns.map((_, n) => columnOf(map, n).reduce((one, other) => one + other, 0));
  const [canvas, context] = canvasOf(left + count * cell, SUMS, { class: "sums", role: "img", "aria-label": t("sums") }), peak = most(sums), theme = colours();
  context.fillStyle = ink("--ground");
  context.fillRect(0, 0, left + count * cell, SUMS);
  context.fillStyle = theme.text;
  context.font = `12px ${family()}`;
  context.textAlign = "right";
  context.fillText("Σ", left - 6, SUMS / 2);
  const [red, green, blue] = rgb("--context");
  sums.forEach((sum, n) => fillBox(context, `rgba(${red},${green},${blue},${(Math.abs(sum) / peak).toFixed(3)})`, left + n * cell, 2, Math.max(cell - 0.5, 0.5), SUMS - 4));
  canvas.addEventListener("mousemove", event => {
    const n = Math.floor((event.offsetX - left) / cell);
    delete canvas.dataset.tip;
    if (n >= 0 && n < count) canvas.dataset.tip = t("sum_of", { word: map.columns[n] || n, sum: number(sums[n]) });
  });
  return canvas;
}

// pick({ row, column }) is called while a cell is pointed at.
export function heatMap(map, pick) {
  const canvas = h("canvas", { class: "cells", role: "img", "aria-label": map.title || t("attention_map") });
  const [rowKind, columnKind] = map.turned ? ["read", "asks"] : ["asks", "read"];
  const across = h("div", { class: `bar ${rowKind}` }), down = h("div", { class: `bar ${columnKind}` });
  const drawn = { ...(map.byRow ? byRow(map) : map), ...map.labels };
  paint(canvas, drawn);
  map.at = drawn.at;
  writeNumbers(canvas.getContext("2d"), map, drawn);
  const { left, top, cell, wide } = map.at, width = map.columns.length * wide, height = map.rows.length * cell;
  for (const [bar, w, high] of [[across, width, cell], [down, wide, height]]) {
    bar.style.width = `${w}px`; bar.style.height = `${high}px`; bar.hidden = true;
  }
  canvas.addEventListener("mousemove", event => {
    const box = canvas.getBoundingClientRect();
    const column = Math.floor((event.clientX - box.left - left) / wide),
      row = Math.floor((event.clientY - box.top - top) / cell);
    delete canvas.dataset.tip;
    if (column < 0 || row < 0 || column >= map.columns.length || row >= map.rows.length) return;
    const value = number(map.values[row * map.columns.length + column]);
    canvas.dataset.tip = `${map.rows[row] || row} → ${map.columns[column] || column}: ${value}`;
    pick({ row, column });
  });
  const axes = map.at.labelled ? [axisOf(canvas, "of-columns", map.at.width, top), axisOf(canvas, "of-rows", left, map.at.height), axisOf(canvas, "corner", left, top)] : [];
  const sums = map.yesNo || map.signed || map.turned || map.rows.length < 2 ? null : sumsOf(map);
  const layers = h("div", { class: "layers with-axes" }, canvas, across, down, axes, sums);
  return { element: h("div", { class: "map", tabindex: 0, role: "group", "aria-label": map.title || t("attention_map") }, layers),
    select({ row, column }) {
      across.hidden = row === undefined; down.hidden = column === undefined;
      across.style.transform = `translate(${left}px, ${top + (row || 0) * cell}px)`;
      down.style.transform = `translate(${left + (column || 0) * wide}px, ${top}px)`;
    } };
}

// ----------------------------------------------------------------------------------------------------------- words

// Words one after the other, in lines: shade(weights, chosen) puts the weights behind them; pick(number) is called while
// one is pointed at.
export function words(texts, label, width, pick) {
  const boxes = [], theme = colours();
  let x = 2, y = 2;
  for (const text of texts) {
    const wide = textWidth(text, 14) + 12;
    if (x > 2 && x + wide > width - 2) { x = 2; y += LINE; }
    boxes.push([x, y, Math.min(wide, width - 4)]);
    x += wide + 4;
  }
  const [under, behind] = canvasOf(width, y + LINE);
  const [over, front] = canvasOf(width, y + LINE, { role: "img", "aria-label": `${label}: ${texts.join(" ")}` });
  front.fillStyle = theme.text;
  texts.forEach((text, n) => front.fillText(text, boxes[n][0] + 6, boxes[n][1] + 12, width - 16));
  over.addEventListener("mousemove", event => {
    const within = (at, first, size) => at >= first && at <= first + size;
    const found = boxes.findIndex(([left, top, wide]) => within(event.offsetX, left, wide)
      && within(event.offsetY, top, LINE));
    if (found >= 0) pick(found);
  });
  return { element: h("div", { class: "words", tabindex: 0, role: "group", "aria-label": label }, h("div", { class: "layers" }, under, over)), shade(weights, chosen) {
    behind.clearRect(0, 0, width, y + LINE);
    const peak = weights ? most(weights) : 1;
    boxes.forEach(([left, top, wide], n) => {
      if (weights && Math.abs(weights[n]) > peak / 200) fillBox(behind, shade(theme, weights[n] / peak), left, top,
        wide, LINE - 4);
      if (n === chosen) outline(behind, theme.accent, left, top, wide, LINE - 4);
    });
  } };
}

// ----------------------------------------------------------------------------------------------------------- lines

// Two columns of words and lines between them. Only what is in the window is drawn, so length does not matter.
export function lines(map, width, room, pick) {
  const count = Math.max(map.rows.length, map.columns.length), tall = Math.max(ROW, Math.min(44, Math.floor(room / count)));
  const whole = count * tall + 8, height = Math.min(whole, Math.max(room, 320)), size = Math.min(17, Math.max(14, tall / 2));
  const [canvas, context] = canvasOf(width, height, { role: "img", "aria-label": map.title });
  const left = Math.min(260, width * 0.36), right = width - left;
  const faint = map.rows.map((_, row) => largest(rowOf(map, row), FAINT));
  const box = h("div", { class: "lines", tabindex: 0 }, h("div", { class: "tall" }, canvas));
  box.firstChild.style.height = `${whole}px`; box.style.height = `${height}px`;
  const theme = colours();
  context.font = `${size}px ${family()}`;
  let chosen = {};
  const place = n => n * tall + tall / 2 + 4 - box.scrollTop;
  const near = n => Math.abs(place(n) - height / 2) < height;
  function line(row, column, share) {
    if (!near(row) || !near(column)) return;
    context.globalAlpha = share;
    context.lineWidth = 1 + 2 * share;
    context.beginPath(); context.moveTo(left, place(row)); context.lineTo(right, place(column)); context.stroke();
  }
  function text(words, colour, x, align, weights, picked) {
    const first = Math.max(0, Math.floor(box.scrollTop / tall) - 1);
    const last = Math.min(words.length, first + Math.ceil(height / tall) + 3);
    const peak = weights ? most(weights) : 1;
    context.textAlign = align;
    for (let n = first; n < last; n++) {
      const box = [x < width / 2 ? 1 : x, place(n) - tall / 2 + 1, left - 2, tall - 2];
      if (weights) fillBox(context, shade(theme, weights[n] / peak), ...box);
      context.fillStyle = colour;
      context.fillText(words[n], x + (align === "left" ? 6 : -6), place(n), left - 8);
      if (n === picked) outline(context, theme.accent, ...box);
    }
  }
  function draw() {
    const { row, column } = chosen;
    context.clearRect(0, 0, width, height);
    context.strokeStyle = theme.line;
    const strong = (weights, draw) => {
      const peak = most(weights);
      weights.forEach((weight, n) => { if (Math.abs(weight) > peak / 50) draw(n, Math.abs(weight) / peak); });
    };
    if (row !== undefined) strong(rowOf(map, row), (to, share) => line(row, to, share));
    else if (column !== undefined) strong(columnOf(map, column), (from, share) => line(from, column, share));
    else faint.forEach((columns, from) => columns.forEach(to => line(from, to,
      Math.abs(rowOf(map, from)[to]) / map.peak)));
    context.globalAlpha = 1;
    text(map.rows, theme.asks, left, "right", row === undefined && column !== undefined ? columnOf(map, column) : null, row);
    const inRow = row !== undefined;
    text(map.columns, theme.read, right, "left", inRow ? rowOf(map, row) : null, inRow ? undefined : column);
  }
  box.addEventListener("scroll", () => requestAnimationFrame(draw));
  canvas.addEventListener("mousemove", event => {
    const n = Math.floor((event.offsetY + box.scrollTop - 4) / tall);
    if (event.offsetX < left && n < map.rows.length) pick({ row: n });
    else if (event.offsetX > right && n < map.columns.length) pick({ column: n });
  });
  canvas.addEventListener("mouseleave", () => pick());
  return { element: box, select(choice) { chosen = choice; draw(); } };
}

// --------------------------------------------------------------------------------------------------- image and heads

// The image, dark where the chosen word did not look. pick({ column }) is called while a region is pointed at.
export function regions(picture, map, side = 320, pick = null) {
  const image = h("canvas", { width: picture.side, height: picture.side }), pixels = decode(picture.pixels);
  const data = image.getContext("2d").createImageData(picture.side, picture.side);
  for (let i = 0; i < picture.side ** 2; i++) data.data.set([...pixels.subarray(3 * i, 3 * i + 3), 255], 4 * i);
  image.getContext("2d").putImageData(data, 0, 0);
  const [canvas, context] = canvasOf(side, side, { role: "img", "aria-label": t("part_image") });
  const across = picture.columns, down = Math.ceil(map.columns.length / across);
  const [wide, high] = [side / across, side / down];
  if (pick) {
    canvas.addEventListener("mousemove", event => {
      const column = Math.floor(event.offsetY / canvas.clientHeight * down) * across + Math.floor(event.offsetX / canvas.clientWidth * across);
      if (column >= 0 && column < map.columns.length) pick({ column });
    });
    canvas.addEventListener("mouseleave", () => pick());
  }
  return { element: canvas, select({ row, column }) {
    context.imageSmoothingEnabled = false;
    context.drawImage(image, 0, 0, side, side);
    if (row !== undefined) {
      const weights = rowOf(map, row), peak = most(weights);
      weights.forEach((weight, n) => {
        context.fillStyle = `rgba(0,0,0,${(0.85 * (1 - weight / peak)).toFixed(3)})`;
        context.fillRect(n % across * wide, Math.floor(n / across) * high, wide + 0.5, high + 0.5);
      });
    }
    if (column === undefined) return;
    context.strokeStyle = ink("--target");
    context.lineWidth = 3;
    context.strokeRect(column % across * wide + 1.5, Math.floor(column / across) * high + 1.5, wide - 3, high - 3);
  } };
}
// A picture of every head; pick(layer, head) counts from 1.
export function smallHeads(small, layers, heads, chosen, pick) {
  const codes = decode(small.codes), size = small.rows * small.columns, ground = rgb("--ground"),
    high = rgb("--accent");
  function picture(number) {
    const canvas = h("canvas", { width: small.columns, height: small.rows }), context = canvas.getContext("2d");
    const image = context.createImageData(small.columns, small.rows);
    for (let i = 0; i < size; i++) {
      const share = (codes[number * size + i] / 255) ** 2;
      for (let k = 0; k < 3; k++) image.data[4 * i + k] = ground[k] + share * (high[k] - ground[k]);
      image.data[4 * i + 3] = 255;
    }
    context.putImageData(image, 0, 0);
    return canvas;
  }
  function button(layer, head) {
    const name = t("layer_head", { layer, head }), pressed = String(layer) === chosen.layer
      && String(head) === chosen.head;
    return h("button", { type: "button", "aria-label": name, "data-tip": name, "aria-pressed": String(pressed),
      onclick: () => pick(layer, head) }, picture((layer - 1) * heads + head - 1));
  }
  const upTo = count => Array.from({ length: count }, (_, n) => n + 1);
  return h("div", { class: "heads" }, upTo(layers).map(layer => h("div", {},
    upTo(heads).map(head => button(layer, head)))));
}

// --------------------------------------------------------------------------------------------------------- a figure

// The same as an SVG element that needs no style sheet: the map, or the lines of one row or of all.
// The caption says whose figure it is: the run, the layer and head, the scale.
export function figure(map, asLines, row, caption) {
  const drawn = map.byRow ? byRow(map) : map;
  return captioned(asLines ? figureOfLines(map, row) : figureOfMap(drawn), caption);
}
const sheet = (width, height, ...children) => ({ width, height, children });
function captioned({ width, height, children }, caption) {
  const wide = Math.max(width, Math.ceil(textWidth(caption, 12)) + 16), high = height + 24;
  return svg("svg", { xmlns: "http://www.w3.org/2000/svg", width: wide, height: high, viewBox: `0 0 ${wide} ${high}`,
    "font-family": "sans-serif", fill: ink("--text") },
  svg("rect", { width: wide, height: high, fill: ink("--ground") }), ...children,
  write(caption, "start", 12, { x: 8, y: height + 12 }));
}
const write = (text, anchor, size, place) => svg("text", { ...place, dy: ".35em", "text-anchor": anchor,
  "font-size": size }, text);
function figureOfMap(map) {
  const { left, top, cell, wide, font, labelled, flat, width, height } = layout(map), count = map.columns.length, cells = [];
  const whole = { x: left, y: top, width: count * wide, height: map.rows.length * cell },
    [high, low] = [ink("--accent"), ink("--bad")];
  if (map.values.length > 10_000) { // a picture: so many rectangles are slow in every viewer
    const fit = { "image-rendering": "pixelated", preserveAspectRatio: "none" };
    cells.push(svg("image", { ...whole, ...fit, href: shades(map).toDataURL() }));
  } else map.values.forEach((value, i) => {
    const share = Math.abs(value) / map.peak, place = { x: left + i % count * wide,
      y: top + Math.floor(i / count) * cell };
    const look = { width: wide, height: cell, fill: value < 0 ? low : high, "fill-opacity": share.toFixed(3) };
    if (share >= 0.004) cells.push(svg("rect", { ...place, ...look }));
  });
  cells.push(svg("rect", { ...whole, fill: "none", stroke: ink("--line") }));
  if (labelled) {
    const slant = flat ? "" : " rotate(-60)", anchor = flat ? "middle" : "start", above = top - (flat ? 10 : 6);
    cells.push(...map.rows.map((text, n) => write(text, "end", font, { x: left - 6, y: top + (n + .5) * cell })));
    cells.push(...map.columns.map((text, n) =>
      write(text, anchor, font, { transform: `translate(${left + (n + .5) * wide} ${above})${slant}` })));
  }
  return sheet(width, height, ...cells);
}
function figureOfLines(map, row) {
  const height = Math.max(map.rows.length, map.columns.length) * ROW + 16, width = 560, left = 200, right = 360;
  const place = n => n * ROW + ROW / 2 + 8, drawn = [], accent = ink("--context");
  for (const from of row === undefined ? map.rows.keys() : [row]) {
    const weights = rowOf(map, from), peak = row === undefined ? map.peak : most(weights);
    for (const to of row === undefined ? largest(weights, FAINT) : weights.keys()) {
      const share = Math.abs(weights[to]) / peak, ends = { x1: left, y1: place(from), x2: right, y2: place(to) };
      const look = { stroke: accent, "stroke-opacity": share.toFixed(3), "stroke-width": (1 + 2 * share).toFixed(2) };
      if (share > 0.02) drawn.push(svg("line", { ...ends, ...look }));
    }
  }
  const column = (texts, x, anchor) => texts.map((text, n) => write(text, anchor, 14, { x, y: place(n) }));
  return sheet(width, height, ...drawn, ...column(map.rows, left - 6, "end"),
    ...column(map.columns, right + 6, "start"));
}
export const svgText = element => new XMLSerializer().serializeToString(element);
// An SVG element as a PNG, twice as fine.
export async function png(element) {
  const image = new Image();
  image.src = URL.createObjectURL(new Blob([svgText(element)], { type: "image/svg+xml" }));
  await image.decode();
  const scale = Math.min(2, 8192 / Math.max(image.width, image.height));
  const canvas = h("canvas", { width: image.width * scale, height: image.height * scale });
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  URL.revokeObjectURL(image.src);
  return new Promise(done => canvas.toBlob(done, "image/png"));
}
