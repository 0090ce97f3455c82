// The search as a tree, step by step, and the ranking before and after length normalisation.
/* global drawFigure */

import { keep } from "../address.js";
import { post, runPath } from "../api.js";
import { empty, h, labelled, select } from "../dom.js";
import { icon } from "../icons.js";
import { shownToken } from "../heat.js";
import { busy, untilLeft } from "../parts.js";
import { table } from "../reports.js";
import { t } from "../text.js";

const NORMALISATIONS = ["none", "mean", "wu", "reward"], PAUSE = 900;

export const ACTION = "search";

export async function render({ stage, controls, onsubmit, run, facts, fields, params }) {
  const signal = untilLeft(), own = facts.recipe.search || {};
  if (!facts.writes) return void stage.append(empty(t("beam_none"), t("beam_none_hint")));
  const numberField = (name, most) => h("input", { type: "number", min: name === "beam" ? 1 : 0, max: most, step: name === "beam" ? 1 : "any", value: params[name] || own[name] });
  const beam = numberField("beam", 16), penalty = numberField("length_penalty", 10);
  const reference = h("input", { value: params.reference || "", spellcheck: "false", oninput: () => keep({ reference: reference.value }) });
  const normalisation = select(NORMALISATIONS.map(name => [name, t(`normalisation_${name}`)]), params.normalisation || own.normalisation || "mean", () => show());
  const place = h("div", { class: "results" });
  let step = Number(params.step) || Infinity, playing = 0;
  beam.addEventListener("change", () => show());
  penalty.addEventListener("change", () => show());
  reference.addEventListener("change", () => show());
  controls.append(labelled(t("search_beam"), beam), labelled(t("normalisation"), normalisation), labelled(t("search_length_penalty"), penalty),
    facts.writes === "target" ? labelled(t("beam_reference"), reference) : "");
  stage.append(place);
  onsubmit(() => { step = Infinity; return show(); });
  signal.addEventListener("abort", () => clearInterval(playing));

  async function show() {
    const input = fields.value();
    if (!input) return place.replaceChildren(empty(t("beam_empty"), t("beam_empty_hint")));
    keep({ beam: beam.value, length_penalty: penalty.value, normalisation: normalisation.value, reference: reference.value });
    penalty.disabled = normalisation.value === "none"; // which has none
    const asked = { input, beam: Number(beam.value) || null, length_penalty: penalty.disabled || penalty.value === "" ? null : Number(penalty.value),
      normalisation: normalisation.value, reference: reference.value.trim() || null };
    await busy(place, async () => draw(await post(runPath(run.name, "search"), asked, signal)));
  }

  function draw(found) {
    clearInterval(playing); // it played another tree
    const [record] = found.inputs, [{ parts: [tree] }] = found.report.sections, last = record.steps.length;
    const figure = h("figure", { class: "tree", tabindex: 0, "data-arrows": "", role: "group", "aria-label": t("tree"), onkeydown: keys });
    const told = h("p", { role: "status", class: "told claim" });
    drawFigure(figure, { ...tree, title: t("tree") });
    const groups = [...figure.querySelectorAll(".branch")];
    const acts = { first: () => move(1), previous: () => move(step - 1), play, next: () => move(step + 1), last: () => move(last) };
    const names = { first: t("first"), previous: t("previous"), play: t("play"), next: t("next"), last: t("last") };
    const buttons = Object.entries(acts).map(([name, act]) => h("button", { type: "button", "aria-label": names[name], "data-tip": names[name], class: name === "play" ? "primary" : null,
      onclick: () => { clearInterval(playing); act(); } }, icon(name)));
    function move(to) {
      step = Math.max(1, Math.min(last, to));
      groups.forEach(group => group.classList.toggle("later", Number(group.dataset.depth) > step));
      const { open, candidates } = record.steps[step - 1], of = fate => candidates.filter(one => one.fate === fate).length;
      told.textContent = t("beam_step", { step, last, open, kept: of("kept"), finished: of("finished"), pruned: of("pruned") });
      keep({ step: step < last ? step : "" });
      const map = figure.querySelector(".map"), at = groups.filter(group => Number(group.dataset.depth) === (step < last ? step : 1));
      const seen = (at.find(group => group.matches(".good, .marked")) || at[0]).querySelector("text").getBBox(); // keep it in sight
      map.scrollTo(Math.max(0, seen.x + 260 - map.clientWidth), Math.max(0, seen.y - map.clientHeight / 2));
    }
    function play() {
      clearInterval(playing);
      if (step >= last) move(1);
      playing = setInterval(() => { if (step >= last) clearInterval(playing); else move(step + 1); }, PAUSE);
    }
    function keys(event) {
      const to = { ArrowRight: step + 1, ArrowLeft: step - 1, Home: 1, End: last }[event.key];
      if (to === undefined) return;
      event.preventDefault();
      clearInterval(playing);
      move(to);
    }
    place.replaceChildren(...[told, figure, h("div", { class: "film", role: "group", "aria-label": t("search_steps"), onkeydown: keys }, buttons),
      found.reference && h("p", { class: found.reference.outcome.kind === "finished" ? "good" : "bad" }, outcome(found.reference)), h("p", { class: "muted" }, t("tree_hint")), ...rankings(record, found.reference)].filter(Boolean));
    move(step);
  }
  await show();
}

function outcome({ outcome: { kind, step, token, rank, slots }, score, objective }) {
  const scores = t("reference_scores", { score: score.toFixed(3), objective: objective.toFixed(3) });
  return `${t(`reference_${kind}`, { step, token: shownToken(token), rank: rank ?? "–", slots })} ${scores}`;
}

// Side by side: by log P alone, and by the objective, which also counts the length.
function rankings(record, reference) {
  const given = record.ranking.map(one => ({ ...one, mark: false }));
  const other = reference && !given.some(one => one.tokens.join(" ") === reference.tokens.join(" "));
  const all = other ? [...given, { output: t("reference"), score: reference.score, objective: reference.objective, tokens: reference.tokens, mark: true }] : given;
  const winner = given[0], columns = [{ name: t("rank"), numeric: true }, { name: t("output") }, { name: t("tokens"), numeric: true }];
  const ranked = (key, name, title) => h("section", {}, h("h3", {}, title), table([...columns, { name, numeric: true }],
    [...all].sort((one, other) => other[key] - one[key]).map((one, n) => [{ text: String(n + 1) },
      { text: one.output, tone: one.mark ? "bad" : one === winner ? "good" : "" }, { text: String(one.tokens.length) }, { text: one[key].toFixed(3) }]), { title }));
  return [h("h2", {}, t("ranking")), h("div", { class: "columns" }, ranked("score", t("log_p"), t("ranking_before")), ranked("objective", t("objective"), t("ranking_after")))];
}
