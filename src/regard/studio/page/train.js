// The form that starts a training: a recipe chosen by its task, or a proposal for the reader's own files; what the files were
// taken for, and the plan in words, before the button.

import { address, go } from "./address.js";
import { get, post } from "./api.js";
import { choice, h, labelled, problem, select } from "./dom.js";
import { figures, untilLeft } from "./parts.js";
import { job, table } from "./reports.js";
import { t } from "./text.js";

const PAUSE = 700, PREVIEWED = 5;
const COMMON = ["training.steps", "training.epochs", "model.preset", "training.learning_rate", "training.batch_tokens", "tokenizer.vocabulary"];
const NO_COLUMN = ["file", "corpus", "size", "weight", "header", "split", "about"]; // of a corpus in a recipe

// What was typed into the form: it outlives the view, the language and the colours.
const draft = { recipe: "", name: "", shipped: "dates", files: [], values: {}, from: "recipe", columns: null };

export async function renderForm({ stage, controls, heading, hint, params }) {
  const recipes = await get("/recipes"), from = draft.from = params.from || draft.from, left = untilLeft();
  if (params.recipe in recipes) Object.assign(draft, { shipped: params.recipe, recipe: "" });
  const said = h("div", { class: "said" }), plan = h("div", { class: "plan", "aria-live": "polite" }), preview = h("div");
  const recipe = h("textarea", { class: "code", rows: 14, spellcheck: "false", value: draft.recipe,
    oninput: () => { draft.recipe = recipe.value; }, onchange: () => drawFields().then(planSoon) });
  const fields = h("div", { class: "controls grid" }), more = h("div", { class: "controls grid" });
  const start = h("button", { class: "primary" }, t("train"));
  const name = h("input", { required: true, pattern: "[\\p{L}\\p{N}][\\p{L}\\p{N}_.\\-]{0,63}",
    value: params.name || draft.name, oninput: () => { draft.name = name.value; } });
  let own = {}, waiting = 0, planned = 0;
  const fail = error => { if (error.name !== "AbortError") said.replaceChildren(problem(error)); };
  // While a file is read or a recipe is looked at there is nothing to train yet.
  async function preparing(work) {
    start.disabled = true;
    said.replaceChildren();
    try { await work(); } catch (error) { fail(error); } finally { start.disabled = !draft.recipe; }
  }
  const setRecipe = text => { recipe.value = draft.recipe = text; draft.values = {}; };
  const setName = text => { name.value = draft.name = text; };
  const settings = () => Object.fromEntries(Object.entries(own).map(([path, { field, control }]) => [path, valueOf(field, control), field.value])
    .filter(([, value, before]) => value !== before).map(([path, value]) => [path, value]));

  async function drawFields() {
    own = {};
    try {
      const drawn = (await post("/form", { recipe: recipe.value })).map(field => {
        const control = controlOf(field), [, key] = field.path.split(".");
        if (field.path in draft.values) control.value = draft.values[field.path];
        control.addEventListener("input", () => { draft.values[field.path] = control.value; planSoon(); });
        own[field.path] = { field, control };
        return [field.path, labelled([t(`field_${key}`), h("span", { class: "field-path" }, ` ${field.path}`)], control)];
      });
      fields.replaceChildren(...drawn.filter(([path]) => COMMON.includes(path)).map(([, element]) => element));
      more.replaceChildren(...drawn.filter(([path]) => !COMMON.includes(path)).map(([, element]) => element));
    } catch (error) { fields.replaceChildren(); more.replaceChildren(); fail(error); }
  }
  async function useShipped(chosen) {
    draft.shipped = chosen;
    for (const card of stage.querySelectorAll(".card")) card.setAttribute("aria-pressed", String(card.dataset.recipe === chosen));
    setRecipe((await get(`/recipes/${encodeURIComponent(chosen)}`)).recipe);
    if (!name.value || name.value in recipes) setName(chosen);
    await drawFields();
    planSoon();
  }
  async function useFiles(list) {
    draft.files = await Promise.all([...list].map(async file => ({ name: file.name, text: await file.text() })));
    listFiles();
    if (from === "recipe") return planSoon(); // which names them
    setRecipe("");
    plan.replaceChildren();
    preview.replaceChildren(...previewOf(draft.files, draft.columns = null));
    const found = await job(said, "/check", { files: draft.files }, null, left);
    if (!found) return;
    preview.replaceChildren(...previewOf(draft.files, draft.columns = found.columns));
    if (!found.proposal) throw new Error(sentences(found.mistakes));
    setRecipe(found.proposal);
    if (!name.value) setName(list[0].name.replace(/\.[^.]*$/, "").replace(/[^\p{L}\p{N}_.-]/gu, "-"));
    await drawFields();
    drawPlan(found);
  }
  const chosenFiles = h("p", { class: "muted" });
  const listFiles = () => { chosenFiles.textContent = draft.files.map(file => file.name).join(", "); };

  // ------------------------------------------------------------------------------------------------- the plan
  function planSoon() {
    clearTimeout(waiting);
    plan.setAttribute("aria-busy", "true");
    waiting = setTimeout(() => { if (plan.isConnected) makePlan(); }, PAUSE);
  }
  async function makePlan() {
    const number = ++planned, needs = from === "recipe" && recipes[draft.shipped]?.needs_files && !draft.files.length;
    if (needs) return void plan.replaceChildren(h("p", { class: "muted" }, t("plan_needs_files")));
    const place = h("div");
    plan.replaceChildren(h("p", { class: "muted" }, t("plan_making")), place);
    try {
      const found = await job(place, "/check", { recipe: recipe.value, settings: settings(), files: draft.files }, null, left);
      if (found && number === planned) drawPlan(found);
    } catch (error) {
      if (number === planned && error.name !== "AbortError") plan.replaceChildren(problem(error));
    }
  }
  function drawPlan({ result: { model, data, training }, notes, mistakes }) {
    plan.setAttribute("aria-busy", "false");
    if (mistakes.length) return void plan.replaceChildren(problem(new Error(sentences(mistakes))));
    if (!training) return void plan.replaceChildren();
    const count = part => figures(data?.splits?.[part]?.kept ?? 0), steps = figures(training.steps ?? 0);
    const told = [t("plan_model", { model: t(`model_${model.kind}`), count: figures(model.parameters) }),
      t("plan_data", { train: count("train"), validation: count("validation"), test: count("test") }),
      t("plan_time", { steps, time: duration(training.seconds), memory: memory(training.memory_bytes), device: training.device })];
    plan.replaceChildren(...[h("h2", {}, t("plan")), ...told.map(text => h("p", {}, text)),
      notes.length > 0 && h("ul", {}, notes.slice(0, 4).map(note => h("li", {}, note))), samplesOf(data?.samples)].filter(Boolean));
  }

  async function submit(event) {
    event.preventDefault();
    try {
      await post("/trainings", { name: name.value, recipe: recipe.value, settings: settings(), files: draft.files });
      Object.assign(draft, { recipe: "", name: "", files: [], values: {}, columns: null });
      go("runs", { run: name.value, new: undefined, runs: undefined });
    } catch (error) { fail(error); }
  }
  const picker = h("input", { type: "file", multiple: true, onchange: () => preparing(() => useFiles(picker.files)) });
  const ways = [["recipe", t("from_recipe")], ["data", t("from_data")]];
  const useOther = value => {
    Object.assign(draft, { from: value, name: "", recipe: "", values: {}, files: [], columns: null });
    go("runs", { new: 1, from: value });
  };
  heading.textContent = t("train_new");
  hint.replaceChildren(h("a", { href: address("runs", { all: 1 }) }, `← ${t("back")}`), h("br"), t("train_new_hint"));
  const form = h("form", { class: "stack", id: "training", onsubmit: submit }, labelled(t("run_name"), name), fields, plan, said, start);
  const way = h("div", { class: "field" }, h("span", {}, t("train_from")), choice(t("train_from"), ways, from, useOther));
  const narrow = matchMedia("(max-width: 60rem)").matches; // there the rail is folded
  if (narrow) stage.append(way); else controls.replaceChildren(way, form);
  const dropped = h("div", { class: "drop", ondragover: event => event.preventDefault(), ondrop: event => {
    event.preventDefault();
    preparing(() => useFiles(event.dataTransfer.files));
  } }, labelled(from === "data" ? t("data_file") : t("recipe_files"), picker), chosenFiles);
  stage.append(...[from === "recipe" && cardsByTask(recipes, chosen => preparing(() => useShipped(chosen))),
    (from === "data" || recipes[draft.shipped]?.needs_files) && dropped, preview,
    narrow && form, h("details", {}, h("summary", {}, t("settings_more")), more),
    h("details", { open: from === "data" }, h("summary", {}, t("recipe_text")), labelled(t("recipe_text"), recipe))].filter(Boolean));
  listFiles();
  if (from === "data") preview.replaceChildren(...previewOf(draft.files, draft.columns));
  start.disabled = !draft.recipe;
  if (draft.recipe) drawFields().then(planSoon);
  else if (from === "recipe") await preparing(() => useShipped(draft.shipped));
}
const sentences = mistakes => mistakes.map(([where, what, hint]) => `${where}: ${what}${hint ? ` (${hint})` : ""}`).join("\n");

