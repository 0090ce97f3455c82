// Every run, and one run with its curves beside those of others, live while it is trained.

import { address, keep } from "../address.js";
import { get, post, runPath } from "../api.js";
import { learningCurves } from "../curves.js";
import { choice, h, problem, redraw } from "../dom.js";
import { icon } from "../icons.js";
import { figures, noRuns, poll, untilLeft } from "../parts.js";
import { table } from "../reports.js";
import { runsList, stateText, stepText } from "../runs_list.js";
import { t } from "../text.js";
import { renderForm } from "../train.js";
import { watchedPanel } from "../watched.js";

const VIEWS = ["try", "look", "steps", "beam", "errors", "compare"];
const NEEDED = { try: "answers", look: "explains", steps: "attends", beam: "writes" }; // what a run must do for a view
const LOSS = "loss", NO_METRICS = ["step", "restart"];

export const NEEDS_NO_RUN = true;

export async function render(frame) {
  const { stage, controls, params } = frame;
  if (params.new) return renderForm(frame);
  controls.append(h("a", { class: "button primary", href: address("runs", { new: 1 }) }, icon("new"), t("train_new")));
  if (params.run && !params.all) return renderRun(frame);
  const place = h("div", { class: "wide" }), chosen = new Set(), acts = h("div", { class: "chosen-runs" }), overlaid = h("div");
  stage.append(overlaid, place);
  controls.append(acts);
  let shown = "", runs = [];
  const list = runsList(params, chosen, choose);
  function choose() {
    const those = runs.filter(run => chosen.has(run.name));
    redraw(acts, ...actsFor(those));
    const series = those.flatMap((run, n) => seriesOf(run, n, LOSS, those.length > 1));
    overlaid.replaceChildren(series.length ? learningCurves(series, t("curve_title", { metric: LOSS })).element : "");
  }
  async function draw() {
    runs = await get("/trainings");
    const now = JSON.stringify(runs);
    if (now === shown) return;
    if (!runs.length) place.replaceChildren(noRuns());
    else if (list.element.parentNode !== place) place.replaceChildren(list.element);
    list.update(runs);
    choose();
    shown = now;
  }
  await draw();
  const find = event => {
    if (event.key !== "/" || event.ctrlKey || event.metaKey || event.target.closest("input, textarea, select")) return;
    event.preventDefault();
    list.focus();
  };
  addEventListener("keydown", find, { signal: untilLeft() });
  poll(3, draw);
}

// ---------------------------------------------------------------------------------------------------- several runs

const trainingPath = (name, verb = "") => `/trainings/${encodeURIComponent(name)}${verb && "/" + verb}`;
// What can be done with several runs that are chosen.
function actsFor(runs) {
  if (!runs.length) return [h("p", { class: "muted" }, t("choose_several"))];
  const [first, ...rest] = runs.map(run => run.name), names = rest.join(",") || undefined;
  const link = (view, text, name) => h("a", { class: "button", href: address(view, { run: first, runs: names, text: undefined, all: undefined }) }, icon(name), text);
  const same = runs.every(run => run.task === runs[0].task);
  if (!same) return [h("p", { class: "muted" }, t("other_tasks"))];
  return [link("runs", t("curves_of", { count: runs.length }), "beam"), runs.length > 1 && link("compare", t("compare_of", { count: runs.length }), "compare")].filter(Boolean);
}
// --------------------------------------------------------------------------------------------------------- one run

