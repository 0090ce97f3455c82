"""An explanation as one HTML page that needs nothing beside it: choosers, tooltips, tokens, likeliest tokens."""

from __future__ import annotations

import json

from regard.views.explain_data import page_data
from regard.views.explanation import Explanation
from regard.views.labels import label, shorten
from regard.views.old_page import Html, Section, element, figure, page, paragraph, section, table
from regard.views.svg import to_svg
from regard.views.wishes import Wish

STYLE = """
.controls { display: flex; flex-wrap: wrap; gap: .5rem 1.25rem; margin: 1rem 0; align-items: center; }
.controls label { display: flex; gap: .5rem; align-items: center; }
select { font: inherit; color: inherit; background: var(--raised); border: 1px solid var(--line); border-radius: .3rem;
  padding: .2rem .4rem; max-width: 100%; }
.tokens { display: flex; flex-wrap: wrap; gap: .2rem; margin: .25rem 0 .75rem; max-height: 12rem; overflow: auto; }
.tokens button, .tokens span { font: inherit; color: inherit; background: none; border: 1px solid var(--line);
  border-radius: .3rem; padding: .05rem .4rem; min-width: 1.4rem; text-align: center; }
.tokens button { cursor: pointer; }
.tokens button[aria-pressed=true] { border-color: var(--accent); box-shadow: 0 0 0 1px var(--accent); }
.map { overflow: auto; max-height: 85vh; margin: .5rem 0; }
#tip { position: fixed; pointer-events: none; background: var(--text); color: var(--ground); padding: .15rem .5rem;
  border-radius: .3rem; font-size: .9rem; white-space: pre; z-index: 1; }
section td { white-space: nowrap; }
[hidden] { display: none !important; }
"""

