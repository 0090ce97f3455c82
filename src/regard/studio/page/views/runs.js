import { address } from "../address.js";
import { get } from "../api.js";
import { empty, h } from "../dom.js";
import { figures } from "../parts.js";
import { t } from "../text.js";

export async function render(root) {
  const runs = await get("/runs");
  root.append(h("h1", {}, t("view_runs")));
  if (!runs.length) root.append(empty(t("no_runs"), t("no_runs_hint")));
  else root.append(h("div", { class: "wide" }, h("table", {}, h("tbody", {}, runs.map(row)))));
}
function row(run) {
  return h("tr", {}, h("td", {}, h("a", { href: address("try", { run: run.name }) }, run.name)), h("td", {}, run.task),
    h("td", {}, run.model), h("td", { class: "number" }, run.parameters ? figures(run.parameters) : ""));
}
