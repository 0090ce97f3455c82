// A tour of the studio in five steps. It goes to each view with a run and a sentence, says what is there, and outlines it.
// Escape ends it; the step is kept, so that a reload goes on where it was.

import { current, go } from "./address.js";
import { h } from "./dom.js";
import { icon } from "./icons.js";
import { t } from "./text.js";

const KEPT = "regard-tour";
// The view, what of the page is outlined, and what the view shows.
const STEPS = [
  { name: "bar", view: "try", place: "body > header" },
  { name: "look", view: "look", place: ".stage" },
  { name: "steps", view: "steps", place: ".stage", more: { stage: 5 } }, // the weights are there
  { name: "compare", view: "compare", place: ".stage" },
  { name: "train", view: "runs", place: ".stage", params: { new: 1 } },
];
let shown = null;

// `runs` are the runs that the steps use: [one with attention, others to compare it with], as far as there are any.
export function startTour(runs = [], text = "") {
  sessionStorage.setItem(KEPT, JSON.stringify({ at: 0, runs, text }));
  showStep(0);
}
const kept = () => { try { return JSON.parse(sessionStorage.getItem(KEPT)); } catch { return null; } };

// Go on with a tour that a reload has interrupted, and draw its texts again in another language.
export function continueTour() {
  const tour = kept();
  if (tour) draw(tour.at);
}
function showStep(at) {
  const tour = { ...kept(), at }, { view, params, more } = STEPS[at], [run, ...others] = tour.runs;
  sessionStorage.setItem(KEPT, JSON.stringify(tour));
  go(view, params || { run, text: tour.text || undefined, runs: view === "compare" ? others.join(",") : undefined, new: undefined, ...more });
  draw(at);
}
function end() {
  sessionStorage.removeItem(KEPT);
  outline(null);
  shown?.remove();
  shown = null;
  removeEventListener("keydown", onkey);
  document.getElementById("view").focus();
}
function onkey(event) {
  if (event.key === "Escape" && !document.body.classList.contains("presenting")) end();
}
function outline(place) {
  for (const one of document.querySelectorAll(".toured")) one.classList.remove("toured");
  if (place) document.querySelector(place)?.classList.add("toured");
}
function draw(at) {
  const { name, place, view } = STEPS[at], last = at === STEPS.length - 1;
  const focused = shown?.contains(document.activeElement) ?? true;
  const button = (text, work, primary) => h("button", { type: "button", class: primary ? "primary" : null, onclick: work }, text);
  const next = button(last ? t("tour_end") : t("tour_next"), () => last ? end() : showStep(at + 1), true);
  shown?.remove();
  shown = h("section", { class: "tour", role: "dialog", "aria-label": t("tour") },
    h("div", { class: "tour-head" }, h("span", { class: "muted" }, t("tour_step", { step: at + 1, steps: STEPS.length })),
      h("button", { type: "button", class: "bare", "aria-label": t("tour_close"), onclick: end }, icon("close"))),
    h("h2", {}, t(`tour_${name}`)), h("p", {}, t(`tour_${name}_text`)),
    h("div", { class: "buttons" }, at > 0 && button(t("tour_back"), () => showStep(at - 1)), next));
  document.body.append(shown);
  removeEventListener("keydown", onkey);
  addEventListener("keydown", onkey);
  if (focused) next.focus();
  if (current().view === view) outline(place);
}
