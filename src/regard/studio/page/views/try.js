// An input, fitted to the task, and the answer as it is written. What is drawn follows from what the answer contains.
/* global drawFigure */

import { address, keep } from "../address.js";
import { get, runPath, stream } from "../api.js";
import { choice, empty, h, labelled, problem } from "../dom.js";
import { chooseRun, holdImage, inputFields, untilLeft } from "../parts.js";
import { table } from "../reports.js";
import { t } from "../text.js";

const SEARCH = ["beam", "nbest", "length_penalty"], SAMPLING = ["temperature", "top_k", "top_p", "seed"];
const WHOLE = ["beam", "nbest", "top_k", "seed"];

export async function render(root, params) {
  const run = await chooseRun(root, params);
  if (!run) return;
  const facts = await get(runPath(run.name)), options = searchOptions(facts, params), left = untilLeft();
  const mayChat = facts.writes === "target" && facts.inputs.length === 1 && facts.inputs[0] === "source";
  if (mayChat) {
    const modes = [["one", t("mode_one")], ["chat", t("mode_chat")]];
    const turn = mode => { keep({ mode: mode === "chat" ? mode : "" }); draw(mode); };
    root.append(h("div", { class: "field" }, h("span", {}, t("mode")),
      choice(t("mode"), modes, params.mode || "one", turn)));
  }
  const place = h("div");
  root.append(place);

  // The answer to an input: each(text so far), then the whole prediction.
  async function ask(input, each, signal) {
    let prediction = null;
    await stream(runPath(run.name, "predict"), { inputs: [input], stream: true, ...options.chosen() }, (kind, data) => {
      if (kind === "output") each(data.output);
      else if (kind === "error") throw new Error(data.error);
      else prediction = data;
    }, AbortSignal.any([left, signal]));
    return prediction;
  }

  function drawOne() {
    const result = h("section", { "aria-live": "polite" }, empty(t("try_empty"), t("try_empty_hint")));
    let fields = inputFields(facts, params.text || "");
    const holder = h("div", { class: "stack" }, fields.element);
    const button = h("button", { class: "primary" }, t("answer"));
    let stopping = null;
    const stop = h("button", { type: "button", hidden: true, onclick: () => stopping.abort() }, t("stop"));
    async function submit(event) {
      event?.preventDefault();
      keep({ run: run.name, text: fields.text(), ...options.chosen() });
      if (facts.inputs[0] === "image" && !fields.value()) return result.replaceChildren(empty(t("try_empty"), t("try_empty_hint")));
      stopping = new AbortController();
      button.disabled = true; stop.hidden = false;
      const writing = h("p", { class: "answer" });
      result.replaceChildren(writing);
      try {
        const prediction = await ask(fields.value(), text => { writing.textContent = text; }, stopping.signal);
        const look = address("look", { run: run.name, text: fields.text() });
        result.replaceChildren(...drawn(prediction, fields.parts()),
          h("p", {}, h("a", { href: look }, t("look_at_it"))));
      } catch (error) { if (error.name !== "AbortError") result.replaceChildren(problem(error)); }
      button.disabled = false; stop.hidden = true;
    }
    function use(text) {
      if (facts.inputs[0] === "image") holdImage(facts.name, text);
      fields = inputFields(facts, text);
      holder.replaceChildren(fields.element);
      submit();
    }
    const examples = facts.examples.map((text, n) => h("button", { type: "button", class: "example", onclick: () => use(text) },
      text.startsWith("data:") ? h("img", { src: text, alt: t("example", { n: n + 1 }) }) : text.replace(/\t|\n/g, " · ")));
    place.replaceChildren(h("form", { class: "stack", onsubmit: submit }, holder,
      examples.length > 0 && h("div", { class: "buttons" }, h("span", { class: "muted" }, t("examples")), examples),
      options.element, h("div", { class: "buttons" }, button, stop)), result);
    if (params.text) submit();
  }

  function drawChat() {
    const log = h("ol", { class: "chat", role: "log" });
    const line = h("input", { autocomplete: "off", spellcheck: "false" });
    const clear = () => log.replaceChildren(h("li", { class: "muted" }, t("chat_empty")));
    const say = (who, text = "") => {
      log.querySelector(".muted")?.remove();
      const said = h("span", {}, text);
      log.append(h("li", { class: who }, h("b", {}, t(`chat_${who}`)), said));
      said.scrollIntoView({ block: "nearest" });
      return said;
    };
    async function submit(event) {
      event.preventDefault();
      const text = line.value.trim();
      if (!text) return;
      line.value = "";
      say("you", text);
      const said = say("run");
      try {
        said.textContent = (await ask(text, so => { said.textContent = so; }, left)).output;
      } catch (error) { said.replaceWith(problem(error)); }
      line.focus();
    }
    clear();
    const buttons = h("div", { class: "buttons" }, h("button", { class: "primary" }, t("answer")),
      h("button", { type: "button", onclick: clear }, t("chat_clear")));
    place.replaceChildren(h("p", { class: "muted" }, t("chat_hint")), log,
      h("form", { class: "stack", onsubmit: submit }, labelled(t("part_source"), line), buttons, options.element));
    line.focus();
  }
  const draw = mode => mode === "chat" && mayChat ? drawChat() : drawOne();
  draw(params.mode);
}

