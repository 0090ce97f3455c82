// The search as a tree, step by step. Nothing tells how it ends before it has ended: the best output is marked at the last
// step, and the rankings fill as outputs are finished. A token opens its attention and the five likeliest after it.
/* global drawFigure */

import { keep } from "../address.js";
import { post, runPath } from "../api.js";
import { likeliestBars } from "../branches.js";
import { choice, empty, h, labelled, select } from "../dom.js";
import { regions, rowOf, shownToken, unpacked } from "../heat.js";
import { icon } from "../icons.js";
import { busy, untilLeft } from "../parts.js";
import { table } from "../reports.js";
import { t } from "../text.js";

const NORMALISATIONS = ["none", "mean", "wu", "reward"], PAUSE = 900;
const BELOW = 330, SMALLEST_SCALE = 0.72; // pixels above and below the tree; a scale at which letters of 13 pixels are read
const CLOSE = 0.68, WIDEST_ROWS = 1.9; // the room of what was not kept, and of rows in a window that has room, in rows

export const ACTION = "search";

export async function render({ stage, controls, onsubmit, run, facts, fields, params }) {
  const signal = untilLeft(), own = facts.recipe.search || {};
  if (!facts.writes) return void stage.append(empty(t("beam_none"), t("beam_none_hint")));
  const numberField = (name, most) => h("input", { type: "number", min: name === "beam" ? 1 : 0, max: most, step: name === "beam" ? 1 : "any", value: params[name] || own[name] });
  const beam = numberField("beam", 16), penalty = numberField("length_penalty", 10);
  const reference = h("input", { value: params.reference || "", spellcheck: "false", oninput: () => keep({ reference: reference.value }) });
  const normalisation = select(NORMALISATIONS.map(name => [name, t(`normalisation_${name}`)]), params.normalisation || own.normalisation || "mean", () => show());
  const place = h("div", { class: "results" });
  let step = Number(params.step) || 1, playing = 0, size = params.size || "fit";
  beam.addEventListener("change", () => show());
  penalty.addEventListener("change", () => show());
  reference.addEventListener("change", () => show());
  controls.append(labelled(t("search_beam"), beam), labelled(t("normalisation"), normalisation), labelled(t("search_length_penalty"), penalty),
    facts.writes === "target" ? labelled(t("beam_reference"), reference) : "");
  stage.append(place);
  onsubmit(() => { step = 1; return show(); });
  signal.addEventListener("abort", () => clearInterval(playing));

  async function show() {
    const input = fields.value();
    if (!input) return place.replaceChildren(empty(t("beam_empty"), t("beam_empty_hint")));
    keep({ beam: beam.value, length_penalty: penalty.value, normalisation: normalisation.value, reference: reference.value });
    penalty.disabled = normalisation.value === "none"; // which has none
    const asked = { input, beam: Number(beam.value) || null, length_penalty: penalty.disabled || penalty.value === "" ? null : Number(penalty.value),
      normalisation: normalisation.value, reference: reference.value.trim() || null, ...fields.languages() };
    await busy(place, async () => draw(await post(runPath(run.name, "search"), asked, signal), input));
  }

  function draw(found, input) {
    clearInterval(playing); // it played another tree
    const [record] = found.inputs, [{ parts: [tree] }] = found.report.sections, last = record.steps.length;
    const figure = h("figure", { class: "tree", tabindex: 0, "data-arrows": "", role: "group", "aria-label": t("tree"), onkeydown: keys });
    const told = h("p", { role: "status", class: "told claim" }), ranked = h("div"), node = h("aside", { class: "node", "aria-live": "polite" });
    const paths = pathsOf(record, tree, found.reference);
    let groups = new Map(), opened = -1;
    const acts = { first: () => move(1), previous: () => move(step - 1), play, next: () => move(step + 1), last: () => move(last) };
    const names = { first: t("first"), previous: t("previous"), play: t("play"), next: t("next"), last: t("last") };
    const buttons = Object.entries(acts).map(([name, act]) => h("button", { type: "button", "aria-label": names[name], "data-tip": names[name], class: name === "play" ? "primary" : null,
      onclick: () => { clearInterval(playing); act(); } }, icon(name)));
    const sizes = choice(t("size"), [["fit", t("size_fit")], ["full", t("size_full")]], size, value => { size = value; keep({ size: value === "full" ? value : "" }); fit(); });

    // What the search has seen so far, in the window. If its letters would be too small to read, what was dropped at earlier
    // steps is left out.
    function fit() {
      const { smallest } = sizesOf(), known = tree.branches.map((_, n) => n).filter(n => tree.branches[n].depth <= step);
      const recent = known.filter(n => tree.branches[n].tone !== "muted" || tree.branches[n].marked || tree.branches[n].depth === step);
      if (size === "full" || drawTree(known) < smallest) drawTree(size === "full" ? known : recent);
      follow();
    }
    // Draw some branches; the scale at which they fit.
    function drawTree(kept, stretched = 1) {
      const drawing = arranged(tree, kept, step === last), { room, smallest, most } = sizesOf();
      figure.replaceChildren();
      drawFigure(figure, { ...drawing, rows: drawing.rows.map(row => row * stretched), title: t("tree") });
      const picture = figure.querySelector("svg"), { width, height } = picture.viewBox.baseVal;
      const byWidth = Math.max(smallest, Math.min(most, (figure.clientWidth - 4) / width)), free = room / (height * byWidth);
      if (stretched === 1 && size !== "full" && free > 1.1) return drawTree(kept, Math.min(WIDEST_ROWS, free));
      picture.setAttribute("role", "group"); // its tokens can be chosen
      picture.removeAttribute("aria-label");
      groups = new Map([...figure.querySelectorAll(".branch")].map((group, i) => [kept[i], group]));
      groups.forEach((group, n) => {
        for (const [name, value] of [["role", "button"], ["tabindex", -1], ["aria-label", t("open_node", { token: shownToken(tree.branches[n].label) })]]) group.setAttribute(name, value);
        group.toggleAttribute("data-open", n === opened);
        group.addEventListener("click", () => open(n));
      });
      const scale = Math.min(most, (figure.clientWidth - 4) / width, room / height);
      const drawn = size === "full" ? 1 : Math.max(smallest, scale);
      picture.style.width = `${width * drawn}px`;
      picture.style.height = `${height * drawn}px`;
      return scale;
    }
    // The tokens of this step stay in sight.
    function follow() {
      const now = [...groups.values()].filter(group => Number(group.dataset.depth) === step).map(group => group.querySelector("text").getBoundingClientRect());
      if (!now.length) return;
      const map = figure.querySelector(".map"), box = map.getBoundingClientRect(), right = Math.max(...now.map(one => one.right)) - box.left + map.scrollLeft;
      const middle = (Math.min(...now.map(one => one.top)) + Math.max(...now.map(one => one.bottom))) / 2 - box.top + map.scrollTop;
      map.scrollTo(Math.max(0, right + 40 - map.clientWidth), Math.max(0, middle - map.clientHeight / 2));
    }
    function move(to) {
      step = Math.max(1, Math.min(last, to));
      const ended = step === last;
      const { open: places, candidates } = record.steps[step - 1], of = fate => candidates.filter(one => one.fate === fate).length;
      told.textContent = ended ? t("beam_ended", { last, output: record.ranking[0].output })
        : t("beam_step", { step, last, open: places, kept: of("kept"), finished: of("finished"), pruned: of("pruned") });
      ranked.replaceChildren(...rankings(record, found.reference, step));
      buttons[0].disabled = buttons[1].disabled = step === 1;
      buttons[3].disabled = buttons[4].disabled = ended;
      keep({ step: step > 1 ? step : "" });
      fit();
    }
    function play() {
      clearInterval(playing);
      if (step >= last) move(1);
      playing = setInterval(() => { if (step >= last) clearInterval(playing); else move(step + 1); }, PAUSE);
    }
    function keys(event) {
      const to = { ArrowRight: step + 1, ArrowLeft: step - 1, Home: 1, End: last }[event.key];
      const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
      if (by) openNext(by);
      else if (to !== undefined) { clearInterval(playing); move(to); } else return;
      event.preventDefault();
    }
    // The next token of the present step, from the top to the bottom.
    function openNext(by) {
      const heightOf = n => Number(groups.get(n).querySelector("text").getAttribute("y"));
      const column = [...groups.keys()].filter(n => tree.branches[n].depth === step).sort((one, other) => heightOf(one) - heightOf(other)), from = column.indexOf(opened);
      open(column[from < 0 ? 0 : (from + by + column.length) % column.length]);
    }
    async function open(n) {
      opened = n;
      groups.forEach((group, i) => group.toggleAttribute("data-open", i === n));
      const tokens = paths[n];
      await busy(node, async () => drawNode(await post(runPath(run.name, "branch"), { input, tokens, goes_on: false, ...fields.languages() }, signal), tree.branches[n]));
      fit();
    }
    function drawNode(branch, { label, value, note }) {
      const attention = branch.map && unpacked(branch.map), row = branch.steps.length - 1, read = attention && rowOf(attention, Math.min(row, attention.rows.length - 1));
      const most = read ? Math.max(...read) || 1 : 1, image = branch.picture && regions(branch.picture, attention, 160);
      image?.select({ row });
      const close = h("button", { type: "button", class: "bare", "aria-label": t("close"), onclick: () => { node.replaceChildren(); opened = -1; fit(); figure.focus(); } }, icon("close"));
      node.replaceChildren(h("header", {}, h("h3", {}, h("b", { class: "asks" }, shownToken(label)), ` ${value}`), close), h("p", { class: "muted" }, note),
        h("p", {}, branch.output || "…"),
        read && (image ? image.element : h("p", { class: "source" }, h("span", { class: "muted" }, t("it_read")), attention.columns.map((text, i) =>
          h("span", { class: "piece", style: { "--share": read[i] / most }, "data-tip": read[i].toFixed(3) }, text)))) || "",
        h("h3", {}, branch.next.length ? t("likeliest_next") : t("ended_here")),
        ...likeliestBars(branch.next, branch.next[0]?.probability || 1));
    }
    place.replaceChildren(...[told, h("div", { class: "tree-and-node" }, figure, node), h("div", { class: "film", role: "group", "aria-label": t("search_steps"), onkeydown: keys }, buttons, sizes),
      found.reference && h("p", { class: found.reference.outcome.kind === "finished" ? "good" : "bad" }, outcome(found.reference)), ranked, h("p", { class: "muted" }, t("tree_hint"))].filter(Boolean));
    move(step);
    addEventListener("resize", fit, { signal });
    addEventListener("resized", fit, { signal });
  }
  await show();
}

