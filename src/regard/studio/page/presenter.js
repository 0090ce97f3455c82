// Presenter mode: the figure alone, in large type, on the whole screen. Arrow keys move as they do in the view; Escape ends it.

const CLASS = "presenting";

export async function startPresenting() {
  document.body.classList.add(CLASS);
  addEventListener("keydown", moveFigure);
  document.querySelector("[data-arrows]")?.focus();
  // without the permission of the browser the window is filled instead
  await document.documentElement.requestFullscreen?.().catch(() => {});
  dispatchEvent(new Event("resized"));
}
function stopPresenting() {
  document.body.classList.remove(CLASS);
  removeEventListener("keydown", moveFigure);
  if (document.fullscreenElement) document.exitFullscreen();
  dispatchEvent(new Event("resized"));
}
// Keys that no control has asked for go to what the arrow keys move: a slider, or a player.
function moveFigure(event) {
  if (event.key === "Escape") return stopPresenting();
  const place = document.querySelector("[data-arrows]"), by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (!place || !by || document.activeElement !== document.body) return;
  place.focus();
  if (place.type !== "range") return place.dispatchEvent(new KeyboardEvent("keydown", { key: event.key }));
  place.stepUp(by);
  place.dispatchEvent(new Event("input"));
}
document.addEventListener("fullscreenchange", () => {
  if (!document.fullscreenElement && document.body.classList.contains(CLASS)) stopPresenting();
});