// Controls for a run that searches; chosen() has only what differs from the run's own settings.
function searchOptions(facts, params) {
  if (!facts.writes) return { element: null, chosen: () => ({}) };
  const own = facts.recipe.search, fields = {};
  const field = name => fields[name] = h("input", { type: "number", step: WHOLE.includes(name) ? 1 : "any", min: 0,
    value: params[name] ?? own[name] ?? "" });
  const sample = h("input", { type: "checkbox", checked: "sample" in params ? params.sample === "true" : own.sample,
    onchange: () => follow() });
  const searching = h("div", { class: "controls" }, SEARCH.map(name => labelled(t(`search_${name}`), field(name))));
  const sampling = h("div", { class: "controls" }, SAMPLING.map(name => labelled(t(`search_${name}`), field(name))));
  function follow() {
    sampling.hidden = !sample.checked;
    fields.beam.disabled = fields.length_penalty.disabled = sample.checked;
  }
  function chosen() {
    const chosen = sample.checked === own.sample ? {} : { sample: sample.checked };
    for (const [name, input] of Object.entries(fields)) {
      const offered = !input.disabled && (sample.checked || SEARCH.includes(name));
      if (offered && input.value !== "" && Number(input.value) !== own[name]) chosen[name] = Number(input.value);
    }
    if (sample.checked && own.beam > 1) chosen.beam = chosen.nbest || 1;
    else if (chosen.nbest > (chosen.beam ?? own.beam)) chosen.beam = chosen.nbest;
    return chosen;
  }
  follow();
  const tick = h("label", { class: "tick" }, sample, t("sample"));
  return { element: h("details", {}, h("summary", {}, t("search_options")), searching, tick, sampling), chosen };
}

// ------------------------------------------------------------------------------------------------------- the answer

export function drawn(prediction, parts) {
  const { output, probabilities, nbest, entities, masks, next_sentence: next, start, end } = prediction,
    none = () => h("i", {}, t("no_answer"));
  const text = prediction.choice ?? (typeof output === "number" ? String(Number(output.toPrecision(4))) : output);
  const answer = entities ? marked(parts.text ?? prediction.input, entities) : text || none();
  const shown = [h("p", { class: "answer" }, answer)];
  if (Number.isInteger(start)) shown.push(h("p", { class: "context" }, marked(parts.context, [{ start, end }])));
  const choices = parts.choices?.split("\n").map(line => line.trim()).filter(Boolean);
  const named = Object.entries(probabilities || {}).map(([name, p]) => [choices?.[name] ?? name, p]); // a choice by its number
  if (named.length) shown.push(bars(named.sort(([, one], [, other]) => other - one), t("probabilities")));
  for (const mask of masks || []) {
    shown.push(bars(mask.words.map((word, n) => [word, mask.probabilities[n]]), t("probabilities")));
  }
  if (next !== undefined) shown.push(bars([[t("follows"), next], [t("follows_not"), 1 - next]], t("next_sentence")));
  if (nbest?.length > 1) {
    const rows = nbest.map(one => [{ element: one.output || none() }, { text: one.score.toFixed(3) }]);
    const columns = [{ name: t("output") }, { name: t("log_p"), numeric: true }];
    shown.push(h("h2", {}, t("best_outputs")), table(columns, rows, { title: t("best_outputs") }));
  } else if (Number.isFinite(prediction.score)) {
    shown.push(h("p", { class: "muted" }, `${t("log_p")} ${prediction.score.toFixed(3)}`));
  }
  return shown;
}
// A text with spans of characters marked; Python counts code points, so does this.
function marked(text, spans) {
  const letters = [...text], pieces = [];
  let at = 0;
  for (const { start, end, type, probability } of [...spans].sort((one, other) => one.start - other.start)) {
    const span = letters.slice(start, end).join("");
    pieces.push(letters.slice(at, start).join(""),
      h("mark", { "data-tip": probability?.toFixed(3) }, span, type && h("small", {}, type)));
    at = end;
  }
  return [...pieces, letters.slice(at).join("")];
}
function bars(probabilities, title) {
  const figure = h("figure"), kept = probabilities.slice(0, 20);
  drawFigure(figure, { kind: "bars", title, categories: kept.map(([name]) => name),
    series: { [title]: kept.map(([, p]) => p) }, value_label: title, longest: 1 });
  return figure;
}
