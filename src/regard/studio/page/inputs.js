// The fields of an input, as the bar shows them. Every run reads its own parts; the address keeps them joined as one text.

import { keep } from "./address.js";
import { get, post } from "./api.js";
import { h, labelled, problem } from "./dom.js";
import { t } from "./text.js";

const LONG = ["story", "context", "choices"];
const PAUSE = 250; // browsers limit how often an address may change

// `facts` are those of GET /runs/NAME, null if there is no run. An input without a sentence of the reader's is the run's first
// example. Returns { element, value(): the input of a request, "" if there is none, text(): of an address, parts(): by
// name, use(example), languages(): those of a request to a model of many }.
export async function inputFields(facts, params) {
  if (facts?.inputs[0] === "image") return imageField(facts, params.image);
  const fields = textFields(facts?.inputs || ["text"], params.text || facts?.examples?.[0] || "");
  const chosen = languageFields(facts?.languages_by_side || {}, params);
  return { ...fields, element: [...fields.element, ...chosen.element], languages: chosen.value };
}

// For a model of many languages: that of the text, and that to write. value() has what differs from the run's own.
function languageFields(sides, params) {
  const fields = Object.entries(sides).map(([side, { own, offered }]) => {
    const name = `${side}_language`, known = offered.includes(own) ? offered : [own, ...offered];
    const field = h("select", { onchange: () => keep({ [name]: field.value === own ? "" : field.value }) },
      known.map(code => h("option", { value: code }, code)));
    field.value = known.includes(params[name]) ? params[name] : own;
    return { name, own, field };
  });
  return { element: fields.map(({ name, field }) => labelled(name === "source_language" ? t("source_language") : t("target_language"), field)),
    value: () => Object.fromEntries(fields.filter(({ own, field }) => field.value !== own).map(({ name, field }) => [name, field.value])) };
}

function textFields(names, text) {
  const separator = names.includes("story") ? "\n" : "\t";
  const fields = names.map(name => h("textarea", { rows: 1, placeholder: name === "story" ? t("part_story_hint") : null, spellcheck: "false", class: LONG.includes(name) ? "long" : null,
    oninput: () => later(), onchange: () => store(), onkeydown: event => {
      const sends = event.ctrlKey || event.metaKey || (!LONG.includes(name) && !event.shiftKey && !event.isComposing);
      if (event.key !== "Enter" || !sends) return;
      event.preventDefault();
      event.target.form.requestSubmit();
    } }));
  const put = text => piecesOf(names, separator, text).forEach((piece, n) => { fields[n].value = piece; });
  const texts = () => fields.flatMap((field, n) => names[n] === "choices" ? field.value.split("\n") : separator === "\n"
    ? field.value
    : field.value.replaceAll("\t", " ")).map(text => text.trim()).filter(Boolean);
  const joined = () => texts().join(separator);
  const store = () => keep({ text: joined() });
  let waiting = 0;
  function later() {
    clearTimeout(waiting);
    waiting = setTimeout(() => { if (fields[0].isConnected) store(); }, PAUSE);
  }
  put(text);
  return { element: names.map((name, n) => labelled(t(`part_${name}`), fields[n])),
    text: joined, store, use: text => { put(text); store(); },
    value: () => names.length > 1 && separator === "\t" && texts().length ? texts() : joined(),
    parts: () => Object.fromEntries(names.map((name, n) => [name, fields[n].value])) };
}
// The texts of the fields. A text that another run's fields have written loses nothing: what is too much goes into the last.
function piecesOf(names, separator, text) {
  if (names.length === 1) return [text.replaceAll("\t", " ")];
  const pieces = text.split(separator === "\n" ? /\n|(?<=[.!?])\s+/ : separator);
  if (separator === "\n") return pieces.length > 1 ? [pieces.slice(0, -1).join("\n"), pieces.at(-1)] : [pieces[0], ""];
  const rest = pieces.slice(names.length - 1);
  return names.map((name, n) => n < names.length - 1 ? pieces[n] || "" : rest.join(name === "choices" ? "\n" : " "));
}

// ---------------------------------------------------------------------------------------------------------- images

// Images by their key: the server keeps what was sent, so that an address with the key shows it again.
const images = new Map();

async function imageField(facts, key) {
  const shown = h("img", { class: "given" }), said = h("span");
  let held = key && await imageOf(key) || { url: facts.examples?.[0] || "", name: t("part_image") };
  function show() {
    shown.hidden = !held.url;
    if (held.url) Object.assign(shown, { src: held.url, alt: held.name });
  }
  async function send(url, name) {
    held = { url, name };
    show();
    try {
      const { key } = await post("/images", { name, content: url });
      images.set(key, held);
      keep({ image: key });
      said.replaceChildren();
    } catch (error) { said.replaceChildren(problem(error)); }
  }
  const field = h("input", { type: "file", accept: "image/*", "data-tip": t("image_kept"), onchange: () => {
    const reader = new FileReader(), [file] = field.files;
    reader.onload = () => send(reader.result, file.name);
    if (file) reader.readAsDataURL(file);
  } });
  show();
  return { element: [labelled(t("part_image"), field), shown, said], value: () => held.url, text: () => "",
    languages: () => ({}), store: () => {}, use: url => send(url, t("part_image")), parts: () => ({ image: held.name }) };
}
async function imageOf(key) {
  if (!images.has(key)) {
    const found = await get(`/images/${encodeURIComponent(key)}`).catch(() => null); // of a server that has ended
    if (found) images.set(key, { url: found.content, name: found.name });
  }
  return images.get(key);
}
