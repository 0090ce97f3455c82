// Elements. Texts become text nodes, so nothing that a user or a run wrote is ever read as HTML.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, properties, children) {
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "style") for (const [key, one] of Object.entries(value)) element.style.setProperty(key, one);
    else if (name === "value" || name === "checked" || name === "selected") element[name] = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter(child => child !== null && child !== undefined && child !== false));
  return element;
}

// h("button", { class: "quiet", onclick: save, "aria-pressed": true, style: { "--share": 0.5 } }, "Save", icon)
export const h = (tag, properties = {}, ...children) => fill(document.createElement(tag), properties, children);
export const svg = (tag, properties = {}, ...children) =>
  fill(document.createElementNS(SVG, tag), properties, children);

// A labelled control: the label's text, and under it the control.
export const labelled = (text, control) => h("label", { class: "field" }, h("span", {}, text), control);

// options: [[value, text], ...]
export function select(options, value, onchange, properties = {}) {
  const element = h("select", { ...properties, onchange: () => onchange(element.value) },
    options.map(([option, text]) => h("option", { value: option }, text)));
  element.value = value;
  return element;
}

// A row of buttons of which one is pressed; arrow keys move the choice. options: [[value, text, icon], ...]; a button with an
// icon has the text as its name.
export function choice(label, options, value, onchange) {
  const buttons = options.map(([option, text, picture]) =>
    h("button", { type: "button", role: "radio", "aria-label": picture ? text : null, "data-tip": picture ? text : null,
      onclick: () => { press(option); onchange(option); } }, picture || text));
  function press(option) {
    const at = options.findIndex(([one]) => one === option);
    buttons.forEach((button, n) => {
      button.setAttribute("aria-checked", String(n === at));
      button.tabIndex = n === at ? 0 : -1;
    });
    return buttons[at];
  }
  press(value);
  const group = h("div", { class: "choice", role: "radiogroup", "aria-label": label }, buttons);
  group.addEventListener("keydown", event => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    const at = buttons.indexOf(event.target);
    if (!step || at < 0) return;
    event.preventDefault();
    const [option] = options[(at + step + options.length) % options.length];
    press(option).focus();
    onchange(option);
  });
  return group;
}

// What is called when a place has been drawn again: the same link or control keeps the focus.
export function keepFocus(place) {
  const focused = place.contains(document.activeElement) ? document.activeElement : null;
  const nameOf = element => element?.ariaLabel || element?.labels?.[0]?.firstChild.textContent || element?.textContent, name = nameOf(focused);
  return () => {
    if (name && document.activeElement === document.body) [...place.querySelectorAll(focused.tagName)].find(one => nameOf(one) === name)?.focus();
  };
}
export function redraw(place, ...children) {
  const restore = keepFocus(place);
  place.replaceChildren(...children);
  restore();
}
export const empty = (title, ...hints) =>
  h("div", { class: "empty" }, h("h2", {}, title), hints.map(hint => h("p", {}, hint)));
export const problem = error => h("p", { class: "problem", role: "alert" }, error.message || String(error));

// Offer a file: `content` is a Blob or a text.
export function download(name, content, type = "text/plain") {
  const address = URL.createObjectURL(content instanceof Blob ? content : new Blob([content], { type }));
  h("a", { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 1000);
}
