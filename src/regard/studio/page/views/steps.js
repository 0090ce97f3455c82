// One attention as a film, stage by stage, with the run's own numbers. Scores can be changed, and words hidden; what that makes
// untrue is greyed until the run has computed it again.

import { address, keep } from "../address.js";
import { get, post, runPath } from "../api.js";
import { likeliestBars } from "../branches.js";
import { choice, download, empty, h, labelled, problem, select } from "../dom.js";
import { factors, softmax, weightedSum } from "../equations.js";
import { filmstrip, someNumbers, strip } from "../filmstrip.js";
import { shownToken } from "../heat.js";
import { icon } from "../icons.js";
import { codeLines, lit, mathematics, symbols } from "../math.js";
import { busy, targetField, untilLeft } from "../parts.js";
import { reportOf } from "../reports.js";
import { language, t } from "../text.js";

const STAGES = ["query", "keys", "scores", "softmax", "context", "after"];
const PAUSE = 2500;
const MOST_ASKED = 12; // runs that are looked through for one with attention
const CHOSEN = ["view", "layer", "head", "step"];
const DRAWN = ["positions", "masks", "softmax", "dot-products", "label-smoothing", "schedules"];
const WORKED = [ // with an exercise to print
  "tokenizers", "special-tokens", "annotation", "attention-steps", "self-attention", "attention-kinds",
  "layer-norm", "feed-forward", "path-length", "beam", "elmo", "bert-input", "embeddings",
  "masking", "next-sentence",
];

export const ACTION = "work_out";

