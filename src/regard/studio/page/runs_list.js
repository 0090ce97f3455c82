// The table of all runs: found by a word, task or model, in groups, in the order of a column. The address has all of it.

import { address, keep } from "./address.js";
import { empty, h, labelled, redraw, select, svg } from "./dom.js";
import { figures } from "./parts.js";
import { language, t } from "./text.js";

export const stateText = run => t(`state_${run.state}`);
export const stepText = run => run.steps ? t("step_of", { step: figures(run.step), steps: figures(run.steps) })
  : t("step_at", { step: figures(run.step) });
const bestOf = run => Object.entries(run.metrics?.[0] || {}).find(([key]) => key !== "step");

// What a run can be found and grouped by: its value, and the text for it.
const FACTS = {
  task: [run => run.task, run => t(`task_${run.task}`)],
  model: [run => run.model, run => t(`model_${run.model}`)],
  data: [run => run.data, run => run.data],
};
// Each column's name in the address, its title, and what it is sorted by; a column without that has no order.
const COLUMNS = [
  ["name", () => t("name"), run => run.name.toLowerCase()], ["model", () => t("model"), run => run.model && t(`model_${run.model}`)],
  ["best", () => t("best_metric"), run => bestOf(run)?.[1]], ["curve", () => t("curve"), null],
  ["state", () => t("state"), run => run.state && stateText(run)], ["date", () => t("date"), run => run.date]];
const textOf = run => [run.name, run.data, run.languages, ...["task", "model"].filter(name => run[name]).flatMap(name => [run[name], FACTS[name][1](run)])]
  .join(" ").toLowerCase();

// `chosen` are the names of the runs that are ticked; `choose` is called when they change.
export function runsList(params, chosen, choose) {
  const state = { find: "", task: "", model: "", group: "", sort: "", ...params }, folded = new Set();
  const narrowing = h("div", { class: "narrowing" }), told = h("p", { class: "muted", role: "status" }), place = h("div");
  const found = h("input", { type: "search", value: state.find, spellcheck: "false", placeholder: t("runs_find_hint"), oninput: () => set({ find: found.value }) });
  const element = h("div", { class: "runs-list", onkeydown: step }, h("div", { class: "finding" }, labelled(t("runs_find"), found), narrowing), told, place);
  let runs = [];

  function set(changes) {
    Object.assign(state, changes);
    keep(changes);
    draw();
  }
  function clear() {
    found.value = "";
    set({ find: "", task: "", model: "" });
    drawNarrowing();
    found.focus();
  }
  const chooser = (name, first, options) => labelled(t(`runs_${name}`), select([["", first], ...options], state[name], value => set({ [name]: value })));
  function optionsOf(name) {
    const [value, text] = FACTS[name], counts = new Map();
    for (const run of runs.filter(value)) counts.set(value(run), [text(run), (counts.get(value(run))?.[1] || 0) + 1]);
    if (state[name] && !counts.has(state[name])) counts.set(state[name], [state[name], 0]); // what the address asks for
    return [...counts].map(([one, [label, count]]) => [one, `${label} (${count})`]).sort((one, other) => one[1].localeCompare(other[1]));
  }
  function drawNarrowing() {
    redraw(narrowing, chooser("task", t("runs_any"), optionsOf("task")), chooser("model", t("runs_any"), optionsOf("model")),
      chooser("group", t("runs_no_group"), Object.keys(FACTS).map(name => [name, t(`runs_${name}`)])));
  }
  const words = () => state.find.toLowerCase().split(/\s+/).filter(Boolean);
  const matches = run => ["task", "model"].every(name => !state[name] || run[name] === state[name]) && words().every(word => textOf(run).includes(word));

  function draw() {
    const those = runs.filter(matches).sort(order(state.sort));
    told.textContent = those.length === runs.length ? t("runs_count", { count: runs.length }) : t("runs_shown", { count: those.length, all: runs.length });
    redraw(place, those.length ? h("table", { class: "runs" }, head(), ...bodies(those))
      : empty(t("runs_none"), t("runs_none_hint"), h("button", { type: "button", class: "primary", onclick: clear }, t("runs_all"))));
  }
  function head() {
    const now = state.sort.replace("-", ""), down = state.sort.startsWith("-");
    return h("thead", {}, h("tr", {}, h("td"), COLUMNS.map(([name, title, value]) => h("th", { scope: "col",
      "aria-sort": name === now ? down ? "descending" : "ascending" : null },
      value ? h("button", { type: "button", class: "sorting", onclick: () => set({ sort: name !== now ? name : down ? "" : `-${name}` }) }, title(),
        h("span", { "aria-hidden": "true" }, name !== now ? "" : down ? " ↓" : " ↑")) : title()))));
  }
  function bodies(those) {
    if (!(state.group in FACTS)) return [h("tbody", {}, those.map(run => row(run, chosen, choose)))];
    const [value, text] = FACTS[state.group], groups = new Map();
    for (const run of those) groups.set(value(run) || "", [...groups.get(value(run) || "") || [], run]);
    return [...groups].map(([name, own]) => {
      const open = !folded.has(name), label = name ? text(own[0]) : t("runs_unknown");
      const button = h("button", { type: "button", class: "sorting", "aria-expanded": String(open), onclick: () => {
        if (open) folded.add(name); else folded.delete(name);
        draw();
      } }, `${open ? "▾" : "▸"} ${label}`);
      const usable = own.filter(run => !run.error), tick = h("input", { type: "checkbox", "aria-label": t("choose_this", { run: label }),
        checked: usable.length > 0 && usable.every(run => chosen.has(run.name)), onchange: () => {
          for (const run of usable) if (tick.checked) chosen.add(run.name); else chosen.delete(run.name);
          choose();
          draw();
        } });
      return h("tbody", {}, h("tr", { class: "group" }, h("td", {}, tick), h("th", { scope: "rowgroup", colspan: COLUMNS.length }, button, h("span", { class: "muted" }, ` ${own.length}`))),
        open && own.map(run => row(run, chosen, choose)));
    });
  }
  // Arrow keys go from the field to the runs and from run to run; Escape empties the field.
  function step(event) {
    const links = [found, ...place.querySelectorAll("tbody th a")], at = links.indexOf(event.target);
    if (event.key === "Escape" && at === 0 && found.value) set({ find: found.value = "" });
    const next = links[at + ({ ArrowDown: 1, ArrowUp: -1 }[event.key] || 0)];
    if (at < 0 || !next || next === event.target) return;
    event.preventDefault();
    next.focus();
  }
  return {
    element,
    focus: () => found.focus(),
    update(now) {
      runs = now;
      drawNarrowing();
      draw();
    },
  };
}

