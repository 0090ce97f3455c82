// Every run; one run with its curves, live while it is trained; and the form that starts a training.
/* global drawFigure, number */

import { address, go } from "../address.js";
import { get, post, runPath } from "../api.js";
import { choice, h, labelled, problem, redraw, select, svg } from "../dom.js";
import { icon } from "../icons.js";
import { figures, noRuns, poll, untilLeft } from "../parts.js";
import { job, table } from "../reports.js";
import { language, t } from "../text.js";

const VIEWS = ["try", "look", "steps", "beam", "errors", "compare"];

export const NEEDS_NO_RUN = true;

export async function render(frame) {
  const { stage, controls, params } = frame;
  if (params.new) return renderForm(frame);
  controls.append(h("a", { class: "button primary", href: address("runs", { new: 1 }) }, icon("new"), t("train_new")));
  if (params.run && !params.all) return renderRun(frame);
  const table = h("div", { class: "wide" });
  stage.append(table);
  let shown = "";
  async function draw() {
    const runs = await get("/trainings"), now = JSON.stringify(runs);
    if (now !== shown) redraw(table, runs.length ? listed(runs) : noRuns());
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

function listed(runs) {
  const columns = [t("name"), t("task"), t("model"), t("parameters"), t("best_metric"), t("curve"), t("state"),
    t("date")];
  runs.sort((one, other) => (other.date || Infinity) - (one.date || Infinity));
  const heads = columns.map(text => h("th", { scope: "col" }, text));
  return h("table", { class: "runs" }, h("thead", {}, h("tr", {}, heads)), h("tbody", {}, runs.map(row)));
}
function row(run) {
  const name = h("th", { scope: "row" }, h("a", { href: address("runs", { run: run.name }) }, run.name));
  if (run.error) return h("tr", {}, name, h("td", { colspan: 7, class: "bad" }, run.error));
  const [best] = run.metrics || [], metric = best && Object.entries(best).find(([key]) => key !== "step");
  return h("tr", {}, name, h("td", {}, run.task ? t(`task_${run.task}`) : ""), h("td", {}, run.model || ""),
    h("td", { class: "number" }, run.parameters ? figures(run.parameters) : ""),
    h("td", {}, metric ? `${metric[0]} ${number(metric[1])}` : ""), h("td", {}, sparkline(run.curves)),
    h("td", { class: run.state === "training" ? "good" : run.state === "failed" ? "bad" : "" }, stateText(run),
      run.state === "training" && run.step > 0 && h("div", { class: "muted" }, stepText(run))),
    h("td", { class: "number" }, run.date ? new Date(run.date * 1000).toLocaleString(language(), { dateStyle: "short", timeStyle: "short" }) : ""));
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
  const label = t("curve_of", { steps: figures(last), first: number(values[0]), last: number(all[0].loss.at(-1)) });
  const look = { class: "spark", width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label };
  return svg("svg", look, all.map(one => svg("path", { d: path(one), style: { stroke: one.colour } })));
}

// --------------------------------------------------------------------------------------------------------- one run

async function renderRun({ stage, controls, heading, hint, params: { run: name } }) {
  const place = h("div", { class: "results" }), about = h("div", { class: "stack" }), said = h("div");
  heading.textContent = name;
  hint.replaceChildren(h("a", { href: address("runs", { all: 1 }) }, `← ${t("back")}`));
  controls.prepend(about);
  stage.append(place);
  let live = true;
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
    const run = await get(trainingPath(name)), there = run.steps !== undefined;
    const facts = there ? await get(runPath(name)).catch(error => ({ error: error.message })) : {}, { parameters } = facts;
    live = run.state === "training";
    const speed = live && run.curves?.train?.tokens_per_second?.at(-1);
    const size = parameters && t("parameter_count", { count: figures(parameters) });
    const button = (verb, text) => h("button", { type: "button", onclick: act(verb) }, text);
    const link = view => h("a", { class: "button", href: address(view, { run: name }) }, t(`view_${view}`));
    redraw(about, ...[
      h("p", {}, [facts.task && t(`task_${facts.task}`), facts.model, facts.languages, size].filter(Boolean).join(" · ")),
      h("p", {}, h("b", { class: { failed: "bad", stopped: "muted" }[run.state] || "good" }, stateText(run)),
        run.step ? ` · ${stepText(run)}` : "",
        speed ? ` · ${t("per_second", { count: figures(Math.round(speed)) })}` : ""),
      h("div", { class: "buttons" }, run.ours && button("stop", t("stop")),
        run.state === "stopped" && there && button("resume", t("resume"))),
      parameters && h("div", { class: "buttons" }, VIEWS.map(link))].filter(Boolean));
    redraw(place, ...[...[run.message, facts.error].filter(Boolean).map(text => h("p", { class: "problem", role: "alert" }, text)),
      said, live && !run.step && h("p", { class: "muted" }, t("waiting_data")), curves(run), metrics(run), samples(run),
      facts.recipe && h("details", {}, h("summary", {}, t("recipe")),
        h("pre", { tabindex: 0 }, JSON.stringify(facts.recipe, null, 1)))].filter(Boolean));
  }
  await draw();
  poll(2, draw);
}
function curves(run) {
  const named = [[run.curves?.train, t("training_loss")], [run.curves?.validation, t("validation_loss")]];
  const series = named.filter(([one]) => one?.loss?.length > 1) // one point is not a curve
    .map(([one, name]) => ({ name, x: one.step, y: one.loss, low: null, high: null }));
  if (!series.length) return null;
  const figure = h("figure"), labels = { title: t("curve"), x_label: t("training_steps"), y_label: t("loss") };
  drawFigure(figure, { kind: "curves", ...labels, series, x_ticks: null, from_zero: false });
  return figure;
}
function metrics(run) {
  const { step, ...others } = run.curves?.validation || {}, names = Object.keys(others);
  if (!step?.length) return null;
  const columns = [t("training_steps"), ...names].map(name => ({ name, numeric: true }));
  const rows = [...step.keys()].slice(-8).map(n =>
    [{ text: figures(step[n]) }, ...names.map(name => ({ text: number(others[name][n] ?? 0) }))]);
  return h("section", {}, h("h2", {}, t("validations")), table(columns, rows, { title: t("validations") }));
}
function samples(run) {
  if (!run.samples?.length) return null;
  const columns = ["source", "output", "target"], rows = run.samples.map(one =>
    columns.map(name => ({ text: one[name] ?? "" })));
  return h("section", {}, h("h2", {}, t("samples")),
    table(columns.map(name => ({ name: t(`sample_${name}`) })), rows, { title: t("samples") }));
}

// ------------------------------------------------------------------------------------------------------------ form

// What was typed into the form: it outlives the view, the language and the colours.
const draft = { recipe: "", name: "", shipped: "dates", files: [], values: {}, from: "recipe" };

async function renderForm({ stage, controls, heading, hint, params }) {
  const recipes = await get("/recipes"), from = draft.from = params.from || draft.from, said = h("div"), left = untilLeft();
  if (params.recipe in recipes) Object.assign(draft, { shipped: params.recipe, recipe: "" });
  const recipe = h("textarea", { class: "code", rows: 14, spellcheck: "false", value: draft.recipe,
    oninput: () => { draft.recipe = recipe.value; }, onchange: () => drawFields() });
  const fields = h("div", { class: "controls grid" }), start = h("button", { class: "primary" }, t("train"));
  const name = h("input", { required: true, pattern: "[\\p{L}\\p{N}][\\p{L}\\p{N}_.\\-]{0,63}",
    value: params.name || draft.name, oninput: () => { draft.name = name.value; } });
  let own = {};
  const fail = error => { if (error.name !== "AbortError") said.replaceChildren(problem(error)); };
  // While a file is read or a recipe is looked at there is nothing to train yet.
  async function preparing(work) {
    start.disabled = true;
    try { await work(); } catch (error) { fail(error); } finally { start.disabled = false; }
  }
  const setRecipe = text => { recipe.value = draft.recipe = text; draft.values = {}; };
  const setName = text => { name.value = draft.name = text; };

  async function drawFields() {
    own = {};
    said.replaceChildren();
    try {
      fields.replaceChildren(...(await post("/form", { recipe: recipe.value })).map(field => {
        const control = controlOf(field);
        if (field.path in draft.values) control.value = draft.values[field.path];
        control.addEventListener("input", () => { draft.values[field.path] = control.value; });
        own[field.path] = { field, control };
        return labelled(field.path, control);
      }));
    } catch (error) { fields.replaceChildren(); fail(error); }
  }
  async function useShipped(chosen) {
    draft.shipped = chosen;
    setRecipe((await get(`/recipes/${encodeURIComponent(chosen)}`)).recipe);
    if (!name.value || name.value in recipes) setName(chosen);
    await drawFields();
  }
  async function useFiles(list) {
    draft.files = await Promise.all([...list].map(async file => ({ name: file.name, text: await file.text() })));
    if (from === "recipe") return; // which names them
    const found = await job(said, "/check", { files: draft.files }, null, left);
    if (!found) return;
    const problems = found.result.problems.map(one => `${one.where}: ${one.what}${one.hint && ` (${one.hint})`}`);
    if (problems.length) throw new Error(problems.join("\n"));
    setRecipe(found.result.proposal);
    if (!name.value) setName(list[0].name.replace(/\.[^.]*$/, "").replace(/[^\p{L}\p{N}_.-]/gu, "-"));
    await drawFields();
  }
  async function submit(event) {
    event.preventDefault();
    const settings = {};
    for (const [path, { field, control }] of Object.entries(own)) {
      const value = valueOf(field, control);
      if (value !== field.value) settings[path] = value;
    }
    try {
      await post("/trainings", { name: name.value, recipe: recipe.value, settings, files: draft.files });
      Object.assign(draft, { recipe: "", name: "", files: [], values: {} });
      go("runs", { run: name.value });
    } catch (error) { fail(error); }
  }
  const picker = h("input", { type: "file", multiple: true, onchange: () => preparing(() => useFiles(picker.files)) });
  const ways = [["recipe", t("from_recipe")], ["data", t("from_data")]];
  const listed = Object.entries(recipes).map(([key, about]) => [key, `${key}: ${about}`]);
  const useOther = value => {
    Object.assign(draft, { from: value, recipe: "", values: {} });
    go("runs", { new: 1, from: value });
  };
  heading.textContent = t("train_new");
  hint.replaceChildren(h("a", { href: address("runs", { all: 1 }) }, `← ${t("back")}`), h("br"), t("train_new_hint"));
  controls.replaceChildren(h("div", { class: "field" }, h("span", {}, t("train_from")), choice(t("train_from"), ways, from, useOther)));
  stage.append(h("form", { class: "stack", onsubmit: submit },
    from === "recipe" && labelled(t("recipe"), select(listed, draft.shipped, value => preparing(() => useShipped(value)))),
    labelled(from === "data" ? t("data_file") : t("recipe_files"), picker),
    draft.files.length > 0 && h("p", { class: "muted" }, draft.files.map(file => file.name).join(", ")),
    labelled(t("run_name"), name), h("h2", {}, t("settings")), fields, said,
    h("details", { open: from === "data" }, h("summary", {}, t("recipe_text")), labelled(t("recipe_text"), recipe)), start));
  if (draft.recipe) await drawFields();
  else if (from === "recipe") await preparing(() => useShipped(draft.shipped));
}
// A field of the config, by its JSON schema.
function controlOf({ value, schema }) {
  const kinds = schema.anyOf || [schema], about = schema.description.replaceAll("`", "");
  const tip = { "data-tip": about, "aria-description": about }, listed = kinds.find(kind => kind.enum)?.enum;
  if (listed) return select(listed.map(one => [one, one]), value, () => {}, tip);
  const numeric = kinds.find(kind => ["integer", "number"].includes(kind.type));
  const only = kinds.every(kind => kind === numeric || kind.type === "null"); // not `auto` too
  const limits = { min: numeric?.minimum ?? (numeric && 0), max: numeric?.maximum,
    step: numeric?.type === "integer" ? 1 : "any" };
  return h("input", { ...tip, ...(only ? { type: "number", ...limits } : {}), value: value ?? "" });
}
function valueOf({ schema }, control) {
  if (control.value === "") return null;
  const numeric = (schema.anyOf || [schema]).some(kind => ["integer", "number"].includes(kind.type));
  return numeric && Number.isFinite(Number(control.value)) ? Number(control.value) : control.value;
}
