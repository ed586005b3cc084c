/* The matrix of a pair as a heat map on a canvas, with NULL, links and gold. */
import { $, TOP, LAYERS, bytes, cell, direction, findWords, gold, goldOf, linksOf, make, shownLayers, SIDES, state, triples } from "./data.js";

const CELL = 24, SMALL_CELL = 9; // pixels; cells shrink so that links and map stand side by side
const SHARE = 0.55; // of the width that the map may take beside the links

export const makeHeatMap = (pair, onCell) => {
  const canvas = make("canvas", { role: "img" });
  const note = make("figcaption");
  const scroll = make("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": "Heat map" }, canvas);
  const figure = make("figure", { class: "heat" }, scroll, note);
  const map = { pair, canvas, note, figure };
  for (const kind of ["pointermove", "pointerdown"]) canvas.addEventListener(kind, (event) => tellCell(map, event));
  canvas.addEventListener("pointerleave", () => { $("tip").hidden = true; });
  canvas.addEventListener("click", (event) => {
    const [i, j] = cellAt(map, event);
    if (i >= 0 && j >= 0 && i < pair.s.length && j < pair.t.length) onCell([i, j]);
  });
  return map;
};
/** Values 0..1 of words and of NULL, from the matrix that is asked for or from the links. */
const heatOf = (pair) => {
  const cells = bytes(pair, state.matrix) ?? bytes(pair, "m");
  const nulls = [bytes(pair, "sn"), bytes(pair, "tn")];
  if (cells) {
    const forward = state.matrix !== "b", backward = state.matrix !== "f";
    return {
      at: (i, j) => cells[i * pair.t.length + j] / TOP,
      srcNull: (i) => (nulls[0] && backward ? nulls[0][i] / TOP : null),
      tgtNull: (j) => (nulls[1] && forward ? nulls[1][j] / TOP : null),
    };
  }
  const links = linksOf(pair, LAYERS[0]);
  const values = new Map(links.map((link) => [cell(pair, link), link[2] < 0 ? 1 : link[2] / TOP]));
  const linked = [new Set(links.map((link) => link[0])), new Set(links.map((link) => link[1]))];
  return {
    at: (i, j) => values.get(i * pair.t.length + j) ?? 0,
    srcNull: (i) => (linked[0].has(i) ? 0 : 1),
    tgtNull: (j) => (linked[1].has(j) ? 0 : 1),
  };
};
const clipped = (context, word, width) => {
  if (context.measureText(word).width <= width) return word;
  let end = Math.max(1, Math.floor(word.length / 2));
  while (end > 1 && context.measureText(`${word.slice(0, end)}…`).width > width) end--;
  while (end < word.length && context.measureText(`${word.slice(0, end + 1)}…`).width <= width) end++;
  return `${word.slice(0, end)}…`;
};
/** Choose the size of cells: the map has all of the room, or a share of it beside the links. */
export const sizeHeatMap = (map, room, alone) => {
  const { pair, canvas } = map;
  const context = canvas.getContext("2d");
  const widest = (words) => Math.min(110, Math.max(46, ...words.map((word) => context.measureText(word).width)));
  const rows = pair.s.length + 1, columns = pair.t.length + 1;
  const fit = (size) => {
    const font = `${Math.min(13, size + 1)}px system-ui, "Noto Sans", sans-serif`;
    context.font = font;
    const left = Math.ceil(widest(pair.s)) + 10, top = Math.ceil(widest(pair.t)) + 10;
    return { size, font, left, top, rows, columns, width: left + columns * size + 2, height: top + rows * size + 2 };
  };
  const wanted = alone ? room : SHARE * room;
  let plan = fit(CELL);
  while (plan.size > SMALL_CELL && plan.width > wanted) plan = fit(plan.size - 1);
  // Too small to be pointed at with a finger: below the links there is room to scroll.
  if (!alone && (plan.width > wanted || room < 700)) plan = fit(room < 700 ? 18 : CELL);
  map.plan = plan;
  return plan.width;
};
export const paintHeatMap = (map) => {
  const { pair, canvas } = map;
  const { size, font, left, top, columns, width, height } = map.plan;
  const style = getComputedStyle(document.documentElement);
  const color = (name) => style.getPropertyValue(name).trim();
  const context = canvas.getContext("2d");
  const scale = Math.min(window.devicePixelRatio || 1, 4096 / Math.max(width, height));
  canvas.width = Math.round(width * scale);
  canvas.height = Math.round(height * scale);
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  context.setTransform(scale, 0, 0, scale, 0, 0);
  context.font = font;
  context.textBaseline = "middle";
  // NULL comes first in the reading direction of the target; a right-to-left one is mirrored.
  const mirrored = direction(pair.t) === "rtl";
  const x = (j) => left + (mirrored ? columns - 2 - j : j + 1) * size;
  const y = (i) => top + (i + 1) * size;
  map.mirrored = mirrored;
  const looked = SIDES.map((key) => findWords(pair[key], state.find));
  const label = (text, i, j) => {
    const found = looked[j === null ? 0 : 1].has(j ?? i);
    context.direction = direction([text]);
    context.fillStyle = color(i === -1 || j === -1 ? "--soft" : found ? "--focus" : "--ink");
    if (j === null) {
      context.textAlign = "right";
      context.fillText(clipped(context, text, left - 8), left - 5, y(i) + size / 2);
      return;
    }
    context.save();
    context.translate(x(j) + size / 2, top - 5);
    context.rotate(-Math.PI / 2);
    context.textAlign = "left";
    context.fillText(clipped(context, text, top - 8), 0, 0);
    context.restore();
  };
  const heat = heatOf(pair);
  const square = (i, j, value) => {
    context.strokeStyle = color("--edge");
    context.lineWidth = 1;
    if (value !== null) {
      context.fillStyle = `rgba(${color("--heat")}, ${value.toFixed(3)})`;
      context.fillRect(x(j), y(i), size, size);
      context.strokeRect(x(j) + 0.5, y(i) + 0.5, size, size);
    }
  };
  label("[NULL]", -1, null);
  label("[NULL]", null, -1);
  pair.s.forEach((word, i) => { label(word, i, null); square(i, -1, heat.srcNull(i)); });
  pair.t.forEach((word, j) => { label(word, null, j); square(-1, j, heat.tgtNull(j)); });
  for (let i = 0; i < pair.s.length; i++) for (let j = 0; j < pair.t.length; j++) square(i, j, heat.at(i, j));
  outlineCells(map, context, color, x, y);
  map.heat = heat;
  const marks = gold.there && gold.on ? "; gold: corner filled for sure, open for possible" : "";
  const framed = shownLayers().find((layer) => layer !== gold)?.name ?? "no layer";
  map.note.textContent = `Rows: source, columns: target; framed: ${framed}${marks}.`;
  canvas.setAttribute("aria-label", `Heat map of ${pair.s.length} source and ${pair.t.length} target words; the links are below as text.`);
};
/** Frame the links, and give gold cells a corner. */
const outlineCells = (map, context, color, x, y) => {
  const { pair } = map, { size } = map.plan;
  const system = shownLayers().find((layer) => layer !== gold);
  context.lineWidth = size < 16 ? 1.3 : 2;
  if (system) {
    context.strokeStyle = color("--focus");
    for (const [i, j] of linksOf(pair, system)) context.strokeRect(x(j) + 2, y(i) + 2, size - 3, size - 3);
  }
  if (!gold.on || !goldOf(pair)) return;
  for (const [i, j, sure] of triples(pair.gp)) {
    const near = size / 6, far = size * 0.55;
    context.beginPath();
    context.moveTo(x(j) + near, y(i) + near);
    context.lineTo(x(j) + far, y(i) + near);
    context.lineTo(x(j) + near, y(i) + far);
    context.closePath();
    context.lineWidth = 1.5;
    context.strokeStyle = color("--ink");
    context.fillStyle = color(sure ? "--ink" : "--card");
    context.fill();
    context.stroke();
  }
};
const cellAt = (map, event) => {
  const box = map.canvas.getBoundingClientRect(), { left, top, size, columns } = map.plan;
  const column = Math.floor((event.clientX - box.left - left) / size);
  return [Math.floor((event.clientY - box.top - top) / size) - 1, map.mirrored ? columns - 2 - column : column - 1];
};
/** Tell the words and the value of a cell beside the pointer, where it covers no other cell of use. */
const tellCell = (map, event) => {
  const { pair, heat } = map, [i, j] = cellAt(map, event), tip = $("tip");
  const inside = i >= -1 && j >= -1 && i < pair.s.length && j < pair.t.length && i + j > -2;
  const value = !inside ? null : i < 0 ? heat.tgtNull(j) : j < 0 ? heat.srcNull(i) : heat.at(i, j);
  tip.hidden = value === null;
  if (tip.hidden) return;
  const words = [i < 0 ? "[NULL]" : pair.s[i], j < 0 ? "[NULL]" : pair.t[j]].map((word) => make("bdi", {}, word));
  tip.replaceChildren(words[0], " – ", words[1], `: ${value.toFixed(2)}`);
  const room = [window.innerWidth - tip.offsetWidth - 4, window.innerHeight - tip.offsetHeight - 4];
  tip.style.left = `${Math.max(4, Math.min(event.clientX + 14, room[0]))}px`;
  tip.style.top = `${Math.max(4, event.clientY + 18 > room[1] ? event.clientY - tip.offsetHeight - 12 : event.clientY + 18)}px`;
};
