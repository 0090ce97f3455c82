// The first page: one sentence through several models, what can be done from here, and every run as a card.

import { address } from "../address.js";
import { get, post, runPath } from "../api.js";
import { h } from "../dom.js";
import { unpacked } from "../heat.js";
import { icon } from "../icons.js";
import { figures, markUnknown, untilLeft } from "../parts.js";
import { t } from "../text.js";
import { linked, rowsOf, threads } from "../threads.js";
import { startTour } from "../tour.js";

const SHOWN = 3; // models beside each other
const FEW = 12; // cards

export const NEEDS_NO_RUN = true;

export async function render({ stage, controls, runs, run, fields, params, onsubmit }) {
  const signal = untilLeft(), usable = runs.filter(run => !run.error), writers = await writersOf(usable, signal);
  const sentence = params.text || writers[0]?.facts.recipe.training?.watch || writers[0]?.facts.examples[0] || "";
  const tour = h("button", { type: "button", class: writers.length ? "primary" : null, onclick: () => startTour(tourRuns(writers, usable), sentence) }, t("tour_start"));
  const link = (text, name, to) => h("a", { class: "button", href: to }, icon(name), text);
  controls.append(tour, link(t("train_new"), "new", address("runs", { new: 1, from: "recipe" })),
    link(t("start_own"), "new", address("runs", { new: 1, from: "data" })), link(t("view_runs"), "runs", address("runs", { all: 1 })));
  if (writers.length) {
    const place = h("div");
    const draw = text => {
      const { run: reader, facts } = writers.at(-1), unknown = h("div");
      place.replaceChildren(sameSentence(writers, run, text, unknown, signal));
      markUnknown(unknown, reader, facts, { [facts.inputs[0]]: text }, signal).catch(() => {}); // the other models may know them
    };
    stage.append(place);
    if (writers.some(one => one.run.name === run?.name)) fields.use(sentence);
    draw(sentence);
    onsubmit(() => draw(fields.text()));
  }
  if (!usable.length) stage.append(firstSteps());
  if (usable.length) {
    const [examples, own] = [usable.filter(run => run.example), usable.filter(run => !run.example)];
    stage.append(...[cards(t("start_yours"), own), cards(t("start_examples"), examples, t("start_examples_hint"))].filter(Boolean));
  }
}
// The runs that write a text for a text, of the task that has the most of them, with attention last.
async function writersOf(runs, signal) {
  const tasks = ["translation", "summarization"].map(task => runs.filter(run => run.task === task && run.parameters !== null));
  const chosen = tasks.sort((one, other) => other.length - one.length)[0].slice(0, SHOWN);
  const facts = await Promise.all(chosen.map(run => get(runPath(run.name), signal).catch(() => null)));
  return chosen.map((run, n) => ({ run, facts: facts[n] })).filter(one => one.facts)
    .sort((one, other) => one.facts.attends - other.facts.attends);
}
function tourRuns(writers, usable) {
  const names = writers.toReversed().map(one => one.run.name);
  return names.length ? names : usable.slice(0, 1).map(run => run.name);
}
function firstSteps() {
  return h("div", { class: "empty" }, h("h2", {}, t("no_runs")), h("p", {}, t("no_runs_hint")),
    h("a", { class: "button primary", href: address("runs", { new: 1 }) }, t("train_new")));
}

// ---------------------------------------------------------------------------------------------------- one sentence

function sameSentence(writers, chosen, sentence, unknown, signal) {
  const names = writers.map(one => one.run.name), first = names.includes(chosen?.name) ? chosen.name : names.at(-1); // one with attention, if any has it
  const links = linked();
  const panels = writers.map(({ run, facts }) => {
    const place = h("div", { class: "drawing", "aria-busy": "true" }), output = h("p", { class: "written" });
    draw(run, facts, place, output).catch(error => { if (error.name !== "AbortError") output.textContent = error.message; })
      .finally(() => place.setAttribute("aria-busy", "false"));
    const to = address(facts.attends ? "look" : "try", { run: run.name, text: sentence });
    return h("article", { class: "panel" }, h("h3", {}, h("a", { href: to }, t(`model_${run.model}`))), output, place);
  });
  async function draw(run, facts, place, output) {
    const { predictions: [prediction] } = await post(runPath(run.name, "predict"), { inputs: [sentence] }, signal);
    output.textContent = prediction.output;
    const seen = facts.attends ? await post(runPath(run.name, "attention"), { input: sentence, words: true }, signal) : {};
    const map = seen.map && seen.view === "alignment" ? unpacked(seen.map) : null;
    const drawing = links.add(map ? { rows: map.rows, columns: map.columns, values: rowsOf(map) }
      : { rows: prediction.output.split(" "), columns: sentence.split(" ") }, threads);
    place.replaceChildren(drawing, ...map ? [] : [h("p", { class: "muted" }, t("start_none"))]);
  }
  const compare = h("a", { class: "button primary", href: address("compare", { run: first, runs: names.filter(name => name !== first).join(","), text: sentence }) },
    icon("compare"), t("start_compare"));
  return h("section", { class: "same" }, h("p", { class: "claim" }, t("start_claim")),
    h("p", { class: "muted" }, t("start_claim_hint")), h("p", { class: "asked" }, sentence), unknown,
    h("div", { class: "panels-3" }, panels), writers.length > 1 && h("div", { class: "buttons" }, compare));
}

// ----------------------------------------------------------------------------------------------------------- cards

function cards(title, runs, hint) {
  if (!runs.length) return null;
  const all = runs.length > FEW && h("a", { href: address("runs", { all: 1 }) }, t("start_all", { count: figures(runs.length) }));
  return h("section", {}, h("h2", {}, title), hint && h("p", { class: "muted" }, hint),
    h("div", { class: "cards" }, runs.slice(0, FEW).map(card)), all);
}
function card(run) {
  const view = run.parameters === null ? "runs" : "try", [best] = run.metrics || [];
  const metric = best && Object.entries(best).find(([name]) => name !== "step");
  const facts = [run.parameters && t("parameter_count", { count: figures(run.parameters) }),
    metric && `${metric[0]} ${Number(metric[1].toPrecision(3))}`].filter(Boolean).join(" · ");
  return h("a", { class: "card", href: address(view, { run: run.name, runs: undefined, text: undefined }) },
    h("b", {}, t(`start_task_${run.task}`)), h("span", {}, t(`model_${run.model}`)), h("small", { class: "muted" }, `${run.name} · ${facts}`));
}