// Some branches of a tree, each parent in the middle of its children. Before the search has ended neither a line nor its place
// tells the best output. What was not kept is set closer.
function arranged(tree, kept, ended) {
  const place = new Map(kept.map((n, i) => [n, i])), children = kept.map(() => []), roots = [], rows = kept.map(() => 0);
  const branches = kept.map(n => tree.branches[n]).map(one => ({ ...one, parent: one.parent === null ? null : place.get(one.parent),
    tone: one.tone === "good" && !ended ? "" : one.tone }));
  branches.forEach((one, n) => (one.parent === null ? roots : children[one.parent]).push(n));
  let free = 0;
  function put(n) {
    const room = branches[n].tone === "muted" ? CLOSE : 1;
    if (!children[n].length) { rows[n] = free + (room - 1) / 2; free += room; return; }
    children[n].forEach(put);
    rows[n] = (rows[children[n][0]] + rows[children[n].at(-1)]) / 2;
  }
  roots.forEach(put);
  return { ...tree, rows, branches };
}
// The room for the tree, and how small and how large it may be drawn; large on the screen of a lecture hall.
function sizesOf() {
  const presents = document.body.classList.contains("presenting");
  return { room: Math.max(240, innerHeight - (presents ? BELOW - 130 : BELOW)), smallest: presents ? 1.1 : SMALLEST_SCALE, most: presents ? 2.2 : 1.5 };
}
// The tokens from the beginning of the output to each branch of the tree, as the vocabulary spells them.
function pathsOf(record, tree, reference) {
  const shown = record.steps.flatMap((one, n) => ownOf(one, tree, n + 1, reference));
  const paths = [];
  tree.branches.forEach((branch, n) => { paths.push([...(branch.parent === null ? [] : paths[branch.parent]), shown[n]]); });
  return paths;
}
// The candidates of a step in the order of the tree's branches (search_tree in views/search_record.py).
function ownOf(step, tree, depth, reference) {
  const branches = tree.branches.filter(branch => branch.depth === depth);
  const drawn = step.candidates.filter(one => one.fate !== "ruled out").map(one => one.token);
  if (branches.length === drawn.length) return drawn;
  const marked = reference?.tokens[depth - 1], ruled = step.candidates.filter(one => one.fate !== "ruled out" || one.token === marked).map(one => one.token);
  return ruled.length === branches.length ? ruled : [...drawn, marked];
}

