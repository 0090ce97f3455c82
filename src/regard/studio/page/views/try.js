// An input, fitted to the task, and the answer as it is written. What is drawn follows from what the answer contains.
import { address, current, keep } from "../address.js";
import { post, runPath, stream } from "../api.js";
import { likeliestBars, tokenTree } from "../branches.js";
import { choice, empty, h, labelled, problem } from "../dom.js";
import { GAP, markUnknown, markedBy, untilLeft } from "../parts.js";
import { table } from "../reports.js";
import { t } from "../text.js";
import { importance } from "../watched.js";

const SEARCH = ["beam", "nbest", "length_penalty"], SAMPLING = ["temperature", "top_k", "top_p", "seed"];
const WHOLE = ["beam", "nbest", "top_k", "seed"];

const chats = new Map(); // what was said, by the run's name: it outlives the view

export async function render({ stage, controls, onsubmit, run, facts, fields, params }) {
  if (!facts.answers) return void stage.append(empty(t("try_none"), t("try_none_hint"), h("a", { class: "button primary", href: address("model") }, t("view_model"))));
  const options = searchOptions(facts, params), left = untilLeft(), place = h("div", { class: "results" });
  const mayChat = facts.converses;
  if (mayChat) {
    const modes = [["one", t("mode_one")], ["chat", t("mode_chat")]];
    const turn = mode => { keep({ mode: mode === "chat" ? mode : "" }); draw(mode); };
    controls.append(h("div", { class: "field" }, h("span", {}, t("mode")),
      choice(t("mode"), modes, params.mode || "one", turn)));
  }
  const examples = h("div", { class: "examples" });
  controls.append(...[options.element, examples].filter(Boolean));
  stage.append(place);

  // The answer to an input: each(text so far), then the whole prediction.
  async function ask(input, each, signal) {
    let prediction = null;
    await stream(runPath(run.name, "predict"), { inputs: [input], stream: true, ...options.chosen(), ...fields.languages() }, (kind, data) => {
      if (kind === "output") each(data.output);
      else if (kind === "error") throw new Error(data.error);
      else prediction = data;
    }, AbortSignal.any([left, signal]));
    return prediction;
  }

  function drawOne() {
    const result = h("section", { "aria-live": "polite" }, empty(t("try_empty"), t("try_empty_hint"),
      h("button", { type: "button", class: "primary", onclick: () => submit() }, t("begin"))));
    let stopping = null;
    const stop = h("button", { type: "button", hidden: true, onclick: () => stopping.abort() }, t("stop"));
    async function submit(branches = "") {
      keep({ ...options.chosen(), branches });
      stopping?.abort();
      const own = stopping = new AbortController(), writing = h("p", { class: "answer" });
      stop.hidden = false;
      result.replaceChildren(writing);
      try {
        const prediction = await ask(fields.value(), text => { writing.textContent = text; }, own.signal);
        const links = h("p", {}, h("a", { class: "button", href: address("look", { text: fields.text() || current().params.text }) }, t(facts.attends ? "look_at_it" : "look_inside")));
        const byToken = h("div"), unknown = h("div");
        result.replaceChildren(unknown, ...drawn(prediction, fields.parts()), links, byToken);
        await Promise.all([markUnknown(unknown, run, facts, fields.parts(), left), facts.task === "classification" && weighWords(byToken), facts.writes && prediction.tokens?.length && followTokens(byToken, prediction.tokens, branches)]);
      } catch (error) { if (error.name !== "AbortError") result.replaceChildren(problem(error)); }
      if (own === stopping) stop.hidden = true;
    }
    async function followTokens(place, first, branches) {
      const input = fields.value(), wanted = branches ? JSON.parse(branches) : [];
      place.replaceChildren(await tokenTree({ run, input, first, wanted, languages: fields.languages(), signal: left }));
    }
    // Each word as strong as the answer depends on it.
    async function weighWords(place) {
      const { figures } = await post(runPath(run.name, "attention"), { input: fields.value(), view: "occlusion" }, left), bars = figures.find(one => one.kind === "bars");
      if (!bars) return;
      const words = bars.categories.map((word, n) => [word, Object.values(bars.series)[0][n]]);
      place.replaceChildren(h("section", { class: "by-token" }, h("h2", {}, t("look_occlusion")), h("p", { class: "muted" }, t("weighed_hint")), h("div", { class: "weighed" }, importance(words))));
    }
    const use = text => { fields.use(text); submit(); };
    const offered = facts.examples.map((text, n) => h("button", { type: "button", class: "example", "data-tip": text.startsWith("data:") ? null : text.replace(/\t|\n/g, " · "), onclick: () => use(text) },
      text.startsWith("data:") ? h("img", { src: text, alt: t("example", { n: n + 1 }) }) : h("span", {}, text.replace(/\t|\n/g, " · "))));
    examples.replaceChildren(...(offered.length ? [h("h2", {}, t("examples")), ...offered] : []));
    place.replaceChildren(result, h("div", { class: "buttons" }, stop));
    onsubmit(() => submit());
    const given = fields.value();
    if (given.length) submit(params.branches);
  }

  function drawChat() {
    const log = h("ol", { class: "chat", role: "log", tabindex: 0 }), said = chats.get(run.name) || [];
    chats.set(run.name, said);
    const show = ({ who, text }) => {
      const words = h("span", {}, text);
      log.append(h("li", { class: who }, h("b", {}, t(`chat_${who}`)), words));
      words.scrollIntoView({ block: "nearest" });
      return words;
    };
    const list = () => {
      log.replaceChildren();
      if (said.length) said.forEach(show); else log.append(h("li", { class: "muted" }, t("chat_empty")));
    };
    async function submit() {
      const text = fields.text();
      if (!text) return;
      if (!said.length) log.replaceChildren();
      const [mine, answer] = [{ who: "you", text }, { who: "run", text: "" }];
      said.push(mine, answer);
      show(mine);
      const words = show(answer);
      try {
        answer.text = (await ask(text, so => { words.textContent = so; }, left)).output;
        words.textContent = answer.text;
      } catch (error) { words.replaceWith(problem(error)); }
    }
    const clear = h("button", { type: "button", onclick: () => { said.length = 0; list(); } }, t("chat_clear"));
    examples.replaceChildren();
    place.replaceChildren(h("p", { class: "muted" }, t("chat_hint")), log, h("div", { class: "buttons" }, clear));
    list();
    onsubmit(submit);
  }
  const draw = mode => mode === "chat" && mayChat ? drawChat() : drawOne();
  draw(params.mode);
}

