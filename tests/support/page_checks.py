"""What a script can see on a page of the studio: text that is cut off, and text on text."""

CLIPPED = """() => [...document.querySelectorAll("main *, header *, nav *")].filter(one => {
  const style = getComputedStyle(one), text = [...one.childNodes].some(node => node.nodeType === 3 && node.data.trim());
  const drawn = one.checkVisibility({ visibilityProperty: true });
  const spoken = style.clipPath === "inset(50%)"; // for screen readers alone
  if (!text || !drawn || spoken || one.closest("textarea, select, svg, .hint")) return false;
  if (style.textOverflow === "ellipsis" && one.closest("[data-tip]")) return false;
  const cut = ["hidden", "clip"].includes(style.overflowX) && one.scrollWidth > one.clientWidth + 1;
  const low = ["hidden", "clip"].includes(style.overflowY) && one.scrollHeight > one.clientHeight + 1;
  return cut || low;
}).map(one => one.outerHTML.slice(0, 120))"""
"""Elements whose text does not fit into them and cannot be scrolled; a text that ends in an ellipsis
has the whole of it in its tip."""
OVERLAPPING = """() => {
  const drawn = one => one.checkVisibility({ visibilityProperty: true, opacityProperty: true });
  const own = one => [...one.childNodes].some(node => node.nodeType === 3 && node.data.trim());
  const texts = [...document.querySelectorAll("main *")]
    .filter(one => own(one) && drawn(one) && !one.closest("svg, math, select, textarea, .tour")
      && getComputedStyle(one).clipPath !== "inset(50%)");
  const styles = one => {
    const all = [];
    for (let at = one; at; at = at.parentElement) all.push([at, getComputedStyle(at)]);
    return all;
  };
  const stays = one => styles(one).some(([, style]) => ["sticky", "fixed"].includes(style.position));
  // what can be seen of a box: no more than of the places that it scrolls or ends in
  const seen = (box, places) => places.reduce((left, place) => ({
    left: Math.max(left.left, place.left), right: Math.min(left.right, place.right),
    top: Math.max(left.top, place.top), bottom: Math.min(left.bottom, place.bottom) }), box);
  const placed = texts.filter(one => !stays(one)).map(one => {
    const range = document.createRange();
    range.selectNodeContents(one);
    const places = styles(one).filter(([, style]) => style.overflowX !== "visible" && style.overflowX !== "")
      .map(([place]) => place.getBoundingClientRect());
    return { one, boxes: [...range.getClientRects()].map(box => seen(box, places)) };
  });
  const meet = (a, b) => Math.min(a.right, b.right) - Math.max(a.left, b.left) > 3
    && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 4;
  const found = [];
  placed.forEach((first, n) => placed.slice(n + 1).forEach(second => {
    if (first.one.contains(second.one) || second.one.contains(first.one)) return;
    if (first.boxes.some(a => second.boxes.some(b => meet(a, b)))) {
      found.push(`${first.one.textContent.slice(0, 40)} / ${second.one.textContent.slice(0, 40)}`);
    }
  }));
  return found;
}"""
"""Pairs of texts that are drawn over each other."""
