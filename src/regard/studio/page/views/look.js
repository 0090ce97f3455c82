// Where the model looked: one map of weights at a time, asked from the server as it is chosen.
/* global drawFigure, number */

import { keep } from "../address.js";
import { get, post, runPath } from "../api.js";
import { choice, download, empty, h, labelled, problem, select } from "../dom.js";
import { figure, heatMap, largest, lines, png, regions, rowOf, smallHeads, svgText, unpacked, words } from "../heat.js";
import { chooseRun, inputFields, untilLeft } from "../parts.js";
import { t } from "../text.js";

const WORDED = ["alignment", "encoder", "decoder", "hops"], UNITS = ["alignment", "encoder", "decoder", "masks"];
const LEFT_OUT = ["heads"]; // the small pictures show every head

export async function render(root, params) {
  const run = await chooseRun(root, params);
  if (!run) return;
  const facts = await get(runPath(run.name)), signal = untilLeft();
  const fields = inputFields(facts, params.text || facts.examples?.[0] || "");
  const target = h("input", { value: params.target || "", spellcheck: "false" });
  const state = { view: params.view, layer: params.layer || "mean", head: params.head || "mean", units: params.units || "tokens",
    draw: params.draw || "map", rollout: params.rollout || "", word: params.word };
  const place = h("div", { class: "results", "aria-live": "off" });
  const form = h("form", { class: "stack", onsubmit: event => { event.preventDefault(); state.view = state.word = undefined; state.layer = state.head = "mean"; show(); } },
    fields.element, facts.writes === "target" && labelled(t("look_target"), target), h("button", { class: "primary" }, t("look")));
  root.append(form, place);

  async function show(changes = {}) {
    Object.assign(state, changes);
    const input = fields.value();
    keep({ run: run.name, text: fields.text(), target: target.value, ...state });
    if (!input.length) return place.replaceChildren(empty(t("look_empty"), t("look_empty_hint")));
    const level = value => value === "mean" ? value : Number(value);
    place.setAttribute("aria-busy", "true");
    try {
      const answer = await post(runPath(run.name, "attention"), { input, target: target.value || null, view: state.view || null, layer: level(state.layer),
        head: state.rollout ? "mean" : level(state.head), rollout: Boolean(state.rollout), words: state.units === "words", heads: true }, signal);
      state.view = answer.view;
      const bar = document.activeElement?.closest?.("[data-control]")?.dataset.control;
      place.replaceChildren(...drawn(answer));
      if (bar) place.querySelector(`[data-control=${bar}] :is(select, input, [aria-checked=true])`)?.focus();
    } catch (error) {
      if (error.name !== "AbortError") place.replaceChildren(problem(error));
    } finally { place.setAttribute("aria-busy", "false"); }
  }

  // ------------------------------------------------------------------------------------------------ what is shown

  function controls(answer) {
    const named = (name, element) => h("div", { "data-control": name }, element);
    const levels = count => [["mean", t("mean")], ...Array.from({ length: count }, (_, n) => [String(n + 1), String(n + 1)])];
    const title = view => view === "alignment" && answer.picture ? t("look_regions") : t(`look_${view}`);
    const one = (key, text, options) => named(key, labelled(text, select(options, state[key], value => show({ [key]: value }))));
    const several = (key, text, options) => named(key, h("div", { class: "field" }, h("span", {}, text), choice(text, options, state[key], value => show({ [key]: value }))));
    const views = answer.views.filter(view => !LEFT_OUT.includes(view));
    return h("div", { class: "controls" },
      named("view", labelled(t("look_show"), select(views.map(view => [view, title(view)]), answer.view, view => show({ view, layer: "mean", head: "mean", rollout: "", word: undefined })))),
      answer.layers > 1 && one("layer", t("layer"), levels(answer.layers)), answer.heads > 1 && !state.rollout && one("head", t("head"), levels(answer.heads)),
      answer.rollout && named("rollout", h("label", { class: "tick" }, h("input", { type: "checkbox", checked: Boolean(state.rollout),
        onchange: event => show({ rollout: event.target.checked ? "1" : "", head: "mean" }) }), t("rollout"))),
      UNITS.includes(answer.view) && several("units", t("units"), [["tokens", t("tokens")], ["words", t("words")]]),
      WORDED.includes(answer.view) && several("draw", t("draw_as"), [["map", t("draw_map")], ["lines", t("draw_lines")]]));
  }

  function drawn(answer) {
    const output = answer.output && h("p", {}, h("span", { class: "muted" }, `${t("output")}: `), answer.output);
    if (!answer.map) return [controls(answer), output, ...answer.figures.map(part => { const place = h("figure"); drawFigure(place, part); return place; })].filter(Boolean);
    const map = unpacked(answer.map), worded = WORDED.includes(answer.view), width = Math.min(1240, root.clientWidth || 800);
    const asLines = worded && state.draw === "lines", parts = [];
    let chosen = {}, waiting = false;
    function pick(choice) { // at most once a frame
      chosen = choice;
      if (!waiting) requestAnimationFrame(() => { waiting = false; light(); });
      waiting = true;
    }
    const large = asLines ? lines(map, Math.min(640, width), pick) : heatMap(map, pick);
    parts.push(large);
    const slider = h("input", { type: "range", min: 0, max: map.rows.length - 1, oninput: () => pick({ row: Number(slider.value) }), onchange: () => keep({ word: slider.value }) });
    const told = h("output", { class: "told" });
    const from = worded && words(map.rows, t("looking_from"), width, row => pick({ row }));
    const to = worded && !answer.picture && words(map.columns, t("looking_at"), width, column => pick({ column }));
    if (answer.picture) parts.push(regions(answer.picture, map));
    function light() {
      const { row, column } = chosen, inRow = row !== undefined;
      parts.forEach(part => part.select(chosen));
      if (!worded) return;
      from.shade(inRow ? null : map.rows.map((_, n) => map.values[n * map.columns.length + column]), row);
      if (to) to.shade(inRow ? rowOf(map, row) : null, inRow ? undefined : column);
      if (!inRow) return;
      slider.value = row;
      const weights = rowOf(map, row), others = largest(weights, 4).map(n => `${map.columns[n]} ${number(weights[n])}`).join(" · ");
      slider.setAttribute("aria-valuetext", t("looked_at", { word: map.rows[row], others }));
      told.textContent = t("looked_at", { word: map.rows[row], others });
    }
    chosen = worded ? { row: Math.min(Number(state.word) || 0, map.rows.length - 1) } : {};
    light();
    const name = `${run.name}-${answer.view}`, picture = () => figure(map, asLines, state.word === undefined ? undefined : Number(slider.value));
    return [controls(answer), output,
      worded && h("p", { class: "muted" }, t("hover_hint")),
      worded && h("div", { class: "two" }, labelled(t("looking"), slider), told),
      from && h("div", {}, h("h3", {}, t("looking_from")), from.element), to && h("div", {}, h("h3", {}, t("looking_at")), to.element),
      h("div", { class: "panels" }, h("div", {}, h("div", { class: "panels" }, parts.map(part => part.element)),
        h("p", { class: "muted" }, map.signed ? t("scale_signed", { peak: number(map.peak) }) : t("scale", { peak: number(map.peak) })),
        h("div", { class: "buttons" }, h("button", { type: "button", onclick: () => download(`${name}.svg`, svgText(picture()), "image/svg+xml") }, t("save_svg")),
          h("button", { type: "button", onclick: async () => download(`${name}.png`, await png(picture())) }, t("save_png")))),
        answer.small && answer.layers * answer.heads > 1 && h("section", {}, h("h3", {}, t("all_heads")), h("p", { class: "muted" }, t("all_heads_hint")),
          smallHeads(answer.small, answer.layers, answer.heads, state, (layer, head) => show({ layer: String(layer), head: String(head), rollout: "" })))),
    ].filter(Boolean);
  }
  await show();
}
