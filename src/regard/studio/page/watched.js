// `training.watch`: what a model made of one text at about 20 steps of its training, with a slider.
/* global drawFigure */

import { h } from "./dom.js";
import { fitted, heatMap, shownToken } from "./heat.js";
import { icon } from "./icons.js";
import { figures } from "./parts.js";
import { t } from "./text.js";
import { threads } from "./threads.js";

const PAUSE = 700, LONGEST_THREADS = 40;

// moved(step) is called when another step is shown. Returns { element, update(watched), show(step) }.
export function watchedPanel(moved) {
  let entries = [], at = -1, playing = 0;
  const slider = h("input", { type: "range", min: 0, value: 0, "data-arrows": true, "aria-label": t("watched_slider"), oninput: () => { pause(); draw(Number(slider.value)); } });
  const step = h("output", { class: "watched-step" }), title = h("h2", {}), body = h("div", { class: "watched-body", "aria-live": "off" });
  const play = h("button", { type: "button", class: "square", "aria-label": t("play"), onclick: () => playing ? pause() : start() }, icon("play"));
  const element = h("section", { class: "watched", hidden: true }, title, h("p", { class: "muted" }, t("watched_hint")),
    h("div", { class: "film" }, play, slider, step), body);
  function pause() { clearInterval(playing); playing = 0; }
  function start() {
    if (at === entries.length - 1) draw(0);
    playing = setInterval(() => { if (!element.isConnected || at >= entries.length - 1) pause(); else draw(at + 1); }, PAUSE);
  }
  function draw(n) {
    at = n;
    const entry = entries[n];
    slider.value = n;
    slider.setAttribute("aria-valuetext", t("step_at", { step: figures(entry.step) }));
    step.textContent = t("step_at", { step: figures(entry.step) });
    body.replaceChildren(...seen(entry));
    moved(entry.step);
  }
  function update({ text, entries: now }) {
    const followed = at === entries.length - 1; // the last one: a new one then takes its place
    if (now.length === entries.length && now.at(-1)?.step === entries.at(-1)?.step) return;
    entries = now;
    element.hidden = !entries.length;
    if (!entries.length) return;
    title.textContent = t("watched_title", { text: text.replaceAll("\n", " · ") });
    slider.max = entries.length - 1;
    if (followed || at >= entries.length) draw(entries.length - 1);
  }
  const show = wanted => {
    pause();
    if (entries.length) draw(Math.max(0, entries.findLastIndex(one => one.step <= wanted)));
  };
  return { element, update, show, step: () => entries[at]?.step ?? null };
}

function seen(entry) {
  if (entry.problem) return [h("p", { class: "problem" }, entry.problem)];
  const words = entry.tokens ? h("p", { class: "pieces" }, entry.tokens.map(token)) : h("p", { class: "written" }, entry.output);
  const parts = [entry.output !== undefined && h("p", { class: "written" }, entry.output), entry.tokens && words];
  if (entry.probabilities) parts.push(bars(Object.entries(entry.probabilities), t("probabilities")));
  if (entry.importance) parts.push(importance(entry.importance));
  if (entry.map) parts.push(attention(entry.map));
  return parts.filter(Boolean);
}
// How much of its colour a word has: never so much that the text on it is hard to read.
const shade = share => `${Math.round(35 * share)}%`;
// A token, the stronger the likelier, with the likeliest at its place.
function token({ token: text, probability, candidates }) {
  const others = candidates.map(([name, p]) => `${shownToken(name)} ${p.toFixed(2)}`).join("\n");
  const one = h("span", { class: "piece", "data-tip": others }, shownToken(text), h("small", {}, probability.toFixed(2)));
  one.style.setProperty("--sure", shade(probability));
  return one;
}
function bars(values, title) {
  const figure = h("figure"), shown = values.sort(([, one], [, other]) => other - one).slice(0, 8);
  drawFigure(figure, { kind: "bars", title, categories: shown.map(([name]) => name), series: { [title]: shown.map(([, value]) => value) }, value_label: title, longest: 1 });
  return figure;
}
// The words of a text, each as strong as the answer depends on it.
export function importance(words, pick = null) {
  const most = Math.max(0.05, ...words.map(([, fall]) => Math.abs(fall)));
  return h("p", { class: "pieces" }, words.map(([word, fall], n) => {
    const one = h("span", { class: fall < 0 ? "piece against" : "piece", "data-tip": t("importance_of", { fall: fall.toFixed(2) }), "data-word": n,
      onmouseenter: pick && (() => pick({ column: n })), onmouseleave: pick && (() => pick({})) }, word);
    one.style.setProperty("--sure", shade(Math.abs(fall) / most));
    return one;
  }));
}
function attention({ rows, columns, values, name }) {
  const [asks, read] = [rows, columns].map(texts => texts.map(shownToken));
  if (rows.join() !== columns.join() && Math.max(rows.length, columns.length) <= LONGEST_THREADS && Math.max(...read.map(text => text.length)) < 25) {
    const drawing = threads({ rows: asks, columns: read, values }, chosen => drawing.select(chosen));
    return drawing.element;
  }
  const map = { rows: asks, columns: read, values: Float32Array.from(values.flat()), widest: 76, peak: Math.max(...values.flat()), signed: false, title: name };
  return heatMap(fitted(map, Math.min(560, innerWidth - 80), 420), () => {}).element;
}
