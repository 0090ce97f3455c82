"use strict";
// Draws the figures of a report. `drawFigure(element, part)` takes the JSON of a part (views/report.py) and fills an
// element; colours come from the variables of report.css, tooltips from the attribute data-tip.

const NAMESPACE = "http://www.w3.org/2000/svg";
const MARKERS = ["M-4 0a4 4 0 1 0 8 0a4 4 0 1 0 -8 0Z", "M-4 -4H4V4H-4Z", "M0 -5L5 4H-5Z", "M0 -5L5 0L0 5L-5 0Z",
  "M0 5L5 -4H-5Z", "M-5 -2H-2V-5H2V-2H5V2H2V5H-2V2H-5Z", "M-2 -5H2V5H-2Z", "M-5 -2H5V2H-5Z"];
const DASHES = ["none", "6 3", "2 3", "8 3 2 3"];
const FONT = 13, EDGE = 14, WIDTH = 540, HEIGHT = 340;

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "style") element.style.cssText = value; // the studio's pages forbid style attributes
    else element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}
const make = (tag, attributes = {}, ...children) => fill(document.createElement(tag), attributes, children);
const svg = (tag, attributes = {}, ...children) => fill(document.createElementNS(NAMESPACE, tag), attributes, children);
const ruler = document.createElement("canvas").getContext("2d");
function textWidth(text, font = FONT) {
  ruler.font = font + "px " + getComputedStyle(document.body).fontFamily;
  return ruler.measureText(text).width;
}
function number(value) {
  if (value === 0 || Math.abs(value) >= 0.01) return value.toFixed(2);
  return String(Number(value.toPrecision(1)));
}
const plain = value => String(Number(value.toPrecision(6)));

// ------------------------------------------------------------------------------------------------------------- axes

function ticks(low, high, most = 7) {
  if (!(high > low)) { const room = Math.abs(low) / 2 || 0.5; low -= room; high += room; }
  const power = 10 ** Math.floor(Math.log10((high - low) / most));
  for (const step of [1, 2, 5, 10, 20, 50].map(factor => factor * power)) {
    const first = Math.floor(low / step + 1e-9), last = Math.ceil(high / step - 1e-9);
    if (last - first + 1 <= most) {
      return Array.from({ length: last - first + 1 }, (_, n) => Number(((first + n) * step).toFixed(12)));
    }
  }
}
function written(marks) {
  const step = marks.length > 1 ? marks[1] - marks[0] : 1;
  const digits = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
  return marks.map(mark => mark.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits }));
}
function marksOf(values, fromZero = false) {
  const low = fromZero ? 0 : Math.min(...values), high = Math.max(...values);
  if (!values.length) return ticks(0, 1);
  const room = high > low ? Math.max(0, (Math.max(Math.abs(low), Math.abs(high)) / 100 - high + low) / 2) : 0; // rounding is not to look like a change
  return ticks(low - room, fromZero && high <= low ? low + 1 : Math.max(low, high) + room);
}
function canvasOf(width, height, name) {
  return svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": name });
}
function write(x, y, text, anchor = "middle") {
  return svg("text", { x, y, dy: "0.35em", "text-anchor": anchor }, text);
}
// The names of the series with what each is drawn with, in as many rows as they need; returns the height that they take.
function legend(picture, names, swatch) {
  let x = EDGE, y = EDGE + FONT / 2;
  names.forEach((name, n) => {
    const room = 52 + textWidth(name);
    if (x > EDGE && x + room > WIDTH - EDGE) { x = EDGE; y += FONT + 7; }
    picture.append(svg("g", { transform: `translate(${x} ${y})` }, ...swatch(n)), write(x + 34, y, name, "start"));
    x += room;
  });
  return y + FONT / 2 + 16;
}
const colour = n => `var(--s${n % 8})`;
const marker = (x, y, n, tip) => svg("path", { transform: `translate(${x} ${y})`, d: MARKERS[n % 8],
  style: `fill:${colour(n)}`, ...(tip ? { "data-tip": tip } : {}) });
const lineStyle = n => `stroke:${colour(n)};stroke-dasharray:${DASHES[n % DASHES.length]}`;

// ----------------------------------------------------------------------------------------------------------- curves

