// What several views share.

import { current, go } from "./address.js";
import { get } from "./api.js";
import { empty, h, labelled, select } from "./dom.js";
import { t } from "./text.js";

// Runs that can be used: with a checkpoint. `fits` chooses among them.
export async function usableRuns(fits = () => true) {
  return (await get("/runs")).filter(run => !run.error && run.parameters !== null && fits(run));
}

// The heading of a view and its chooser of runs. Returns the chosen run's summary; null, with the reason drawn, if there is none.
export async function chooseRun(root, params, fits) {
  const { view } = current(), runs = await usableRuns(fits);
  const heading = h("h1", {}, t(`view_${view}`)), hint = h("p", { class: "muted" }, t(`hint_${view}`));
  if (!runs.length) {
    root.append(heading, hint, empty(t("no_runs"), t("no_runs_hint")));
    return null;
  }
  const run = runs.find(one => one.name === params.run) || runs[0];
  const options = runs.map(one => [one.name, `${one.name} (${one.task}, ${one.model})`]);
  root.append(heading, hint, h("div", { class: "controls" },
    labelled(t("run"), select(options, run.name, name => go(view, { ...params, run: name })))));
  return run;
}

// Call `work` every `seconds` until the view is left.
export function poll(seconds, work) {
  const timer = setInterval(work, seconds * 1000);
  document.getElementById("view").addEventListener("leave", () => clearInterval(timer), { once: true });
}
// An AbortSignal that ends what the view started when it is left.
export function untilLeft() {
  const controller = new AbortController();
  document.getElementById("view").addEventListener("leave", () => controller.abort(), { once: true });
  return controller.signal;
}
export const figures = value => value.toLocaleString("en");
