// The icons, drawn here on a square of 24: lines of one width in the colour of the text.

import { svg } from "./dom.js";

const PATHS = {
  start: "M4 11l8-7 8 7v9h-5v-6H9v6H4z",
  runs: "M4 6h16M4 12h16M4 18h10",
  model: "M4 4h6v5H4zM14 4h6v5h-6zM9 15h6v5H9zM7 9v3h10V9M12 12v3",
  try: "M4 5h16v11H11l-4 4v-4H4z",
  look: "M2 12s4-7 10-7 10 7 10 7-4 7-10 7-10-7-10-7zM12 9a3 3 0 1 0 0 6 3 3 0 0 0 0-6",
  steps: "M3 19h5v-5h5V9h5V4h3",
  beam: "M3 12h5M8 12l6-7h7M8 12h13M8 12l6 7h7",
  errors: "M12 3l9.5 17h-19zM12 10v4.5M12 17v.5",
  compare: "M5 20V10M12 20V4M19 20v-7",
  course: "M12 6c-2-1.6-5-2-8-2v14c3 0 6 .4 8 2M12 6c2-1.6 5-2 8-2v14c-3 0-6 .4-8 2M12 6v14",
  new: "M12 4v16M4 12h16",
  system: "M12 3a9 9 0 1 0 0 18 9 9 0 0 0 0-18M12 3v18M12 7l5-1.5M12 12l9-.5M12 17l6-.5",
  light: "M12 8a4 4 0 1 0 0 8 4 4 0 0 0 0-8M12 2v2.5M12 19.5V22M2 12h2.5M19.5 12H22M5 5l1.8 1.8M17.2 17.2L19 19M5 19l1.8-1.8M17.2 6.8L19 5",
  dark: "M20 14.5A8.5 8.5 0 0 1 9.5 4a8.5 8.5 0 1 0 10.5 10.5z",
  present: "M3 4h18v12H3zM12 16v3M8 21l4-2 4 2",
  controls: "M4 7h9M17 7h3M15 5v4M4 17h3M11 17h9M9 15v4",
  more: "M5 12h.01M12 12h.01M19 12h.01",
  close: "M5 5l14 14M19 5L5 19",
  first: "M6 5v14M19 5l-9 7 9 7z",
  previous: "M15 5l-8 7 8 7",
  play: "M7 4l13 8-13 8z",
  next: "M9 5l8 7-8 7",
  last: "M18 5v14M5 5l9 7-9 7z",
};

export const icon = name => svg("svg", { class: "icon", viewBox: "0 0 24 24", "aria-hidden": "true" }, svg("path", { d: PATHS[name] }));
