// Learning curves of one or several runs in one drawing. Pointing at a step shows every value there; choosing it is told.
/* global ticks, written, textWidth */

import { h, svg } from "./dom.js";
import { figures } from "./parts.js";
import { t } from "./text.js";

const HEIGHT = 360, NARROW = 640, LEFT = 56, RIGHT = 26, TOP = 16, BOTTOM = 44, COLOURS = 8;
const DASHED = "7 4";

// series: [{ name, run, dashed, x, y }], where `run` is the number of the run, by which it is coloured. choose(step) is
// called for a step that is clicked. Returns { element, mark(step) }.
export function learningCurves(series, label, choose = () => {}, { x = t("training_steps"), wide = 900, from = 0, told: toldAt = step => t("step_at", { step: figures(step) }) } = {}) {
  const WIDTH = innerWidth < NARROW ? 420 : wide;
  const steps = series.flatMap(one => one.x), values = series.flatMap(one => one.y).filter(Number.isFinite);
  const [low, high] = [Math.min(from, ...steps), Math.max(from + 1, ...steps)], marks = ticks(Math.min(...values), Math.max(...values), 6);
  const [least, most] = [marks[0], marks.at(-1)];
  const across = step => LEFT + (step - low) / (high - low) * (WIDTH - LEFT - RIGHT);
  const up = value => HEIGHT - BOTTOM - (value - least) / (most - least) * (HEIGHT - TOP - BOTTOM);
  const colour = one => `var(--s${one.run % COLOURS})`;
  const text = (x, y, words, anchor = "middle") => svg("text", { x, y, "text-anchor": anchor }, words);
  const grid = marks.map((value, n) => [svg("path", { class: "rule", d: `M${LEFT} ${up(value)}H${WIDTH - RIGHT}` }), text(LEFT - 8, up(value) + 5, written(marks)[n], "end")]);
  const below = ticks(low, high, WIDTH / 100).filter(step => step >= low && step <= high).map(step => text(across(step), HEIGHT - BOTTOM + 22, figures(step)));
  const lines = series.map(one => [
    svg("path", { class: "curve", d: path(one, across, up), style: { stroke: colour(one), "stroke-dasharray": one.dashed ? DASHED : "none" } }),
    one.x.length < 3 ? one.x.map((step, n) => svg("circle", { cx: across(step), cy: up(one.y[n]), r: 4, style: { fill: colour(one) } })) : []]);
  const cross = svg("path", { class: "cross", d: "" }), marked = svg("path", { class: "marked-step", d: "" });
  const drawing = svg("svg", { class: "learning", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": `${label}: ${series.map(told).join("; ")}` },
    grid, below, text((LEFT + WIDTH) / 2, HEIGHT - 4, x), marked, lines, cross);
  const place = event => {
    const box = drawing.getBoundingClientRect(), x = (event.clientX - box.left) / box.width * WIDTH;
    return Math.round(low + Math.min(1, Math.max(0, (x - LEFT) / (WIDTH - LEFT - RIGHT))) * (high - low));
  };
  drawing.addEventListener("mousemove", event => {
    const step = place(event);
    cross.setAttribute("d", `M${across(step)} ${TOP}V${HEIGHT - BOTTOM}`);
    drawing.dataset.tip = [toldAt(step), ...series.map(one => `${one.name}: ${short(valueAt(one, step))}`)].join("\n");
  });
  drawing.addEventListener("mouseleave", () => cross.setAttribute("d", ""));
  drawing.addEventListener("click", event => choose(place(event)));
  const legend = h("ul", { class: "legend" }, series.map(one => h("li", {}, svg("svg", { viewBox: "0 0 30 10", "aria-hidden": "true" },
    svg("path", { class: "curve", d: "M1 5H29", style: { stroke: colour(one), "stroke-dasharray": one.dashed ? DASHED : "none" } })), one.name)));
  return { element: h("figure", { class: "learning-place" }, h("figcaption", {}, label), legend, drawing),
    mark: step => marked.setAttribute("d", step === null ? "" : `M${across(step)} ${TOP}V${HEIGHT - BOTTOM}`) };
}
const short = value => value === undefined ? "–" : String(Number(value.toPrecision(4)));
const told = one => `${one.name} ${short(one.y[0])} → ${short(one.y.at(-1))}`;
const path = (one, across, up) => one.x.map((step, n) => Number.isFinite(one.y[n]) ? `${n && Number.isFinite(one.y[n - 1]) ? "L" : "M"}${across(step).toFixed(1)} ${up(one.y[n]).toFixed(1)}` : "").join("");
// The value of the last point that is not after a step.
function valueAt(one, step) {
  const n = one.x.findLastIndex(at => at <= step);
  return one.y[Math.max(0, n)] ?? undefined;
}