// Seconds and bytes in words.
function duration(seconds) {
  if (!(seconds > 0)) return "–";
  if (seconds < 90) return t("seconds", { count: Math.max(1, Math.round(seconds)) });
  return seconds < 5400 ? t("minutes", { count: Math.round(seconds / 60) }) : t("hours", { count: (seconds / 3600).toFixed(1) });
}
const memory = bytes => bytes >= 1e9 ? `${(bytes / 1e9).toFixed(1)} GB` : `${Math.max(1, Math.round(bytes / 1e6))} MB`;

// ------------------------------------------------------------------------------------------------------------ recipes

function cardsByTask(recipes, choose) {
  const first = recipes[draft.shipped]?.task, tasks = [...new Set([first, ...Object.values(recipes).map(one => one.task)])];
  const card = ([name, { about, model, needs_files: files }]) => h("button", { type: "button", class: "card", "data-recipe": name, "aria-pressed": String(name === draft.shipped), onclick: () => choose(name) },
    h("b", {}, name), h("span", {}, about), h("small", { class: "muted" }, [model && t(`model_${model}`), files ? t("needs_files") : t("built_in")].filter(Boolean).join(" · ")));
  return h("div", { class: "recipes" }, tasks.map(task => {
    const named = Object.entries(recipes).filter(([, one]) => one.task === task).sort(([, one], [, other]) => one.needs_files - other.needs_files);
    const open = named.some(([name]) => name === draft.shipped);
    return h("details", { open }, h("summary", {}, `${t(`task_${task}`)} (${named.length})`), h("div", { class: "cards" }, named.map(card)));
  }));
}

