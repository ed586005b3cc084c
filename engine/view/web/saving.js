/* What can be saved: a pair as a picture, the pairs listed as tables, links or gold. */
import { LAYERS, direction, goldOf, linksOf, pairAer, triples } from "./data.js";

export const saveFile = (name, content, type) => {
  const blob = content instanceof Blob ? content : new Blob([content], { type: `${type};charset=utf-8` });
  const address = URL.createObjectURL(blob), link = document.createElement("a");
  link.href = address;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 10000);
};

// ---- pictures ----

/** The words and lines of a panel with their places and colours: what both kinds of picture draw. */
const sceneOf = (one) => {
  const base = one.frame.getBoundingClientRect(), style = getComputedStyle(document.documentElement);
  const texts = one.words.flatMap((side, k) => side.map((node, place) => {
    const box = one.boxes[k][place], look = getComputedStyle(node);
    return { text: node.textContent, x: (box.left + box.right) / 2, y: (box.top + box.bottom) / 2, fill: look.color, rtl: direction([node.textContent]) === "rtl" };
  }));
  const lines = [...one.svg.children].map((node) => {
    const look = getComputedStyle(node), at = (name) => Number(node.getAttribute(name)).toFixed(1);
    const d = node.getAttribute("d") ?? `M${at("x1")} ${at("y1")}L${at("x2")} ${at("y2")}`;
    const fill = node.hasAttribute("d") ? look.fill : "none";
    return { d, stroke: look.stroke, width: look.strokeWidth, dash: look.strokeDasharray, opacity: look.opacity, fill };
  });
  const font = getComputedStyle(one.frame);
  return {
    texts, lines, width: Math.ceil(base.width) + 16, height: Math.ceil(base.height) + 16,
    font: `${font.fontSize} ${font.fontFamily}`, size: font.fontSize, family: font.fontFamily, paper: style.getPropertyValue("--card").trim(),
  };
};
const escaped = (text) => text.replace(/[&<>"]/g, (mark) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" }[mark]))
  .replace(/[\u0000-\u0008\u000b\u000c\u000e-\u001f]/g, "\ufffd"); // which XML cannot hold
export const drawSvg = (one) => {
  const scene = sceneOf(one);
  const lines = scene.lines.map((line) => `<path d="${line.d}" fill="${line.fill}" stroke="${line.stroke}" stroke-width="${line.width}" stroke-dasharray="${line.dash}" stroke-linecap="round" opacity="${line.opacity}"/>`);
  const texts = scene.texts.map((word) => `<text x="${word.x.toFixed(1)}" y="${word.y.toFixed(1)}" fill="${word.fill}"${word.rtl ? ' direction="rtl"' : ""}>${escaped(word.text)}</text>`);
  return `<svg xmlns="http://www.w3.org/2000/svg" width="${scene.width}" height="${scene.height}" viewBox="-8 -8 ${scene.width} ${scene.height}">`
    + `<rect x="-8" y="-8" width="100%" height="100%" fill="${scene.paper}"/>${lines.join("")}`
    + `<g font-size="${scene.size}" font-family="${escaped(scene.family)}" text-anchor="middle" dominant-baseline="central">${texts.join("")}</g></svg>\n`;
};
/** Draw the picture on a canvas, two pixels for one; an SVG image would need leave to load. */
export const drawPng = (one) => {
  const scene = sceneOf(one), canvas = document.createElement("canvas"), scale = 2;
  canvas.width = scale * scene.width;
  canvas.height = scale * scene.height;
  const context = canvas.getContext("2d");
  context.scale(scale, scale);
  context.fillStyle = scene.paper;
  context.fillRect(0, 0, scene.width, scene.height);
  context.translate(8, 8);
  context.lineCap = "round";
  for (const line of scene.lines) {
    const path = new Path2D(line.d);
    context.globalAlpha = Number(line.opacity);
    context.lineWidth = Number.parseFloat(line.width);
    context.setLineDash(line.dash === "none" ? [] : line.dash.split(",").map(Number.parseFloat));
    context.strokeStyle = line.stroke;
    context.fillStyle = line.fill;
    if (line.fill !== "none") context.fill(path);
    context.stroke(path);
  }
  context.globalAlpha = 1;
  Object.assign(context, { font: scene.font, textAlign: "center", textBaseline: "middle" });
  for (const word of scene.texts) {
    context.fillStyle = word.fill;
    context.direction = word.rtl ? "rtl" : "ltr";
    context.fillText(word.text, word.x, word.y);
  }
  return new Promise((done) => canvas.toBlob(done, "image/png"));
};

// ---- lists ----

const linkText = (links) => links.map(([i, j]) => `${i}-${j}`).join(" ");
export const goldText = (pair) => (pair.gp === undefined ? "" : triples(pair.gp).map(([i, j, sure]) => `${i}${sure ? "-" : "p"}${j}`).join(" "));
const oneLine = (words) => words.join(" ").replace(/[\t\r\n]/g, " ");
const tableRow = (pair) => [
  pair.n, oneLine(pair.s), oneLine(pair.t), linkText(linksOf(pair, LAYERS[0])), pair.score.toFixed(4),
  goldText(pair), goldOf(pair) ? pairAer(pair).toFixed(4) : "",
].join("\t");
const goldRow = (pair) => JSON.stringify({
  ...(pair.id === undefined ? {} : { id: pair.id }), line: pair.n, src: pair.s, tgt: pair.t,
  sure: triples(pair.gp).filter((link) => link[2]).map(([i, j]) => [i, j]),
  possible: triples(pair.gp).filter((link) => !link[2]).map(([i, j]) => [i, j]),
});
/** Ways to save the pairs of the list: file name, its lines, type. */
export const LISTS = {
  tsv: ["pairs.tsv", (list) => ["line\tsource\ttarget\tlinks\tscore\tgold\taer", ...list.map(tableRow)], "text/tab-separated-values"],
  links: ["pairs.links", (list) => list.map((pair) => linkText(linksOf(pair, LAYERS[0]))), "text/plain"],
  talp: ["gold.talp", (list) => list.map(goldText), "text/plain"],
  jsonl: ["gold.jsonl", (list) => list.filter((pair) => pair.gp !== undefined).map(goldRow), "application/x-ndjson"],
  src: ["pairs.src", (list) => list.map((pair) => oneLine(pair.s)), "text/plain"],
  tgt: ["pairs.tgt", (list) => list.map((pair) => oneLine(pair.t)), "text/plain"],
};
export const saveList = (kind, list) => {
  const [name, render, type] = LISTS[kind];
  saveFile(name, render(list).map((line) => `${line}\n`).join(""), type);
};
