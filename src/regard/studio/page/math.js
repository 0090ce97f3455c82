// Equations as MathML, which the server makes of their ASCII (views/mathml.py), and the code that computes them. A symbol that
// is pointed at lights up where else it stands, and its lines of code.
/* global lightSymbols, parsed */

import { h } from "./dom.js";

export const mathematics = mathml => parsed(mathml);
export const codeLines = text => h("pre", { tabindex: 0 }, text.split("\n").map(line => h("span", { class: "code-line" }, `${line}\n`)));
// A name in an equation, such as s_{i-1} or alpha_ij, with its indices below and its letters Greek; words stay as they are.
const GREEK = { alpha: "α", beta: "β", gamma: "γ", sigma: "σ", lambda: "λ", sum: "Σ" };
export function symbols(name) {
  const pieces = String(name).split(/([_^](?:\{[^}]*\}|\w+))/);
  return h("span", { class: "symbols" }, pieces.map((piece, n) => n % 2 ? h(piece[0] === "_" ? "sub" : "sup", {}, piece.slice(1).replace(/^\{|\}$/g, "").replace("-", "−"))
    : piece.replace(/[a-z]+/g, word => GREEK[word] || word)));
}
// In `place` a symbol that is pointed at lights up its own kind, its lines of code, and the rows of `figure` that have it.
export function lit(place, figure) {
  lightSymbols(place, null);
  for (const [event, on] of [["pointerover", true], ["pointerout", false]]) {
    place.addEventListener(event, ({ target }) => {
      const symbol = target.closest?.("[data-symbol]")?.dataset.symbol;
      for (const row of figure.querySelectorAll("[data-symbols]")) row.classList.toggle("lit", on && row.dataset.symbols.split(" ").includes(symbol));
    });
  }
}
