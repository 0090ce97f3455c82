// Several runs on one input, side by side: a word that is pointed at lights up in all. Then their quality by length, and the
// report of `compare`.

import { address, keep } from "../address.js";
import { get, post, runPath } from "../api.js";
import { learningCurves } from "../curves.js";
import { choice, empty, h, labelled, problem, select } from "../dom.js";
import { fitted, heatMap, unpacked } from "../heat.js";
import { figures, markUnknown, untilLeft } from "../parts.js";
import { job, reportOf } from "../reports.js";
import { t } from "../text.js";
import { linked, rowsOf, threads } from "../threads.js";
import { importance } from "../watched.js";
import { drawn } from "./try.js";

const SHOWN = 3, MOST_THREADS = 40, LONGEST_WORD = 30, MOST_SENTENCES = 6;

const measured = new Map(); // the last report of some runs, by their names: it outlives the view

export async function render({ stage, controls, onsubmit, runs, run, fields, params }) {
  const signal = untilLeft(), asked = runs.filter(one => one.task === run.task).map(one => get(runPath(one.name), signal).catch(() => null));
  const facts = new Map((await Promise.all(asked)).filter(one => one?.answers).map(one => [one.name, one])); // without damaged ones
  if (facts.size < 2 || !facts.has(run.name)) {
    const train = h("a", { class: "button", href: address("runs", { new: 1 }) }, t("train_new"));
    return void stage.append(empty(t("compare_few"), t("compare_few_hint"), h("div", { class: "buttons" }, othersToCompare(runs, run), train)));
  }
  const others = [...facts.keys()].filter(name => name !== run.name), wanted = (params.runs || "").split(",");
  const named = others.filter(name => wanted.includes(name));
  const chosen = new Set([run.name, ...(named.length ? named : others.slice(0, SHOWN - 1))]); // the run of the bar is the baseline
  const names = () => [...chosen].join(","), key = () => `${names()} ${params.split || ""}`;
  const ticks = [run.name, ...others].map(name => h("label", { class: "tick" }, h("input", { type: "checkbox", checked: chosen.has(name), disabled: name === run.name, onchange: event => {
    if (event.target.checked) chosen.add(name); else chosen.delete(name);
    keep({ job: "" });
    report.replaceChildren();
    lengths.replaceChildren(chosen.size < 2 ? "" : invitation());
    start.disabled = chosen.size < 2;
    answer();
  } }), `${name} (${t(`model_${facts.get(name).model}`)})`));
  const sentence = h("p", { class: "asked" }), answers = h("div", { class: "panels-3", "aria-live": "polite" });
  const lengths = h("div"), report = h("div", { class: "results" });
  const start = h("button", { type: "button", class: "primary", onclick: () => measure() }, t("compare_report"));
  const split = select(["", "test", "validation"].map(part => [part, t(`split_${part || "usual"}`)]), params.split || "", value => keep({ split: value }));
  controls.append(h("fieldset", {}, h("legend", {}, t("runs")), ticks), h("h2", {}, t("compare_title")),
    h("p", { class: "muted" }, t("compare_hint")), labelled(t("split"), split), start);
  lengths.append(invitation());
  const unknown = h("div");
  stage.append(sentence, unknown, answers, lengths, report);
  onsubmit(answer);

  // ----------------------------------------------------------------------------------------------- one input
  async function answer() {
    const input = fields.value(), links = linked();
    keep({ runs: names() });
    sentence.textContent = fields.text().replaceAll(/\t|\n/g, " · ");
    sentence.hidden = !input;
    markUnknown(unknown, run, facts.get(run.name), fields.parts(), signal).catch(() => unknown.replaceChildren());
    if (!input) return answers.replaceChildren(empty(t("try_empty"), t("try_empty_hint")));
    const panels = [...chosen].map(name => [name, h("article", { class: "panel" },
      h("h3", {}, name), h("p", { class: "muted" }, t(`model_${facts.get(name).model}`)))]);
    answers.replaceChildren(...panels.map(([, panel]) => panel));
    for (const [name, panel] of panels) one(name, input, panel, links);
  }
  async function one(name, input, panel, links) {
    const { attends, writes } = facts.get(name);
    const link = view => h("a", { href: address(view, { run: name }) }, t(`view_${view}`));
    try {
      const { predictions: [prediction] } = await post(runPath(name, "predict"), { inputs: [input] }, signal);
      const place = h("div", { class: "drawing" });
      panel.append(...drawn(prediction, fields.parts()), place, h("p", { class: "links" }, link("look"), attends && link("steps"), writes && link("beam")));
      place.append(await insight(name, input, prediction, links));
    } catch (error) { if (error.name !== "AbortError") panel.append(problem(error)); }
  }
  // What the run looked at: threads between words, words by their importance for the answer, or a map.
  async function insight(name, input, prediction, links) {
    const { writes, attends } = facts.get(name), path = runPath(name, "attention");
    if (prediction.probabilities) {
      const words = await importanceOf(path, input);
      if (words) return links.words(importance(words, chosenWord => links.pick(chosenWord, words.map(([word]) => word), "column")), words.map(([word]) => word));
    }
    const seen = await post(path, { input, words: writes === "target" }, signal).catch(() => ({}));
    const map = seen.map && unpacked(seen.map, fields.parts().image);
    if (writes === "target" && (!attends || !map)) {
      return links.add({ rows: prediction.output.split(/\s+/), columns: fields.text().split(/\s+/) }, threads);
    }
    if (!map) return h("span");
    const small = Math.max(map.rows.length, map.columns.length) <= MOST_THREADS && Math.max(...map.columns.map(text => text.length)) <= LONGEST_WORD;
    if (writes === "target" && small && seen.view === "alignment") return links.add({ rows: map.rows, columns: map.columns, values: rowsOf(map) }, threads);
    return heatMap(fitted(map, answers.firstElementChild.clientWidth - 32, Math.max(240, innerHeight / 2)), () => {}).element;
  }
  async function importanceOf(path, input) {
    const seen = await post(path, { input, view: "occlusion" }, signal).catch(() => null), bars = seen?.figures?.find(one => one.kind === "bars");
    return bars && bars.categories.map((word, n) => [word, Object.values(bars.series)[0][n]]);
  }

  // ------------------------------------------------------------------------------------------------ a split
  function invitation() {
    if (facts.get(run.name).writes !== "target") {
      return h("section", { class: "empty" }, h("h2", {}, t("compare_title")), h("p", {}, t("compare_hint")),
        h("button", { type: "button", class: "primary", onclick: () => measure() }, t("compare_report")));
    }
    return h("section", { class: "empty" }, h("h2", {}, t("length_heading")), h("p", {}, t("length_invites")),
      h("button", { type: "button", class: "primary", onclick: () => measure() }, t("length_begin")));
  }
  async function measure(id) {
    const asked = key();
    start.disabled = true;
    lengths.replaceChildren();
    try {
      const found = await job(report, "/compare", { runs: [...chosen], split: split.value || null }, id, signal);
      if (asked !== key()) return; // other runs were chosen meanwhile
      if (!found) return lengths.replaceChildren(invitation());
      keep({ runs: names(), split: split.value, job: found.id });
      measured.set(key(), found.id);
      lengths.replaceChildren(...byLength(found.result, text => { fields.use(text); answer(); sentence.scrollIntoView({ block: "center" }); }));
      report.replaceChildren(...found.report.conclusions.length ? [h("ul", { class: "claims" }, found.report.conclusions.map(text => h("li", {}, text)))] : [],
        h("details", { open: !found.result.lengths?.length }, h("summary", {}, t("compare_title")), ...reportOf({ ...found.report, conclusions: [] })));
    } catch (error) {
      if (error.name === "AbortError") return;
      lengths.replaceChildren(invitation());
      if (id && error.status === 404) keep({ job: "" }); // the server has been started again since
      else report.replaceChildren(problem(error));
    } finally { start.disabled = chosen.size < 2; }
  }
  await answer();
  const known = params.job || measured.get(key());
  if (known) await measure(known);
  else if ([...chosen].every(name => facts.get(name).example && facts.get(name).writes === "target")) measure(); // they are small: seconds
}
// A task of which there are several runs.
function othersToCompare(runs, run) {
  const first = runs.find(one => one.task !== run.task && runs.some(other => other !== one && other.task === one.task));
  return first && h("a", { class: "button primary", href: address("compare", { run: first.name, runs: undefined, text: undefined }) },
    t("compare_others", { task: t(`task_${first.task}`) }));
}

