// Where the model looked: one map of weights at a time, asked from the server as it is chosen.
/* global number */

import { address, keep } from "../address.js";
import { post, runPath } from "../api.js";
import { choice, download, empty, h, labelled, select } from "../dom.js";
import { columnOf, figure, fitted, heatMap, largest, lines, png, regions, rowOf, smallHeads, svgText, transposed, unpacked, words } from "../heat.js";
import { busy, targetField, untilLeft } from "../parts.js";
import { partOf } from "../reports.js";
import { t } from "../text.js";
import { importance } from "../watched.js";

export const ACTION = "look";
const WORDED = ["alignment", "encoder", "decoder", "hops"], UNITS = ["alignment", "encoder", "decoder", "masks"];
const ZOOMS = ["1", "2", "4"];
const LEFT_OUT = ["heads"]; // the small pictures show every head
const LEAST_TOLD = 0.005; // a weight that the sentence above the figure names
const PICTURE = 340; // pixels of the picture that a captioner reads
const MOST_LETTERS = 60; // of a sentence beside a turned map
const BELOW = 250; // pixels that the claim above a figure, and what stands below it, take of the window

// A sentence about a word and others, each in the colour of what it is: what asks, and what is read.
const GAPS = { word: "\n", others: "\n" };
function coloured(sentence, word, others, [one, other]) {
  const [before, between, after] = sentence.split("\n");
  return [before, h("span", { class: one }, word), between, h("span", { class: other }, others), after];
}

// The words of a text, each as strong as the answer depends on it.
function importanceOf({ view, figures }) {
  const bars = view === "occlusion" && figures.find(one => one.kind === "bars");
  return bars && h("div", { class: "asked" }, importance(bars.categories.map((word, n) => [word, Object.values(bars.series)[0][n]])));
}
// A map whose keys stand in its rows: long texts, as the sentences of a story, are read there in full.
function turnedMap(map, width, height, pick) {
  const turned = fitted(transposed(map), width, height, 1, MOST_LETTERS), flip = ({ row, column }) => ({ row: column, column: row });
  const drawn = heatMap(turned, chosen => pick(flip(chosen)));
  return { element: drawn.element, select: chosen => drawn.select(flip(chosen)) };
}

