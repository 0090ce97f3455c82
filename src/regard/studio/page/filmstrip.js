// One attention as a picture that grows stage by stage: the query, a column for each key with its score, its weight and its
// value, and the context under them. A score is dragged, or moved by arrow keys; a word is hidden by choosing it.
/* global rgb */

import { h } from "./dom.js";
import { shownToken } from "./heat.js";
import { symbols } from "./math.js";
import { t } from "./text.js";

const LONG_KEY = 12; // letters of a key, from which on it takes several lines
const STEP = 0.25, ROOM = 1.25, LEAST = 2; // of a score by keyboard; of the scale beyond the largest score; its least end

// `change(n, score)` is called with another score of a key, null to hide it, undefined for its own.
export function filmstrip(worked, names, change) {
  const count = worked.keys.length, end = Math.max(LEAST, ROOM * Math.max(...worked.scores.map(score => Math.abs(score ?? 0))));
  const vectors = Object.entries(worked.vectors), [valueName, values] = vectors.at(-1), [keyName, keys] = vectors.length > 1 ? vectors.at(-2) : [null, null];
  const [queryName, query] = Object.entries(worked.query).at(-1) || [null, null];
  const row = (stage, name, ...cells) => h("div", { class: "film-row", "data-stage": stage }, h("div", { class: "film-name" }, name), cells);
  // A row with the symbols of its name, as an equation has them: pointed at there, they light the row (math.js).
  const named = (text, element) => { element.dataset.symbols = (text.match(/[A-Za-z]+/g) || []).join(" "); return element; };
  const own = { words: [], scores: [], weights: [], values: [] };
  const context = h("div", { class: "film-wide" });

  worked.keys.forEach((key, n) => {
    const masked = worked.scores[n] === null, text = shownToken(key);
    own.words.push(h("button", { type: "button", class: [...text].length > LONG_KEY ? "film-word long" : "film-word", disabled: masked, "aria-pressed": "false", "aria-label": t("hide_word", { word: text }), "data-tip": text,
      onclick: () => change(n, own.words[n].getAttribute("aria-pressed") === "true" ? undefined : null) }, text));
    const bar = h("i"), told = h("small");
    const slider = h("div", { class: "film-score", role: "slider", tabindex: masked ? -1 : 0, "aria-label": t("score_of", { word: text }), "aria-orientation": "vertical",
      "aria-valuemin": -end, "aria-valuemax": end, "aria-disabled": masked ? "true" : null, "data-tip": t("drag_score") }, bar, told);
    const scoreAt = event => { const box = slider.getBoundingClientRect(); return Math.max(-end, Math.min(end, end * (1 - 2 * (event.clientY - box.top) / box.height))); };
    slider.addEventListener("pointerdown", event => { if (!masked) { slider.setPointerCapture(event.pointerId); change(n, scoreAt(event)); } });
    slider.addEventListener("pointermove", event => { if (slider.hasPointerCapture(event.pointerId)) change(n, scoreAt(event)); });
    slider.addEventListener("keydown", event => {
      const by = { ArrowUp: STEP, ArrowDown: -STEP }[event.key];
      if (!by || masked) return;
      event.preventDefault();
      change(n, Math.max(-end, Math.min(end, Number(slider.getAttribute("aria-valuenow") || 0) + by)));
    });
    own.scores.push({ slider, bar, told });
    own.weights.push(h("div", { class: "film-weight" }, h("i"), h("small")));
    own.values.push(h("div", { class: "film-value" }, strip(values[n])));
  });
  const element = h("div", { class: "filmstrip wide", tabindex: 0, role: "group", "aria-label": t("picture_of_attention"), style: { "--keys": count } },
    query && named(queryName.split(" = ")[0], row(1, h("span", { class: "asks" }, short(queryName)), h("div", { class: "film-wide asks" }, strip(query)))),
    row(2, t("key"), own.words),
    keys && named(keyName, row(2, h("span", { class: "read" }, short(keyName)), keys.map(vector => h("div", { class: "film-value" }, strip(vector))))),
    named(names.score, row(3, symbols(names.score), own.scores.map(one => one.slider))),
    named(names.weight, row(4, symbols(names.weight), own.weights)),
    named(valueName.split(" = ")[0], row(5, h("span", { class: "read" }, symbols(`${names.weight} · ${valueName.split(" = ")[0]}`)), own.values)),
    named(names.context, row(5, h("span", { class: "context-name" }, symbols(names.context)), context)));

  return { element,
    update(scores, weights, sum, changes) {
      const most = Math.max(...weights) || 1;
      scores.forEach((score, n) => {
        const { slider, bar, told } = own.scores[n], hidden = score === null;
        own.words[n].setAttribute("aria-pressed", String(hidden && worked.scores[n] !== null));
        own.words[n].classList.toggle("changed", changes.has(n));
        slider.classList.toggle("hidden-key", hidden);
        slider.setAttribute("aria-valuenow", hidden ? 0 : score.toFixed(2));
        slider.setAttribute("aria-valuetext", hidden ? t("hidden") : score.toFixed(2));
        const share = hidden ? 0 : Math.max(-1, Math.min(1, score / end));
        bar.className = share < 0 ? "below" : "";
        bar.style.setProperty("--share", Math.abs(share));
        told.textContent = hidden ? "–" : score.toFixed(2);
        const [fill, number] = own.weights[n].children;
        fill.style.setProperty("--share", weights[n]);
        number.textContent = weights[n].toFixed(2);
        own.values[n].style.setProperty("--seen", Math.max(0.12, weights[n] / most));
      });
      context.replaceChildren(strip(sum));
    } };
}

// The left side of an equation, and all of it, which a phone has no room for.
function short(name) {
  const [left, right] = name.split(" = ");
  return right ? [h("b", { "data-tip": name }, symbols(left)), h("small", { class: "whole" }, " = ", symbols(right))] : symbols(left);
}

// A vector as a row of coloured cells: blue above 0, orange below.
export function strip(values) {
  const told = someNumbers(values, 8);
  const canvas = h("canvas", { class: "strip", width: values.length, height: 1, role: "img", "aria-label": someNumbers(values, 4), "data-tip": told });
  const context = canvas.getContext("2d"), pixels = context.createImageData(values.length, 1);
  const most = Math.max(...values.map(Math.abs)) || 1, [ground, high, low] = ["--ground", "--accent", "--bad"].map(rgb);
  values.forEach((value, n) => {
    const full = value < 0 ? low : high, share = Math.abs(value) / most;
    pixels.data.set([...ground.map((c, k) => c + share * (full[k] - c)), 255], 4 * n);
  });
  context.putImageData(pixels, 0, 0);
  canvas.style.width = `${Math.min(180, Math.max(48, 4 * values.length))}px`;
  return canvas;
}
export const someNumbers = (values, count) => `[${values.slice(0, count).map(value => value.toFixed(3)).join(" ")}${values.length > count ? " …" : ""}]`;