SCRIPT = """
"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const byId = id => document.getElementById(id);
const view = byId("view"), layer = byId("layer"), head = byId("head"), canvas = byId("map"), tip = byId("tip");
let shown = null, chosen = 0, hovered = null;

function bytes(text) {
  const raw = atob(text), out = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i++) out[i] = raw.charCodeAt(i);
  return out;
}
function unpackWeights(packed, rows, columns) {
  const values = new Float32Array(rows * columns), cells = bytes(packed.cells);
  const weight = code => (code / 255) ** 2;
  if (!packed.places) return values.map((_, i) => weight(cells[i]));
  const places = new Uint16Array(bytes(packed.places).buffer), kept = cells.length / rows;
  cells.forEach((code, i) => { values[Math.floor(i / kept) * columns + places[i]] = weight(code); });
  return values;
}
function unpackHeatmap(packed) {
  const size = packed.rows.length * packed.columns.length, values = new Float32Array(size);
  if (packed.bits) {
    const bits = bytes(packed.bits);
    return values.map((_, i) => bits[i >> 3] >> (7 - i % 8) & 1);
  }
  const cells = bytes(packed.cells);
  return values.map((_, i) => packed.peak * (packed.signed ? 2 * cells[i] / 255 - 1 : cells[i] / 255));
}
function load() {
  const kind = data.kinds[view.value];
  if (!kind) {
    const packed = data.heatmaps[view.value];
    return { rows: packed.rows, columns: packed.columns, values: unpackHeatmap(packed), signed: packed.signed };
  }
  const packed = data.matrices[view.value + "/" + layer.value + "/" + head.value];
  const values = unpackWeights(packed, kind.rows.length, kind.columns.length);
  return { rows: kind.rows, columns: kind.columns, values, share: packed.share, tokens: true };
}
function fill(select, options, wish) {
  select.replaceChildren(...options.map(([value, text]) => new Option(text, value)));
  select.value = options.some(([value]) => value === wish) ? wish : options[0][0];
}
function fillLayers(wish) {
  const kind = data.kinds[view.value];
  const rollout = data.matrices[view.value + "/1/rollout"];
  byId("choosers").hidden = !kind || (kind.layers * kind.heads === 1 && !rollout);
  if (!kind) return;
  const each = Array.from({ length: kind.layers }, (_, n) => [String(n + 1), kind.unit + " " + (n + 1)]);
  fill(layer, kind.layers > 1 ? [["mean", "mean of all " + kind.unit + "s"], ...each] : each, wish);
  layer.previousSibling.textContent = kind.unit === "hop" ? "Hop" : "Layer";
  head.parentElement.hidden = kind.heads === 1 && !rollout;
}
function fillHeads(wish) {
  const kind = data.kinds[view.value];
  if (!kind) return;
  const each = Array.from({ length: kind.heads }, (_, n) => [String(n + 1), "head " + (n + 1)]);
  const others = [...each, ["rollout", "rolled out up to this layer"]];
  const there = others.filter(([name]) => data.matrices[view.value + "/" + layer.value + "/" + name]);
  fill(head, [["mean", kind.heads > 1 ? "mean of all heads" : "its only head"], ...there], wish);
}
function rgb(name) {
  const hex = getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  return [1, 3, 5].map(i => parseInt(hex.slice(i, i + 2), 16));
}
function mixer() {
  const ground = rgb("--ground"), high = rgb("--accent"), low = rgb("--bad");
  return share => ground.map((c, i) => Math.round(c + Math.abs(share) * ((share < 0 ? low : high)[i] - c)));
}
function layout() {
  const { rows, columns } = shown, most = Math.max(rows.length, columns.length);
  const crowded = columns.filter(Boolean).length * 2 > columns.length;
  const cell = Math.max(crowded ? 3 : 7, Math.min(28, Math.floor(960 / most)));
  const font = Math.max(11, Math.min(15, Math.floor(0.6 * cell))), context = canvas.getContext("2d");
  const labelled = cell >= 11 || !crowded;
  context.font = font + "px " + getComputedStyle(document.body).fontFamily;
  const widest = texts => labelled ? Math.max(...texts.map(text => context.measureText(text).width)) : 0;
  const flat = !crowded || widest(columns) <= cell;
  const left = Math.ceil(widest(rows)) + 10, top = Math.ceil(flat ? font : 0.87 * widest(columns) + font) + 10;
  const overhang = flat ? 4 : Math.ceil(widest(columns) / 2) + font;
  return { cell, font, left, top, labelled, flat,
    width: left + columns.length * cell + overhang, height: top + rows.length * cell + 2 };
}
function paint() {
  const { rows, columns, values } = shown, at = shown.at = layout(), context = canvas.getContext("2d");
  const ratio = Math.min(devicePixelRatio || 1, 4096 / Math.max(at.width, at.height, 1024));
  canvas.width = at.width * ratio; canvas.height = at.height * ratio;
  canvas.style.width = at.width + "px"; canvas.style.height = at.height + "px";
  context.scale(ratio, ratio);
  const peak = shown.peak = values.reduce((most, value) => Math.max(most, Math.abs(value)), 0) || 1, mix = mixer();
  values.forEach((value, i) => {
    if (Math.abs(value) < 0.004 * peak) return;
    context.fillStyle = "rgb(" + mix(value / peak) + ")";
    const x = at.left + (i % columns.length) * at.cell, y = at.top + Math.floor(i / columns.length) * at.cell;
    context.fillRect(x, y, at.cell, at.cell);
  });
  const style = getComputedStyle(document.documentElement);
  context.strokeStyle = style.getPropertyValue("--line");
  context.lineWidth = 1;
  context.strokeRect(at.left - .5, at.top - .5, columns.length * at.cell + 1, rows.length * at.cell + 1);
  if (at.labelled) writeLabels(context, at, style.getPropertyValue("--text"));
}
function writeLabels(context, at, ink) {
  context.font = at.font + "px " + getComputedStyle(document.body).fontFamily;
  context.fillStyle = ink; context.textBaseline = "middle"; context.textAlign = "right";
  shown.rows.forEach((text, r) => context.fillText(text, at.left - 6, at.top + (r + .5) * at.cell));
  context.textAlign = at.flat ? "center" : "left";
  shown.columns.forEach((text, c) => {
    context.save();
    context.translate(at.left + (c + .5) * at.cell, at.top - (at.flat ? 10 : 6));
    if (!at.flat) context.rotate(-Math.PI / 3);
    context.fillText(text, 0, 0);
    context.restore();
  });
}
function number(value) { return Math.abs(value) >= 0.01 || value === 0 ? value.toFixed(2) : value.toPrecision(1); }
function say() {
  const rest = shown.share === undefined ? "" : " This page keeps the " + data.kept + " largest weights of each row, "
    + (100 * shown.share).toFixed(0) + " % of the attention; the .json has all.";
  const low = shown.signed ? " in blue, to " + number(-shown.peak) + " in orange." : ", the strongest shade.";
  byId("scale").textContent = "From 0 to " + number(shown.peak) + low + rest;
}
function chips() {
  byId("strips").hidden = !shown.tokens;
  if (!shown.tokens) return;
  chosen = Math.min(chosen, shown.rows.length - 1);
  byId("rows").replaceChildren(...shown.rows.map((text, r) => {
    const chip = document.createElement("button");
    chip.textContent = text; chip.type = "button";
    chip.onclick = chip.onfocus = chip.onmouseenter = () => { chosen = r; look(); };
    return chip;
  }));
  byId("columns").replaceChildren(...shown.columns.map(text => {
    const chip = document.createElement("span");
    chip.textContent = text;
    return chip;
  }));
  look();
}
function look() {
  const width = shown.columns.length, row = shown.values.subarray(chosen * width, (chosen + 1) * width);
  const most = Math.max(...row) || 1, accent = rgb("--accent");
  [...byId("rows").children].forEach((chip, r) => chip.setAttribute("aria-pressed", r === chosen));
  [...byId("columns").children].forEach((chip, c) => {
    chip.style.background = "rgba(" + accent + "," + (0.85 * row[c] / most).toFixed(3) + ")";
    chip.title = number(row[c]);
  });
}
function place(event) {
  const box = canvas.getBoundingClientRect(), at = shown.at;
  const column = Math.floor((event.clientX - box.left - at.left) / at.cell);
  const row = Math.floor((event.clientY - box.top - at.top) / at.cell);
  const inside = column >= 0 && row >= 0 && column < shown.columns.length && row < shown.rows.length;
  return inside ? { row, column } : null;
}
function hover(event) {
  const found = place(event);
  tip.hidden = !found;
  if (!found) return;
  const { row, column } = found, value = shown.values[row * shown.columns.length + column];
  const names = [shown.columns[column] || column, shown.rows[row] || row];
  tip.textContent = names.join(" \\u2192 ") + ": " + number(value);
  tip.style.left = Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 4) + "px";
  tip.style.top = event.clientY + 14 + "px";
  if (shown.tokens && row !== chosen) { chosen = row; look(); }
}
function draw() { shown = load(); paint(); say(); chips(); }
view.onchange = () => { fillLayers(layer.value); fillHeads(head.value); draw(); };
layer.onchange = () => { fillHeads(head.value); draw(); };
head.onchange = draw;
canvas.onmousemove = hover;
canvas.onmouseleave = () => { tip.hidden = true; };
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
const kinds = Object.entries(data.kinds).map(([kind, one]) => [kind, one.name]);
const maskName = title => title.replace(" \\u00b7 dark may be looked at", ": what it may see");
fill(view, [...kinds, ...Object.keys(data.heatmaps).map(title => [title, maskName(title)])], data.first);
fillLayers(data.layer); fillHeads(data.head); draw();
"""


