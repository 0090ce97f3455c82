// What several views share.

import { address, current, go } from "./address.js";
import { get, runPath } from "./api.js";
import { empty, h, labelled, problem, select } from "./dom.js";
import { t } from "./text.js";

// Runs that can be used: with a checkpoint. `fits` chooses among them.
export async function usableRuns(fits = () => true) {
  return (await get("/runs")).filter(run => !run.error && run.parameters !== null && fits(run));
}

export const noRuns = () => empty(t("no_runs"), t("no_runs_hint"), h("a", { href: address("runs", { new: 1 }) }, t("train_new")));

// The heading of a view and its chooser of runs. Returns the chosen run's summary; null, with the reason drawn, if there is none.
export async function chooseRun(root, params, fits) {
  const { view } = current(), runs = await usableRuns(fits);
  const heading = h("h1", {}, t(`view_${view}`)), hint = h("p", { class: "muted" }, t(`hint_${view}`));
  if (!runs.length) {
    root.append(heading, hint, noRuns());
    return null;
  }
  const run = params.run ? runs.find(one => one.name === params.run) : runs[0];
  const options = [...(run ? [] : [["", t("choose_run")]]), ...runs.map(one => [one.name, `${one.name} (${one.task}, ${one.model})`])];
  root.append(heading, hint, h("div", { class: "controls" },
    labelled(t("run"), select(options, run?.name ?? "", name => go(view, { ...params, run: name })))));
  if (!run) root.append(empty(t("not_usable", { run: params.run }), h("a", { href: address("runs", { run: params.run }) }, t("why_not"))));
  return run || null;
}

// What an input consists of, as fields. `facts` are those of GET /runs/NAME; `text` is the input as in an address, its parts
// separated as on the command line. { element, value(): the input of a request, "" if there is none, text(): of an address,
// parts(): by name }. An image is in no address: it stays in this page; its part is the name of its file.
const images = new Map();
export const holdImage = (run, url, name = t("part_image")) => images.set(run, { url, name });
export function inputFields(facts, text = "") {
  const separator = facts.inputs.includes("story") ? "\n" : "\t", names = facts.inputs;
  if (names[0] === "image") return imageField(facts, text);
  const pieces = text.split(separator === "\n" ? /\n|(?<=[.!?])\s+/ : separator);
  if (separator === "\n") pieces.splice(0, pieces.length, pieces.slice(0, -1).join("\n"), pieces.at(-1));
  if (names.at(-1) === "choices") pieces.splice(1, pieces.length, pieces.slice(1).join("\n"));
  const fields = names.map((name, n) => h("textarea", { rows: ["story", "context", "choices"].includes(name) ? 4 : 2,
    spellcheck: "false", value: pieces[n] || "", onkeydown: event => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) event.target.form.requestSubmit();
    } }));
  const texts = () => fields.flatMap((field, n) => names[n] === "choices" ? field.value.split("\n") : separator === "\n"
    ? field.value
    : field.value.replaceAll("\t", " ")).map(text => text.trim()).filter(Boolean);
  const joined = () => texts().join(separator);
  return { element: h("div", { class: "stack" }, names.map((name, n) => labelled(t(`part_${name}`), fields[n]))),
    text: joined,
    value: () => names.length > 1 && separator === "\t" && texts().length ? texts() : joined(),
    parts: () => Object.fromEntries(names.map((name, n) => [name, fields[n].value])) };
}
function imageField(facts, text) {
  const held = () => images.get(facts.name) || { url: text, name: t("part_image") };
  const shown = h("img", { class: "given", hidden: true });
  const show = () => {
    const { url, name } = held();
    if (url.startsWith("data:")) Object.assign(shown, { src: url, alt: name, hidden: false });
  };
  const field = h("input", { type: "file", accept: "image/*", onchange: () => {
    const reader = new FileReader(), [file] = field.files;
    reader.onload = () => { holdImage(facts.name, reader.result, file.name); show(); };
    reader.readAsDataURL(file);
  } });
  show();
  return { element: h("div", { class: "stack" }, labelled(t("part_image"), field), shown), value: () => held().url,
    text: () => held().url.startsWith("data:") ? "" : held().url, parts: () => ({ image: held().name }) };
}

// Call `work` every `seconds` until the view is left; if the server does not answer, the next time may be better.
export function poll(seconds, work) {
  const timer = setInterval(() => work().catch(() => {}), seconds * 1000);
  document.getElementById("view").addEventListener("leave", () => clearInterval(timer), { once: true });
}
// An AbortSignal that ends what the view started when it is left.
export function untilLeft() {
  const controller = new AbortController();
  document.getElementById("view").addEventListener("leave", () => controller.abort(), { once: true });
  return controller.signal;
}
// While `work` goes on `place` is marked as busy; what fails is drawn there, unless the view was left.
export async function busy(place, work) {
  place.setAttribute("aria-busy", "true");
  try { await work(); } catch (error) {
    if (error.name !== "AbortError") place.replaceChildren(problem(error));
  } finally { place.setAttribute("aria-busy", "false"); }
}
export const figures = value => value.toLocaleString("en");

// The chosen run and the input of a view that explains it, with the target that may be given; null if there is no run.
export async function explainedInput(root, params) {
  const run = await chooseRun(root, params);
  if (!run) return null;
  const facts = await get(runPath(run.name)), fields = inputFields(facts, params.text || (facts.writes && facts.inputs[0] !== "image" && facts.examples[0]) || "");
  const target = h("input", { value: params.target || "", spellcheck: "false" });
  const form = (action, submit) => h("form", { class: "stack", onsubmit: event => { event.preventDefault(); submit(); } },
    fields.element, facts.writes === "target" && labelled(t("look_target"), target), h("button", { class: "primary" }, action));
  return { run, facts, fields, target, form };
}