async function renderRun({ stage, controls, heading, hint, params }) {
  const name = params.run, others = (params.runs || "").split(",").filter(one => one && one !== name);
  const about = h("div", { class: "stack" }), said = h("div"), figure = h("div"), place = h("div", { class: "results" });
  const panel = watchedPanel(step => drawing?.mark(step));
  let live = true, drawing = null, metric = params.metric || LOSS, drawn = "";
  heading.textContent = name;
  hint.replaceChildren(h("a", { href: address("runs", { all: 1 }) }, `← ${t("back")}`));
  controls.prepend(about);
  stage.append(said, figure, panel.element, place);
  const act = verb => async () => {
    try {
      await post(trainingPath(name, verb), {});
      said.replaceChildren();
      live = true;
      await draw();
    } catch (error) { said.replaceChildren(problem(error)); }
  };
  async function draw() {
    if (!live) return;
    const [run, ...compared] = await Promise.all([get(trainingPath(name)), ...others.map(one => get(trainingPath(one)).catch(() => null))]);
    const there = run.steps !== undefined, facts = there ? await get(runPath(name)).catch(error => ({ error: error.message })) : {};
    live = run.state === "training";
    redraw(about, ...aboutRun(run, facts, act, there));
    const all = [run, ...compared.filter(Boolean)], now = JSON.stringify([all.map(one => one.curves), metric]);
    if (now !== drawn) drawCurves(all);
    drawn = now;
    panel.update(run.watched || { text: "", entries: [] });
    redraw(place, ...[...[run.message, facts.error].filter(Boolean).map(text => h("p", { class: "problem", role: "alert" }, text)),
      live && !run.step && h("p", { class: "muted" }, t("waiting_data")), !run.watched?.entries.length && run.step > 0 && h("p", { class: "muted" }, t("watch_how")),
      samples(run), metrics(run), facts.recipe && h("details", {}, h("summary", {}, t("recipe")),
        h("pre", { tabindex: 0 }, JSON.stringify(facts.recipe, null, 1)))].filter(Boolean));
  }
  function drawCurves(all) {
    const names = [LOSS, ...new Set(all.flatMap(one => Object.keys(one.curves?.validation || {})))].filter((one, n, list) => !NO_METRICS.includes(one) && list.indexOf(one) === n);
    const series = all.flatMap((one, n) => seriesOf(one, n, metric, all.length > 1));
    if (!series.length) return figure.replaceChildren();
    drawing = learningCurves(series, t("curve_title", { metric }), step => panel.show(step));
    drawing.mark(panel.step());
    const buttons = choice(t("curve_metric"), names.map(one => [one, one]), metric, one => {
      metric = one;
      keep({ metric: one === LOSS ? "" : one });
      drawCurves(all);
    });
    redraw(figure, drawing.element, names.length > 1 && h("div", { class: "buttons" }, buttons));
  }
  await draw();
  poll(2, draw);
}
function seriesOf(run, n, metric, several) {
  const named = text => several ? `${run.name} · ${text}` : text;
  const [train, validation] = [run.curves?.train, run.curves?.validation];
  return [metric === LOSS && train?.loss?.length && { name: named(t("training_loss")), run: n, dashed: false, x: train.step, y: train.loss },
    validation?.[metric]?.length && { name: named(metric === LOSS ? t("validation_loss") : metric), run: n, dashed: metric === LOSS, x: validation.step, y: validation[metric] }].filter(Boolean);
}
function aboutRun(run, facts, act, there) {
  const live = run.state === "training", { parameters } = facts, speed = live && run.curves?.train?.tokens_per_second?.at(-1);
  const size = parameters && t("parameter_count", { count: figures(parameters) });
  const button = (verb, text) => h("button", { type: "button", onclick: act(verb) }, text);
  const link = view => h("a", { class: "button", href: address(view, { run: run.name }) }, icon(view), t(`view_${view}`));
  return [
    h("p", {}, [facts.task && t(`task_${facts.task}`), facts.model, facts.languages, size].filter(Boolean).join(" · ")),
    h("p", {}, h("b", { class: { failed: "bad", stopped: "muted" }[run.state] || "good" }, stateText(run)),
      run.step ? ` · ${stepText(run)}` : ""),
    live && run.steps && h("progress", { max: run.steps, value: run.step, "aria-label": t("progress") }),
    live && h("p", { class: "muted" }, [run.left, speed && t("per_second", { count: figures(Math.round(speed)) })].filter(Boolean).join(" · ")),
    h("div", { class: "buttons" }, run.ours && button("stop", t("stop")),
      run.state === "stopped" && there && !facts.example && button("resume", t("resume"))),
    parameters && h("div", { class: "buttons" }, VIEWS.filter(view => view in NEEDED ? facts[NEEDED[view]] : true).map(link))].filter(Boolean);
}
function metrics(run) {
  const { step, ...others } = run.curves?.validation || {}, names = Object.keys(others).filter(name => !NO_METRICS.includes(name));
  if (!step?.length) return null;
  const columns = [t("training_steps"), ...names].map(name => ({ name, numeric: true }));
  const rows = [...step.keys()].slice(-8).map(n =>
    [{ text: figures(step[n]) }, ...names.map(name => ({ text: String(Number((others[name][n] ?? 0).toPrecision(4))) }))]);
  return h("section", {}, h("h2", {}, t("validations")), table(columns, rows, { title: t("validations") }));
}
function samples(run) {
  if (!run.samples?.length) return null;
  const columns = ["source", "output", "target"], rows = run.samples.map(one =>
    columns.map(name => ({ text: one[name] ?? "" })));
  return h("section", {}, h("h2", {}, t("samples")),
    table(columns.map(name => ({ name: t(`sample_${name}`) })), rows, { title: t("samples") }));
}