function drawCurves(element, part) {
  const picture = canvasOf(WIDTH, HEIGHT, part.title || part.y_label);
  const top = part.series.length < 2 ? EDGE + FONT : legend(picture, part.series.map(one => one.name),
    n => [svg("path", { class: "curve", d: "M2 0H28", style: lineStyle(n) }), marker(15, 0, n)]);
  const present = values => (values || []).filter(value => value !== null);
  const yMarks = marksOf(part.series.flatMap(one => [...present(one.y), ...present(one.low), ...present(one.high)]),
    part.from_zero);
  const xs = [...part.series.flatMap(one => one.x), ...(part.x_ticks || []).map(([place]) => place)];
  const xMarks = part.x_ticks ? part.x_ticks.map(([place]) => place) : marksOf(xs);
  const xTexts = part.x_ticks ? part.x_ticks.map(([, text]) => text) : written(xMarks);
  const low = xs.length ? Math.min(...xs) : 0, high = xs.length ? Math.max(...xs) : 1, room = (high - low) * 0.03 || 0.5;
  const left = EDGE + FONT + 14 + Math.max(...written(yMarks).map(text => textWidth(text)));
  const right = WIDTH - EDGE - 6, bottom = HEIGHT - EDGE - 2 * FONT - 14, last = yMarks[yMarks.length - 1];
  const across = x => left + (x - low + room) / (high - low + 2 * room) * (right - left);
  const up = y => bottom - (y - yMarks[0]) / (last - yMarks[0]) * (bottom - top);
  written(yMarks).forEach((text, n) => {
    const y = up(yMarks[n]);
    picture.append(svg("path", { class: "rule", d: `M${left} ${y}H${right}` }), write(left - 7, y, text, "end"));
  });
  let free = -Infinity; // labels that would overlap are left out
  xMarks.forEach((mark, n) => {
    const x = across(mark), half = textWidth(xTexts[n]) / 2;
    if (x < left - 1 || x > right + 1) return;
    picture.append(svg("path", { class: "rule", d: `M${x} ${bottom}v5` }));
    if (x - half > free) { picture.append(write(x, bottom + FONT + 2, xTexts[n])); free = x + half + 6; }
  });
  picture.append(write((left + right) / 2, bottom + 2 * FONT + 9, part.x_label));
  picture.append(svg("text", { transform: `translate(${EDGE + FONT - 4} ${(top + bottom) / 2}) rotate(-90)`,
    "text-anchor": "middle" }, part.y_label));
  part.series.forEach((one, n) => picture.append(...bands(one, n, across, up)));
  const texts = new Map(part.x_ticks || []), told = x => texts.get(x) ?? plain(x);
  part.series.forEach((one, n) => picture.append(...line(one, n, across, up, told)));
  element.append(picture);
}
// Runs of points at which all of the values are there, as lists of their numbers.
function runs(...columns) {
  const found = [[]];
  columns[0].forEach((_, i) => {
    if (columns.every(column => column[i] !== null)) found[found.length - 1].push(i);
    else found.push([]);
  });
  return found.filter(run => run.length);
}
function bands(one, n, across, up) {
  if (!one.low || !one.high) return [];
  return runs(one.low, one.high).map(run => {
    const there = run.map(i => `${across(one.x[i])} ${up(one.high[i])}`).join("L");
    const back = run.reverse().map(i => `${across(one.x[i])} ${up(one.low[i])}`).join("L");
    return svg("path", { class: "band", d: `M${there}L${back}Z`, style: `fill:${colour(n)}` });
  });
}
function line(one, n, across, up, told) {
  const found = runs(one.y).map(run => svg("path", { class: "curve", style: lineStyle(n),
    d: "M" + run.map(i => `${across(one.x[i])} ${up(one.y[i])}`).join("L") }));
  const every = Math.max(1, Math.floor(one.x.length / 20)); // about twenty markers are enough to tell lines apart
  one.y.forEach((y, i) => {
    if (y === null || i % every) return;
    const interval = one.low && one.high ? ` (${plain(one.low[i])} – ${plain(one.high[i])})` : "";
    found.push(marker(across(one.x[i]), up(y), n, `${one.name}: ${told(one.x[i])}, ${plain(y)}${interval}`));
  });
  return found;
}

// ----------------------------------------------------------------------------------------------------------- points