// ------------------------------------------------------------------------------------------------------------ preview

// The first rows of the files as they are, with what each column was taken for; `columns` is null until that is known.
function previewOf(files, columns) {
  if (!files.length) return [h("div", { class: "empty" }, h("h2", {}, t("data_empty")), h("p", {}, t("data_empty_hint")))];
  const corpora = Array.isArray(columns) ? columns : columns ? [columns] : [];
  return [h("h2", {}, t("preview")), ...files.map(file => {
    const of = corpora.find(one => Object.values(one).includes(file.name)) || {};
    return h("div", { class: "previewed" }, h("p", {}, h("b", {}, file.name)), tableOf(rowsOf(file), of, file.name));
  }), h("p", { class: "muted" }, columns ? t("preview_hint") : t("preview_reading"))];
}
function tableOf(rows, corpus, file) {
  const roles = Object.entries(corpus).filter(([role, at]) => !NO_COLUMN.includes(role) && (typeof at === "number" || typeof at === "string"));
  const whole = roles.find(([, at]) => at === file), named = roles.some(([, at]) => typeof at === "string") && !whole;
  const [first = [], ...rest] = rows, shown = (named ? rest : rows).slice(0, PREVIEWED), wide = Math.max(...rows.map(row => row.length), 1);
  const columns = [...Array(wide).keys()].map(n => {
    const role = whole?.[0] ?? roles.find(([, at]) => at === n || (named && at === first[n]))?.[0];
    const head = named ? first[n] : t("column_number", { n });
    return { name: h("span", {}, wide > 1 && h("span", { class: "head" }, head), h("span", { class: role ? "role" : "role unused" }, role ? t(`role_${role}`) : Object.keys(corpus).length ? t("role_none") : "?")) };
  });
  return table(columns, shown.map(row => columns.map((_, n) => ({ text: cut(row[n] ?? "") }))), { title: file });
}
const cut = text => text.length > 160 ? `${text.slice(0, 160)}…` : text;
const SEPARATORS = { csv: ",", tsv: "\t" };
function rowsOf({ name, text }) {
  const kind = name.toLowerCase().split(".").at(-1), lines = text.split(/\r?\n/).filter(Boolean).slice(0, PREVIEWED + 1);
  if (kind === "jsonl") {
    const objects = lines.flatMap(line => { try { return [JSON.parse(line)]; } catch { return []; } });
    const keys = [...new Set(objects.flatMap(one => Object.keys(one)))];
    return [keys, ...objects.map(one => keys.map(key => typeof one[key] === "string" ? one[key] : JSON.stringify(one[key]) ?? ""))];
  }
  return kind in SEPARATORS ? lines.map(line => cellsOf(line, SEPARATORS[kind])) : lines.map(line => [line]);
}
// The cells of a line; a cell in quotes may hold the separator, and two quotes stand for one.
function cellsOf(line, separator) {
  if (separator === "\t") return line.split(separator);
  return [...line.matchAll(/(?:^|,)(?:"((?:[^"]|"")*)"|([^,]*))/g)].map(([, quoted, plain]) => quoted === undefined ? plain : quoted.replaceAll('""', '"'));
}
// What the model reads of the first examples, as tokens.
function samplesOf(samples) {
  if (!samples?.length) return null;
  const { where, ...parts } = samples[0];
  return h("details", {}, h("summary", {}, t("plan_sample")), h("p", { class: "muted" }, where),
    Object.entries(parts).map(([name, tokens]) => h("p", {}, h("b", {}, `${name} `), Array.isArray(tokens) ? tokens.join(" ") : String(tokens))));
}

// ------------------------------------------------------------------------------------------------------------ fields

// A field of the config, by its JSON schema.
function controlOf({ path, value, schema }) {
  const kinds = schema.anyOf || [schema], about = schema.description.replaceAll("`", "");
  const tip = { "data-tip": `${path}\n${about}`, "aria-description": about }, listed = kinds.find(kind => kind.enum)?.enum;
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