export async function render({ stage: paper, controls: rail, onsubmit, runs, run, facts, fields, params }) {
  const signal = untilLeft();
  if (!facts.attends) {
    paper.append(empty(t("steps_none"), t("steps_none_hint"), await attendingRun(runs, run, signal)));
    return pictures(paper, params.picture, signal);
  }
  const target = targetField(facts, params), choosers = h("div", { class: "stack" });
  const state = Object.fromEntries(CHOSEN.map(name => [name, params[name]]));
  let stage = Math.min(STAGES.length, Number(params.stage) || 1), changes = parseChanges(params.changes), playing = 0;
  const pause = () => clearInterval(playing);
  signal.addEventListener("abort", pause);
  const place = h("div", { class: "results" });
  const anew = () => { CHOSEN.forEach(name => { state[name] = undefined; }); changes = new Map(); show(); };
  onsubmit(anew);
  paper.append(place);
  rail.append(choosers, target.element || "");
  pictures(paper, params.picture, signal);

  const ask = scores => post(runPath(run.name, "steps"), { input: fields.value(), target: target.value() || null, view: state.view || null,
    layer: state.layer ? Number(state.layer) : "mean", head: state.head ? Number(state.head) : "mean", step: state.step ? Number(state.step) : null, scores, ...fields.languages() }, signal);
  function store() {
    keep({ ...state, stage: stage > 1 ? stage : "", changes: writtenChanges(changes) });
  }
  async function show(chosen = {}) {
    Object.assign(state, chosen);
    if (!fields.value()) return place.replaceChildren(empty(t("steps_empty"), t("steps_empty_hint")));
    await busy(place, async () => {
      const worked = await ask(null);
      if (worked.view === "decoder" && !state.step && worked.step < worked.queries.length) return show({ step: String(worked.queries.length) }); // the first sees itself alone
      if (worked.keys.length <= Math.max(-1, ...changes.keys())) changes = new Map();
      const control = document.activeElement?.closest?.("[data-control]")?.dataset.control;
      draw(worked);
      if (control) choosers.querySelector(`[data-control=${control}] :is(select, [aria-checked=true])`)?.focus();
      store();
    });
  }

  // ------------------------------------------------------------------------------------------------ what is drawn

  function draw(worked) {
    const vectors = Object.entries(worked.vectors), [valueName, values] = vectors.at(-1), keysOf = vectors.slice(0, -1);
    const factor = factors(worked.scores, worked.weights), raw = worked.scale !== 1;
    const scoreName = nameIn(worked.equations.score), weightName = nameIn(worked.equations.softmax);
    const after = h("div"), context = h("div"), sum = h("p", { class: "muted" });
    const film = filmstrip(worked, { score: scoreName, weight: weightName, context: nameIn(worked.equations.context) }, change);
    const predicted = h("aside", { class: "predicted", "aria-live": "polite", "aria-label": t("outcome") });
    const rows = worked.keys.map((key, n) => {
      const hidden = worked.scores[n] === null;
      const score = h("input", { type: "number", step: "any", disabled: hidden, "aria-label": t("score_of", { word: key }),
        oninput: () => { if (score.value !== "") change(n, Number(score.value)); } });
      const seen = h("input", { type: "checkbox", disabled: hidden, "aria-label": t("seen_of", { word: key }),
        onchange: () => change(n, seen.checked ? undefined : null) });
      const product = h("span"), bar = h("span", { class: "weight" }), weight = h("span");
      const element = h("tr", {}, h("th", { scope: "row" }, shownToken(key)),
        keysOf.map(([, list]) => h("td", { "data-stage": 2 }, strip(list[n]))),
        raw && h("td", { "data-stage": 3, class: "number" }, product), h("td", { "data-stage": 3 }, score), h("td", { "data-stage": 3 }, seen),
        h("td", { "data-stage": 4, class: "number" }, weight), h("td", { "data-stage": 4 }, h("span", { class: "track" }, bar)),
        h("td", { "data-stage": 5 }, strip(values[n])));
      return { element, score, seen, product, bar, weight };
    });
    const head = (text, own, number) => h("th", { scope: "col", "data-stage": own, class: number ? "number" : null }, symbols(text));
    const equation = (own, part) => h("p", { class: "equation formula", tabindex: 0, "data-stage": own }, mathematics(worked.mathml[part]));
    const sections = h("div", { class: "worked" }, facts.inputs[0] === "image" && h("p", { class: "muted" }, t("region_names")),
      Object.keys(worked.query).length > 0 && h("section", { "data-stage": 1 }, h("h2", {}, t("stage_query")), vectorTable(worked.query)),
      h("section", { "data-stage": 2 }, h("h2", {}, t("stage_keys")), h("p", { class: "muted", "data-stage": 3 }, t("steps_change")),
        equation(3, "score"), equation(4, "softmax"),
        h("div", { class: "wide", tabindex: 0, role: "region", "aria-label": t("stage_keys") }, h("table", { class: "keys" },
          h("thead", {}, h("tr", {}, head(t("key"), 2), keysOf.map(([name]) => head(name, 2)), raw && head(t("product"), 3, true), head(scoreName, 3),
            head(t("seen"), 3), head(weightName, 4, true), head(t("weight"), 4), head(valueName, 5))),
          h("tbody", {}, rows.map(row => row.element)))), h("div", { "data-stage": 4 }, sum)),
      h("section", { "data-stage": 5 }, h("h2", {}, t("stage_context")), equation(5, "context"), context),
      h("section", { "data-stage": 6 }, h("h2", {}, t("stage_after")), after),
      worked.code.length > 0 && h("details", {}, h("summary", {}, t("code")), worked.code.map(one => [
        h("p", { class: "muted" }, `${one.module}: ${one.name}`), codeLines(one.text)])));

    function change(n, value) {
      if (value === undefined) changes.delete(n); else changes.set(n, value);
      store();
      update();
    }
    let waiting = 0;
    function update() {
      const scores = worked.scores.map((score, n) => score === null || !changes.has(n) ? score : changes.get(n));
      clearTimeout(waiting);
      waiting = 0;
      stale(changes.size > 0);
      if (scores.every(score => score === null)) { after.replaceChildren(problem({ message: t("all_hidden") })); return; }
      const weights = softmax(scores).map((weight, n) => weight * factor[n]);
      rows.forEach((row, n) => {
        if (document.activeElement !== row.score) row.score.value = scores[n] === null ? "" : scores[n].toFixed(4);
        row.seen.checked = scores[n] !== null;
        row.product.textContent = scores[n] === null ? "–" : (scores[n] / worked.scale).toFixed(4);
        row.weight.textContent = weights[n].toFixed(4);
        row.bar.style.width = `${100 * weights[n]}%`;
        row.element.classList.toggle("changed", changes.has(n));
        row.element.classList.toggle("hidden-key", scores[n] === null);
      });
      sum.textContent = t("weights_sum", { sum: weights.reduce((one, other) => one + other, 0).toFixed(4) });
      context.replaceChildren(vectorTable({ [nameIn(worked.equations.context)]: weightedSum(weights, values) }));
      film.update(scores, weights, weightedSum(weights, values), changes);
      reset.hidden = changes.size === 0;
      if (changes.size === 0) return followed(null);
      const own = waiting = setTimeout(async () => { // an answer to what is no longer asked is left out
        try {
          const found = await ask(scores);
          if (own === waiting) followed(found);
        } catch (error) { if (error.name !== "AbortError" && own === waiting) after.replaceChildren(problem(error)); }
      }, 200);
    }
    // What follows from the context, as the run computes it: with the changes, if there are any.
    function followed(found) {
      after.replaceChildren(...afterOf(worked, found));
      predicted.replaceChildren(...predictionOf(worked, found));
      stale(false);
    }
    function stale(is) {
      for (const one of [after, predicted]) one.classList.toggle("stale", is);
      predicted.setAttribute("aria-busy", String(is));
      output.classList.toggle("stale", changes.size > 0); // what was written then is not what the run would write now
    }
    const reset = h("button", { type: "button", onclick: () => { changes = new Map(); store(); update(); } }, t("steps_reset"));
    const output = h("p", { class: "muted" }, worked.output && [`${t("output")}: `, h("b", { class: "asks" }, worked.output)]);
    const told = h("p", { role: "status", class: "told claim" });
    const button = (name, picture, act, properties = {}) => h("button", { type: "button", "aria-label": name, "data-tip": name, onclick: act, ...properties }, icon(picture));
    const back = button(t("previous"), "previous", () => { pause(); move(stage - 1); }), next = button(t("next"), "next", () => { pause(); move(stage + 1); });
    const first = button(t("from_start"), "first", () => { pause(); move(1); }), play = button(t("play"), "play", start, { class: "primary" });
    const dots = STAGES.map((name, n) => h("button", { type: "button", "data-tip": t(`stage_${name}`), "aria-label": t(`stage_${name}`), onclick: () => { pause(); move(n + 1); } }, String(n + 1)));
    pause();
    function start() {
      pause();
      if (stage === STAGES.length) move(1);
      playing = setInterval(() => { if (stage >= STAGES.length) pause(); else move(stage + 1); }, PAUSE);
    }
    function move(to) {
      stage = Math.max(1, Math.min(STAGES.length, to));
      place.querySelectorAll("[data-stage]").forEach(one => {
        const later = Number(one.dataset.stage) > stage, inFilm = one.matches(".film-row"); // whose room is kept, so that nothing jumps
        one.hidden = later && !inFilm;
        one.classList.toggle("later", later && inFilm);
        one.classList.toggle("now", Number(one.dataset.stage) === stage);
      });
      told.textContent = `${stage} / ${STAGES.length}: ${t(`stage_${STAGES[stage - 1]}`)}`;
      dots.forEach((dot, n) => { if (n + 1 === stage) dot.setAttribute("aria-current", "step"); else dot.removeAttribute("aria-current"); });
      first.disabled = back.disabled = stage === 1;
      next.disabled = stage === STAGES.length;
      store();
    }
    const player = h("div", { class: "film", tabindex: 0, "data-arrows": "", role: "group", "aria-label": t("stages"), onkeydown: event => {
      const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (by) { event.preventDefault(); pause(); move(stage + by); }
    } }, first, back, play, next, h("span", { class: "dots" }, dots), reset);
    lit(sections, film.element);
    choosers.replaceChildren(...controls(worked).filter(Boolean));
    place.replaceChildren(told, output, h("div", { class: "film-stage" }, h("div", {}, film.element, player), predicted), sections);
    update();
    move(stage);
  }

  function controls(worked) {
    const named = (name, element) => h("div", { "data-control": name }, element);
    const numbers = count => Array.from({ length: count }, (_, n) => [String(n + 1), String(n + 1)]);
    const fresh = chosen => { changes = new Map(); show(chosen); };
    return [
      worked.views.length > 1 && named("view", labelled(t("look_show"), select(worked.views.map(view => [view, t(`look_${view}`)]), worked.view,
        view => fresh({ view, layer: undefined, head: undefined, step: undefined })))),
      worked.layers > 1 && named("layer", labelled(worked.view === "hops" ? t("hop") : t("layer"), select(numbers(worked.layers), String(worked.layer), layer => fresh({ layer })))),
      worked.heads > 1 && named("head", h("div", { class: "field" }, h("span", {}, t("head")), choice(t("head"), numbers(worked.heads), String(worked.head), head => fresh({ head })))),
      worked.queries.length > 1 && named("step", labelled(["alignment", "decoder"].includes(worked.view) ? t("step_written") : t("looking"), select(worked.queries.map((text, n) => [String(n + 1), `${n + 1} ${shownToken(text)}`]), String(worked.step), step => fresh({ step })))),
    ];
  }
  await show();
}

