// What differs between an output and its reference, word by word.

import { h } from "./dom.js";
import { t } from "./text.js";

const LONGEST = 400; // words; the table of the longest common subsequence has their square

// The pieces of two texts, each [text, whether the other text has it too]: words, or the characters of texts without spaces.
export function differences(one, other) {
  const byWord = /\s/.test(one.trim()) || /\s/.test(other.trim());
  const split = text => byWord ? text.split(/\s+/).filter(Boolean) : [...text.trim()];
  const [a, b] = [split(one), split(other)], common = kept(a, b);
  return { joint: byWord ? " " : "", one: a.map((text, n) => [text, common.a.has(n)]), other: b.map((text, n) => [text, common.b.has(n)]) };
}
// The places of a longest common subsequence in both lists.
function kept(a, b) {
  const places = { a: new Set(), b: new Set() };
  if (Math.max(a.length, b.length) > LONGEST) return places;
  const lengths = Array.from({ length: a.length + 1 }, () => new Uint16Array(b.length + 1));
  for (let i = a.length - 1; i >= 0; i--) {
    for (let j = b.length - 1; j >= 0; j--) {
      lengths[i][j] = a[i] === b[j] ? lengths[i + 1][j + 1] + 1 : Math.max(lengths[i + 1][j], lengths[i][j + 1]);
    }
  }
  for (let i = 0, j = 0; i < a.length && j < b.length;) {
    if (a[i] === b[j]) { places.a.add(i++); places.b.add(j++); }
    else if (lengths[i + 1][j] >= lengths[i][j + 1]) i++;
    else j++;
  }
  return places;
}
// Neighbours of one kind are one piece.
function together(pieces, joint) {
  const joined = [];
  for (const [text, same] of pieces) {
    const last = joined.at(-1);
    if (last && last[1] === same) last[0] += joint + text;
    else joined.push([text, same]);
  }
  return joined;
}
// The output with what the reference does not have struck out of it, and the reference with what the output lacks.
export function marked(output, reference) {
  const { joint, one, other } = differences(output, reference);
  const drawn = (pieces, tag, name) => h("span", {}, together(pieces, joint).map(([text, same], n) =>
    [n > 0 && joint, same ? text : h(tag, { "data-tip": t(name) }, text)]));
  return { output: output ? drawn(one, "del", "diff_wrong") : h("i", {}, t("no_answer")), reference: drawn(other, "ins", "diff_missing") };
}