export async function render({ stage, controls, onsubmit, run, facts, fields, params }) {
  if (!facts.explains) return void stage.append(empty(t("look_none"), t("look_none_hint"), h("a", { class: "button primary", href: address("model") }, t("view_model"))));
  const signal = untilLeft(), target = targetField(facts, params);
  const { view, layer = "mean", head = "mean", units = "tokens", draw = "map", scale = "whole", rollout = "", zoom = "1", word } = params;
  const state = { view, layer, head, units, draw, scale, rollout, zoom, word };
  const place = h("div", { class: "results", "aria-live": "off" }), own = h("div", { class: "stack" });
  const anew = { view: undefined, word: undefined, layer: "mean", head: "mean" };
  let shown = null;
  stage.append(place);
  controls.append(own, target.element || "");
  onsubmit(() => show(anew));

  async function show(changes = {}) {
    Object.assign(state, changes);
    const input = fields.value();
    keep(state);
    if (!input.length) {
      own.replaceChildren();
      return place.replaceChildren(empty(t("look_empty"), facts.attends ? t("look_empty_hint") : t("look_empty_plain")));
    }
    const level = value => value === "mean" ? value : Number(value);
    await busy(place, async () => {
      const rolled = Boolean(state.rollout);
      shown = await post(runPath(run.name, "attention"), {
        input, target: target.value() || null, view: state.view || null, layer: level(state.layer),
        head: rolled ? "mean" : level(state.head), rollout: rolled, words: state.units === "words", heads: true, ...fields.languages(),
      }, signal);
      state.view = shown.view;
      redrawn();
    });
  }
  // What the server has answered, drawn again: with another choice, or in a window of another size.
  function redrawn(changes = {}) {
    Object.assign(state, changes);
    keep(state);
    if (!shown) return;
    const control = document.activeElement?.closest?.("[data-control]")?.dataset.control;
    const [figure, rail] = drawn(shown);
    place.replaceChildren(...figure.filter(Boolean));
    own.replaceChildren(...rail.filter(Boolean));
    if (control) own.querySelector(`[data-control=${control}] :is(select, input, [aria-checked=true], [aria-pressed=true])`)?.focus();
  }
  addEventListener("resized", () => redrawn(), { signal });

  // ------------------------------------------------------------------------------------------------ the controls

  const named = (name, element) => h("div", { "data-control": name }, element);
  function choosers(answer) {
    const change = key => value => show({ [key]: value }), turn = key => value => redrawn({ [key]: value });
    const list = (key, text, options) => named(key, labelled(text, select(options, state[key], change(key))));
    const buttons = (key, text, options, act) => named(key,
      h("div", { class: "field" }, h("span", {}, text), choice(text, options, state[key], act)));
    const levels = count => [["mean", t("mean")], ...[...Array(count).keys()].map(n => [String(n + 1), String(n + 1)])];
    const title = view => view === "alignment" && answer.picture ? t("look_regions") : t(`look_${view}`);
    const views = answer.views.filter(view => !LEFT_OUT.includes(view)).map(view => [view, title(view)]);
    const tick = h("input", { type: "checkbox", checked: Boolean(state.rollout),
      onchange: () => show({ rollout: tick.checked ? "1" : "", head: "mean" }) });
    const worded = WORDED.includes(answer.view);
    return [
      named("view", labelled(t("look_show"), select(views, answer.view, view => show({ ...anew, view, rollout: "" })))),
      h("div", { class: "pair" }, answer.layers > 1 && list("layer", t("layer"), levels(answer.layers)),
        answer.heads > 1 && !state.rollout && list("head", t("head"), levels(answer.heads))),
      answer.rollout && named("rollout", h("label", { class: "tick" }, tick, t("rollout"))),
      worded && buttons("scale", t("scale_by"), [["whole", t("scale_whole")], ["row", t("scale_row")]], turn("scale")),
      worded && buttons("draw", t("draw_as"), [["map", t("draw_map")], ["lines", t("draw_lines")]], turn("draw")),
      answer.map && !(worded && state.draw === "lines") && buttons("zoom", t("zoom"), ZOOMS.map(value => [value, value === "1" ? t("size_fit") : `${value}×`]), turn("zoom")),
      UNITS.includes(answer.view) && buttons("units", t("units"), [["tokens", t("tokens")], ["words", t("words")]], change("units")),
    ];
  }
  function heads(answer) {
    if (answer.layers * answer.heads <= 1) return null;
    const choose = (layer, head) => show({ layer: String(layer), head: String(head), rollout: "" });
    return h("section", { "data-control": "heads" }, h("h2", {}, t("all_heads")),
      smallHeads(answer.small, answer.layers, answer.heads, state, choose), h("p", { class: "muted" }, t("all_heads_hint")));
  }
  function saves(map, name, asLines, row) {
    const caption = [run.name, titleOf(map), scaleOf(map)].filter(Boolean).join(" · ");
    const made = () => figure({ ...map, room: undefined }, asLines, row(), caption);
    const save = (text, work) => h("button", { type: "button", onclick: work }, text);
    return h("div", { class: "buttons" },
      save(t("save_svg"), () => download(`${name}.svg`, svgText(made()), "image/svg+xml")),
      save(t("save_png"), async () => download(`${name}.png`, await png(made()))));
  }
  const titleOf = map => map.title || t(`look_${state.view}`);
  function scaleOf(map) {
    const peak = number(map.peak);
    if (state.view === "masks") return t("scale_masks");
    if (map.byRow) return t("scale_rows");
    return [state.view === "positions" && t("scale_positions"), map.signed ? t("scale_signed", { peak }) : t("scale", { peak })].filter(Boolean).join(" ");
  }

  // -------------------------------------------------------------------------------------------------- the figure

  // [the figure and what stands around it, what stands in the rail]
  function drawn(answer) {
    const output = answer.output && h("p", { class: "muted" }, `${t("output")}: `, h("b", { class: "asks" }, answer.output));
    if (!answer.map) return [[output, importanceOf(answer), ...answer.figures.map(partOf)], choosers(answer)];
    const worded = WORDED.includes(answer.view), asLines = worded && state.draw === "lines";
    const beside = answer.picture && stage.clientWidth > 2.2 * PICTURE ? PICTURE + 24 : 0; // the picture that the map is about
    const width = Math.max(240, stage.clientWidth - 48 - beside), whole = unpacked(answer.map, fields.parts().image);
    const several = answer.others.length > 0, height = Math.max(300, (innerHeight - BELOW) / (several ? 1.6 : 1));
    const fit = one => ({ ...fitted(one, several ? width / 2 : width, height, Number(state.zoom)), yesNo: answer.view === "masks", ...worded && { roles: ["--target", "--source"] } });
    const map = { ...fit(whole), byRow: worded && state.scale === "row" };
    const parts = [], others = answer.others.map(one => fit(unpacked(one)));
    let fixed = worded && (state.word !== undefined || !asLines) ? { row: Math.min(Number(state.word) || 0, map.rows.length - 1) } : {};
    let chosen = fixed, waiting = false;
    function pick(choice = fixed) { // at most once a frame; what is fixed comes back when the pointer leaves
      chosen = choice;
      if (!waiting) requestAnimationFrame(() => { waiting = false; light(); });
      waiting = true;
    }
    const upright = answer.view === "hops" && !asLines;
    parts.push(asLines ? lines(map, Math.min(900, width), innerHeight - BELOW, pick) : upright ? turnedMap(map, width, height, pick) : heatMap(map, pick));
    if (answer.picture) parts.unshift(regions(answer.picture, map, PICTURE, pick));
    const slider = h("input", { type: "range", min: 0, max: map.rows.length - 1, value: 0, "data-arrows": "",
      oninput: () => { fixed = { row: Number(slider.value) }; pick(); }, onchange: () => { state.word = slider.value; keep(state); } });
    const told = h("output", { class: "told claim" });
    const from = worded && words(map.rows, t("looking_from"), width, row => pick({ row }));
    const to = worded && !answer.picture && words(map.columns, t("looking_at"), width, column => pick({ column }));
    function light() {
      const { row, column } = chosen, inRow = row !== undefined, inColumn = !inRow && column !== undefined;
      parts.forEach(part => part.select(chosen));
      if (!worded) return;
      from.shade(inColumn ? columnOf(map, column) : null, row);
      if (to) to.shade(inRow ? rowOf(map, row) : null, inRow ? undefined : column);
      const strongest = (weights, texts) => largest(weights, 4).filter((n, place) => !place || Math.abs(weights[n]) >= LEAST_TOLD).map(n => `${texts[n]} ${number(weights[n])}`).join(" · ");
      told.replaceChildren(...inRow ? coloured(t("looked_at", GAPS), map.rows[row], strongest(rowOf(map, row), map.columns), ["asks", "read"])
        : inColumn ? coloured(t("looked_from", GAPS), map.columns[column], strongest(columnOf(map, column), map.rows), ["read", "asks"]) : []);
      if (inRow) slider.value = row;
      slider.setAttribute("aria-valuetext", told.textContent);
    }
    light();
    const name = `${run.name}-${answer.view}`, title = one => answer.view === "masks" && h("h3", {}, one.name);
    const strip = (title, part) => part && h("div", {}, h("h3", {}, title), part.element);
    const alone = others.map((one, n) => h("div", {}, title(answer.others[n]), heatMap(one, () => {}).element,
      saves(one, `${name}-${n + 2}`, false, () => undefined)));
    return [[worded && told, output,
      h("div", { class: "panels" }, h("div", {}, title(answer.map), h("div", { class: "panels" }, parts.map(part => part.element)),
        h("p", { class: "muted" }, scaleOf(map), answer.picture && ` ${t("region_names")}`), alone.length > 0 && saves(map, name, asLines, () => fixed.row)), alone),
      worded && h("div", { class: "film" }, labelled(t("looking"), slider)),
      !asLines && strip(t("looking_from"), from), !asLines && strip(t("looking_at"), to)],
    [...choosers(answer), heads(answer), worded && h("p", { class: "muted" }, t("hover_hint")),
      !alone.length && saves(map, name, asLines, () => fixed.row)]];
  }
  await show();
}
