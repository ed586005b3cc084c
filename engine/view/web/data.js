/* The pairs of the page, what is shown of them, and numbers about them. Draws nothing. */
export const $ = (id) => document.getElementById(id);
export const data = JSON.parse($("data").textContent);
export const pairs = data.pairs;
export const TOP = 255; // scores are whole numbers from 0 to this
export const SIDES = ["s", "t"];
// A layer's list of links stands under `list`; the system's may be all cells of a matrix instead.
export const LAYERS = [
  { id: "sys", key: "s", list: "l", on: true },
  { id: "fwd", key: "f", list: "lf", on: false },
  { id: "bwd", key: "b", list: "lb", on: false },
  { id: "cmp", key: "c", list: "c", on: true },
  { id: "gold", key: "g", list: "gp", on: true },
].map((layer) => ({ ...layer, name: data.names[layer.id] }));
export const layerOf = (id) => LAYERS.find((layer) => layer.id === id);
export const gold = layerOf("gold"), compare = layerOf("cmp");
/** Look again which layers there are: `there` if any pair has links of it. */
export const findLayers = () => {
  for (const layer of LAYERS) {
    layer.there = layer.id === "sys" || pairs.some((pair) => pair[layer.list] !== undefined);
  }
};
findLayers();
export const shownLayers = () => LAYERS.filter((layer) => layer.there && layer.on);
export const state = {
  cut: data.threshold, links: true, heat: Boolean(data.app), split: true, layout: "rows", matrix: "m", edit: false, find: "",
};

export const make = (tag, attributes = {}, ...children) => {
  const svg = ["svg", "path", "line"].includes(tag);
  const node = svg ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
};
export const number = (value) => value.toLocaleString("en");
export const percent = (value) => `${(100 * value).toFixed(1)} %`;
export const press = (button, on) => button.setAttribute("aria-pressed", String(on));

// ---- numbers of a pair ----

