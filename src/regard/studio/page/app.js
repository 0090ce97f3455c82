// The frame around the views: the router, the bar, the rail of views, the colours, and the request for a token.

import { address, current, go, keep } from "./address.js";
import { keepToken } from "./api.js";
import { chosenRun, drawBar } from "./bar.js";
import { h, keepFocus, labelled, problem, redraw } from "./dom.js";
import { icon } from "./icons.js";
import { noRuns, noSuchRun } from "./parts.js";
import { language, t } from "./text.js";
import { continueTour } from "./tour.js";

const VIEWS = ["start", "runs", "model", "try", "look", "steps", "beam", "errors", "compare", "course"];
const NARROW = matchMedia("(max-width: 60rem)");
const [header, rail, root] = ["header", "nav", "#view"].map(name => document.querySelector(name));
let renders = 0;

// --------------------------------------------------------------------------------------------------------- colours

const darkRules = [...document.styleSheets].flatMap(sheet => [...sheet.cssRules])
  .filter(rule => rule instanceof CSSMediaRule && rule.media.mediaText.includes("prefers-color-scheme"));
const AS_SYSTEM = darkRules[0].media.mediaText;
function setTheme(theme) {
  localStorage.setItem("regard-theme", theme);
  for (const rule of darkRules) rule.media.mediaText = { light: "not all", dark: "screen" }[theme] || AS_SYSTEM;
  document.documentElement.style.colorScheme = { light: "light", dark: "dark" }[theme] || "";
}

// ------------------------------------------------------------------------------------------------------- the views

const toView = name => address(name, name === "runs" ? { all: 1 } : {});
// What a run must do to have something in a view: only a run that writes has a search to show.
const NEEDED = { try: "answers", look: "explains", beam: "writes" };
const applies = (name, view, facts) => name === view || !(name in NEEDED) || !facts || Boolean(facts[NEEDED[name]]);
function drawRail(view, facts = null) {
  rail.setAttribute("aria-label", t("views"));
  redraw(rail, ...VIEWS.filter(name => applies(name, view, facts)).map(name => h("a", { href: toView(name), "data-view": name,
    "aria-current": name === view ? "page" : null }, icon(name), h("span", {}, t(`view_${name}`)))));
  const here = rail.querySelector("[aria-current]"); // on a phone the rail is wider than the window
  if (here) rail.scrollLeft = here.offsetLeft - (rail.clientWidth - here.offsetWidth) / 2;
}
// A sentence that is typed is in the address at once, and so in the links to the other views.
addEventListener("kept", () => {
  for (const link of rail.querySelectorAll("a")) link.href = toView(link.dataset.view);
});

// What a view draws into: the figure in `stage`, its controls in `controls`, which fold on a phone.
function frameOf(view) {
  const heading = h("h1", {}, t(`view_${view}`)), hint = h("p", { class: "muted hint" }, t(`hint_${view}`));
  const controls = h("div", { class: "rail-controls" }), stage = h("section", { class: "stage" });
  const fold = h("button", { type: "button", class: "fold", "aria-expanded": String(!NARROW.matches), onclick: () => {
    const open = fold.getAttribute("aria-expanded") !== "true";
    fold.setAttribute("aria-expanded", String(open));
    aside.classList.toggle("folded", !open);
  } }, icon("controls"), t("controls"));
  const aside = h("aside", { class: NARROW.matches ? "rail folded" : "rail" }, h("div", { class: "rail-head" }, heading, fold), hint, controls);
  return { heading, hint, controls, stage, element: h("div", { class: `view view-${view}` }, aside, stage) };
}

// A tip goes with what it tells of: when that is drawn again, scrolled, or left.
const hideTip = () => { document.getElementById("tip").hidden = true; };
for (const event of ["keydown", "pointerdown", "scroll"]) addEventListener(event, hideTip, { capture: true, passive: true });

function askForToken() {
  const field = h("input", { type: "password", autocomplete: "off", required: true });
  root.replaceChildren(h("form", { class: "stack page", onsubmit: event => { event.preventDefault(); keepToken(field.value);
    render(); } },
    h("h1", {}, t("token_title")), h("p", {}, t("token_hint")), labelled(t("token"), field),
    h("button", { class: "primary" }, t("token_use"))));
  field.focus();
}

// ---------------------------------------------------------------------------------------------------------- router

async function render() {
  const { view, params } = current(), number = ++renders, restore = keepFocus(root);
  if (!VIEWS.includes(view)) return go("start");
  document.documentElement.lang = language();
  document.body.dataset.view = view;
  document.title = `${t(`view_${view}`)} · regard`;
  hideTip();
  root.setAttribute("aria-busy", "true");
  root.dispatchEvent(new Event("leave")); // a view that polls or listens stops
  drawRail(view);
  keep({ lang: language() });
  const frame = frameOf(view);
  try {
    const [module, chosen] = await Promise.all([import(`/page/views/${view}.js`), chosenRun(view, params)]);
    if (number !== renders) return;
    drawRail(view, chosen.facts);
    let submit = () => go("try", { text: chosen.fields.text() }); // where the view itself reads no sentence
    drawBar(header, chosen, view, { action: module.ACTION || "answer", submit: () => submit(),
      setTheme: theme => { setTheme(theme); render(); } });
    root.replaceChildren(frame.element);
    if (!module.NEEDS_NO_RUN && !chosen.run) frame.stage.append(chosen.runs.length ? noSuchRun(params.run) : noRuns());
    else if (!module.NEEDS_NO_RUN && chosen.failure) throw chosen.failure;
    else submit = await module.render({ ...frame, ...chosen, params, onsubmit: work => { submit = work; } }) || submit;
  } catch (error) {
    if (error.name === "AbortError" || number !== renders) return;
    if (error.status === 401) askForToken();
    else {
      frame.stage.append(problem(error));
      root.replaceChildren(frame.element);
    }
  } finally {
    if (number === renders) {
      restore();
      root.setAttribute("aria-busy", "false");
      continueTour();
    }
  }
}

// The bar has two lines if there are many runs in it: what sticks below it knows.
new ResizeObserver(() => document.documentElement.style.setProperty("--bar", `${header.offsetHeight}px`)).observe(header);
setTheme(localStorage.getItem("regard-theme") || "system");
addEventListener("hashchange", render);
render();