// Without a column: the user's runs before the examples, the latest first.
function order(sort) {
  const value = COLUMNS.find(([name]) => name === sort.replace("-", ""))?.[2], sign = sort.startsWith("-") ? -1 : 1;
  if (!value) return (one, other) => (one.example ?? false) - (other.example ?? false) || (other.date || Infinity) - (one.date || Infinity);
  return (one, other) => {
    const [a, b] = [value(one), value(other)], known = x => x !== undefined && x !== null && x !== "";
    if (!known(a) || !known(b)) return known(b) - known(a);
    return sign * (typeof a === "number" ? a - b : a.localeCompare(b, language(), { numeric: true }));
  };
}
function row(run, chosen, choose) {
  const tick = h("input", { type: "checkbox", "aria-label": t("choose_this", { run: run.name }), checked: chosen.has(run.name), onchange: () => {
    if (tick.checked) chosen.add(run.name); else chosen.delete(run.name);
    choose();
  } });
  const name = h("th", { scope: "row" }, h("a", { href: address("runs", { run: run.name, runs: undefined }) }, run.name),
    run.example && h("small", { class: "badge" }, t("example_badge")));
  if (run.error) return h("tr", {}, h("td"), name, h("td", { colspan: 5, class: "bad" }, run.error));
  const metric = bestOf(run);
  return h("tr", {}, h("td", {}, tick), name,
    h("td", {}, run.model ? t(`model_${run.model}`) : "", run.task && h("div", { class: "muted" }, [t(`task_${run.task}`), run.data || run.languages].filter(Boolean).join(" · ")),
      run.parameters && h("div", { class: "muted nowrap" }, t("parameter_count", { count: figures(run.parameters) }))),
    h("td", {}, metric ? [metric[0], h("b", { class: "best" }, String(Number(metric[1].toPrecision(3))))] : ""), h("td", {}, sparkline(run.curves)),
    h("td", { class: run.state === "training" ? "good" : run.state === "failed" ? "bad" : "" }, stateText(run),
      run.state === "training" && run.step > 0 && h("div", { class: "muted" }, stepText(run))),
    h("td", { class: "number" }, run.date ? new Date(run.date * 1000).toLocaleString(language(), { dateStyle: "short", timeStyle: "short" }) : ""));
}
// The loss as a small line; the validation's as a second one.
function sparkline(curves) {
  const [train, validation] = [curves?.train, curves?.validation], width = 120, height = 32;
  const all = [train, validation].map((one, n) => ({ ...one, colour: `var(--s${n})` })).filter(one => one.loss?.length > 1);
  if (!all.length) return "";
  const values = all.flatMap(one => one.loss).filter(Number.isFinite), steps = all.flatMap(one => one.step);
  const [low, high, first, last] = [Math.min(...values), Math.max(...values), Math.min(...steps), Math.max(...steps)];
  const across = step => ((step - first) / (last - first || 1) * width).toFixed(1);
  const down = loss => (2 + (high - loss) / (high - low || 1) * (height - 4)).toFixed(1);
  const path = one => "M" + one.loss.map((loss, n) => `${across(one.step[n])} ${down(loss)}`).join("L");
  const label = t("curve_of", { steps: figures(last), first: values[0].toFixed(2), last: all[0].loss.at(-1).toFixed(2) });
  const look = { class: "spark", width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label };
  return svg("svg", look, all.map(one => svg("path", { d: path(one), style: { stroke: one.colour } })));
}