function outcome({ outcome: { kind, step, token, rank, slots }, score, objective }) {
  const scores = t("reference_scores", { score: score.toFixed(3), objective: objective.toFixed(3) });
  return `${t(`reference_${kind}`, { step, token: shownToken(token), rank: rank ?? "–", slots })} ${scores}`;
}

// Side by side: by log P alone, and by the objective, which also counts the length. Only what has ended by this step is
// known; the last step tells the winner.
function rankings(record, reference, step) {
  const ended = step === record.steps.length, steps = new Map(record.steps.flatMap(one => one.candidates.map(candidate => [candidate.id, one.step])));
  const given = record.ranking.filter(one => ended || (steps.get(one.id) ?? one.tokens.length) <= step).map(one => ({ ...one, mark: false }));
  const other = ended && reference && !given.some(one => one.tokens.join(" ") === reference.tokens.join(" "));
  const all = other ? [...given, { output: t("reference"), score: reference.score, objective: reference.objective, tokens: reference.tokens, mark: true }] : given;
  const winner = ended ? given[0] : null, columns = [{ name: t("rank"), numeric: true }, { name: t("output") }, { name: t("tokens"), numeric: true }];
  const ranked = (key, name, title) => h("section", {}, h("h3", {}, title), table([...columns, { name, numeric: true }],
    [...all].sort((one, other) => other[key] - one[key]).map((one, n) => [{ text: String(n + 1) },
      { text: one.output, tone: one.mark ? "bad" : one === winner ? "good" : "" }, { text: String(one.tokens.length) }, { text: one[key].toFixed(3) }]), { title }));
  const none = !all.length && h("p", { class: "muted" }, t("ranking_waits"));
  return [h("h2", {}, t("ranking")), none || h("div", { class: "columns" }, ranked("score", t("log_p"), t("ranking_before")), ranked("objective", t("objective"), t("ranking_after")))];
}
