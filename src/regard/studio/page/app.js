// The frame around the views: the router, the switches for language and colours, and the request for a token.

import { address, current, go } from "./address.js";
import { keepToken } from "./api.js";
import { choice, h, keepFocus, labelled, problem, redraw } from "./dom.js";
import { language, setLanguage, t } from "./text.js";

const VIEWS = ["runs", "try", "look", "steps", "beam", "errors", "compare"];
const root = document.getElementById("view"), header = document.querySelector("header");
let renders = 0;

// -------------------------------------------------------------------------------------------------------- switches

const [dark] = [...document.styleSheets].flatMap(sheet => [...sheet.cssRules])
  .filter(rule => rule instanceof CSSMediaRule && rule.media.mediaText.includes("prefers-color-scheme"));
const AS_SYSTEM = dark.media.mediaText;
function setTheme(theme) {
  localStorage.setItem("regard-theme", theme);
  dark.media.mediaText = { light: "not all", dark: "screen" }[theme] || AS_SYSTEM;
  document.documentElement.style.colorScheme = { light: "light", dark: "dark" }[theme] || "";
}

function drawHeader(view, params) {
  const links = VIEWS.map(name => h("a", { href: address(name, name === "runs" ? {}
    : { run: params.run, text: params.text }),
    "aria-current": name === view ? "page" : null }, t(`view_${name}`)));
  redraw(header,
    h("a", { class: "brand", href: "#/runs" }, "regard"),
    h("nav", { "aria-label": t("views") }, links),
    h("div", { class: "switches" },
      choice(t("language"), [["en", "English"], ["ko", "한국어"]], language(), value => { setLanguage(value); render(); }),
      choice(t("theme"), ["system", "light", "dark"].map(name => [name, t(`theme_${name}`)]),
        localStorage.getItem("regard-theme") || "system", value => { setTheme(value); render(); })));
}

// ---------------------------------------------------------------------------------------------------------- router

function askForToken() {
  const field = h("input", { type: "password", autocomplete: "off", required: true });
  root.replaceChildren(h("form", { class: "stack", onsubmit: event => { event.preventDefault(); keepToken(field.value);
    render(); } },
    h("h1", {}, t("token_title")), h("p", {}, t("token_hint")), labelled(t("token"), field),
    h("button", { class: "primary" }, t("token_use"))));
  field.focus();
}

async function render() {
  const { view, params } = current(), number = ++renders, place = h("div", { class: `view view-${view}` }), restore = keepFocus(root);
  if (!VIEWS.includes(view)) return go("runs");
  drawHeader(view, params);
  document.documentElement.lang = language();
  document.title = `${t(`view_${view}`)} · regard`;
  root.setAttribute("aria-busy", "true");
  root.dispatchEvent(new Event("leave")); // a view that polls or listens stops
  try {
    const { render: draw } = await import(`/page/views/${view}.js`);
    if (number !== renders) return;
    root.replaceChildren(place);
    await draw(place, params);
  } catch (error) {
    if (error.name === "AbortError" || number !== renders) return;
    if (error.status === 401) askForToken();
    else {
      place.append(problem(error)); // below what is drawn, such as the chooser of runs
      root.replaceChildren(place);
    }
  } finally {
    if (number === renders) {
      restore();
      root.setAttribute("aria-busy", "false");
    }
  }
}

setTheme(localStorage.getItem("regard-theme") || "system");
addEventListener("hashchange", render);
render();