/** Unpack bytes in which 0 and a count stand for that many zeros: 7 0 3 9 is 7 0 0 0 9. */
const unpack = (text, size) => {
  const packed = Uint8Array.from(atob(text), (c) => c.charCodeAt(0)), cells = new Uint8Array(size);
  let at = 0;
  for (let k = 0; k < packed.length; k++) {
    if (packed[k]) cells[at++] = packed[k];
    else at += packed[++k];
  }
  return cells;
};
/** A matrix of the pair, or its row of NULL, in steps of 1/255; null if there is none. */
export const bytes = (pair, key) => {
  const cache = (pair.bytes ??= {});
  if (!(key in cache)) {
    const size = key === "sn" ? pair.s.length : key === "tn" ? pair.t.length : pair.s.length * pair.t.length;
    cache[key] = pair[key] === undefined ? null : unpack(pair[key], size);
  }
  return cache[key];
};
export const triples = (flat) => {
  const links = [];
  for (let k = 0; k < flat.length; k += 3) links.push([flat[k], flat[k + 1], flat[k + 2]]);
  return links;
};
/** Links [source word, target word, score or -1] of a layer, as the slider says. */
export const linksOf = (pair, layer) => {
  if (pair[layer.list] === undefined) return [];
  if (layer.id !== "sys" || state.cut === null) return triples(pair[layer.list]);
  const cells = data.matrix ? bytes(pair, "m") : null;
  if (!cells) return triples(pair.l).filter((link) => link[2] >= state.cut);
  const links = [], width = pair.t.length;
  for (let k = 0; k < cells.length; k++) {
    if (cells[k] >= state.cut) links.push([Math.floor(k / width), k % width, cells[k]]);
  }
  return links;
};
export const cell = (pair, link) => link[0] * pair.t.length + link[1];
export const goldOf = (pair) => {
  if (pair.gp === undefined) return null;
  if (!pair.gold) {
    const possible = triples(pair.gp);
    pair.gold = {
      possible: new Set(possible.map((link) => cell(pair, link))),
      sure: new Set(possible.filter((link) => link[2] > 0).map((link) => cell(pair, link))),
    };
  }
  return pair.gold;
};
/** |A|, |S|, |A and S|, |A and P| */
export const countsOf = (pair, layer) => {
  const wanted = goldOf(pair), links = linksOf(pair, layer);
  const counts = [links.length, wanted.sure.size, 0, 0];
  for (const link of links) {
    const at = cell(pair, link);
    if (wanted.sure.has(at)) counts[2]++;
    if (wanted.possible.has(at)) counts[3]++;
  }
  return counts;
};
export const aer = ([made, sure, inSure, inPossible]) => (made + sure ? 1 - (inSure + inPossible) / (made + sure) : 0);
export const pairAer = (pair, layer = LAYERS[0]) => (goldOf(pair) ? aer(countsOf(pair, layer)) : null);
/** How many links only one of the two systems has. */
export const differ = (pair) => {
  const one = new Set(linksOf(pair, layerOf("sys")).map((link) => cell(pair, link)));
  const two = linksOf(pair, compare).map((link) => cell(pair, link));
  const both = two.filter((at) => one.has(at)).length;
  return one.size + two.length - 2 * both;
};
export const wordsOf = (pair) => pair.s.length + pair.t.length;
/** The links of some layers: [layer, link, kind]; the first system is judged if gold is shown. */
export const judged = (pair, layers) => {
  const systems = layers.filter((layer) => layer.id !== "gold");
  const wanted = layers.length > systems.length ? goldOf(pair) : null;
  const rows = [];
  systems.forEach((layer, rank) => {
    for (const link of linksOf(pair, layer)) {
      const at = cell(pair, link);
      const kind = !wanted || rank ? "" : wanted.sure.has(at) ? "right" : wanted.possible.has(at) ? "possible" : "wrong";
      rows.push([layer, link, kind]);
    }
  });
  if (wanted) {
    const made = new Set(systems.length ? linksOf(pair, systems[0]).map((link) => cell(pair, link)) : []);
    for (const link of triples(pair.gp)) {
      if (!systems.length) rows.push([gold, link, link[2] ? "" : "only-possible"]);
      else if (link[2] && !made.has(cell(pair, link))) rows.push([gold, link, "missing"]);
    }
  }
  return rows;
};
/** What is drawn in each panel: one, or one for each of two systems. */
export const panelLayers = () => {
  const on = shownLayers();
  if (!(state.split && on.includes(compare) && on.includes(layerOf("sys")))) return [on];
  return [on.filter((layer) => layer !== compare), on.filter((layer) => [compare, gold].includes(layer))];
};
export const KINDS = { right: "right", possible: "possible", wrong: "wrong", missing: "missing", "only-possible": "possible" };

// ---- text ----

const RTL = /[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufeff\u{10800}-\u{10fff}\u{1e800}-\u{1efff}]/u;
const LETTER = /\p{L}/u;
export const direction = (words) => {
  let balance = 0;
  for (const word of words) {
    const letter = word.match(LETTER);
    if (letter) balance += RTL.test(letter[0]) ? 1 : -1;
  }
  return balance > 0 ? "rtl" : "ltr";
};
export const folded = (text) => text.normalize("NFKC").toLocaleLowerCase();
/** The places of words that have a part of what is looked for, which may go over several words. */
export const findWords = (words, text) => {
  const found = new Set();
  if (!text) return found;
  const starts = [];
  let joined = "";
  for (const word of words) {
    starts.push(joined.length);
    joined += `${folded(word)} `;
  }
  for (let at = joined.indexOf(text); at >= 0; at = joined.indexOf(text, at + 1)) {
    words.forEach((_, place) => {
      const end = place + 1 < starts.length ? starts[place + 1] - 1 : joined.length - 1;
      if (starts[place] < at + text.length && end > at) found.add(place);
    });
  }
  return found;
};