// Controls for a run that searches; chosen() has only what differs from the run's own settings.
function searchOptions(facts, params) {
  if (!facts.writes) return { element: null, chosen: () => ({}) };
  const own = facts.recipe.search, fields = {};
  const field = name => fields[name] = h("input", { type: "number", step: WHOLE.includes(name) ? 1 : "any", min: 0,
    value: params[name] ?? own[name] ?? "", oninput: () => keep({ [name]: fields[name].value }) });
  const sample = h("input", { type: "checkbox", checked: "sample" in params ? params.sample === "true" : own.sample,
    onchange: () => { keep({ sample: sample.checked }); follow(); } });
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
  const answer = entities ? marked(parts.text ?? prediction.input, entities) : masks?.length ? filled(prediction) : text || none();
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
  } else if (Number.isFinite(prediction.score) && !prediction.tokens?.length) { // token by token it stands there
    shown.push(h("p", { class: "muted" }, `${t("log_p")} ${(prediction.score || 0).toFixed(3).replace("-0.000", "0.000")}`));
  }
  if (parts.story) { // of which the bar shows one line
    const lines = parts.story.split("\n").map(line => line.trim()).filter(Boolean);
    shown.push(h("section", { class: "story" }, h("h2", {}, parts.question), h("ol", {}, lines.map(line => h("li", {}, line)))));
  }
  return shown;
}
// The input with the likeliest word in each gap; a second text begins a line.
function filled({ input, output, masks }) {
  const pieces = input.replaceAll("\t", "\n").split(GAP);
  if (pieces.length !== masks.length + 1) return output;
  return pieces.flatMap((piece, n) => n ? [h("mark", { "data-tip": masks[n - 1].probabilities[0].toFixed(3) }, masks[n - 1].words[0]), piece] : [piece]);
}
const marked = (text, spans) => markedBy(text, spans, (span, { type, probability }) =>
  h("mark", { "data-tip": probability?.toFixed(3) }, span, type && h("small", {}, type)));
// Bars of text, which stay as large on a phone.
function bars(probabilities, title) {
  const kept = probabilities.slice(0, 20).map(([name, probability]) => ({ label: name, probability }));
  return h("figure", { class: "likely" }, h("figcaption", {}, title), likeliestBars(kept, 1));
}
