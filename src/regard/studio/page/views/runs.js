// Every run; one run with its curves, live while it is trained; and the form that starts a training.
/* global drawFigure, number */

import { address, go } from "../address.js";
import { get, post, runPath } from "../api.js";
import { choice, empty, h, labelled, problem, redraw, select, svg } from "../dom.js";
import { figures, poll } from "../parts.js";
import { t } from "../text.js";

export async function render(root, params) {
  if (params.run) return renderRun(root, params.run);
  if (params.new) return renderForm(root, params);
  const table = h("div", { class: "wide" });
  root.append(h("h1", {}, t("view_runs")), h("p", { class: "muted" }, t("runs_hint")),
    h("p", {}, h("a", { class: "button primary", href: address("runs", { new: 1 }) }, t("train_new"))), table);
  let shown = "";
  async function draw() {
    const runs = await get("/trainings"), now = JSON.stringify(runs);
    if (now !== shown) redraw(table, runs.length ? listed(runs) : empty(t("no_runs"), t("no_runs_hint")));
    shown = now;
  }
  await draw();
  poll(3, draw);
}

// ------------------------------------------------------------------------------------------------------------ list

const trainingPath = (name, verb = "") => `/trainings/${encodeURIComponent(name)}${verb && "/" + verb}`;
const stateText = run => t(`state_${run.state}`);
const stepText = run => run.steps ? t("step_of", { step: figures(run.step), steps: figures(run.steps) }) : t("step_at", { step: figures(run.step) });

function listed(runs) {
  const columns = [t("name"), t("task"), t("model"), t("parameters"), t("best_metric"), t("curve"), t("state"), t("date")];
  runs.sort((one, other) => (other.date || Infinity) - (one.date || Infinity));
  return h("table", { class: "runs" }, h("thead", {}, h("tr", {}, columns.map(text => h("th", { scope: "col" }, text)))),
    h("tbody", {}, runs.map(row)));
}
function row(run) {
  const name = h("th", { scope: "row" }, h("a", { href: address("runs", { run: run.name }) }, run.name));
  if (run.error) return h("tr", {}, name, h("td", { colspan: 7, class: "bad" }, run.error));
  const [best] = run.metrics || [], metric = best && Object.entries(best).find(([key]) => key !== "step");
  return h("tr", {}, name, h("td", {}, run.task || ""), h("td", {}, run.model || ""), h("td", { class: "number" }, run.parameters ? figures(run.parameters) : ""),
    h("td", {}, metric ? `${metric[0]} ${number(metric[1])}` : ""), h("td", {}, sparkline(run.curves)),
    h("td", { class: run.state === "training" ? "good" : run.state === "failed" ? "bad" : "" }, stateText(run), run.state === "training" && run.step > 0 && h("div", { class: "muted" }, stepText(run))),
    h("td", { class: "number" }, run.date ? new Date(run.date * 1000).toLocaleDateString() : ""));
}
// The loss as a small line; the validation's as a second one.
function sparkline(curves) {
  const [train, validation] = [curves?.train, curves?.validation], width = 120, height = 32;
  const lossOf = one => one?.loss?.length > 1 ? one : null, all = [lossOf(train), lossOf(validation)].filter(Boolean);
  if (!all.length) return "";
  const values = all.flatMap(one => one.loss).filter(Number.isFinite), steps = all.flatMap(one => one.step);
  const [low, high, first, last] = [Math.min(...values), Math.max(...values), Math.min(...steps), Math.max(...steps)];
  const point = one => (loss, n) => `${((one.step[n] - first) / (last - first || 1) * width).toFixed(1)} ${(2 + (high - loss) / (high - low || 1) * (height - 4)).toFixed(1)}`;
  const label = t("curve_of", { steps: figures(last), first: number(values[0]), last: number(all[0].loss.at(-1)) });
  return svg("svg", { class: "spark", width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label },
    all.map((one, n) => svg("path", { class: "curve", d: "M" + one.loss.map(point(one)).join("L"), style: { stroke: `var(--s${n})` } })));
}

// --------------------------------------------------------------------------------------------------------- one run

