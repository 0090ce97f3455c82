// The course: its chapters, computed by the server, with questions to guess at; and the search for topics.

import { address, go } from "../address.js";
import { get, post } from "../api.js";
import { download, h, labelled, problem } from "../dom.js";
import { poll, untilLeft } from "../parts.js";
import { partOf } from "../reports.js";
import { language, t } from "../text.js";

export const NEEDS_NO_RUN = true;
const READ = "regard-chapters", SECONDS = 2;

const chaptersRead = () => new Set(JSON.parse(localStorage.getItem(READ) || "[]"));
function markAsRead(number) {
  localStorage.setItem(READ, JSON.stringify([...chaptersRead().add(number)]));
}

export async function render({ stage, controls, params }) {
  const signal = untilLeft(), chapters = await get("/course", signal), number = params.chapter === undefined ? null : Number(params.chapter);
  const place = h("article", { class: "chapter" });
  stage.append(place);
  controls.append(contents(chapters, number), topicSearch(params.topic || "", signal));
  if (number === null) return place.append(overview(chapters));
  await chapter(place, chapters, number, signal);
}

const toChapter = number => address("course", { chapter: number });
const isWhole = one => one.packaged || one.state === "computed" && !one.quick;
const stateOf = one => isWhole(one) && one.state !== "computing" && one.state !== "failed" ? "" : t(`chapter_${one.state === "computed" ? "quick" : one.state}`);

function contents(chapters, number) {
  const read = chaptersRead();
  return h("nav", { class: "chapters", "aria-label": t("chapters") },
    h("p", { class: "muted" }, t("chapter_progress", { count: chapters.filter(one => read.has(one.number)).length, all: chapters.length })),
    h("ol", {}, chapters.map(one => h("li", {}, h("a", { href: toChapter(one.number), "aria-current": one.number === number ? "page" : null },
      h("span", { class: "number" }, String(one.number)), h("span", {}, one.title), read.has(one.number) && h("span", { class: "good" }, `✓ ${t("chapter_read")}`))))));
}
function overview(chapters) {
  return h("div", { class: "cards" }, chapters.map(one => h("a", { class: "card", href: toChapter(one.number) },
    h("small", {}, [t("chapter", { n: one.number }), stateOf(one)].filter(Boolean).join(" · ")), h("b", {}, one.title), h("span", {}, one.opening))));
}

async function chapter(place, chapters, number, signal) {
  const one = await get(`/course/${number}`, signal), again = () => chapter(place, chapters, number, signal);
  const head = [h("p", { class: "muted" }, [t("chapter", { n: number }), stateOf(one)].filter(Boolean).join(" · ")), h("h2", { class: "chapter-title" }, one.title)];
  if (one.packaged) place.replaceChildren(...head, ...computing(one, again), ...told(one), neighbours(chapters, number));
  else if (one.report) place.replaceChildren(...head, ...told(one), ...computing(one, again), neighbours(chapters, number));
  else {
    place.replaceChildren(...head, h("p", {}, one.opening), ...computing(one, again), ...sectionsOf(one),
      h("h3", {}, t("topics")), h("dl", { class: "topics" }, one.topics.map(topic => [h("dt", {}, topic.name), h("dd", {}, topic.means)])),
      neighbours(chapters, number));
  }
  if (one.state !== "computing") return;
  let { trained } = one;
  poll(SECONDS, async () => {
    const now = await get(`/course/${number}`, signal);
    if (now.state !== "computing") return place.isConnected && one.state === "computing" && (one.state = now.state, again());
    if (now.trained !== trained) place.querySelector(".job [role=status]").textContent = t("chapter_working", { count: trained = now.trained });
  });
}
// How the chapter is computed, or how far it is.
function computing(one, again) {
  const start = quick => async () => { await attempt(() => post(`/course/${one.number}`, { quick })); };
  const said = h("div");
  async function attempt(work) {
    try { await work(); if (work !== save) await again(); } catch (error) { if (error.name !== "AbortError") said.replaceChildren(problem(error)); }
  }
  async function save() {
    const { name, html } = await get(`/course/${one.number}/page`);
    download(name, html, "text/html");
  }
  const button = (text, work, primary) => h("button", { type: "button", class: primary ? "primary" : null, onclick: work }, text);
  if (one.state === "computing") {
    return [h("div", { class: "job" }, h("progress", { "aria-label": t("progress") }), h("span", { role: "status" }, t("chapter_working", { count: one.trained })),
      button(t("cancel"), () => attempt(() => post(`/course/${one.number}/stop`)))), said];
  }
  const asPage = button(t("chapter_page"), () => attempt(save));
  if (one.packaged) {
    return [one.state === "failed" && problem({ message: one.message }), originOf(one.packaged, h("div", { class: "buttons" }, button(t("chapter_here"), start(false)), asPage)), said].filter(Boolean);
  }
  if (one.report && !one.quick) return [h("p", { class: "buttons" }, asPage, said)];
  return [one.state === "failed" && problem({ message: one.message }), h("div", { class: "buttons" },
    button(one.report ? t("chapter_again") : t("chapter_begin"), start(false), true), !one.report && button(t("chapter_quick"), start(true))),
  h("p", { class: "muted" }, t("chapter_hint")), said].filter(Boolean);
}
// Where the figures of the package come from, and how to have one's own.
function originOf({ version, date, seeds, minutes, outdated }, buttons) {
  const day = new Date(date).toLocaleDateString(language(), { dateStyle: "long", timeZone: "UTC" });
  return h("aside", { class: "origin" },
    h("p", {}, t("chapter_origin", { version, date: day, seeds: seeds.join(", ") }), " ", outdated && h("b", {}, t("chapter_outdated")), " ",
      h("span", { class: "muted" }, t("chapter_minutes", { minutes }))), buttons);
}
function told(one) {
  const { report } = one;
  return [report.opening && h("p", {}, report.opening),
    report.conclusions.length > 0 && h("ul", { class: "findings" }, report.conclusions.map(text => h("li", {}, text))),
    ...sectionsOf(one, report.sections)].filter(Boolean);
}
const sectionsOf = (one, sections = one.sections) => sections.map(section => h("section", {}, section.heading && h("h3", {}, section.heading),
  section.parts.map(part => part.kind === "pending" ? pending(part) : figureOf(one, part))));
