// What goes wrong: `diagnose` for runs that write texts, `evaluate` and its predictions for the others.

import { address, keep } from "../address.js";
import { runPath } from "../api.js";
import { marked } from "../diff.js";
import { empty, h, labelled, problem, select } from "../dom.js";
import { figures, untilLeft } from "../parts.js";
import { job, reportOf, table } from "../reports.js";
import { t } from "../text.js";

const FEW_SENTENCES = 60; // of an example, whose errors are shown at once
const MOST = 500; // rows that are drawn at once
const FEW_LABELS = 3; // a table of so many fits beside the examples
const COLUMNS = ["input", "context", "label", "expected", "output", "error", "f1", "perplexity", "masked", "correct"]; // of predictions, where they have them

const measured = new Map(); // the last report of a run, by its name: it outlives the view

export async function render({ stage, controls, run, facts, params }) {
  const signal = untilLeft(), writes = facts.writes === "target";
  const limit = h("input", { type: "number", min: 1, max: 10000, value: params.limit || (facts.example ? FEW_SENTENCES : 200) });
  const beam = h("input", { type: "number", min: 1, max: 64, value: params.beam || facts.recipe.search?.beam });
  const sweep = h("input", { type: "checkbox", checked: params.sweep === "1" });
  const split = select(["", "test", "validation", "train"].map(name => [name, t(`split_${name || "usual"}`)]), params.split || "", () => {});
  const start = h("button", { class: "primary" }, writes ? t("diagnose") : t("evaluate"));
  const place = h("div", { class: "results" }, empty(t("errors_empty"), writes ? t("errors_empty_diagnose") : t("errors_empty_evaluate"),
    h("button", { type: "button", class: "primary", onclick: () => begin() }, t("begin"))));
  controls.append(h("form", { class: "stack", onsubmit: event => { event.preventDefault(); begin(); } }, labelled(t("split"), split),
    writes && labelled(t("sentences"), limit), writes && labelled(t("search_beam"), beam), writes && h("label", { class: "tick" }, sweep, t("sweep")), start));
  const aside = h("div"); // the table of what was taken for what, beside the examples that it chooses
  controls.append(aside);
  stage.append(place);

  async function begin(id) {
    const asked = { split: split.value || null, ...(writes ? { limit: Number(limit.value), beam: Number(beam.value) || null, sweep: sweep.checked ? [1, 2, 3, 5, 10] : [] } : {}) };
    start.disabled = true;
    try {
      const found = await job(place, runPath(run.name, writes ? "diagnose" : "evaluate"), asked, id, signal);
      if (!found) return;
      measured.set(run.name, found.id);
      keep({ job: found.id, split: split.value, ...(writes ? { limit: limit.value, beam: beam.value, sweep: sweep.checked ? "1" : "" } : {}) });
      place.replaceChildren(...(writes ? diagnosed(found) : evaluated(found)));
    } catch (error) {
      if (error.name === "AbortError") return;
      if (id && error.status === 404) { keep({ job: "" }); measured.delete(run.name); } // too old: start again
      else place.replaceChildren(problem(error));
    } finally { start.disabled = false; }
  }

  // -------------------------------------------------------------------------------------------------- texts

  function diagnosed({ report, sentences }) {
    const rows = sentences.map(one => ({ ...one, kind: one.error ? one.verdict : "right" }));
    const columns = [{ name: t("source") }, { name: t("output") }, { name: t("reference") }, { name: "chrF", numeric: true }, { name: t("verdict") }, { name: "" }];
    const links = one => h("span", { class: "links" },
      h("a", { href: address("look", { run: run.name, text: one.source, target: one.output }) }, t("view_look")),
      h("a", { href: address("beam", { run: run.name, text: one.source, reference: one.reference, beam: beam.value }) }, t("view_beam")));
    const cells = one => {
      const { output, reference } = marked(one.output, one.reference);
      return [{ text: one.source }, { text: one.output, element: output }, { text: one.reference, element: reference }, { text: one.chrf.toFixed(1), value: one.chrf },
        { text: t(`verdict_${one.kind}`), tone: one.kind === "right" ? "good nowrap" : "bad nowrap" }, { text: "", element: links(one) }];
    };
    const kinds = [["errors", t("verdict_errors")], ...["search", "model", "rule", "right"].map(kind => [kind, t(`verdict_${kind}`)]), ["all", t("all")]];
    const fits = (one, kind) => kind === "all" || (kind === "errors" ? one.kind !== "right" : one.kind === kind);
    const count = kind => figures(rows.filter(one => one.kind === kind).length), wrong = rows.filter(one => one.kind !== "right").length;
    return [h("p", { class: "claim" }, t("errors_claim", { wrong: figures(wrong), count: figures(rows.length) })),
      h("p", { class: "muted" }, t("errors_kinds", { model: count("model"), search: count("search") })),
      h("section", { class: "every" }, h("h2", {}, t("every_sentence")), h("p", { class: "muted" }, h("del", {}, t("diff_wrong")), " ", h("ins", {}, t("diff_missing"))),
        list(rows.sort((one, other) => one.chrf - other.chrf), columns, cells, kinds, fits, one => `${one.source}\n${one.reference}\n${one.output}`)),
      ...reportOf(withoutExamples(report))];
  }
  // The worst of each kind stand in the list of all.
  const withoutExamples = report => ({ ...report, sections: report.sections.filter(section => !section.parts.every(part => part.kind === "table" && part.title)) });

  // ------------------------------------------------------------------------------------------------- labels

  function evaluated({ result, predictions }) {
    const numbers = Object.entries(result).filter(([, value]) => typeof value === "number" || typeof value === "string");
    const shown = [], metrics = [h("h2", {}, t("all_metrics")), table([{ name: t("metric") }, { name: t("value"), numeric: true }],
      numbers.map(([name, value]) => [{ text: name }, { text: typeof value === "number" ? String(Number(value.toPrecision(4))) : value }]), { title: t("all_metrics") })];
    if (!predictions?.length) return [...metrics, empty(t("no_predictions"), t("no_predictions_hint"))];
    for (const one of predictions) if (one.nats !== undefined) one.perplexity = Math.exp(one.nats / (one.input.split(/\s+/).length + 1)); // a word, its end counted as one
    const holder = h("div", { class: "every" }), put = chosen => holder.replaceChildren(listed(predictions, chosen));
    const known = predictions.filter(one => "right" in one), wrong = known.filter(one => !one.right).length;
    if (known.length) shown.push(h("p", { class: "claim" }, t("errors_claim", { wrong: figures(wrong), count: figures(known.length) })));
    put({ label: params.label, predicted: params.predicted });
    const confused = result.confusion ? [h("h2", {}, t("confusion")), h("p", { class: "muted" }, t("confusion_hint")), matrix(result.confusion, chosen => { keep(chosen); put(chosen); })] : [];
    const beside = !matchMedia("(max-width: 60rem)").matches && Object.keys(result.confusion || {}).length <= FEW_LABELS;
    aside.replaceChildren(...beside ? confused : []);
    return [...shown, ...beside ? [] : confused, holder, ...metrics];
  }
  function matrix(confusion, pick) {
    const labels = Object.keys(confusion), most = Math.max(1, ...labels.flatMap(label => Object.values(confusion[label])));
    const cell = (label, predicted) => {
      const count = confusion[label][predicted], strength = Math.round(40 * count / most);
      const button = h("button", { type: "button", disabled: count === 0, "aria-label": t("cell", { label, predicted, count }), onclick: () => pick({ label, predicted }) }, figures(count));
      button.style.background = `color-mix(in srgb, var(${label === predicted ? "--accent" : "--bad"}) ${strength}%, var(--ground))`;
      return h("td", {}, button);
    };
    return h("div", { class: "wide", tabindex: 0, role: "region", "aria-label": t("confusion") }, h("table", { class: "confusion" },
      h("thead", {}, h("tr", {}, h("th", {}, t("true_predicted")), labels.map(label => h("th", { scope: "col" }, label)))),
      h("tbody", {}, labels.map(label => h("tr", {}, h("th", { scope: "row" }, label), labels.map(predicted => cell(label, predicted)))))));
  }
  function listed(predictions, { label, predicted }) {
    const cellChosen = label !== undefined && predicted !== undefined, known = predictions.some(one => "right" in one);
    const sure = one => one.probabilities?.[one.output] ?? 0; // the surest mistakes come first
    const rows = predictions.filter(one => !cellChosen || (String(one.label) === label && String(one.output) === predicted)).sort((one, other) => sure(other) - sure(one));
    const names = COLUMNS.filter(name => rows.some(one => one[name] !== undefined)), likely = rows.some(one => one.probabilities);
    const columns = [...names.map(name => ({ name: t(`column_${name}`), numeric: rows.every(one => typeof one[name] === "number") })),
      likely && { name: t("probability"), numeric: true }, { name: "" }].filter(Boolean);
    const shown = value => typeof value === "number" ? String(Number(value.toPrecision(4))) : Array.isArray(value) ? value.map(shown).join(" / ") || shown("")
      : value === "" ? `(${t("no_answer")})` : String(value ?? "–").replace(/\t|\n/g, " · ");
    const links = text => h("span", { class: "links" }, ["look", facts.attends && "steps"].filter(Boolean).map(view => h("a", { href: address(view, { run: run.name, text }) }, view === "look" ? t("view_look") : t("view_steps"))));
    const cells = one => [...names.map(name => ({ text: shown(one[name]), value: typeof one[name] === "number" ? one[name] : undefined, tone: name === "output" && known ? one.right ? "good" : "bad" : "" })),
      likely && { text: one.probabilities[one.output]?.toFixed(3) ?? "–", value: one.probabilities[one.output] ?? 0 },
      { text: "", element: links([one.input, one.context].filter(Boolean).join("\t")) }].filter(Boolean);
    const kinds = known && !cellChosen ? [["errors", t("verdict_errors")], ["right", t("verdict_right")], ["all", t("all")]] : [["all", t("all")]];
    const fits = (one, kind) => kind === "all" || one.right === (kind === "right");
    const title = cellChosen ? t("cell_title", { label, predicted }) : t("every_example");
    return h("section", {}, h("h2", {}, title), list(rows, columns, cells, kinds, fits, one => JSON.stringify(one)));
  }

  // Rows that a kind and a text choose; the first of them are drawn.
  function list(rows, columns, cells, kinds, fits, textOf) {
    const holder = h("div"), count = h("p", { class: "muted", role: "status" }), search = h("input", { type: "search", value: params.filter || "", oninput: () => { keep({ filter: search.value }); fill(); } });
    const kind = select(kinds, kinds.some(([name]) => name === params.kind) ? params.kind : kinds[0][0], value => { keep({ kind: value }); fill(); });
    function fill() {
      const wanted = search.value.toLowerCase(), kept = rows.filter(one => fits(one, kind.value) && textOf(one).toLowerCase().includes(wanted));
      count.textContent = t("rows_of", { shown: figures(Math.min(MOST, kept.length)), count: figures(kept.length), total: figures(rows.length) });
      holder.replaceChildren(kept.length ? table(columns, kept.slice(0, MOST).map(cells), { sortable: true, title: t("every_example") }) : empty(t("no_rows"), t("no_rows_hint")));
    }
    fill();
    return h("div", {}, h("div", { class: "controls" }, kinds.length > 1 && labelled(t("show_kind"), kind), labelled(t("filter"), search)), count, holder);
  }
  const known = params.job || measured.get(run.name);
  if (known) await begin(known);
  else if (facts.example) begin(); // it is small: its errors are found in seconds
}
