"use strict";
// The drawing of a model (views/diagrams) with its film and its panel. `diagramOf(part)` makes the three elements from the
// JSON of the part; `drawDiagram(element, part)` puts them below each other, as a page without a server has them.

const DIAGRAM_SECONDS = 1.1; // of a moment while the film plays

const LONG_FORMULA = 30; // characters, from which on it is smaller
const LEAST_SCALE = innerWidth < 700 ? 0.85 : 0.6; // below which a drawing scrolls rather than shrinks

const node = (tag, attributes = {}, ...children) => {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) if (value !== null) element.setAttribute(name, value);
  element.append(...children.flat(Infinity).filter(child => child !== null && child !== undefined));
  return element;
};
// SVG and MathML come as text that Python wrote; nothing in it is a script.
function parsed(text) {
  return document.importNode(new DOMParser().parseFromString(text, "application/xml").documentElement, true);
}
function formula(equation) {
  const place = node("p", { class: equation.ascii.length > LONG_FORMULA ? "formula long" : "formula", tabindex: 0 });
  place.append(equation.mathml ? parsed(equation.mathml) : equation.ascii);
  return place;
}
// "h_2: are" with its index below.
function subscripted(name) {
  const [, base, index, rest] = name.match(/^([^\s_]+)_(\w+)(.*)$/) || [];
  return base ? [base, node("sub", {}, index), rest] : [name];
}
// The source text, a line in an element of its own, so that a symbol of an equation can light its lines.
function codeOf(code) {
  const lines = code.text.split("\n").map(line => node("span", { class: "code-line" }, line + "\n"));
  return [node("p", { class: "muted" }, `${code.file}, ${code.first}–${code.last}: ${code.name}`), node("pre", { tabindex: 0 }, lines)];
}
const CODE_NAMES = { "h~": "attentional", "α": "alpha", c: "c|context", z: "z" };
function lightSymbols(panel, drawing) {
  const light = symbol => {
    drawing?.querySelectorAll(".box").forEach(box => box.classList.toggle("chosen", symbol !== null
      && box.dataset.symbol.normalize("NFD").replace("̃", "~") === symbol));
    const names = symbol === null ? null : new RegExp(`\\b(${CODE_NAMES[symbol] || symbol})_[A-Z0-9]`);
    panel.querySelectorAll(".code-line").forEach(line => line.classList.toggle("lit", names !== null && names.test(line.textContent)));
    panel.querySelectorAll("[data-symbol]").forEach(one => one.classList.toggle("lit", one.dataset.symbol === symbol));
  };
  for (const [event, on] of [["pointerover", true], ["pointerout", false]]) {
    panel.addEventListener(event, ({ target }) => {
      const symbol = target instanceof Element && target.closest("[data-symbol]");
      if (symbol) light(on ? symbol.dataset.symbol : null);
    });
  }
}