function drawPoints(element, part) {
  const width = 640, height = 500, picture = canvasOf(width, height, part.title);
  const place = (values, from, to) => {
    const low = Math.min(...values), span = Math.max(...values) - low || 1;
    return values.map(value => from + (value - low) / span * (to - from));
  };
  const xs = place(part.x, EDGE + 90, width - EDGE - 90), ys = place(part.y, height - EDGE - 10, EDGE + 10);
  part.lines.forEach(([first, last]) => picture.append(svg("path",
    { class: "rule", d: `M${xs[first]} ${ys[first]}L${xs[last]} ${ys[last]}` })));
  const taken = xs.map((x, n) => [x - 5, x + 5, ys[n] - 5, ys[n] + 5]); // a label covers no marker and no other label
  part.labels.forEach((label, n) => {
    const room = textWidth(label), half = FONT / 2;
    const places = [[9, 0], [-9 - room, 0], [-room / 2, -FONT], [-room / 2, FONT]].map(([right, down]) =>
      [xs[n] + right, xs[n] + right + room, ys[n] + down - half, ys[n] + down + half]);
    const isFree = place => taken.every(other =>
      place[1] < other[0] || other[1] < place[0] || place[3] < other[2] || other[3] < place[2]);
    const place = places.find(isFree) || places[0];
    taken.push(place);
    picture.append(marker(xs[n], ys[n], part.groups[n], label), write(place[0], (place[2] + place[3]) / 2, label, "start"));
  });
  element.append(picture);
}

// ------------------------------------------------------------------------------------------------------------- bars

function drawBars(element, part) {
  part.series = Object.entries(part.series).map(([name, values]) => ({ name, values }));
  const step = 30, several = part.series.length > 1;
  const negative = part.series.some(one => one.values.some(value => value < 0));
  const legendTop = svg("g"), top = several ? legend(legendTop, part.series.map(one => one.name),
    n => [svg("rect", { x: 6, y: -6, width: 20, height: 12, style: `fill:${colour(n)}` })]) : EDGE;
  const marks = ticks(negative ? -part.longest : 0, part.longest), texts = written(marks);
  const left = EDGE + Math.min(260, Math.max(...part.categories.map(text => textWidth(text)))) + 8;
  const right = WIDTH - EDGE - 50, bottom = top + part.categories.length * step + 4;
  const height = bottom + (part.value_label ? 2 : 1) * (FONT + 8) + EDGE;
  const picture = canvasOf(WIDTH, height, part.title || part.value_label);
  const across = value => left + (value - marks[0]) / (marks[marks.length - 1] - marks[0]) * (right - left);
  picture.append(legendTop);
  marks.forEach((mark, n) => picture.append(svg("path", { class: "rule", d: `M${across(mark)} ${top}V${bottom}` }),
    write(across(mark), bottom + FONT, texts[n])));
  if (part.value_label) picture.append(write((left + right) / 2, bottom + 2 * FONT + 8, part.value_label));
  part.categories.forEach((category, row) => {
    const middle = top + (row + .5) * step;
    picture.append(write(left - 8, middle, category, "end"));
    let start = 0;
    part.series.forEach((one, n) => {
      const value = one.values[row];
      const from = across(Math.min(start, start + value)), to = across(Math.max(start, start + value));
      picture.append(svg("rect", { x: from, y: middle - 9, width: to - from, height: 18,
        style: `fill:${colour(!several && value < 0 ? 1 : n)}`,
        "data-tip": `${several ? one.name + ", " : ""}${category}: ${plain(value)}` }));
      if (!several) picture.append(write(to + 6, middle, part.whole ? String(value) : value.toFixed(3), "start"));
      start += value;
    });
  });
  element.append(picture);
}

// -------------------------------------------------------------------------------------------------------- heat maps

