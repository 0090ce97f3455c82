// Attention as threads between two columns of words: what was read (left, green) and what asked (right, orange). A thread
// is as wide as its weight. Pointing at a word shows its threads alone; several drawings of one sentence light up together.
/* global textWidth */

import { h, svg } from "./dom.js";
import { t } from "./text.js";

const ROW = 30, GAP = 150, EDGE = 6, SMALLEST = 0.03, WIDEST = 13, FONT = 15, LONGEST = 230, MOST_ROWS = 40;
const EVEN = 0.16; // how wide the threads to and from the one vector are

// map: { rows, columns, values: [[...], ...] }, where rows ask and columns are read; without values all words meet in one vector.
// pick({ row, column }) is called for a word that is pointed at, pick({}) when none is. Returns { element, select }.
export function threads(map, pick, label = "") {
  const { columns, values } = map, rows = map.rows.slice(0, MOST_ROWS), count = Math.max(rows.length, columns.length, 1);
  const widest = texts => Math.min(LONGEST, Math.max(20, ...texts.map(text => textWidth(text, FONT))));
  const left = EDGE + widest(columns), right = left + GAP, width = right + widest(rows) + EDGE, height = count * ROW;
  const place = (n, of) => (n + 0.5 + (count - of) / 2) * ROW;
  const thread = (d, weight) => svg("path", { class: "thread", d,
    style: { "stroke-width": `${Math.max(1, WIDEST * weight).toFixed(1)}px`, "stroke-opacity": (0.15 + 0.6 * weight).toFixed(2) } });
  const middle = { x: (left + right) / 2, y: height / 2 }, from = n => place(n, columns.length), to = n => place(n, rows.length);
  const lines = values ? rows.flatMap((_, row) => columns.map((_, column) => ({ row, column, weight: values[row]?.[column] ?? 0 })))
    .filter(one => one.weight >= SMALLEST)
    .map(one => ({ ...one, element: thread(curve(left + 8, from(one.column), right - 8, to(one.row)), one.weight) }))
    : [...columns.map((_, column) => ({ column, weight: 0, element: thread(curve(left + 8, from(column), middle.x, middle.y), EVEN) })),
      ...rows.map((_, row) => ({ row, weight: 0, element: thread(curve(middle.x, middle.y, right - 8, to(row)), EVEN) }))];
  const vector = values ? [] : [svg("rect", { class: "vector", x: middle.x - 15, y: middle.y - 15, width: 30, height: 30, rx: 7 }),
    svg("text", { class: "vector", x: middle.x, y: middle.y + 5, "text-anchor": "middle" }, "c")];
  const word = (text, kind, x, n, of) => {
    const y = place(n, of), box = { x: kind === "read" ? 0 : right - 4, y: y - ROW / 2, width: kind === "read" ? left + 4 : width - right + 4, height: ROW };
    const chosen = kind === "read" ? { column: n } : { row: n };
    return svg("g", { class: `word ${kind}`, onmouseenter: () => pick(chosen), onclick: () => pick(chosen) },
      svg("rect", { ...box, rx: 5 }), svg("text", { x, y: y + FONT / 3, "text-anchor": kind === "read" ? "end" : "start" }, cut(text)));
  };
  const read = columns.map((text, n) => word(text, "read", left, n, columns.length));
  const asks = rows.map((text, n) => word(text, "asks", right, n, rows.length));
  const drawing = svg("svg", { class: "threads", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label || t("threads_of", { rows: rows.join(" "), columns: columns.join(" ") }),
    onmouseleave: () => pick({}) }, lines.map(one => one.element), vector, read, asks);
  drawing.style.setProperty("--wide", `${width}px`);
  let at = -1;
  const element = h("div", { class: "threads-place", tabindex: 0, role: "group", "aria-label": t("threads_keys"), onkeydown: event => {
    const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!by || !rows.length) return;
    event.preventDefault();
    at = (at + by + rows.length) % rows.length;
    pick({ row: at });
  } }, drawing);
  function select({ row, column }) {
    const any = row !== undefined || column !== undefined;
    drawing.classList.toggle("picked", any);
    const fits = (own, wanted) => wanted === undefined || own === undefined || own === wanted; // all words pass through the one vector
    const on = one => any && fits(one.row, row) && fits(one.column, column);
    for (const one of lines) one.element.classList.toggle("on", on(one));
    const reached = any ? lines.filter(one => on(one) && one.weight >= 0.1) : [];
    read.forEach((one, n) => one.classList.toggle("on", n === column || reached.some(line => line.column === n)));
    asks.forEach((one, n) => one.classList.toggle("on", n === row || reached.some(line => line.row === n)));
  }
  return { element, select };
}
const curve = (x, y, x2, y2) => `M${x} ${y}C${(x + x2) / 2} ${y} ${(x + x2) / 2} ${y2} ${x2} ${y2}`;
const cut = text => textWidth(text, FONT) <= LONGEST ? text : `${[...text].slice(0, 26).join("")}…`;

// The rows of a packed map (heat.js `unpacked`) as arrays.
export const rowsOf = ({ rows, columns, values }) =>
  rows.map((_, row) => Array.from(values.subarray(row * columns.length, (row + 1) * columns.length)));

// Drawings of one sentence by several models that light up together: the same word, by its text and how often it came before.
export function linked() {
  const all = [];
  function pick(chosen, texts, kind) {
    const n = chosen[kind];
    const name = n === undefined ? null : keyOf(texts, n);
    for (const one of all) {
      const at = name === null ? -1 : one[kind].findIndex((_, place) => keyOf(one[kind], place) === name);
      one.select(at < 0 ? {} : { [kind]: at });
    }
  }
  return { pick,
    // A drawing of `threads`, which is passed in as `draw`: map, pick -> { element, select }.
    add(map, draw) {
      const drawing = draw(map, chosen => {
        if (chosen.row !== undefined) pick(chosen, map.rows, "row");
        else pick(chosen, map.columns, "column");
        drawing.select(chosen);
      });
      all.push({ select: drawing.select, row: map.rows, column: map.columns });
      return drawing.element;
    },
    // Words in one line.
    words(element, texts) {
      const words = [...element.children];
      all.push({ row: [], column: texts, select: ({ column }) => words.forEach((word, n) => word.classList.toggle("lit", n === column)) });
      return element;
    } };
}
const plain = text => text.replace(/^[▁_]|[.,!?]$/g, "").toLowerCase();
const keyOf = (texts, n) => `${plain(texts[n])} ${texts.slice(0, n).filter(text => plain(text) === plain(texts[n])).length}`;