function diagramOf(part, changed = () => {}) {
  const { moments, blocks, components, texts } = part, drawing = parsed(part.svg);
  const frame = node("div", { class: "diagram-frame", tabindex: 0, role: "region", "aria-label": part.title }, drawing);
  const claim = node("p", { class: "diagram-claim", role: "status" }), panel = node("div", { class: "diagram-panel" });
  const all = selector => [...drawing.querySelectorAll(selector)], boxes = new Map(all(".box").map(box => [box.dataset.key, box]));
  let now = moments.length - 1, chosen = "", timer = 0;

  const least = Math.min(drawing.viewBox.baseVal.width, Math.max(320, drawing.viewBox.baseVal.width * LEAST_SCALE));
  drawing.style.minWidth = `${least}px`;
  drawing.style.maxWidth = `max(${least}px, min(100%, ${1.35 * drawing.viewBox.baseVal.width}px))`;
  drawing.style.width = "100%";
  drawing.style.setProperty("--least-height", `${LEAST_SCALE * drawing.viewBox.baseVal.height}px`);
  for (const [key, box] of boxes) {
    box.setAttribute("role", "button");
    box.setAttribute("aria-label", blocks[key].name);
    box.addEventListener("click", () => choose(key === chosen ? "" : key));
    box.addEventListener("keydown", event => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      choose(key === chosen ? "" : key);
    });
    box.addEventListener("pointerenter", () => look(box.classList.contains("later") ? null : key));
    box.addEventListener("pointerleave", () => look(null));
  }
  // The lines of the block that is pointed at or chosen, else those of the moment.
  function look(key) {
    const drawn = key && all(".look").some(line => line.dataset.query === key) ? [key] : chosen && blocks[chosen].weights.length ? [chosen] : moments[now].looks;
    all(".look").forEach(line => line.classList.toggle("drawn", drawn.includes(line.dataset.query)));
  }
  const ticks = moments.map((moment, n) => {
    const tick = node("button", { type: "button", class: `moment ${moment.role}` }, node("span", {}, moment.label));
    tick.addEventListener("click", () => { stop(); show(n); });
    return tick;
  });
  const play = node("button", { type: "button", class: "play", "aria-label": texts.play }, "▶");
  play.addEventListener("click", () => timer ? stop() : start());
  const film = node("div", { class: "moments", role: "group", "aria-label": texts.film, tabindex: 0, "data-arrows": "" }, play, ticks);
  film.addEventListener("keydown", event => {
    const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!by) return;
    event.preventDefault();
    stop();
    show(now + by);
  });
  function start() {
    if (now === moments.length - 1) show(0);
    play.textContent = "❚❚";
    timer = setInterval(() => {
      if (!drawing.isConnected || now === moments.length - 1) return stop();
      show(now + 1);
    }, 1000 * DIAGRAM_SECONDS);
  }
  function stop() {
    clearInterval(timer);
    timer = 0;
    play.textContent = "▶";
  }
  function show(step) {
    now = Math.max(0, Math.min(moments.length - 1, step));
    chosen = "";
    const moment = moments[now];
    all("[data-step]").forEach(one => {
      one.classList.toggle("later", Number(one.dataset.step) > now);
      one.classList.toggle("now", Number(one.dataset.step) === now);
    });
    for (const [key, box] of boxes) box.tabIndex = blocks[key].step === now || !blocks[key].count ? 0 : -1;
    ticks.forEach((tick, n) => {
      tick.setAttribute("aria-current", n === now ? "step" : "false");
      tick.classList.toggle("todo", n > now);
      // what is not written yet is not told
      tick.firstChild.classList.toggle("unwritten", n > now && moments[n].role === "target");
      if (n > now && moments[n].role === "target") tick.setAttribute("aria-label", `${n + 1}`); else tick.removeAttribute("aria-label");
    });
    film.scrollLeft = ticks[now].offsetLeft - film.clientWidth / 2;
    claim.textContent = moment.claim;
    look(null);
    fillPanel(moment.block);
    scrollTo(moment.block);
    changed(now);
  }
  function scrollTo(key) {
    const box = boxes.get(key);
    if (!box) return;
    if (document.body.classList.contains("studio")) box.scrollIntoView({ block: "nearest", inline: "nearest" });
    if (frame.scrollWidth <= frame.clientWidth) return;
    const place = box.getBoundingClientRect(), own = frame.getBoundingClientRect();
    if (place.left < own.left + 40 || place.right > own.right - 40) frame.scrollLeft += place.left - own.left - own.width / 2;
  }
  function choose(key) {
    chosen = key;
    for (const [name, box] of boxes) box.classList.toggle("chosen", name === key);
    look(null);
    fillPanel(key || moments[now].block);
  }
  // The chosen box: its name, the likeliest tokens of the moment, its equation, numbers and code.
  function fillPanel(key) {
    const block = blocks[key], component = block && components[block.component], { candidates } = moments[now];
    for (const [name, box] of boxes) box.classList.toggle("chosen", name === chosen && chosen !== "");
    const parts = [];
    if (candidates.length) parts.push(node("h3", {}, texts.likeliest), bars(candidates));
    if (component) {
      parts.push(node("h3", {}, block.name === component.title ? "" : subscripted(block.name)), node("h2", {}, component.title), node("p", { class: "muted" }, component.facts.join(" · ")));
      if (component.equations.length) parts.push(node("h3", {}, texts.equation), component.equations.map(formula));
      if (block.count && block.step <= now) parts.push(node("h3", {}, texts.numbers), node("p", { class: "numbers" }, numbersOf(block)));
      if (component.code.length) {
        parts.push(node("details", { open: key === chosen ? "" : null }, node("summary", {}, texts.code), component.code.map(codeOf)));
      }
    }
    panel.replaceChildren(...parts.flat(Infinity), node("p", { class: "muted" }, texts.hint));
  }
  function numbersOf(block) {
    const more = block.count - block.values.length;
    return block.values.map(value => value.toFixed(2).replace("-", "−")).join("  ") + (more > 0 ? `  … ${texts.more.replace("{}", more)}` : "");
  }
  function bars(candidates) {
    const rows = candidates.map(([token, p]) => {
      const bar = node("i");
      bar.style.width = `${100 * p}%`;
      return [node("dt", {}, token), node("dd", {}, node("span", { class: "track" }, bar)), node("dd", {}, p.toFixed(2))];
    });
    return node("dl", { class: "bars" }, rows.flat());
  }
  lightSymbols(panel, drawing);
  show(now);
  return { frame, claim, film, panel, show, drawing };
}

function drawDiagram(element, part) {
  const { claim, frame, film, panel } = diagramOf(part);
  element.classList.add("with-diagram");
  element.append(claim, frame, film, panel);
}