async function renderRun(root, name) {
  const place = h("div");
  root.append(h("p", {}, h("a", { href: address("runs") }, `← ${t("back")}`)), h("h1", {}, name), place);
  const said = h("div");
  let live = true;
  const act = verb => async () => {
    try { await post(trainingPath(name, verb), {}); said.replaceChildren(); live = true; await draw(); } catch (error) { said.replaceChildren(problem(error)); }
  };
  async function draw() {
    if (!live) return;
    const run = await get(trainingPath(name)), facts = run.steps === undefined ? {} : await get(runPath(name)).catch(() => ({}));
    live = run.state === "training";
    const usable = facts.parameters, links = ["try", "look", "steps", "beam", "errors", "compare"];
    const last = run.curves?.train?.tokens_per_second?.at(-1);
    redraw(place, ...[
      h("p", {}, [facts.task, facts.model, facts.parameters && t("parameter_count", { count: figures(facts.parameters) })].filter(Boolean).join(" · ")),
      h("p", {}, h("b", { class: run.state === "failed" ? "bad" : "good" }, stateText(run)), run.step ? ` · ${stepText(run)}` : "",
        run.state === "training" && last ? ` · ${t("per_second", { count: figures(Math.round(last)) })}` : ""),
      run.message && h("p", { class: "problem", role: "alert" }, run.message),
      h("div", { class: "buttons" }, run.ours && h("button", { type: "button", onclick: act("stop") }, t("stop")),
        run.state === "stopped" && run.steps !== undefined && h("button", { type: "button", onclick: act("resume") }, t("resume")),
        usable && links.map(view => h("a", { class: "button", href: address(view, { run: name }) }, t(`view_${view}`)))), said,
      run.state === "training" && !run.step && h("p", { class: "muted" }, t("waiting_data")),
      curves(run), metrics(run), samples(run),
      facts.recipe && h("details", {}, h("summary", {}, t("recipe")), h("pre", { tabindex: 0 }, JSON.stringify(facts.recipe, null, 1)))].filter(Boolean));
  }
  await draw();
  poll(2, draw);
}
function curves(run) {
  const series = ["train", "validation"].map(kind => [run.curves?.[kind], kind === "train" ? t("training_loss") : t("validation_loss")])
    .filter(([one]) => one?.loss?.length).map(([one, name]) => ({ name, x: one.step, y: one.loss, low: null, high: null }));
  if (!series.length) return null;
  const figure = h("figure");
  drawFigure(figure, { kind: "curves", title: t("curve"), series, x_label: t("training_steps"), y_label: t("loss"), x_ticks: null, from_zero: false });
  return figure;
}
function metrics(run) {
  const { step, ...others } = run.curves?.validation || {}, names = Object.keys(others);
  if (!step?.length) return null;
  const shown = [...step.keys()].slice(-8);
  return h("section", {}, h("h2", {}, t("validations")), h("div", { class: "wide" }, h("table", {}, h("thead", {}, h("tr", {}, [t("training_steps"), ...names].map(text => h("th", { class: "number", scope: "col" }, text)))),
    h("tbody", {}, shown.map(n => h("tr", {}, h("td", { class: "number" }, figures(step[n])), names.map(name => h("td", { class: "number" }, number(others[name][n] ?? 0)))))))));
}
function samples(run) {
  if (!run.samples?.length) return null;
  const columns = ["source", "output", "target"];
  return h("section", {}, h("h2", {}, t("samples")), h("div", { class: "wide" }, h("table", {}, h("thead", {}, h("tr", {}, columns.map(name => h("th", { scope: "col" }, t(`sample_${name}`))))),
    h("tbody", {}, run.samples.map(sample => h("tr", {}, columns.map(name => h("td", {}, sample[name] ?? ""))))))));
}

// ------------------------------------------------------------------------------------------------------------ form