// Where a figure will be when the chapter has been computed.
const pending = part => h("figure", { class: "pending" }, h("figcaption", {}, part.title), h("p", { class: "muted" }, t("figure_pending")));
function figureOf(one, part) {
  const drawn = [partOf(part)].flat(Infinity);
  if (!part.opens) return drawn;
  const opened = one.openings[part.opens], own = opened === "run";
  if (!opened) return [...drawn, h("p", { class: "muted open-figure" }, t("open_later"))];
  const place = h("p", {}, h("button", { type: "button", class: "open-figure", onclick: async () => {
    try {
      const { run, view, text } = await post(`/course/${one.number}/open`, { figure: part.opens });
      go(view, { run, text: text || undefined, chapter: undefined });
    } catch (error) { place.append(problem(error)); }
  } }, own ? t("open_figure") : t("open_similar", { run: opened })), !own && h("small", { class: "muted" }, " ", t("open_later")));
  return [...drawn, place];
}
function neighbours(chapters, number) {
  const at = chapters.findIndex(one => one.number === number), link = (one, text) => one
    && h("a", { class: "button", href: toChapter(one.number), onclick: () => text === "next" && markAsRead(number) }, `${t(text)}: ${one.title}`);
  const end = h("nav", { class: "buttons neighbours", "aria-label": t("chapters") }, link(chapters[at - 1], "previous"), link(chapters[at + 1], "next"));
  if (chapters[at]?.state === "computed" || chapters[at]?.packaged) new IntersectionObserver(([seen]) => { if (seen.isIntersecting) markAsRead(number); }).observe(end);
  return end;
}

// A word of a textbook, in Korean or English, finds topics.
function topicSearch(word, signal) {
  const found = h("dl", { class: "topics", "aria-live": "polite" }), field = h("input", { type: "search", value: word, oninput: () => later() });
  let waiting = 0;
  function later() {
    clearTimeout(waiting);
    waiting = setTimeout(find, 250);
  }
  async function find() {
    if (!field.value.trim()) return found.replaceChildren();
    try {
      const topics = await get(`/topics?query=${encodeURIComponent(field.value.trim().slice(0, 200))}`, signal);
      found.replaceChildren(...topics.flatMap(topic => [h("dt", {}, topic.names[language()][0]), h("dd", {}, topic.means[language()], " ",
        topic.chapter !== null && h("a", { href: toChapter(topic.chapter) }, t("chapter", { n: topic.chapter })), h("code", {}, topic.command))]));
    } catch (error) { if (error.name !== "AbortError") found.replaceChildren(h("dt", {}, error.message)); }
  }
  if (word) find();
  return h("section", {}, labelled(t("topic_find"), field), found);
}
