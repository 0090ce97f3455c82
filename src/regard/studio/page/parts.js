// What several views share.

import { address, keep } from "./address.js";
import { empty, h, labelled, problem } from "./dom.js";
import { t } from "./text.js";

const trainOne = () => h("a", { class: "button primary", href: address("runs", { new: 1 }) }, t("train_new"));
export const noRuns = () => empty(t("no_runs"), t("no_runs_hint"), trainOne());
export const noSuchRun = run => run
  ? empty(t("not_usable", { run }), h("a", { href: address("runs", { run }) }, t("why_not")))
  : empty(t("choose_run"));

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

// The field for the output that Look and Step by step explain; the address has it in both. null for a run that writes none.
export function targetField(facts, params) {
  const field = h("input", { value: params.target || "", spellcheck: "false", oninput: () => keep({ target: field.value }) });
  return { value: () => field.value, element: facts.writes === "target" ? labelled(t("look_target"), field) : null };
}
