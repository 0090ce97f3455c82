// An output token by token: each token in the shade of its probability, the five likeliest at its place, and the outputs
// that the run writes if another token is taken there.

import { address, keep } from "./address.js";
import { post, runPath } from "./api.js";
import { h, problem } from "./dom.js";
import { regions, rowOf, shownToken, unpacked } from "./heat.js";
import { icon } from "./icons.js";
import { t } from "./text.js";

// Whether a token goes on with the word before it, where the vocabulary marks the beginnings of words.
const goesOn = (label, steps) => /^[\p{L}\p{N}]/u.test(label) && steps.some(one => one.chosen.label.startsWith("▁"));
const percent = p => p >= 0.995 ? "1" : p < 0.005 ? "<.01" : p.toFixed(2).slice(1);
// Where the run hesitated most: there the other tokens are worth a look.
const leastSure = steps => steps.reduce((best, one, n) => one.chosen.probability < steps[best].chosen.probability ? n : best, 0);
const same = (one, other) => one.length === other.length && one.every((token, n) => token === other[n]);

// `ask(tokens, goesOn)` gives the branch with these first tokens; what a chosen token replaces is redone by the run.
// `first` are the tokens of the output, `wanted` those of further branches.
export async function tokenTree({ run, input, first, wanted = [], languages = {}, signal }) {
  const ask = (tokens, goesOn) => post(runPath(run.name, "branch"), { input, tokens, goes_on: goesOn, ...languages }, signal);
  const rows = [], place = h("div", { class: "outputs wide", tabindex: 0, role: "region", "aria-label": t("token_by_token") });
  const source = h("p", { class: "source", "aria-hidden": "true" }), likely = h("div", { class: "likely", role: "group" });
  const failed = h("div");
  let at = { row: 0, step: 0 };

  async function add(tokens, from, goesOn) {
    const found = await ask(tokens, goesOn), exact = found.steps.map(one => one.chosen.token);
    const known = rows.findIndex(row => same(row.exact, exact));
    if (known >= 0) return known; // it is there already
    rows.push({ ...found, exact, from, forced: tokens });
    return rows.length - 1;
  }
  async function force(row, step, token) {
    failed.replaceChildren();
    likely.setAttribute("aria-busy", "true");
    try {
      at = { row: await add([...rows[row].exact.slice(0, step), token], step, true), step };
      store();
      draw();
      place.querySelector("[data-at]")?.focus();
    } catch (error) { if (error.name !== "AbortError") failed.replaceChildren(problem(error)); }
    likely.removeAttribute("aria-busy");
  }
  const store = () => keep({ branches: rows.length > 1 ? JSON.stringify(rows.slice(1).map(row => row.forced)) : "" });
  function remove(n) {
    rows.splice(n, 1);
    at = { row: 0, step: 0 };
    store();
    draw();
  }
  function tokenButton(row, n, step, i) {
    const here = at.row === n && at.step === i, { label, probability } = step.chosen;
    return h("button", { type: "button", class: ["token", i === row.from && n > 0 && "forced", i > 0 && goesOn(label, row.steps) && "joined"].filter(Boolean).join(" "), style: { "--share": probability },
      "data-at": here, tabindex: here ? 0 : -1, "aria-label": t("token_p", { token: shownToken(label), p: probability.toFixed(3) }),
      onpointermove: event => moved(event) && (at.row !== n || at.step !== i) && point(n, i), onfocus: () => point(n, i), onclick: () => point(n, i), onkeydown: event => move(event, n, i) },
    h("span", {}, shownToken(label)), h("small", {}, percent(probability)));
  }
  // Not a page that scrolls under a pointer at rest.
  const moved = event => event.movementX !== 0 || event.movementY !== 0;
  function move(event, n, i) {
    const to = { ArrowRight: [n, i + 1], ArrowLeft: [n, i - 1], ArrowDown: [n + 1, i], ArrowUp: [n - 1, i] }[event.key];
    const next = to && rows[to[0]] && place.querySelectorAll(".output-row")[to[0]].querySelectorAll(".token")[to[1]];
    if (!next || next.matches(".same")) return;
    event.preventDefault();
    next.focus();
  }
  function draw() {
    place.replaceChildren(...rows.map((row, n) => h("div", { class: "output-row" },
      row.steps.map((step, i) => {
        const button = tokenButton(row, n, step, i);
        if (i < row.from) { button.classList.add("same"); button.tabIndex = -1; }
        return button;
      }),
      h("span", { class: "muted score" }, `${t("log_p")} ${row.score.toFixed(2)}`),
      n > 0 && h("a", { class: "score", href: address("beam", { reference: row.output }) }, t("in_the_tree")),
      n > 0 && h("button", { type: "button", class: "bare", "aria-label": t("drop_branch", { output: row.output }), onclick: () => remove(n) }, icon("close")))));
    point(at.row, at.step);
  }
  function point(n, i) {
    at = { row: n, step: i };
    const row = rows[n], step = row.steps[i];
    place.querySelectorAll(".token").forEach(one => { one.removeAttribute("data-at"); one.tabIndex = -1; });
    const button = place.querySelectorAll(".output-row")[n].querySelectorAll(".token")[i];
    button.setAttribute("data-at", "");
    button.tabIndex = 0;
    const most = Math.max(...step.candidates.map(one => one.probability));
    likely.setAttribute("aria-label", t("likeliest_at", { token: shownToken(step.chosen.label) }));
    likely.replaceChildren(h("h3", {}, t("likeliest_at", { token: shownToken(step.chosen.label) })),
      ...likeliestBars(step.candidates, most, one => one.token === step.chosen.token ? null : () => force(n, i, one.token)));
    drawSource(row, i);
  }
  // What the model read when it wrote this token.
  function drawSource(row, i) {
    if (!row.map) return source.replaceChildren();
    const map = row.unpacked ||= unpacked(row.map), line = Math.min(i, map.rows.length - 1), weights = rowOf(map, line), most = Math.max(...weights) || 1;
    if (row.picture) {
      const image = regions(row.picture, map, 200);
      image.select({ row: line });
      return source.replaceChildren(image.element);
    }
    source.replaceChildren(h("span", { class: "muted" }, t("it_read")), ...map.columns.map((text, n) =>
      h("span", { class: "piece", style: { "--share": weights[n] / most }, "data-tip": weights[n].toFixed(3) }, text)));
  }
  await add(first, 0, false);
  at.step = leastSure(rows[0].steps);
  for (const tokens of wanted) {
    await add(tokens, tokens.length - 1, true).catch(error => { if (error.name === "AbortError") throw error; });
  }
  draw();
  return h("section", { class: "by-token" }, h("h2", {}, t("token_by_token")), h("p", { class: "muted" }, t("tokens_hint")),
    place, source, likely, failed);
}

// Bars of the likeliest tokens. act(candidate) gives what choosing one does, or null for the one that was chosen.
export function likeliestBars(candidates, most, act) {
  return candidates.map(one => {
    const chosen = act?.(one), parts = [h("span", { class: "name", "data-tip": shownToken(one.label) }, shownToken(one.label)),
      h("span", { class: "track" }, h("i", { style: { "--share": one.probability / most } })), h("span", { class: "number" }, one.probability.toFixed(3))];
    return chosen ? h("button", { type: "button", class: "option", onclick: chosen }, parts) : h("div", { class: act ? "option now" : "option" }, parts);
  });
}