function bytes(text) {
  const raw = atob(text), out = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i++) out[i] = raw.charCodeAt(i);
  return out;
}
// A token as a reader knows it: without the mark of a word start.
const tokenText = text => text.replace(/^▁(?=.)/u, "").replaceAll("▁", "␣");
function unpack(part, packed) {
  const [rows, columns] = [packed.rows, packed.columns].map(n => part.labels[n].map(tokenText));
  const values = new Float32Array(rows.length * columns.length);
  if (packed.bits) {
    const bits = bytes(packed.bits);
    values.forEach((_, i) => { values[i] = bits[i >> 3] >> (7 - i % 8) & 1; });
  } else {
    const codes = bytes(packed.cells), kept = codes.length / rows.length;
    const places = packed.places && new Uint16Array(bytes(packed.places).buffer);
    codes.forEach((code, i) => {
      const place = places ? Math.floor(i / kept) * columns.length + places[i] : i;
      values[place] = packed.peak * (packed.signed ? (code - 128) / 127 : (code / 255) ** 2);
    });
  }
  return { rows, columns, values, peak: packed.peak, yesNo: "bits" in packed, signed: packed.signed, share: packed.share,
    title: packed.title, choice: packed.choice };
}
function rgb(name) {
  const hex = getComputedStyle(document.body).getPropertyValue(name).trim();
  return [1, 3, 5].map(i => parseInt(hex.slice(i, i + 2), 16));
}
function layout(map) {
  const { rows, columns } = map, crowded = columns.filter(Boolean).length * 2 > columns.length;
  const room = map.room || { width: 960, height: 960 }; // of the cells, without their labels
  const fitting = Math.floor(Math.min(room.width / columns.length, room.height / rows.length));
  const cell = Math.max(crowded ? 3 : 7, Math.min(map.widest || (Math.max(rows.length, columns.length) <= 8 ? 40 : 28), fitting));
  const wide = Math.max(cell, Math.min(Math.floor(cell * (map.stretch || 1)), Math.floor(room.width / columns.length))); // a cell may be wider than high
  const font = Math.max(11, Math.min(15, Math.floor(0.6 * cell))), labelled = cell >= 11 || !crowded;
  const widest = texts => labelled ? Math.max(...texts.map(text => textWidth(text, font))) : 0;
  const flat = !crowded || widest(columns) <= wide;
  const left = Math.ceil(widest(rows)) + 10, top = Math.ceil(flat ? font : 0.87 * widest(columns) + font) + 10;
  const overhang = flat ? 4 : Math.ceil(widest(columns) / 2) + font;
  return { cell, wide, font, left, top, labelled, flat,
    width: left + columns.length * wide + overhang, height: top + rows.length * cell + 2 };
}
// The values as a picture with a pixel for each.
function shades(map) {
  const canvas = make("canvas", { width: map.columns.length, height: map.rows.length }), context = canvas.getContext("2d");
  const image = context.createImageData(canvas.width, canvas.height), pixels = image.data;
  const ground = rgb("--ground"), high = rgb("--accent"), low = rgb("--bad");
  map.values.forEach((value, i) => {
    const share = Math.abs(value) / map.peak, full = value < 0 ? low : high;
    for (let k = 0; k < 3; k++) pixels[4 * i + k] = ground[k] + share * (full[k] - ground[k]);
    pixels[4 * i + 3] = 255;
  });
  context.putImageData(image, 0, 0);
  return canvas;
}
function paint(canvas, map) {
  const at = map.at = layout(map), context = canvas.getContext("2d"), width = map.columns.length;
  const ratio = Math.min(devicePixelRatio || 1, 4096 / Math.max(at.width, at.height, 1024));
  canvas.width = at.width * ratio; canvas.height = at.height * ratio;
  canvas.style.width = at.width + "px"; canvas.style.height = at.height + "px";
  context.scale(ratio, ratio);
  context.imageSmoothingEnabled = false;
  context.drawImage(shades(map), at.left, at.top, width * at.wide, map.rows.length * at.cell);
  const style = getComputedStyle(document.body);
  context.strokeStyle = style.getPropertyValue("--line");
  context.strokeRect(at.left - .5, at.top - .5, width * at.wide + 1, map.rows.length * at.cell + 1);
  if (map.yesNo && at.cell >= 11) { // neighbours that are both allowed would be one dark area
    context.beginPath();
    for (let c = 1; c < width; c++) { context.moveTo(at.left + c * at.wide, at.top); context.lineTo(at.left + c * at.wide, at.top + map.rows.length * at.cell); }
    for (let r = 1; r < map.rows.length; r++) { context.moveTo(at.left, at.top + r * at.cell); context.lineTo(at.left + width * at.wide, at.top + r * at.cell); }
    context.stroke();
  }
  if (!at.labelled) return;
  context.font = at.font + "px " + getComputedStyle(document.body).fontFamily;
  const [ofRows, ofColumns] = map.roles || ["--text", "--text"]; // colours that say which words ask and which are read
  context.fillStyle = style.getPropertyValue(ofRows); context.textBaseline = "middle"; context.textAlign = "right";
  map.rows.forEach((text, r) => context.fillText(text, at.left - 6, at.top + (r + .5) * at.cell));
  context.textAlign = at.flat ? "center" : "left";
  context.fillStyle = style.getPropertyValue(ofColumns);
  map.columns.forEach((text, c) => {
    context.save();
    context.translate(at.left + (c + .5) * at.wide, at.top - (at.flat ? 10 : 6));
    if (!at.flat) context.rotate(-Math.PI / 3);
    context.fillText(text, 0, 0);
    context.restore();
  });
}
// One select a chooser. Each offers what there is under the choices before it; one with nothing to choose is hidden.
function choosers(part, changed) {
  const selects = part.choosers.map(() => make("select"));
  const matching = depth => part.maps.filter(map => selects.slice(0, depth).every((one, n) => one.value === map.choice[n]));
  function offer(from, wish) {
    selects.slice(from).forEach((select, n) => {
      const depth = from + n, names = [...new Set(matching(depth).map(map => map.choice[depth]))];
      select.replaceChildren(...names.map(name => new Option(name, name)));
      select.value = names.includes(wish[depth]) ? wish[depth] : names[0];
      select.parentElement.hidden = names.length < 2 && !(depth && names[0]);
    });
  }
  const pick = choice => { selects.forEach((select, n) => { offer(n, choice); select.value = choice[n]; }); changed(); };
  const bar = make("div", { class: "controls" }, ...selects.map((select, n) => make("label", {}, part.choosers[n], select)));
  selects.forEach((select, depth) => {
    select.onchange = () => { offer(depth + 1, selects.map(one => one.value)); changed(); };
  });
  offer(0, part.maps[part.first].choice);
  if (selects.length === 1 && part.maps.length > 2) bar.append(...[[-1, "‹"], [1, "›"]].map(([by, text]) => {
    const button = make("button", { type: "button", "aria-label": `${part.choosers[0]} ${by > 0 ? "+" : "−"}1` }, text), [select] = selects;
    button.onclick = () => { select.selectedIndex = Math.max(0, Math.min(select.length - 1, select.selectedIndex + by)); changed(); };
    return button;
  }));
  return { bar, pick, chosen: () => matching(selects.length)[0] };
}
// Rows on the left, columns on the right, and lines as strong as the weights: of one row, or the three strongest of each.
function linesOf(map, chosen) {
  const tall = 22, side = Math.min(240, 16 + Math.max(...map.rows.map(text => textWidth(text)), ...map.columns.map(text => textWidth(text))));
  const right = side + 220, picture = canvasOf(right + side, Math.max(map.rows.length, map.columns.length) * tall + 8, map.title);
  const place = n => (n + .5) * tall + 4, width = map.columns.length;
  map.rows.forEach((_, r) => {
    if (chosen >= 0 && r !== chosen) return;
    const row = [...map.values.subarray(r * width, (r + 1) * width)], most = chosen >= 0 ? Math.max(...row.map(Math.abs)) || 1 : map.peak;
    const drawn = row.map((value, c) => [Math.abs(value) / most, c]).sort((one, other) => other[0] - one[0]).slice(0, chosen >= 0 ? 24 : 3);
    for (const [share, c] of drawn) {
      if (share > 0.03) picture.append(svg("path", { class: "thread", d: `M${side} ${place(r)}L${right} ${place(c)}`, "stroke-opacity": share.toFixed(3), "stroke-width": (1 + 3 * share).toFixed(2) }));
    }
  });
  const word = (text, n, x, anchor, own) => svg("g", own, svg("rect", { x: anchor === "end" ? 0 : right, y: place(n) - tall / 2, width: side, height: tall, "fill-opacity": 0 }), write(x, place(n), text, anchor));
  map.rows.forEach((text, r) => picture.append(word(text, r, side - 6, "end", { class: r === chosen ? "asks row" : "row", "data-row": r })));
  map.columns.forEach((text, c) => picture.append(word(text, c, right + 6, "start", {})));
  return picture;
}
const korean = () => document.documentElement.lang === "ko";
// A small picture of every map of the chosen kind, a row for each layer; choosing one shows it large.
function gridOfHeads(part, kind, pick) {
  const maps = part.maps.filter(map => map.choice[0] === kind), layers = [...new Set(maps.map(map => map.choice[1]))];
  const grid = make("div", { class: "heads" });
  for (const layer of layers) {
    const line = make("div", {}, make("span", { class: "muted" }, layer));
    for (const packed of maps.filter(map => map.choice[1] === layer)) {
      const map = unpack(part, packed), name = packed.choice.slice(1).filter(Boolean).join(", "), small = make("canvas", { width: 56, height: 56 });
      const context = small.getContext("2d");
      context.imageSmoothingEnabled = map.columns.length > 56;
      context.drawImage(shades({ ...map, peak: map.values.reduce((most, value) => Math.max(most, Math.abs(value)), 0) || 1 }), 0, 0, 56, 56);
      const button = make("button", { type: "button", "aria-label": name, "data-tip": name }, small);
      button.onclick = () => pick(packed.choice);
      line.append(button);
    }
    grid.append(line);
  }
  return grid;
}
function drawHeatMaps(element, part) {
  const canvas = make("canvas", { role: "img", "aria-label": part.title || part.maps[part.first].title || (korean() ? "히트맵" : "heat map") });
  const scale = make("p", { class: "muted" }), rows = make("div", { class: "tokens" }), columns = make("div", { class: "tokens" });
  let map = null, chosen = 0;
  const choice = part.choosers.length ? choosers(part, show) : { chosen: () => part.maps[part.first] };
  if (choice.bar) element.append(choice.bar);
  const strips = make("div", {}, make("p", { class: "muted" },
    document.documentElement.lang === "ko" ? "토큰이나 히트맵의 행을 가리키십시오. 진할수록 그 토큰을 많이 보았습니다."
      : "Point at a token, or at a row of the map: the stronger the shade, the more it read of a token."), rows, columns);
  element.append(strips);
  const drawing = make("div", { class: "map", tabindex: 0 }, canvas), threads = make("div", { class: "map", tabindex: 0, hidden: "" });
  const ways = [["map", korean() ? "히트맵" : "Heat map"], ["lines", korean() ? "선" : "Lines"]].map(([way, text]) => {
    const button = make("button", { type: "button", "aria-pressed": String(way === "map") }, text);
    button.onclick = () => { asLines = way === "lines"; ways.forEach(one => one.setAttribute("aria-pressed", String(one === button))); follow(); };
    return button;
  });
  const drawAs = make("div", { class: "ways", role: "group", "aria-label": korean() ? "그림" : "Drawn as" }, ...ways);
  const heads = make("details", { class: "all-heads" }, make("summary", {}, korean() ? "모든 층과 헤드" : "All layers and heads"));
  let asLines = false, gridKind = null;
  element.append(drawAs, drawing, threads, scale, heads);
  heads.ontoggle = () => {
    if (!heads.open || gridKind === map.choice[0]) return;
    gridKind = map.choice[0];
    heads.replaceChildren(heads.firstChild, gridOfHeads(part, gridKind, choice.pick));
    markHead();
  };
  function markHead() {
    const name = map.choice.slice(1).filter(Boolean).join(", ");
    heads.querySelectorAll("button").forEach(button => button.setAttribute("aria-pressed", String(button.getAttribute("aria-label") === name)));
  }
  // The map or its lines; lines only between words.
  function follow(pointed = -1) {
    const lines = asLines && !strips.hidden;
    drawing.hidden = lines; threads.hidden = !lines;
    if (!lines) return;
    threads.replaceChildren(linesOf(map, pointed));
    for (const word of threads.querySelectorAll(".row")) {
      word.onclick = () => { chosen = Number(word.dataset.row); shade(); };
      word.onmouseenter = () => { chosen = Number(word.dataset.row); shade(); };
    }
  }
  function show() {
    map = unpack(part, choice.chosen());
    paint(canvas, map);
    const rest = map.share === undefined ? "" : ` Only the ${part.kept} largest values of each row are kept here, `
      + `${(100 * map.share).toFixed(0)} % of their sum; the .json has all.`;
    const ends = map.signed ? ` in blue, to ${number(-map.peak)} in orange.` : ", the strongest shade.";
    const korean = map.signed ? `파란색은 0부터 ${number(map.peak)}까지, 주황색은 0부터 ${number(-map.peak)}까지입니다.`
      : `0부터 ${number(map.peak)}까지, 진할수록 큽니다.`;
    const left = map.share === undefined ? "" : ` 여기에는 행마다 가장 큰 값 ${part.kept}개(합의 ${(100 * map.share).toFixed(0)} %)만 있고, 모든 값은 .json에 있습니다.`;
    scale.textContent = map.yesNo ? "" : document.documentElement.lang === "ko" ? korean + left
      : `From 0 to ${number(map.peak)}${ends}${rest}`;
    strips.hidden = drawAs.hidden = !part.tokens.includes(map.choice[0]);
    heads.hidden = strips.hidden || part.maps.filter(one => one.choice[0] === map.choice[0]).length < 3;
    follow();
    if (!strips.hidden) showTokens();
    if (heads.open) heads.ontoggle();
    markHead();
  }
  function showTokens() {
    chosen = Math.min(chosen, map.rows.length - 1);
    rows.replaceChildren(...map.rows.map((text, r) => {
      const token = make("button", { type: "button" }, text);
      token.onclick = token.onfocus = token.onmouseenter = () => { chosen = r; shade(); };
      return token;
    }));
    columns.replaceChildren(...map.columns.map(text => make("span", {}, text)));
    shade();
  }
  function shade() {
    if (asLines) follow(chosen);
    const width = map.columns.length, row = map.values.subarray(chosen * width, (chosen + 1) * width);
    const most = row.reduce((most, value) => Math.max(most, Math.abs(value)), 0) || 1;
    [...rows.children].forEach((token, r) => token.setAttribute("aria-pressed", r === chosen));
    [...columns.children].forEach((token, c) => {
      const full = rgb(row[c] < 0 ? "--bad" : "--accent");
      token.style.background = `rgba(${full},${(0.5 * Math.abs(row[c]) / most).toFixed(3)})`;
      token.dataset.tip = number(row[c]);
    });
  }
  canvas.onmousemove = event => {
    const box = canvas.getBoundingClientRect(), at = map.at;
    const column = Math.floor((event.clientX - box.left - at.left) / at.wide);
    const row = Math.floor((event.clientY - box.top - at.top) / at.cell);
    delete canvas.dataset.tip;
    if (column < 0 || row < 0 || column >= map.columns.length || row >= map.rows.length) return;
    const names = [map.columns[column] || column, map.rows[row] || row];
    canvas.dataset.tip = `${names.join(" → ")}: ${number(map.values[row * map.columns.length + column])}`;
    if (!strips.hidden && row !== chosen) { chosen = row; shade(); }
  };
  show();
  for (const media of ["(prefers-color-scheme: dark)", "print"]) matchMedia(media).addEventListener("change", show);
}

