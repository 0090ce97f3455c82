// Every run, and one run with its curves beside those of others, live while it is trained.

import { address, keep } from "../address.js";
import { get, post, runPath } from "../api.js";
import { learningCurves } from "../curves.js";
import { choice, h, problem, redraw, svg } from "../dom.js";
import { icon } from "../icons.js";
import { figures, noRuns, poll } from "../parts.js";
import { table } from "../reports.js";
import { language, t } from "../text.js";
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
  let shown = "";
  async function draw() {
    const runs = await get("/trainings"), now = JSON.stringify(runs);
    const choose = () => {
      const those = runs.filter(run => chosen.has(run.name));
      redraw(acts, ...actsFor(those));
      const series = those.flatMap((run, n) => seriesOf(run, n, LOSS, those.length > 1));
      overlaid.replaceChildren(series.length ? learningCurves(series, t("curve_title", { metric: LOSS })).element : "");
    };
    if (now !== shown) redraw(place, runs.length ? listed(runs, chosen, choose) : noRuns());
    if (now !== shown) choose();
    shown = now;
  }
  await draw();
  poll(3, draw);
}

// ------------------------------------------------------------------------------------------------------------ list

const trainingPath = (name, verb = "") => `/trainings/${encodeURIComponent(name)}${verb && "/" + verb}`;
const stateText = run => t(`state_${run.state}`);
const stepText = run => run.steps ? t("step_of", { step: figures(run.step), steps: figures(run.steps) })
  : t("step_at", { step: figures(run.step) });
const bestOf = run => Object.entries(run.metrics?.[0] || {}).find(([key]) => key !== "step");

function listed(runs, chosen, choose) {
  const columns = [t("name"), t("model"), t("best_metric"), t("curve"), t("state"), t("date")];
  runs.sort((one, other) => (one.example ?? false) - (other.example ?? false) || (other.date || Infinity) - (one.date || Infinity));
  const heads = columns.map(text => h("th", { scope: "col" }, text));
  return h("table", { class: "runs" }, h("thead", {}, h("tr", {}, h("td"), heads)),
    h("tbody", {}, runs.map(run => row(run, chosen, choose))));
}
function row(run, chosen, choose) {
  const tick = h("input", { type: "checkbox", "aria-label": t("choose_this", { run: run.name }), checked: chosen.has(run.name), onchange: () => {
    if (tick.checked) chosen.add(run.name); else chosen.delete(run.name);
    choose();
  } });
  const name = h("th", { scope: "row" }, h("a", { href: address("runs", { run: run.name, runs: undefined }) }, run.name),
    run.example && h("small", { class: "badge" }, t("example_badge")));
  if (run.error) return h("tr", {}, h("td"), name, h("td", { colspan: 5, class: "bad" }, run.error));
  const metric = bestOf(run);
  return h("tr", {}, h("td", {}, tick), name,
    h("td", {}, run.model ? t(`model_${run.model}`) : "", run.task && h("div", { class: "muted" }, [t(`task_${run.task}`), run.languages].filter(Boolean).join(" · ")),
      run.parameters && h("div", { class: "muted nowrap" }, t("parameter_count", { count: figures(run.parameters) }))),
    h("td", {}, metric ? [metric[0], h("b", { class: "best" }, String(Number(metric[1].toPrecision(3))))] : ""), h("td", {}, sparkline(run.curves)),
    h("td", { class: run.state === "training" ? "good" : run.state === "failed" ? "bad" : "" }, stateText(run),
      run.state === "training" && run.step > 0 && h("div", { class: "muted" }, stepText(run))),
    h("td", { class: "number" }, run.date ? new Date(run.date * 1000).toLocaleString(language(), { dateStyle: "short", timeStyle: "short" }) : ""));
}
// What can be done with several runs that are chosen.
function actsFor(runs) {
  if (!runs.length) return [h("p", { class: "muted" }, t("choose_several"))];
  const [first, ...rest] = runs.map(run => run.name), names = rest.join(",") || undefined;
  const link = (view, text, name) => h("a", { class: "button", href: address(view, { run: first, runs: names, text: undefined, all: undefined }) }, icon(name), text);
  const same = runs.every(run => run.task === runs[0].task);
  if (!same) return [h("p", { class: "muted" }, t("other_tasks"))];
  return [link("runs", t("curves_of", { count: runs.length }), "beam"), runs.length > 1 && link("compare", t("compare_of", { count: runs.length }), "compare")].filter(Boolean);
}
// The loss as a small line; the validation's as a second one.
function sparkline(curves) {
  const [train, validation] = [curves?.train, curves?.validation], width = 120, height = 32;
  const all = [train, validation].map((one, n) => ({ ...one, colour: `var(--s${n})` })).filter(one => one.loss?.length > 1);
  if (!all.length) return "";
  const values = all.flatMap(one => one.loss).filter(Number.isFinite), steps = all.flatMap(one => one.step);
  const [low, high, first, last] = [Math.min(...values), Math.max(...values), Math.min(...steps), Math.max(...steps)];
  const across = step => ((step - first) / (last - first || 1) * width).toFixed(1);
  const down = loss => (2 + (high - loss) / (high - low || 1) * (height - 4)).toFixed(1);
  const path = one => "M" + one.loss.map((loss, n) => `${across(one.step[n])} ${down(loss)}`).join("L");
  const label = t("curve_of", { steps: figures(last), first: values[0].toFixed(2), last: all[0].loss.at(-1).toFixed(2) });
  const look = { class: "spark", width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label };
  return svg("svg", look, all.map(one => svg("path", { d: path(one), style: { stroke: one.colour } })));
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
