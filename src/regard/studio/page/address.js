// The address of a view holds its state: #/look?run=dates&text=... can be shared, and the browser's buttons work.

// What the bar shows goes with the reader from view to view.
const CARRIED = ["run", "runs", "text", "source_language", "target_language", "image", "target", "lang"];

const written = (view, params) => {
  const kept = Object.entries(params).filter(([, value]) => value !== undefined && value !== null && value !== "");
  return `#/${view}${kept.length ? "?" + new URLSearchParams(kept) : ""}`;
};
export function current() {
  const [, view = "", query = ""] = location.hash.match(/^#\/([a-z]*)\??(.*)$/) || [];
  return { view: view || "start", params: Object.fromEntries(new URLSearchParams(query)) };
}
// The address of a view, with the runs, the sentence and the language of the present one unless `params` has others.
export function address(view, params = {}) {
  const present = current().params;
  return written(view, { ...Object.fromEntries(CARRIED.map(name => [name, present[name]])), ...params });
}
// To another view, or the same with other parameters: renders it.
export const go = (view, params) => { location.hash = address(view, params); };
// Change parameters of the present view; nothing is rendered, and "back" skips it.
export function keep(changes) {
  const { view, params } = current();
  history.replaceState(null, "", written(view, { ...params, ...changes }));
  dispatchEvent(new Event("kept"));
}