// ------------------------------------------------------------------------------------------------------- image maps

// The image, then once more for each word, dark where the word did not look.
function drawImageMap(element, part) {
  const [height, width] = part.size, pixels = bytes(part.pixels), image = make("canvas", { width, height });
  const context = image.getContext("2d"), data = context.createImageData(width, height);
  for (let i = 0; i < width * height; i++) data.data.set([pixels[3 * i], pixels[3 * i + 1], pixels[3 * i + 2], 255], 4 * i);
  context.putImageData(data, 0, 0);
  const [down, across] = part.grid, side = 300;
  const panels = part.words.map((word, n) => {
    const canvas = make("canvas", { width: side, height: side }), veil = canvas.getContext("2d");
    veil.drawImage(image, 0, 0, side, side);
    part.veils[n].forEach((share, region) => {
      const x = region % across * side / across, y = Math.floor(region / across) * side / down;
      veil.fillStyle = `rgba(0,0,0,${share})`;
      veil.fillRect(x, y, side / across, side / down);
    });
    canvas.onmousemove = event => {
      const box = canvas.getBoundingClientRect();
      const column = Math.floor((event.clientX - box.left) / box.width * across);
      const row = Math.floor((event.clientY - box.top) / box.height * down);
      canvas.dataset.tip = `${word}: ${number(part.weights[n][row * across + column] ?? 0)}`;
    };
    return make("div", {}, canvas, word);
  });
  element.append(make("div", { class: "panels" }, make("div", {}, image), ...panels));
}

