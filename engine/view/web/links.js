/* Words and the lines between them: rows that wrap into pairs of lines, or two columns. */
import { TOP, KINDS, LAYERS, SIDES, direction, findWords, gold, judged, linksOf, make, panelLayers, state } from "./data.js";
import { breakLines } from "./line_breaks.js";

const GAP = 8; // pixels between words, as in the style

export const makePanel = (box, pair, layers) => {
  const words = SIDES.map((key) => pair[key].map((word, place) => {
    const node = make("span", { class: "word", dir: "auto" }, word);
    node.dataset.place = place;
    return node;
  }));
  const svg = make("svg", { class: "links", "aria-hidden": "true" });
  const lines = make("div", { class: "lines" });
  const frame = make("div", { class: "draw rows" }, svg, lines);
  const scroll = make("div", { class: "scroll" }, frame);
  const node = make("div", { class: "panel" });
  const system = layers.find((layer) => layer.id !== "gold");
  if (panelLayers().length > 1 && system) node.append(make("h3", {}, system.name));
  node.append(scroll);
  box.append(node);
  const one = { pair, layers, node, frame, lines, scroll, words, svg, chosen: null };
  frame.addEventListener("pointerover", (event) => highlight(one, event.target.closest(".word")));
  frame.addEventListener("pointerleave", () => highlight(one, null));
  return one;
};
/** Put the words into lines: `ends` says where each pair of lines ends. */
const fillLines = (one, ends) => {
  const ways = SIDES.map((key) => direction(one.pair[key]));
  let starts = [0, 0];
  const blocks = ends.map((end, line) => {
    const sides = one.words.map((words, side) => {
      const label = `${side ? "target" : "source"}${ends.length > 1 ? `, line ${line + 1} of ${ends.length}` : ""}`;
      const node = make("div", { class: `side ${side ? "tgt" : "src"}`, dir: ways[side], "aria-label": label, role: "group" });
      node.append(...words.slice(starts[side], end[side]));
      return node;
    });
    starts = end;
    return make("div", { class: "block" }, ...sides);
  });
  one.ends = ends;
  one.lines.replaceChildren(...blocks);
};
/** Rows, broken where they do not fit, or columns; then remember where the words are. */
export const arrangePanel = (one, room) => {
  const whole = [one.words.map((side) => side.length)];
  one.columns = state.layout === "columns";
  one.frame.classList.toggle("columns", one.columns);
  one.frame.classList.toggle("rows", !one.columns);
  fillLines(one, whole);
  if (!one.columns) {
    const widths = one.words.map((side) => side.map((word) => word.getBoundingClientRect().width));
    const ends = breakLines(widths, GAP, room - 6, linksOf(one.pair, one.layers[0] ?? LAYERS[0]));
    if (ends.length > 1) fillLines(one, ends);
  }
  one.frame.classList.toggle("many", one.ends.length > 1);
  // What can be scrolled must be reachable without a mouse.
  if (one.scroll.scrollWidth > one.scroll.clientWidth + 1) one.scroll.tabIndex = 0;
  else one.scroll.removeAttribute("tabindex");
  const base = one.frame.getBoundingClientRect();
  one.boxes = one.words.map((side) => side.map((word) => {
    const box = word.getBoundingClientRect();
    return { left: box.left - base.left, right: box.right - base.left, top: box.top - base.top, bottom: box.bottom - base.top };
  }));
};
const lineOf = (one, side, place) => one.ends.findIndex((end) => place < end[side]);
/** The ends of a link, and whether it leads from one pair of lines to another. */
const linkEnds = (one, [i, j], shift) => {
  const a = one.boxes[0][i], b = one.boxes[1][j];
  if (one.columns) return [a.right + 2, (a.top + a.bottom) / 2 + shift, b.left - 2, (b.top + b.bottom) / 2 + shift, false];
  const up = lineOf(one, 1, j) < lineOf(one, 0, i), far = lineOf(one, 1, j) !== lineOf(one, 0, i);
  const y = up ? [a.top - 1, b.bottom + 1] : [a.bottom + 1, b.top - 1];
  return [(a.left + a.right) / 2 + shift, y[0], (b.left + b.right) / 2 + shift, y[1], far];
};
export const MARKS = {
  wrong: (x, y) => `M${x - 4} ${y - 4}L${x + 4} ${y + 4}M${x - 4} ${y + 4}L${x + 4} ${y - 4}`,
  missing: (x, y) => `M${x - 4.5} ${y}a4.5 4.5 0 1 0 9 0a4.5 4.5 0 1 0 -9 0`,
  possible: (x, y) => `M${x} ${y - 5}L${x + 5} ${y}L${x} ${y + 5}L${x - 5} ${y}Z`,
};
export const drawLinks = (one) => {
  const { pair, layers, svg } = one;
  const rows = judged(pair, layers);
  const systems = layers.filter((layer) => layer.id !== "gold");
  const linked = [new Set(), new Set()];
  const lines = [], marks = [];
  for (const [layer, link, kind] of rows) {
    const rank = layer.id === "gold" ? 0 : systems.indexOf(layer) - (systems.length - 1) / 2;
    const [x1, y1, x2, y2, far] = linkEnds(one, link, 4 * rank);
    const line = make("line", { class: `link ${layer.id} ${kind}${far ? " far" : ""}`, x1, y1, x2, y2 });
    line.dataset.link = `${link[0]}-${link[1]}`;
    if (layer.id === "sys" && link[2] >= 0) line.style.opacity = ((far ? 0.7 : 1) * (0.4 + (0.6 * link[2]) / TOP)).toFixed(2);
    lines.push(line);
    if (MARKS[kind]) {
      const at = kind === "missing" ? 0.36 : 0.5; // or marks would meet where two links cross
      const mark = make("path", { class: `mark ${kind}`, d: MARKS[kind](x1 + (x2 - x1) * at, y1 + (y2 - y1) * at) });
      mark.dataset.link = line.dataset.link;
      marks.push(mark);
    }
    if (kind !== "missing") link.slice(0, 2).forEach((place, side) => linked[side].add(place));
  }
  svg.replaceChildren(...lines, ...marks);
  one.words.forEach((side, k) => {
    const found = findWords(pair[SIDES[k]], state.find);
    side.forEach((word, place) => {
      word.classList.toggle("free", !linked[k].has(place));
      word.classList.toggle("found", found.has(place));
    });
  });
  one.rows = rows;
};
/** Show the links of a word alone; returns what there is to say of it. */
export const highlight = (one, word) => {
  const side = word ? one.words.findIndex((words) => words.includes(word)) : -1;
  const place = word ? Number(word.dataset.place) : -1;
  const partners = [new Set(), new Set()];
  for (const node of one.svg.children) {
    const link = node.dataset.link.split("-").map(Number);
    const own = side >= 0 && link[side] === place;
    node.classList.toggle("strong", own);
    node.classList.toggle("dim", side >= 0 && !own);
    if (own) link.forEach((at, k) => partners[k].add(at));
  }
  if (side >= 0) partners[side].add(place);
  one.words.forEach((words, k) => words.forEach((each, at) => each.classList.toggle("on", partners[k].has(at))));
  return side < 0 ? "" : describeWord(one, side, place);
};
const describeWord = (one, side, place) => {
  const words = [one.pair.s, one.pair.t];
  const found = one.rows.filter((row) => row[1][side] === place);
  const made = found.filter((row) => row[2] !== "missing"), missing = found.filter((row) => row[2] === "missing");
  const named = (rows) => rows.map(([layer, link, kind]) => {
    const score = layer !== gold && link[2] >= 0 ? ` ${(link[2] / TOP).toFixed(2)}` : "";
    return `${words[1 - side][link[1 - side]]}${score}${kind && kind !== "missing" ? ` (${KINDS[kind]})` : ""}`;
  }).join(", ");
  return `${words[side][place]}: ${made.length ? `linked to ${named(made)}` : "no link"}${missing.length ? `; missing: ${named(missing)}` : ""}`;
};
/** The pixels that a pair will take, before it is drawn. */
export const estimateHeight = (pair, room) => {
  const words = Math.max(pair.s.length, pair.t.length);
  const links = state.links ? (state.layout === "columns" ? 27 * words : 30 + 125 * Math.max(1, Math.ceil((66 * words) / room))) : 0;
  return 60 + Math.max(links, state.heat ? 20 * pair.s.length + 130 : 0);
};
