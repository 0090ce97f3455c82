// What several views share.

import { address, keep } from "./address.js";
import { post, runPath } from "./api.js";
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

// The words of an input that are not in the run's vocabulary, marked; nothing if there are none. A gap to be filled is no word.
export const GAP = "[MASK]";
function inGap(text, { start }) {
  const before = [...text].slice(0, start + 1).join("");
  const from = before.lastIndexOf("[");
  return from >= 0 && text.startsWith(GAP, from) && before.length - from <= GAP.length;
}
export async function markUnknown(place, run, facts, texts, signal) {
  if (facts.inputs[0] === "image") return;
  const { unknown } = await post(runPath(run.name, "unknown"), { texts }, signal);
  const spansOf = name => unknown[name].map(([start, end]) => ({ start, end })).filter(span => facts.task !== "masked_language_modeling" || !inGap(texts[name], span));
  const found = Object.keys(unknown).map(name => [name, spansOf(name)]).filter(([, spans]) => spans.length);
  place.replaceChildren(...found.map(([name, spans]) => h("p", { class: "unknown" }, markedBy(texts[name], spans, span => h("s", {}, span)))),
    found.length ? h("p", { class: "muted" }, t("unknown_hint")) : "");
}
// A text with spans of characters marked; Python counts code points, so does this.
export function markedBy(text, spans, mark) {
  const letters = [...text], pieces = [];
  let at = 0;
  for (const span of [...spans].sort((one, other) => one.start - other.start)) {
    pieces.push(letters.slice(at, span.start).join(""), mark(letters.slice(span.start, span.end).join(""), span));
    at = span.end;
  }
  return [...pieces, letters.slice(at).join("")];
}