// ------------------------------------------------------------------------------------------------------------- trees

// Each branch is a group with its depth in data-depth: a page may hide those that come later.
function drawTree(element, part) {
  const row = 24, widths = [], text = one => `${tokenText(one.label)} `;
  part.branches.forEach(one => {
    widths[one.depth] = Math.max(widths[one.depth] || 0, textWidth(text(one)) + textWidth(one.value, 11) + 36);
  });
  const starts = [0, 24];
  for (let depth = 1; depth < widths.length; depth++) starts[depth + 1] = starts[depth] + widths[depth];
  const height = (Math.max(0, ...part.rows) + 1) * row + 8, width = starts[starts.length - 1];
  const picture = canvasOf(width, height, part.title || "tree");
  const down = n => (part.rows[n] + .5) * row + 4, start = down(Math.max(0, part.branches.findIndex(one => one.tone === "good")));
  part.branches.forEach((one, n) => {
    const x = starts[one.depth] + 22, y = down(n), parent = part.branches[one.parent];
    const bold = parent?.tone === "good" ? 1.08 : 1;
    const from = parent ? starts[parent.depth] + 26 + bold * (textWidth(text(parent)) + textWidth(parent.value, 11)) : 8;
    const before = parent ? down(one.parent) : start, middle = (from + x) / 2;
    picture.append(svg("g", { class: `branch ${one.tone} ${one.marked ? "marked" : ""}`, "data-depth": one.depth,
      "data-branch": n, "data-tip": one.note },
      svg("path", { class: "edge", d: `M${from} ${before}C${middle} ${before} ${middle} ${y} ${x - 4} ${y}` }),
      svg("text", { x, y, dy: "0.35em" }, text(one), svg("tspan", { class: "value" }, one.value))));
  });
  element.append(make("div", { class: "map", tabindex: 0 }, picture));
}

