// Where the model looked: one map of weights at a time, asked from the server as it is chosen.
/* global number */

import { keep } from "../address.js";
import { post, runPath } from "../api.js";
import { choice, download, empty, h, labelled, select } from "../dom.js";
import { columnOf, figure, heatMap, largest, lines, png, regions, rowOf, smallHeads, svgText, unpacked, words } from "../heat.js";
import { busy, explainedInput, untilLeft } from "../parts.js";
import { partOf } from "../reports.js";
import { t } from "../text.js";

const WORDED = ["alignment", "encoder", "decoder", "hops"], UNITS = ["alignment", "encoder", "decoder", "masks"];
const LEFT_OUT = ["heads"]; // the small pictures show every head

export async function render(root, params) {
  const chosen = await explainedInput(root, params), signal = untilLeft();
  if (!chosen) return;
  const { run, facts, fields, target, form } = chosen;
  const { view, layer = "mean", head = "mean", units = "tokens", draw = "map", rollout = "", word } = params;
  const state = { view, layer, head, units, draw, rollout, word };
  const place = h("div", { class: "results", "aria-live": "off" });
  const anew = { view: undefined, word: undefined, layer: "mean", head: "mean" };
  root.append(form(t("look"), () => show(anew)), place);

  async function show(changes = {}) {
    Object.assign(state, changes);
    const input = fields.value();
    keep({ run: run.name, text: fields.text(), target: target.value, ...state });
    if (!input.length) return place.replaceChildren(empty(t("look_empty"), facts.attends ? t("look_empty_hint") : t("look_empty_plain")));
    const level = value => value === "mean" ? value : Number(value);
    await busy(place, async () => {
      const rolled = Boolean(state.rollout), answer = await post(runPath(run.name, "attention"), {
        input, target: target.value || null, view: state.view || null, layer: level(state.layer),
        head: rolled ? "mean" : level(state.head), rollout: rolled, words: state.units === "words", heads: true,
      }, signal);
      state.view = answer.view;
      const bar = document.activeElement?.closest?.("[data-control]")?.dataset.control;
      place.replaceChildren(...drawn(answer));
      if (bar) place.querySelector(`[data-control=${bar}] :is(select, input, [aria-checked=true], [aria-pressed=true])`)?.focus();
    });
  }

  // ------------------------------------------------------------------------------------------------ what is shown

  function controls(answer) {
    const named = (name, element) => h("div", { "data-control": name }, element);
    const change = key => value => show({ [key]: value });
    const list = (key, text, options) => named(key, labelled(text, select(options, state[key], change(key))));
    const buttons = (key, text, options) => named(key,
      h("div", { class: "field" }, h("span", {}, text), choice(text, options, state[key], change(key))));
    const levels = count => [["mean", t("mean")], ...[...Array(count).keys()].map(n => [String(n + 1), String(n + 1)])];
    const title = view => view === "alignment" && answer.picture ? t("look_regions") : t(`look_${view}`);
    const views = answer.views.filter(view => !LEFT_OUT.includes(view)).map(view => [view, title(view)]);
    const turn = view => show({ ...anew, view, rollout: "" });
    const tick = h("input", { type: "checkbox", checked: Boolean(state.rollout),
      onchange: () => show({ rollout: tick.checked ? "1" : "", head: "mean" }) });
    return h("div", { class: "controls" },
      named("view", labelled(t("look_show"), select(views, answer.view, turn))),
      answer.layers > 1 && list("layer", t("layer"), levels(answer.layers)),
      answer.heads > 1 && !state.rollout && list("head", t("head"), levels(answer.heads)),
      answer.rollout && named("rollout", h("label", { class: "tick" }, tick, t("rollout"))),
      UNITS.includes(answer.view) && buttons("units", t("units"), [["tokens", t("tokens")], ["words", t("words")]]),
      WORDED.includes(answer.view) && buttons("draw", t("draw_as"), [["map", t("draw_map")],
        ["lines", t("draw_lines")]]));
  }

  function drawn(answer) {
    const output = answer.output && h("p", {}, h("span", { class: "muted" }, `${t("output")}: `), answer.output);
    if (!answer.map) return [controls(answer), output, ...answer.figures.map(partOf)].filter(Boolean);
    const map = unpacked(answer.map, fields.parts().image), width = Math.min(1240, root.clientWidth || 800);
    const worded = WORDED.includes(answer.view), asLines = worded && state.draw === "lines", parts = [];
    let fixed = worded && (state.word !== undefined || !asLines) ? { row: Math.min(Number(state.word) || 0, map.rows.length - 1) } : {};
    let chosen = fixed, waiting = false;
    function pick(choice = fixed) { // at most once a frame; what is fixed comes back when the pointer leaves
      chosen = choice;
      if (!waiting) requestAnimationFrame(() => { waiting = false; light(); });
      waiting = true;
    }
    const large = asLines ? lines(map, Math.min(640, width), pick) : heatMap(map, pick);
    parts.push(large);
    const slider = h("input", { type: "range", min: 0, max: map.rows.length - 1, value: 0,
      oninput: () => { fixed = { row: Number(slider.value) }; pick(); }, onchange: () => { state.word = slider.value; keep(state); } });
    const told = h("output", { class: "told" });
    const from = worded && words(map.rows, t("looking_from"), width, row => pick({ row }));
    const to = worded && !answer.picture && words(map.columns, t("looking_at"), width, column => pick({ column }));
    if (answer.picture) parts.push(regions(answer.picture, map));
    function light() {
      const { row, column } = chosen, inRow = row !== undefined, inColumn = !inRow && column !== undefined;
      parts.forEach(part => part.select(chosen));
      if (!worded) return;
      from.shade(inColumn ? columnOf(map, column) : null, row);
      if (to) to.shade(inRow ? rowOf(map, row) : null, inRow ? undefined : column);
      const strongest = (weights, texts) => largest(weights, 4).map(n => `${texts[n]} ${number(weights[n])}`).join(" · ");
      told.textContent = inRow ? t("looked_at", { word: map.rows[row], others: strongest(rowOf(map, row), map.columns) })
        : inColumn ? t("looked_from", { word: map.columns[column], others: strongest(columnOf(map, column), map.rows) }) : "";
      if (inRow) slider.value = row;
      slider.setAttribute("aria-valuetext", told.textContent);
    }
    light();
    const name = `${run.name}-${answer.view}`, peak = number(map.peak);
    const save = (text, work) => h("button", { type: "button", onclick: work }, text);
    const saves = (map, name) => h("div", { class: "buttons" },
      save(t("save_svg"), () => download(`${name}.svg`, svgText(figure(map, asLines, fixed.row)), "image/svg+xml")),
      save(t("save_png"), async () => download(`${name}.png`, await png(figure(map, asLines, fixed.row)))));
    const title = one => answer.view === "masks" && h("h3", {}, one.name);
    const others = answer.others.map((one, n) => h("div", {}, title(one), heatMap(unpacked(one), () => {}).element,
      saves(unpacked(one), `${name}-${n + 2}`)));
    const scale = { masks: t("scale_masks"), positions: t("scale_positions") }[answer.view] || "";
    const strip = (title, part) => part && h("div", {}, h("h3", {}, title), part.element);
    const choose = (layer, head) => show({ layer: String(layer), head: String(head), rollout: "" });
    return [controls(answer), output,
      worded && h("p", { class: "muted" }, t("hover_hint")),
      worded && h("div", { class: "two" }, labelled(t("looking"), slider), told),
      strip(t("looking_from"), from), strip(t("looking_at"), to),
      h("div", { class: "panels" }, h("div", {}, title(answer.map), h("div", { class: "panels" }, parts.map(part => part.element)),
        h("p", { class: "muted" }, scale, " ", answer.view !== "masks" && (map.signed ? t("scale_signed", { peak }) : t("scale", { peak }))),
        saves(map, name)), others,
        answer.layers * answer.heads > 1 && h("section", { "data-control": "heads" }, h("h3", {}, t("all_heads")),
          h("p", { class: "muted" }, t("all_heads_hint")), smallHeads(answer.small, answer.layers, answer.heads, state,
            choose))),
    ].filter(Boolean);
  }
  await show();
}