// Quality by the length of the input: the curves, a slider over the lengths, and sentences of the length to look at.
function byLength(result, use) {
  const { lengths, metrics, systems } = result;
  if (!lengths?.length) return [];
  const names = systems.map(one => one.system), groups = [...new Map(lengths.map(one => [one.from, one])).values()];
  const place = h("div"), figure = h("div");
  let metric = metrics[0], at = groups.length - 1, drawing = null;
  const slider = h("input", { type: "range", min: 0, max: groups.length - 1, value: at, "data-arrows": true, "aria-label": t("length_slider"), oninput: () => { at = Number(slider.value); draw(); } });
  const read = h("output", { class: "watched-step" });
  function drawFigure() {
    const series = names.map((name, n) => {
      const own = lengths.filter(one => one.system === name);
      return { name, run: n, dashed: false, x: own.map(one => one.mean_length), y: own.map(one => one[metric]) };
    });
    drawing = learningCurves(series, t("length_title", { metric }), length => { at = nearest(groups, length); slider.value = at; draw(); },
      { x: t("length_axis"), wide: 560, from: groups[0].mean_length, told: value => t("length_near", { value }) });
    figure.replaceChildren(drawing.element);
    draw();
  }
  function draw() {
    const { from, to, sentences, mean_length: mean } = groups[at], most = Math.max(1e-9, ...lengths.map(one => one[metric]));
    drawing.mark(mean);
    read.textContent = from === to ? t("length_one", { from }) : t("length_range", { from, to });
    slider.setAttribute("aria-valuetext", read.textContent);
    const bars = names.map((name, n) => {
      const value = lengths.find(one => one.system === name && one.from === from)?.[metric];
      const bar = h("span", { class: "length-bar" });
      bar.style.setProperty("--share", `${Math.round(100 * (value ?? 0) / most)}%`);
      bar.style.setProperty("--colour", `var(--s${n % 8})`);
      return h("div", { class: "length-row" }, h("span", {}, name), h("span", { class: "length-track" }, bar), h("b", {}, value === undefined ? "–" : String(Number(value.toPrecision(3)))));
    });
    const texts = sentencesOf(result).filter(text => { const words = text.split(/\s+/).length; return words >= from && words <= to; }).slice(0, MOST_SENTENCES);
    place.replaceChildren(...bars, h("p", { class: "muted" }, t("length_count", { count: figures(sentences) })),
      texts.length > 0 && h("div", { class: "examples" }, h("h3", {}, t("length_try")), texts.map(text => h("button", { type: "button", class: "example", "data-tip": text, onclick: () => use(text) }, h("span", {}, text)))));
  }
  drawFigure();
  const metricChoice = metrics.length > 1 && choice(t("metric"), metrics.map(one => [one, one]), metric, one => { metric = one; drawFigure(); });
  return [h("section", { class: "watched" }, h("h2", {}, t("length_heading")), h("p", { class: "muted" }, t("length_hint")), metricChoice,
    h("div", { class: "by-length" }, figure, h("div", {}, h("div", { class: "film" }, slider, read), place)))];
}
const nearest = (groups, length) => groups.reduce((best, one, n) => Math.abs(one.mean_length - length) < Math.abs(groups[best].mean_length - length) ? n : best, 0);
const sentencesOf = ({ differ_most: most = [], examples = [] }) => [...new Set([...most, ...examples].map(one => one.source).filter(Boolean))];
