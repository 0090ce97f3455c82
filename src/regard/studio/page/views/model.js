// The model as a drawing, with the sentence flowing through it: views/diagrams draws, templates/diagram.js moves.
/* global diagramOf */

import { address, keep } from "../address.js";
import { post, runPath } from "../api.js";
import { download, empty, h, svg } from "../dom.js";
import { svgText } from "../heat.js";
import { busy, targetField, untilLeft } from "../parts.js";
import { t } from "../text.js";

export const ACTION = "flow";

export async function render({ stage, controls, onsubmit, run, facts, fields, params }) {
  const signal = untilLeft(), target = targetField(facts, params), place = h("div", { class: "results" }), own = h("div");
  stage.append(place);
  controls.append(own, target.element || "");
  let first = params.moment === undefined ? null : Number(params.moment);

  async function show() {
    const input = fields.value();
    if (!input.length) {
      own.replaceChildren();
      return place.replaceChildren(empty(t("model_empty"), t("model_empty_hint")));
    }
    await busy(place, async () => {
      const part = await post(runPath(run.name, "diagram"), { input, target: target.value() || null, ...fields.languages() }, signal);
      const drawn = diagramOf(part, moment => keep({ moment: moment === part.moments.length - 1 ? "" : moment }));
      place.replaceChildren(drawn.claim, drawn.frame, drawn.film);
      own.replaceChildren(drawn.panel, h("div", { class: "buttons" },
        facts.attends && h("a", { class: "button", href: address("steps") }, t("work_it_out")),
        h("button", { type: "button", onclick: () => save(run, drawn.drawing) }, t("save_svg"))));
      drawn.show(first ?? part.moments.length - 1);
      first = null;
    });
  }
  onsubmit(show);
  await show();
}

// A file of its own needs the style of the drawing inside it.
async function save(run, drawing) {
  const style = await (await fetch("/page/diagram.css")).text(), copy = drawing.cloneNode(true);
  copy.prepend(svg("style", {}, style));
  download(`${run.name}-model.svg`, svgText(copy), "image/svg+xml");
}
