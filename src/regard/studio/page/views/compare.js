// Several runs on one input, side by side, and the report of `compare`.

import { address, keep } from "../address.js";
import { get, post, runPath } from "../api.js";
import { empty, h, labelled, problem, select } from "../dom.js";
import { fitted, heatMap, unpacked } from "../heat.js";
import { untilLeft } from "../parts.js";
import { job, reportOf } from "../reports.js";
import { t } from "../text.js";
import { drawn } from "./try.js";

const heightOf = panel => Math.max(240, Math.min(panel.clientWidth, innerHeight / 2));

export async function render({ stage, controls, onsubmit, runs, run, fields, params }) {
  const signal = untilLeft(), asked = runs.filter(one => one.task === run.task).map(one => get(runPath(one.name), signal).catch(() => null));
  const facts = new Map((await Promise.all(asked)).filter(Boolean).map(one => [one.name, one])); // without damaged ones
  if (facts.size < 2) {
    const train = h("a", { class: "button primary", href: address("runs", { new: 1 }) }, t("train_new"));
    return void stage.append(empty(t("compare_few"), t("compare_few_hint"), train));
  }
  const others = [...facts.keys()].filter(name => name !== run.name), wanted = (params.runs || "").split(",");
  const named = others.filter(name => wanted.includes(name));
  const chosen = new Set([run.name, ...(named.length ? named : others.slice(0, 1))]); // the run of the bar is the baseline
  const names = () => [...chosen].join(",");
  const ticks = [run.name, ...others].map(name => h("label", { class: "tick" }, h("input", { type: "checkbox", checked: chosen.has(name), disabled: name === run.name, onchange: event => {
    if (event.target.checked) chosen.add(name); else chosen.delete(name);
    keep({ job: "" });
    start.disabled = chosen.size < 2;
    answer();
  } }), `${name} (${facts.get(name).model})`));
  const answers = h("div", { class: "columns", "aria-live": "polite" }), report = h("div", { class: "results" });
  const start = h("button", { type: "button", onclick: () => measure() }, t("compare_report"));
  const split = select(["", "test", "validation"].map(part => [part, t(`split_${part || "usual"}`)]), params.split || "", value => keep({ split: value }));
  controls.append(h("fieldset", {}, h("legend", {}, t("runs")), ticks), h("h2", {}, t("compare_title")),
    h("p", { class: "muted" }, t("compare_hint")), labelled(t("split"), split), start);
  stage.append(answers, report);
  onsubmit(answer);

  async function answer() {
    const input = fields.value();
    keep({ runs: names() });
    if (!input) return answers.replaceChildren(empty(t("try_empty"), t("try_empty_hint")));
    const panels = [...chosen].map(name => [name, h("article", { class: "panel" }, h("h3", {}, name))]);
    answers.replaceChildren(...panels.map(([, panel]) => panel));
    for (const [name, panel] of panels) one(name, input, panel);
  }
  async function one(name, input, panel) {
    const { attends, writes } = facts.get(name);
    const link = view => h("a", { href: address(view, { run: name }) }, t(`view_${view}`));
    try {
      const { predictions: [prediction] } = await post(runPath(name, "predict"), { inputs: [input] }, signal);
      panel.append(...drawn(prediction, fields.parts()), h("p", { class: "links" }, link("look"), attends && link("steps"), writes && link("beam")));
      const seen = await post(runPath(name, "attention"), { input, words: writes === "target" }, signal).catch(() => ({}));
      if (!seen.map) return;
      const map = fitted(unpacked(seen.map, fields.parts().image), panel.clientWidth - 32, heightOf(panel));
      panel.append(heatMap(map, () => {}).element);
    } catch (error) { if (error.name !== "AbortError") panel.append(problem(error)); }
  }
  async function measure(id) {
    try {
      const found = await job(report, "/compare", { runs: [...chosen], split: split.value || null }, id, signal);
      if (!found) return;
      keep({ runs: names(), split: split.value, job: found.id });
      report.replaceChildren(...reportOf(found.report));
    } catch (error) {
      if (error.name === "AbortError") return;
      if (id && error.status === 404) keep({ job: "" });
      else report.replaceChildren(problem(error));
    }
  }
  await answer();
  if (params.job) await measure(params.job);
}