// A run with attention, first of the same task: its name as a button.
async function attendingRun(runs, run, signal) {
  const near = runs.filter(one => one !== run).sort((one, other) => (other.task === run.task) - (one.task === run.task)).slice(0, MOST_ASKED);
  for (const one of near) {
    const facts = await get(runPath(one.name), signal).catch(() => null);
    if (facts?.attends) return h("a", { class: "button primary", href: address("steps", { run: one.name, ...one.task === run.task ? {} : { text: undefined } }) }, t("steps_other", { run: one.name }));
  }
  return "";
}

// A sheet to print with blanks, and its solution on the next page.
function exerciseOf(name) {
  const said = h("span"), save = async () => {
    try {
      const { html } = await get(`/show/${name}/exercise`);
      download(`${name}-${language()}.html`, html, "text/html");
    } catch (error) { said.replaceChildren(problem(error)); }
  };
  return h("p", { class: "buttons" }, h("button", { type: "button", onclick: save }, t("save_exercise")), said);
}
// What `regard show` draws: equations that need no run.
function pictures(root, first = "", signal) {
  const place = h("div", { class: "results opened-picture" });
  async function open(name, chosen = false) {
    keep({ picture: name });
    for (const one of list.children) one.setAttribute("aria-pressed", String(one.dataset.picture === name));
    try {
      const report = name && await get(`/show/${encodeURIComponent(name)}`, signal);
      place.replaceChildren(...(name ? [WORKED.includes(name) ? exerciseOf(name) : "", ...reportOf(report)] : []));
      if (name && chosen) place.scrollIntoView({ behavior: "smooth" }); // it is below the whole list
    } catch (error) { if (error.name !== "AbortError") place.replaceChildren(problem(error)); }
  }
  const list = h("div", { class: "pictures", role: "group", "aria-label": t("picture") }, [...DRAWN, ...WORKED].map(name => h("button", { type: "button", "data-picture": name, "aria-pressed": "false",
    onclick: event => open(event.currentTarget.getAttribute("aria-pressed") === "true" ? "" : name, true) },
    h("span", { class: "thumbnail-place" }), h("span", {}, t(`picture_${name.replaceAll("-", "_")}`)))));
  // A drawing is computed when its button comes into view.
  const seen = new IntersectionObserver(entries => entries.filter(one => one.isIntersecting).forEach(({ target }) => {
    seen.unobserve(target);
    get(`/show/${target.dataset.picture}/thumbnail`, signal).then(({ svg }) => target.firstChild.append(mathematics(svg)), () => {});
  }), { rootMargin: "200px" });
  for (const button of list.children) seen.observe(button);
  signal.addEventListener("abort", () => seen.disconnect());
  root.append(h("section", {}, h("h2", {}, t("pictures")), h("p", { class: "muted" }, t("pictures_hint")), list, place));
  if (first) open(first);
}

