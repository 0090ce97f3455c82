import { chooseRun } from "../parts.js";

export async function render(root, params) {
  await chooseRun(root, params);
}
