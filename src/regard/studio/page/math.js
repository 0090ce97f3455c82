// Equations as MathML, which the server makes of their ASCII (views/mathml.py), and the code that computes them. A symbol that
// is pointed at lights up where else it stands, and its lines of code.
/* global lightSymbols, parsed */

import { h } from "./dom.js";

export const mathematics = mathml => parsed(mathml);
export const codeLines = text => h("pre", { tabindex: 0 }, text.split("\n").map(line => h("span", { class: "code-line" }, `${line}\n`)));
export const lit = place => lightSymbols(place, null);