// The likeliest tokens, always in view: as the model has them and, under each, as they were before the changes.
function predictionOf(worked, changed) {
  const n = mostChanged(worked, changed), before = worked.outcome[n], now = (changed || worked).outcome[n];
  if (!before) return [];
  const named = step => step.candidates.slice(0, 5).map(([token, probability]) => ({ token, label: token, probability }));
  const bars = likeliestBars(named(now), 1).flatMap((bar, i) => {
    const [token] = now.candidates[i], then = before.candidates.find(([name]) => name === token);
    if (!changed || !then) return [bar];
    const [old] = likeliestBars([{ token, label: t("before"), probability: then[1] }], 1);
    old.classList.add("before");
    return [bar, old];
  });
  return [h("h2", {}, worked.outcome.length > 1 ? t("outcome_at", { token: shownToken(before.token).replace(/^_/, "") }) : t("outcome")), ...bars];
}
// Of several predictions, the one whose probability the changes have moved most.
function mostChanged(worked, changed) {
  if (!changed) return worked.outcome.length === worked.queries.length ? worked.step - 1 : 0;
  const moved = worked.outcome.map((step, n) => Math.abs(step.probability - Number(probabilityOf(changed.outcome[n], step.token)) || 0));
  return moved.indexOf(Math.max(...moved));
}
// What is done with the context, and what the model then predicts: as it is, and with the changes.
function afterOf(worked, changed) {
  const now = changed || worked, shown = [vectorTable(now.after)];
  if (!now.outcome.length) return shown;
  const heads = [t("predicted"), t("probability"), ...(changed ? [t("probability_changed")] : []), t("likeliest")];
  const likeliest = step => step.candidates.slice(0, 5).map(([token, p]) => `${shownToken(token)} ${p.toFixed(3)}`).join(" · ");
  return [...shown, h("h3", {}, t("outcome")), h("div", { class: "wide", tabindex: 0, role: "region", "aria-label": t("outcome") }, h("table", {},
    h("thead", {}, h("tr", {}, heads.map((text, n) => h("th", { scope: "col", class: n && n < heads.length - 1 ? "number" : null }, text)))),
    h("tbody", {}, now.outcome.map((step, n) => h("tr", {}, h("td", {}, shownToken(worked.outcome[n].token)), h("td", { class: "number" }, worked.outcome[n].probability.toFixed(4)),
      changed && h("td", { class: "number" }, probabilityOf(step, worked.outcome[n].token)), h("td", {}, likeliest(step)))))))];
}
// Of the same token or answer, which another one may now surpass.
function probabilityOf(step, token) {
  if (step.token === token) return step.probability.toFixed(4);
  const [, p] = step.candidates.find(([name]) => name === token) || [];
  return p === undefined ? "–" : p.toFixed(4);
}
const nameIn = equation => equation.split(/ = |, learned/)[0];
function vectorTable(vectors) {
  return h("div", { class: "wide", tabindex: 0, role: "group", "aria-label": t("vectors") }, h("table", {}, h("tbody", {}, Object.entries(vectors).map(([name, values]) =>
    h("tr", {}, h("th", { scope: "row", class: "equation" }, symbols(name)), h("td", {}, strip(values)), h("td", { class: "muted" }, someNumbers(values, 4)))))));
}
// In an address: 0:-,3:1.5 hides the first key and gives the fourth another score.
const parseChanges = text => new Map((text || "").split(",").filter(Boolean).map(one => one.split(":"))
  .map(([n, score]) => [Number(n), score === "-" ? null : Number(score)]).filter(([n, score]) => Number.isInteger(n) && n >= 0 && !Number.isNaN(score)));
const writtenChanges = changes => [...changes].map(([n, score]) => `${n}:${score === null ? "-" : score}`).join(",");