// ----------------------------------------------------------------------------------------------- guess, then see

// What follows in the section is hidden by the style until the reader has guessed, or does not want to.
function drawGuess(element, part) {
  const { texts } = part, middle = (part.low + part.high) / 2, amount = value => `${Number(value.toFixed(2))}${part.unit}`;
  const range = make("input", { type: "range", min: part.low, max: part.high, step: part.high - part.low > 10 ? 1 : 0.01, value: middle, "aria-label": part.question });
  const chosen = make("output", {}, amount(middle)), told = make("p", { role: "status" });
  range.addEventListener("input", () => { chosen.textContent = amount(Number(range.value)); });
  const button = (text, work) => { const one = make("button", { type: "button" }, text); one.addEventListener("click", work); return one; };
  const asked = make("div", { class: "guess-controls" }, range, chosen,
    button(texts.guess, () => see(Number(range.value))), button(texts.skip, () => see(null)));
  const place = value => 100 * Math.max(0, Math.min(1, (value - part.low) / (part.high - part.low)));
  function see(guess) {
    const right = amount(part.answer), marks = make("div", { class: "guess-scale" });
    for (const [kind, value] of [["guessed", guess], ["answer", part.answer]]) {
      if (value !== null) marks.append(make("i", { class: kind, style: `left: ${place(value)}%` }));
    }
    told.textContent = guess === null ? texts.told.replace("{}", right) : texts.guessed.replace("{}", amount(guess)).replace("{}", right);
    asked.replaceWith(marks);
    element.classList.remove("open");
    rest.remove();
  }
  const rest = make("p", { class: "muted" }, texts.rest || "");
  element.classList.add("guess", "open");
  element.append(make("p", {}, make("b", {}, texts.first), " ", part.question), asked, told, rest);
}

// ---------------------------------------------------------------------------------------------------------- the page

const DRAW = { curves: drawCurves, bars: drawBars, heat_maps: drawHeatMaps, image_map: drawImageMap, tree: drawTree,
  points: drawPoints,   diagram: drawDiagram, guess: drawGuess };
function drawFigure(element, part) { DRAW[part.kind](element, part); }

const tip = make("div", { id: "tip", hidden: "" });
document.body.append(tip);
document.addEventListener("mousemove", event => {
  const owner = event.target instanceof Element ? event.target.closest("[data-tip]") : null;
  tip.hidden = !owner;
  if (!owner) return;
  tip.textContent = owner.dataset.tip;
  tip.style.left = Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 4) + "px";
  tip.style.top = Math.min(event.clientY + 14, innerHeight - tip.offsetHeight - 4) + "px";
});
for (const figure of document.querySelectorAll("figure[data-kind]")) {
  drawFigure(figure, JSON.parse(figure.querySelector("script").textContent));
}