def to_page(explanation: Explanation, wish: Wish) -> str:
    """The page, which shows what was wished for when it is opened."""
    title = shorten(explanation.title, 160)
    style = Html(f"<style>{STYLE}</style>")
    data = page_data(explanation, wish)
    likeliest = [likeliest_tokens(explanation)] if explanation.steps else []
    if not data["kinds"]:
        sentence = f"The model {explanation.model_kind!r} has no attention to draw."
        mix = [] if explanation.mix is None else [figure(to_svg(explanation.mix.heatmap()), explanation.mix.title)]
        return page(title, style, paragraph(sentence), *without_words(explanation), *mix, *likeliest)
    first = wish.view_of(explanation)
    data["first"] = first if first in data["kinds"] else wish.pictures(explanation)[0].title
    return page(title, style, _map(), *likeliest, _script(data))


def without_words(explanation: Explanation) -> list[Section]:
    """What the answer loses without each word, where that was worked out."""
    if explanation.occlusion is None:
        return []
    [picture] = explanation.pictures("occlusion")
    sentence = "Blue: it falls where the word is left out; orange: it rises."
    return [section("What each word is worth", figure(to_svg(picture), sentence))]


def _map() -> Html:
    """Choosers, the picture and the two rows of tokens: empty, the script fills them."""
    choosers = [_chooser("layer", "Layer"), _chooser("head", "Heads")]
    hint = "Point at a token, or at a row of the picture: the stronger its shade, the more was read of a token."
    return Html(
        "\n".join(
            [
                element(
                    "div",
                    _chooser("view", "Show"),
                    element("span", *choosers, id="choosers", kind="controls"),
                    kind="controls",
                ),
                element("noscript", paragraph("The picture needs JavaScript; it loads nothing from anywhere.")),
                element(
                    "div",
                    paragraph(hint, kind="muted"),
                    element("div", id="rows", kind="tokens"),
                    element("div", id="columns", kind="tokens"),
                    id="strips",
                ),
                element("div", Html('<canvas id="map" role="img" aria-label="heat map"></canvas>'), kind="map"),
                element("p", id="scale", kind="muted"),
                Html('<div id="tip" hidden></div>'),
            ]
        )
    )


def _chooser(name: str, text: str) -> Html:
    return element("label", text, element("select", id=name))


def likeliest_tokens(explanation: Explanation) -> Section:
    """The five likeliest tokens at each step."""
    rows = []
    for number, step in enumerate(explanation.steps, 1):
        others = [f"{label(one.token)} {one.probability:.3f}" for one in step.candidates]
        rows.append([str(number), label(step.token), f"{step.probability:.3f}", str(step.rank), *others])
    width = max(len(step.candidates) for step in explanation.steps)
    head = [
        "step",
        "written",
        "probability",
        "rank",
        *(f"likeliest {n}" if n == 1 else f"{n}" for n in range(1, width + 1)),
    ]
    return section("Likeliest tokens", table(head, rows))


def _script(data: dict[str, object]) -> Html:
    # "</script>" in a token would end the element that holds it.
    text = (
        json.dumps(data, ensure_ascii=False, separators=(",", ":")).replace("</", "<\\/").replace("<!--", "<\\u0021--")
    )
    return Html(f'<script type="application/json" id="data">{text}</script>\n<script>{SCRIPT}</script>')
