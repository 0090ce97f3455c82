// Several runs on one input, side by side, and the report of `compare`.

import { address, keep } from "../address.js";
import { get, post, runPath } from "../api.js";
import { empty, h, labelled, problem, select } from "../dom.js";
import { heatMap, unpacked } from "../heat.js";
import { inputFields, noRuns, untilLeft, usableRuns } from "../parts.js";
import { job, reportOf } from "../reports.js";
import { t } from "../text.js";
import { drawn } from "./try.js";

export async function render(root, params) {
  root.append(h("h1", {}, t("view_compare")), h("p", { class: "muted" }, t("hint_compare")));
  const runs = await usableRuns(), signal = untilLeft();
  if (!runs.length) return root.append(noRuns());
  if (runs.length < 2) return root.append(empty(t("compare_few"), t("compare_few_hint")));
  const named = (params.runs || params.run || "").split(",").filter(name => runs.some(run => run.name === name));
  const task = runs.find(run => run.name === named[0])?.task ?? runs.find(run => runs.some(other => other !== run && other.task === run.task))?.task ?? runs[0].task;
  const tasks = [...new Set(runs.map(run => run.task))], place = h("div");
  const chooser = select(tasks.map(name => [name, name]), task, name => { keep({ runs: "", text: "", job: "" }); params = {}; draw(name, []); });
  root.append(h("div", { class: "controls" }, labelled(t("task"), chooser)), place);

  async function draw(name, wanted) {
    const asked = runs.filter(run => run.task === name).map(run => get(runPath(run.name), signal).catch(() => null));
    const own = (await Promise.all(asked)).filter(Boolean); // without damaged ones
    if (own.length < 2) return place.replaceChildren(empty(t("compare_few"), t("compare_few_hint")));
    const facts = new Map(own.map(run => [run.name, run])), there = wanted.filter(name => facts.has(name));
    const chosen = new Set(there.length > 1 ? there : [...new Set([...there, ...facts.keys()])].slice(0, 2));
    const first = facts.get([...chosen][0]), fields = inputFields(first, params.text || first.examples?.[0] || "");
    const ticks = own.map(run => h("label", { class: "tick" }, h("input", { type: "checkbox", checked: chosen.has(run.name), onchange: event => {
      if (event.target.checked) chosen.add(run.name); else chosen.delete(run.name);
      keep({ runs: [...chosen].join(","), job: "" });
      buttons.forEach(button => { button.disabled = chosen.size < (button === buttons[1] ? 2 : 1); });
    } }), `${run.name} (${run.model})`));
    const answers = h("div", { class: "columns", "aria-live": "polite" }), report = h("div", { class: "results" });
    const buttons = [h("button", { class: "primary" }, t("answer")), h("button", { type: "button", onclick: () => measure() }, t("compare_report"))];
    const split = select(["", "test", "validation"].map(part => [part, t(`split_${part || "usual"}`)]), params.split || "", () => {});
    place.replaceChildren(h("fieldset", {}, h("legend", {}, t("runs")), ticks),
      h("form", { class: "stack", onsubmit: event => { event.preventDefault(); answer(); } }, fields.element, buttons[0]), answers,
      h("h2", {}, t("compare_title")), h("p", { class: "muted" }, t("compare_hint")), h("div", { class: "controls" }, labelled(t("split"), split), buttons[1]), report);

    async function answer() {
      const input = fields.value();
      keep({ runs: [...chosen].join(","), text: fields.text() });
      if (!input) return answers.replaceChildren(empty(t("try_empty"), t("try_empty_hint")));
      answers.replaceChildren(...[...chosen].map(name => {
        const panel = h("article", { class: "panel" }, h("h3", {}, name));
        one(name, input, panel);
        return panel;
      }));
    }
    async function one(name, input, panel) {
      const link = view => h("a", { href: address(view, { run: name, text: fields.text() }) }, t(`view_${view}`));
      try {
        const { predictions: [prediction] } = await post(runPath(name, "predict"), { inputs: [input] }, signal);
        panel.append(...drawn(prediction, fields.parts()), h("p", { class: "links" }, link("look"), facts.get(name).attends && link("steps"), facts.get(name).writes && link("beam")));
        const seen = await post(runPath(name, "attention"), { input, words: facts.get(name).writes === "target" }, signal).catch(() => ({}));
        if (seen.map) panel.append(heatMap(unpacked(seen.map, fields.parts().image), () => {}).element);
      } catch (error) { if (error.name !== "AbortError") panel.append(problem(error)); }
    }
    async function measure(id) {
      try {
        const found = await job(report, "/compare", { runs: [...chosen], split: split.value || null }, id, signal);
        if (!found) return;
        keep({ runs: [...chosen].join(","), split: split.value, job: found.id });
        report.replaceChildren(...reportOf(found.report));
      } catch (error) {
        if (error.name === "AbortError") return;
        if (id && error.status === 404) keep({ job: "" });
        else report.replaceChildren(problem(error));
      }
    }
    if (params.text) await answer();
    if (params.job) await measure(params.job);
  }
  await draw(task, named);
}
