// The bar at the top of every view: the runs, the sentence, the language and the colours. The address holds all but the
// colours, so that no view forgets what was chosen or typed in another.

import { address, current, go, keep } from "./address.js";
import { get, runPath } from "./api.js";
import { choice, h, labelled, redraw, select } from "./dom.js";
import { icon } from "./icons.js";
import { inputFields } from "./inputs.js";
import { startPresenting } from "./presenter.js";
import { language, setLanguage, t } from "./text.js";

// What of an address another run would misread.
const OF_A_RUN = ["view", "layer", "head", "rollout", "zoom", "word", "job", "step", "stage", "moment", "changes", "branches", "label", "predicted", "all", "source_language", "target_language"];

// The runs that can be used, the chosen one, its facts and the fields of its input. `failure` is why a run cannot be opened.
export async function chosenRun(view, params) {
  const runs = (await get("/runs")).filter(run => !run.error && run.parameters !== null);
  const [first] = (params.runs || "").split(",");
  const wanted = params.run || (runs.some(run => run.name === first) ? first : "");
  const run = wanted ? runs.find(one => one.name === wanted) : runs.find(one => one.task === "translation") || runs[0];
  let facts = null, failure = null;
  if (run) {
    try { facts = await get(runPath(run.name)); } catch (error) { failure = error; }
    const now = current(); // the reader may have gone on
    if (!now.params.run && now.view === view && !["start", "runs"].includes(view)) keep({ run: run.name });
  }
  return { runs, run, facts, failure, fields: await inputFields(facts, params) };
}

// The other runs of the same task that are compared with the chosen one.
export function comparedRuns({ runs, run }, params) {
  const named = (params.runs || "").split(",");
  return runs.filter(one => one !== run && one.task === run?.task && named.includes(one.name));
}

export function drawBar(header, chosen, view, { action, submit, setTheme }) {
  const { runs, run, fields } = chosen, { params } = current();
  const others = run ? comparedRuns(chosen, params) : [];
  redraw(header,
    h("a", { class: "brand", href: address("start"), "aria-label": "regard" }, "re", h("i", {}, "gard")),
    h("div", { class: "chosen" },
      labelled(t("run"), runChooser(chosen, view)),
      others.map(one => chip(one, others, view)), adder(chosen, others, view)),
    h("form", { class: "sentence", onsubmit: event => { event.preventDefault(); fields.store(); submit(); } },
      fields.element, h("button", { class: "primary" }, t(`action_${action}`))),
    more(header), switches(setTheme));
}
// On a phone the bar is two lines: what is used less often opens here.
function more(header) {
  const button = h("button", { type: "button", class: "square more", "aria-label": t("bar_more"), "aria-expanded": String(header.classList.contains("opened")), onclick: () => {
    button.setAttribute("aria-expanded", String(header.classList.toggle("opened")));
  } }, icon("more"));
  return button;
}
// The name of a run, with its model if the name does not say it.
const letters = text => text.toLowerCase().replace(/[^a-z]/g, "");
const titled = run => letters(run.name).includes(letters(run.model)) ? run.name : `${run.name} · ${t(`model_${run.model}`)}`;
function runChooser({ runs, run }, view) {
  const tasks = [...new Set(runs.map(one => one.task))];
  const chooser = h("select", { onchange: () => go(view, forRun(chooser.value)) },
    !run && h("option", { value: "" }, t("choose_run")),
    tasks.map(task => h("optgroup", { label: t(`task_${task}`) }, runs.filter(one => one.task === task)
      .map(one => h("option", { value: one.name }, titled(one))))));
  chooser.value = run?.name ?? "";
  return chooser;
}

// The present parameters for another run: the sentence stays.
function forRun(name) {
  const { params } = current(), own = Object.fromEntries(OF_A_RUN.map(one => [one, undefined]));
  return { ...params, ...own, run: name };
}
function compareWith(names, view) {
  const { params } = current();
  go(view, { ...params, job: undefined, runs: names.join(",") });
}
function chip(run, others, view) {
  const rest = others.filter(one => one !== run).map(one => one.name);
  return h("span", { class: "chip" }, h("a", { href: address(view, forRun(run.name)) }, run.name),
    h("button", { type: "button", class: "bare", "aria-label": t("compare_without", { run: run.name }),
      onclick: () => compareWith(rest, view) }, icon("close")));
}
function adder({ runs, run }, others, view) {
  const free = runs.filter(one => run && one.task === run.task && one !== run && !others.includes(one));
  if (!free.length) return null;
  const options = [["", t("compare_add")], ...free.map(one => [one.name, titled(one)])];
  return select(options, "", name => name && compareWith([run.name, ...others.map(one => one.name), name], view),
    { class: "adder", "aria-label": t("compare_with") });
}
function switches(setTheme) {
  const themes = ["system", "light", "dark"].map(name => [name, t(`theme_${name}`), icon(name)]);
  const present = h("button", { type: "button", class: "square", "aria-label": t("present"), "data-tip": t("present_hint"),
    onclick: startPresenting }, icon("present"));
  return h("div", { class: "switches" },
    choice(t("language"), [["en", "English"], ["ko", "한국어"]], language(), value => {
      setLanguage(value);
      go(current().view, { ...current().params, lang: value });
    }),
    choice(t("theme"), themes, localStorage.getItem("regard-theme") || "system", setTheme), present);
}
