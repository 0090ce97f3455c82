// What a verb found: the JSON of a Report (views/report.py) as elements; tables that can be sorted; jobs that take long.
/* global drawFigure */

import { get, post, remove } from "./api.js";
import { h } from "./dom.js";
import { mathematics } from "./math.js";
import { t } from "./text.js";

// columns: [{ name, numeric }]; rows: [[{ text, tone, value, element }]]. Choosing a heading sorts by that column.
export function table(columns, rows, { sortable = false, title = "" } = {}) {
  const body = h("tbody"), order = { column: -1, down: false };
  const cell = (one, n) => h("td", { class: [columns[n].numeric && "number", one.tone].filter(Boolean).join(" ") || null }, one.element || one.text);
  const fill = list => body.replaceChildren(...list.map(row => h("tr", {}, row.map(cell))));
  const key = one => one.value ?? one.text;
  function sort(n) {
    Object.assign(order, { down: order.column === n && !order.down, column: n });
    const compare = (one, other) => {
      const [a, b] = [key(one[n]), key(other[n])];
      return (typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b))) * (order.down ? -1 : 1);
    };
    fill([...rows].sort(compare));
    heads.forEach((head, place) => head.setAttribute("aria-sort", place !== n ? "none" : order.down ? "descending" : "ascending"));
  }
  const heads = columns.map(({ name, numeric }, n) => h(name ? "th" : "td", { class: numeric ? "number" : null, scope: name ? "col" : null, "aria-sort": sortable && name ? "none" : null },
    sortable && name ? h("button", { type: "button", class: "sort", onclick: () => sort(n) }, name) : name));
  fill(rows);
  return h("div", { class: "wide", tabindex: 0, role: "region", "aria-label": title || t("table") },
    h("table", {}, columns.some(({ name }) => name) && h("thead", {}, h("tr", {}, heads)), body));
}

// Texts that Python has made of Markdown, without any HTML of their own.
const elementsOf = html => [...new DOMParser().parseFromString(html, "text/html").body.childNodes];

export function partOf(part) {
  if (part.kind === "prose") {
    return part.title ? h("details", {}, h("summary", {}, part.title), elementsOf(part.html)) : elementsOf(part.html);
  }
  if (part.kind === "text") return part.paragraphs.map((text, n) => h("p", { class: part.tone || null }, part.equations?.[n] ? mathematics(part.equations[n]) : text));
  if (part.kind === "table") {
    const columns = part.columns.map((name, n) => ({ name, numeric: part.numeric[n] }));
    const drawn = [table(columns, part.rows, { title: part.title }), part.notes.map(note => h("p", { class: "muted" }, note))];
    return part.folded ? h("details", {}, h("summary", {}, part.title), drawn) : [part.title && h("h3", {}, part.title), drawn];
  }
  const figure = h("figure", {}, part.title && h("figcaption", {}, part.title));
  drawFigure(figure, part);
  return figure;
}
export const reportOf = report => [
  report.opening && h("p", {}, report.opening),
  report.conclusions.length > 0 && h("ul", {}, report.conclusions.map(text => h("li", {}, text))),
  report.sections.map(section => h("section", {}, section.heading && h("h2", {}, section.heading), section.parts.map(partOf))),
].flat(Infinity).filter(Boolean);

// Start a job, or follow the one that `id` names, and show in `place` how far it is; the answer, or null if it was cancelled.
export async function job(place, path, body, id, signal) {
  let status = id ? await get(`/jobs/${encodeURIComponent(id)}`, signal) : await post(path, body, signal);
  const bar = h("progress", { "aria-label": t("progress") }), said = h("span", { role: "status" });
  const cancel = h("button", { type: "button", onclick: () => remove(`/jobs/${status.id}`) }, t("cancel"));
  place.replaceChildren(h("div", { class: "job" }, bar, said, cancel));
  while (["waiting", "running"].includes(status.state)) {
    if (status.total) { bar.max = status.total; bar.value = status.done; } else bar.removeAttribute("value");
    said.textContent = status.state === "waiting" ? t("job_waiting") : status.what;
    await new Promise(resolve => { setTimeout(resolve, 300); });
    if (signal.aborted) throw new DOMException("", "AbortError");
    status = await get(`/jobs/${status.id}`, signal);
  }
  place.replaceChildren();
  if (status.state === "failed") throw new Error(status.error);
  return status.state === "done" ? status : null;
}