async function renderForm(root, params) {
  const recipes = await get("/recipes"), from = params.from || "recipe", said = h("div");
  const recipe = h("textarea", { class: "code", rows: 14, spellcheck: "false", onchange: () => drawFields() });
  const fields = h("div", { class: "controls grid" }), name = h("input", { required: true, pattern: "[^\\W_][\\w.\\-]{0,63}|[\\p{L}\\p{N}][\\p{L}\\p{N}_.\\-]{0,63}", value: params.name || "" });
  let files = [], own = {};
  const fail = error => said.replaceChildren(problem(error));

  async function drawFields() {
    own = {};
    said.replaceChildren();
    try {
      fields.replaceChildren(...(await post("/form", { recipe: recipe.value })).map(field => {
        const control = controlOf(field);
        own[field.path] = { field, control };
        return labelled(field.path, control);
      }));
    } catch (error) { fields.replaceChildren(); fail(error); }
  }
  async function useShipped(chosen) {
    recipe.value = (await get(`/recipes/${encodeURIComponent(chosen)}`)).recipe;
    if (!name.value || name.value in recipes) name.value = chosen;
    files = [];
    await drawFields();
  }
  async function useFiles(list) {
    said.replaceChildren(h("p", { class: "muted", role: "status" }, t("proposing")));
    files = await Promise.all([...list].map(async file => ({ name: file.name, text: await file.text() })));
    try {
      let job = await post("/check", { files });
      while (["waiting", "running"].includes(job.state)) {
        await new Promise(done => setTimeout(done, 300));
        job = await get(`/jobs/${encodeURIComponent(job.id)}`);
      }
      const problems = job.result?.problems || [];
      if (job.error || problems.length) throw new Error(job.error || problems.map(one => [one.where, one.what, one.hint && `(${one.hint})`].filter(Boolean).join(": ")).join("\n"));
      recipe.value = job.result.proposal;
      name.value ||= list[0].name.replace(/\.[^.]*$/, "").replace(/[^\p{L}\p{N}_.-]/gu, "-");
      await drawFields();
    } catch (error) { fail(error); }
  }
  async function submit(event) {
    event.preventDefault();
    const settings = {};
    for (const [path, { field, control }] of Object.entries(own)) {
      const value = valueOf(field, control);
      if (value !== field.value) settings[path] = value;
    }
    try {
      await post("/trainings", { name: name.value, recipe: recipe.value, settings, files });
      go("runs", { run: name.value });
    } catch (error) { fail(error); }
  }
  const picker = h("input", { type: "file", multiple: true, onchange: () => useFiles(picker.files) });
  const chosen = params.recipe && params.recipe in recipes ? params.recipe : "dates";
  root.append(h("p", {}, h("a", { href: address("runs") }, `← ${t("back")}`)), h("h1", {}, t("train_new")), h("p", { class: "muted" }, t("train_new_hint")),
    h("form", { class: "stack", onsubmit: submit },
      h("div", { class: "field" }, h("span", {}, t("train_from")), choice(t("train_from"), [["recipe", t("from_recipe")], ["data", t("from_data")]], from, value => go("runs", { new: 1, from: value }))),
      from === "recipe" ? labelled(t("recipe"), select(Object.entries(recipes).map(([key, about]) => [key, `${key}: ${about}`]), chosen, value => useShipped(value).catch(fail)))
        : labelled(t("data_file"), picker),
      labelled(t("run_name"), name), h("h2", {}, t("settings")), fields, said,
      h("details", { open: from === "data" }, h("summary", {}, t("recipe_text")), labelled(t("recipe_text"), recipe)),
      h("button", { class: "primary" }, t("train"))));
  if (from === "recipe") await useShipped(chosen).catch(fail);
}
// A field of the config, by its JSON schema.
function controlOf({ value, schema }) {
  const kinds = schema.anyOf || [schema], tip = { "data-tip": schema.description?.replace(/`/g, ""), "aria-description": schema.description };
  const listed = kinds.find(kind => kind.enum)?.enum;
  if (listed) return select(listed.map(one => [one, one]), value, () => {}, tip);
  const numeric = kinds.find(kind => ["integer", "number"].includes(kind.type)), only = kinds.every(kind => ["integer", "number", "null"].includes(kind.type));
  return h("input", { ...tip, value: value ?? "", type: numeric && only ? "number" : "text", min: numeric?.minimum ?? (numeric?.exclusiveMinimum !== undefined ? 0 : null), max: only ? numeric?.maximum : null,
    step: only ? numeric?.type === "integer" ? 1 : "any" : null });
}
function valueOf({ schema }, control) {
  if (control.value === "") return null;
  const numeric = (schema.anyOf || [schema]).some(kind => ["integer", "number"].includes(kind.type));
  return numeric && Number.isFinite(Number(control.value)) ? Number(control.value) : control.value;
}
