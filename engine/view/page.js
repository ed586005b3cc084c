"use strict";
/* Draws the pairs of the JSON block: what is in view, from plain data, by textContent alone. */
(() => {
  const $ = (id) => document.getElementById(id);
  const data = JSON.parse($("data").textContent);
  const pairs = data.pairs;
  const TOP = 255; // scores are whole numbers from 0 to this
  const has = (key) => pairs.some((pair) => pair[key] !== undefined);
  const SIDES = ["s", "t"];
  // A layer's list of links stands under `list`; the system's may be all cells of a matrix instead.
  const LAYERS = [
    { id: "sys", key: "s", list: "l", on: true },
    { id: "fwd", key: "f", list: "lf", on: false },
    { id: "bwd", key: "b", list: "lb", on: false },
    { id: "cmp", key: "c", list: "c", on: true },
    { id: "gold", key: "g", list: "gp", on: true },
  ].filter((layer) => has(layer.list)).map((layer) => ({ ...layer, name: data.names[layer.id] }));
  const layerOf = (id) => LAYERS.find((layer) => layer.id === id);
  const gold = layerOf("gold"), compare = layerOf("cmp");
  const state = { cut: data.threshold, links: true, heat: false, split: Boolean(compare), layout: "auto", matrix: "m" };
  let shown = []; // indices of pairs, filtered and sorted
  let cards = []; // by index of the pair
  let current = -1; // place in `shown` of the pair with the focus

  const make = (tag, attributes = {}, ...children) => {
    const svg = tag === "svg" || tag === "path" || tag === "line";
    const node = svg ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
    node.append(...children);
    return node;
  };
  const number = (value) => value.toLocaleString("en");
  const percent = (value) => `${(100 * value).toFixed(1)} %`;

  // ---- numbers of a pair ----

  const bytes = (pair, key) => {
    const cache = (pair.bytes ??= {});
    if (!(key in cache)) {
      cache[key] = pair[key] === undefined ? null : Uint8Array.from(atob(pair[key]), (c) => c.charCodeAt(0));
    }
    return cache[key];
  };
  const triples = (flat) => {
    const links = [];
    for (let k = 0; k < flat.length; k += 3) links.push([flat[k], flat[k + 1], flat[k + 2]]);
    return links;
  };
  /** Links [source word, target word, score or -1] of a layer, as the slider says. */
  const linksOf = (pair, layer) => {
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
  const cell = (pair, link) => link[0] * pair.t.length + link[1];
  const goldOf = (pair) => {
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
  const countsOf = (pair, layer) => {
    const wanted = goldOf(pair), links = linksOf(pair, layer);
    const counts = [links.length, wanted.sure.size, 0, 0];
    for (const link of links) {
      const at = cell(pair, link);
      if (wanted.sure.has(at)) counts[2]++;
      if (wanted.possible.has(at)) counts[3]++;
    }
    return counts;
  };
  const aer = ([made, sure, inSure, inPossible]) => (made + sure ? 1 - (inSure + inPossible) / (made + sure) : 0);
  const pairAer = (pair, layer = LAYERS[0]) => (goldOf(pair) ? aer(countsOf(pair, layer)) : null);
  const differ = (pair) => {
    const one = new Set(linksOf(pair, layerOf("sys")).map((link) => cell(pair, link)));
    const two = linksOf(pair, compare).map((link) => cell(pair, link));
    const both = two.filter((at) => one.has(at)).length;
    return one.size + two.length - 2 * both;
  };
  const RTL = /[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufeff\u{10800}-\u{10fff}\u{1e800}-\u{1efff}]/u;
  const LETTER = /\p{L}/u;
  const direction = (words) => {
    let balance = 0;
    for (const word of words) {
      const letter = word.match(LETTER);
      if (letter) balance += RTL.test(letter[0]) ? 1 : -1;
    }
    return balance > 0 ? "rtl" : "ltr";
  };

  // ---- one card ----

  const estimate = (pair) => {
    const words = Math.max(pair.s.length, pair.t.length);
    const columns = state.layout === "columns" || 62 * words > list.clientWidth;
    const links = state.links ? (columns ? 27 * words : 170) : 0;
    const heat = state.heat ? 24 * pair.s.length + 150 : 0;
    return 80 + Math.max(links, heat);
  };
  const draw = (card) => {
    const pair = pairs[card.index];
    const body = make("div", { class: "body" });
    card.panels = [];
    card.node.replaceChildren(head(card, pair), body);
    card.node.style.minHeight = "";
    if (state.links) {
      const box = make("div", { class: "panels" });
      body.append(box);
      card.panels = panelLayers().map((layers) => panel(box, pair, layers));
    }
    if (state.heat) {
      card.heat = heatMap(pair);
      body.append(card.heat.figure);
    } else card.heat = null;
    card.text = make("details", { class: "text" }, make("summary"));
    card.text.addEventListener("toggle", () => listText(card));
    card.node.append(card.text);
    card.drawn = true;
    for (const one of card.panels) arrange(one);
    refresh(card);
  };
  const erase = (card) => {
    // What the filter took out of the page has no height of its own.
    card.node.style.minHeight = `${card.node.offsetHeight || estimate(pairs[card.index])}px`;
    card.node.replaceChildren();
    card.drawn = false;
    card.panels = [];
  };
  const head = (card, pair) => {
    const title = make("h2", { id: `h${card.index}` }, `Pair ${number(pair.n)}`);
    card.meta = make("span", { class: "meta" });
    return make("header", {}, title, card.meta);
  };
  /** What is drawn in each panel: one, or one for each of two systems. */
  const panelLayers = () => {
    const on = LAYERS.filter((layer) => layer.on);
    if (!(state.split && compare && compare.on && layerOf("sys").on)) return [on];
    return [on.filter((layer) => layer.id !== "cmp"), on.filter((layer) => ["cmp", "gold"].includes(layer.id))];
  };
  const panel = (box, pair, layers) => {
    const sides = SIDES.map((key, side) => {
      const words = pair[key].map((word, place) => {
        const node = make("span", { class: "word", dir: "auto" }, word);
        node.dataset.place = place;
        return node;
      });
      const name = side ? "target" : "source";
      return make("div", { class: `side ${side ? "tgt" : "src"}`, dir: direction(pair[key]), "aria-label": name, role: "group" }, ...words);
    });
    const svg = make("svg", { class: "links", "aria-hidden": "true" });
    const frame = make("div", { class: "draw rows" }, ...sides, svg);
    const scroll = make("div", { class: "scroll" }, frame);
    const node = make("div", { class: "panel" });
    const system = layers.find((layer) => layer.id !== "gold");
    if (panelLayers().length > 1 && system) node.append(make("h3", {}, system.name));
    node.append(scroll);
    box.append(node);
    const one = { pair, layers, frame, scroll, sides, svg, focus: null };
    frame.addEventListener("pointerover", (event) => highlight(one, event.target.closest(".word")));
    frame.addEventListener("pointerleave", () => highlight(one, null));
    return one;
  };
  /** Rows if they fit, else columns; then remember where the words are. */
  const arrange = (one) => {
    const form = (columns) => {
      one.frame.classList.toggle("columns", columns);
      one.frame.classList.toggle("rows", !columns);
      return columns;
    };
    form(state.layout === "columns");
    const room = one.scroll.closest(".body").clientWidth - 8;
    const wide = () => Math.max(...one.sides.map((side) => side.scrollWidth)) > room;
    one.columns = form(state.layout === "columns" || (state.layout === "auto" && wide()));
    // What can be scrolled must be reachable without a mouse.
    if (one.scroll.scrollWidth > one.scroll.clientWidth + 1) one.scroll.tabIndex = 0;
    else one.scroll.removeAttribute("tabindex");
    const base = one.frame.getBoundingClientRect();
    one.boxes = one.sides.map((side) => [...side.children].map((word) => {
      const box = word.getBoundingClientRect();
      return { left: box.left - base.left, right: box.right - base.left, top: box.top - base.top, bottom: box.bottom - base.top };
    }));
  };
  const ends = (one, [i, j], shift) => {
    const a = one.boxes[0][i], b = one.boxes[1][j];
    if (one.columns) return [a.right + 2, (a.top + a.bottom) / 2 + shift, b.left - 2, (b.top + b.bottom) / 2 + shift];
    return [(a.left + a.right) / 2 + shift, a.bottom + 1, (b.left + b.right) / 2 + shift, b.top - 1];
  };
  const MARKS = {
    wrong: (x, y) => `M${x - 4} ${y - 4}L${x + 4} ${y + 4}M${x - 4} ${y + 4}L${x + 4} ${y - 4}`,
    missing: (x, y) => `M${x - 4.5} ${y}a4.5 4.5 0 1 0 9 0a4.5 4.5 0 1 0 -9 0`,
    possible: (x, y) => `M${x} ${y - 5}L${x + 5} ${y}L${x} ${y + 5}L${x - 5} ${y}Z`,
  };
  /** The links of a panel: [layer, link, kind]; the first system is judged if gold is shown. */
  const judged = (pair, layers) => {
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
  const drawLinks = (one) => {
    const { pair, layers, svg } = one;
    const rows = judged(pair, layers);
    const systems = layers.filter((layer) => layer.id !== "gold");
    const linked = [new Set(), new Set()];
    const lines = [], marks = [];
    for (const [layer, link, kind] of rows) {
      const rank = layer.id === "gold" ? 0 : systems.indexOf(layer) - (systems.length - 1) / 2;
      const [x1, y1, x2, y2] = ends(one, link, 4 * rank);
      const line = make("line", { class: `link ${layer.id} ${kind}`, x1, y1, x2, y2 });
      line.dataset.link = `${link[0]}-${link[1]}`;
      if (layer.id === "sys" && link[2] >= 0) line.style.opacity = (0.4 + (0.6 * link[2]) / TOP).toFixed(2);
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
    one.sides.forEach((side, k) => [...side.children].forEach((word, place) => word.classList.toggle("free", !linked[k].has(place))));
    one.rows = rows;
  };
  const highlight = (one, word) => {
    const side = word ? one.sides.indexOf(word.parentNode) : -1;
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
    one.sides.forEach((node, k) => [...node.children].forEach((each, at) => each.classList.toggle("on", partners[k].has(at))));
    return side < 0 ? "" : described(one, side, place);
  };
  const described = (one, side, place) => {
    const words = [one.pair.s, one.pair.t];
    const found = one.rows.filter((row) => row[1][side] === place);
    const made = found.filter((row) => row[2] !== "missing"), missing = found.filter((row) => row[2] === "missing");
    const named = (rows) => rows.map(([layer, link, kind]) => {
      const score = layer.id !== "gold" && link[2] >= 0 ? ` ${(link[2] / TOP).toFixed(2)}` : "";
      return `${words[1 - side][link[1 - side]]}${score}${kind && kind !== "missing" ? ` (${KINDS[kind]})` : ""}`;
    }).join(", ");
    return `${words[side][place]}: ${made.length ? `linked to ${named(made)}` : "no link"}${missing.length ? `; missing: ${named(missing)}` : ""}`;
  };
  /** After the slider or a layer: links, numbers and text of a card, the words stay. */
  const refresh = (card) => {
    const pair = pairs[card.index];
    for (const one of card.panels) drawLinks(one);
    if (card.heat) paint(card.heat);
    const first = LAYERS[0];
    const parts = [`score ${pair.score.toFixed(2)}`, `${pair.s.length} × ${pair.t.length} words`, `${number(linksOf(pair, first).length)} links`];
    if (goldOf(pair)) {
      parts.push(`AER ${percent(pairAer(pair))}`);
      if (compare) parts.push(`${compare.name}: AER ${percent(pairAer(pair, compare))}`);
    }
    card.meta.textContent = parts.join(" · ");
    card.text.firstChild.textContent = "Links as text";
    listText(card);
  };
  const KINDS = { right: "right", possible: "possible", wrong: "wrong", missing: "missing", "only-possible": "possible" };
  const listText = (card) => {
    card.text.querySelector("ul")?.remove();
    if (!card.text.open) return;
    const pair = pairs[card.index], items = [];
    for (const layers of panelLayers()) {
      for (const [layer, [i, j, score], kind] of judged(pair, layers)) {
        const value = layer.id !== "gold" && score >= 0 ? ` ${(score / TOP).toFixed(2)}` : "";
        const note = LAYERS.length > 1 ? ` (${[layer.name, KINDS[kind]].filter(Boolean).join(", ")})` : "";
        items.push(make("li", {}, make("bdi", {}, pair.s[i]), " – ", make("bdi", {}, pair.t[j]), `${value}${note}`));
      }
    }
    card.text.append(make("ul", {}, ...(items.length ? items : [make("li", {}, "no links")])));
  };

  // ---- heat map ----

  const CELL = 24;
  const heatMap = (pair) => {
    const canvas = make("canvas", { role: "img" });
    const note = make("figcaption");
    const scroll = make("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": "Heat map" }, canvas);
    const figure = make("figure", { class: "heat" }, scroll, note);
    const map = { pair, canvas, note, figure };
    for (const kind of ["pointermove", "pointerdown"]) canvas.addEventListener(kind, (event) => tell(map, event));
    canvas.addEventListener("pointerleave", () => { note.textContent = map.caption; });
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
  const paint = (map) => {
    const { pair, canvas } = map;
    const style = getComputedStyle(document.documentElement);
    const color = (name) => style.getPropertyValue(name).trim();
    const context = canvas.getContext("2d");
    const font = `13px system-ui, "Noto Sans", sans-serif`;
    context.font = font;
    const widest = (words) => Math.min(110, Math.max(46, ...words.map((word) => context.measureText(word).width)));
    const left = Math.ceil(widest(pair.s)) + 10, top = Math.ceil(widest(pair.t)) + 10;
    const rows = pair.s.length + 1, columns = pair.t.length + 1;
    const width = left + columns * CELL + 2, height = top + rows * CELL + 2;
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
    const x = (j) => left + (mirrored ? columns - 2 - j : j + 1) * CELL;
    const y = (i) => top + (i + 1) * CELL;
    Object.assign(map, { left, top, rows, columns, mirrored });
    const label = (text, i, j) => {
      context.direction = direction([text]);
      context.fillStyle = color(i === -1 || j === -1 ? "--soft" : "--ink");
      if (j === null) {
        context.textAlign = "right";
        context.fillText(clipped(context, text, left - 8), left - 5, y(i) + CELL / 2);
        return;
      }
      context.save();
      context.translate(x(j) + CELL / 2, top - 5);
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
        context.fillRect(x(j), y(i), CELL, CELL);
        context.strokeRect(x(j) + 0.5, y(i) + 0.5, CELL, CELL);
      }
    };
    label("[NULL]", -1, null);
    label("[NULL]", null, -1);
    pair.s.forEach((word, i) => { label(word, i, null); square(i, -1, heat.srcNull(i)); });
    pair.t.forEach((word, j) => { label(word, null, j); square(-1, j, heat.tgtNull(j)); });
    for (let i = 0; i < pair.s.length; i++) for (let j = 0; j < pair.t.length; j++) square(i, j, heat.at(i, j));
    outline(map, context, color, x, y);
    map.heat = heat;
    const marks = gold?.on ? "; gold: corner filled for sure, open for possible" : "";
    map.caption = `Rows: source, columns: target; framed: ${LAYERS.find((layer) => layer.on && layer !== gold)?.name ?? "no layer"}${marks}.`;
    map.note.textContent = map.caption;
    canvas.setAttribute("aria-label", `Heat map of ${pair.s.length} source and ${pair.t.length} target words; the links are below as text.`);
  };
  /** Frames around links, corners for gold. */
  const outline = (map, context, color, x, y) => {
    const { pair } = map;
    const system = LAYERS.find((layer) => layer.on && layer !== gold);
    context.lineWidth = 2;
    if (system) {
      context.strokeStyle = color("--focus");
      for (const [i, j] of linksOf(pair, system)) context.strokeRect(x(j) + 2, y(i) + 2, CELL - 3, CELL - 3);
    }
    if (!gold?.on || !goldOf(pair)) return;
    for (const [i, j, sure] of triples(pair.gp)) {
      context.beginPath();
      context.moveTo(x(j) + 4, y(i) + 4);
      context.lineTo(x(j) + 13, y(i) + 4);
      context.lineTo(x(j) + 4, y(i) + 13);
      context.closePath();
      context.lineWidth = 1.5;
      context.strokeStyle = color("--ink");
      context.fillStyle = color(sure ? "--ink" : "--card");
      context.fill();
      context.stroke();
    }
  };
  const tell = (map, event) => {
    const box = map.canvas.getBoundingClientRect();
    const i = Math.floor((event.clientY - box.top - map.top) / CELL) - 1;
    const column = Math.floor((event.clientX - box.left - map.left) / CELL);
    const j = map.mirrored ? map.columns - 2 - column : column - 1;
    const { pair, heat } = map;
    const inside = i >= -1 && j >= -1 && i < pair.s.length && j < pair.t.length && i + j > -2;
    const value = !inside ? null : i < 0 ? heat.tgtNull(j) : j < 0 ? heat.srcNull(i) : heat.at(i, j);
    const words = [i < 0 ? "[NULL]" : pair.s[i], j < 0 ? "[NULL]" : pair.t[j]].map((word) => make("bdi", {}, word));
    map.note.replaceChildren(...(value === null ? [map.caption] : [words[0], " – ", words[1], `: ${value.toFixed(2)}`]));
  };

  // ---- the list ----

  const list = $("list");
  const observer = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      const card = cards[Number(entry.target.dataset.index)];
      if (entry.isIntersecting && !card.drawn) draw(card);
      else if (!entry.isIntersecting && card.drawn && !card.node.contains(document.activeElement)) erase(card);
    }
    if (!first.done && entries.some((entry) => entry.isIntersecting)) first();
  }, { rootMargin: "400px 0px" });
  const first = () => {
    first.done = true;
    requestAnimationFrame(() => setTimeout(() => {
      performance.mark("mx-first-draw"); // after the frame with the first pairs was painted
      summarise();
    }));
  };
  const drawn = () => cards.filter((card) => card.drawn);
  const redraw = () => {
    for (const card of cards) if (!card.drawn) card.node.style.minHeight = `${estimate(pairs[card.index])}px`;
    drawn().forEach(draw);
  };
  const range = (name) => ["min", "max"].map((end, k) => {
    const value = $(`${name}-${end}`).value;
    return value === "" ? (k ? Infinity : -Infinity) : Number(value);
  });
  const folded = (text) => text.normalize("NFKC").toLocaleLowerCase();
  const wordsOf = (pair) => pair.s.length + pair.t.length;
  const select = () => {
    const text = folded($("find").value), score = range("score"), length = range("length"), error = range("aer");
    const within = (value, [low, high]) => value >= low - 1e-9 && value <= high + 1e-9;
    const byAer = gold && (error[0] > -Infinity || error[1] < Infinity);
    shown = pairs.map((_, index) => index).filter((index) => {
      const pair = pairs[index];
      if (!within(pair.score, score) || !within(wordsOf(pair), length)) return false;
      if (byAer && !(goldOf(pair) && within(100 * pairAer(pair), error))) return false;
      if (!text) return true;
      pair.folded ??= SIDES.map((key) => folded(pair[key].join(" ")));
      return pair.folded.some((side) => side.includes(text));
    });
    const order = $("sort").value, sign = order[0] === "-" ? -1 : 1;
    const key = { n: (p) => p.n, score: (p) => p.score, aer: pairAer, length: wordsOf, differ }[order.replace("-", "")];
    const keys = new Map(shown.map((index) => [index, key(pairs[index])]));
    shown.sort((a, b) => sign * (keys.get(a) - keys.get(b)) || a - b);
    const wanted = shown.map((index) => cards[index].node);
    current = -1;
    list.replaceChildren(...wanted);
    $("none").hidden = shown.length > 0;
    summarise();
  };
  const summarise = () => {
    if (!first.done) return;
    const systems = [LAYERS[0], compare].filter(Boolean);
    const totals = systems.map(() => [0, 0, 0, 0]), links = systems.map(() => 0);
    for (const index of shown) {
      systems.forEach((layer, which) => {
        links[which] += linksOf(pairs[index], layer).length;
        if (goldOf(pairs[index])) countsOf(pairs[index], layer).forEach((value, k) => { totals[which][k] += value; });
      });
    }
    const many = shown.length === pairs.length ? number(pairs.length) : `${number(shown.length)} of ${number(pairs.length)}`;
    const parts = [`${many} pair${pairs.length === 1 ? "" : "s"}`];
    systems.forEach((layer, which) => {
      const error = gold && shown.length ? `, AER ${percent(aer(totals[which]))}` : "";
      parts.push(`${which ? `${layer.name}: ` : ""}${number(links[which])} links${error}`);
    });
    $("count").textContent = parts.join(" · ");
  };

  // ---- tools ----

  const press = (button, on) => button.setAttribute("aria-pressed", String(on));
  const toggleLayer = (layer) => {
    layer.on = !layer.on;
    press(layer.button, layer.on);
    legend();
    drawn().forEach(draw);
  };
  const toggleView = (name) => {
    state[name] = !state[name];
    press($(`view-${name}`), state[name]);
    $("matrix-box").hidden = !(state.heat && has("m"));
    redraw();
  };
  const slide = () => {
    state.cut = Number($("slider").value);
    const value = state.cut === data.threshold ? data.cut : state.cut / TOP;
    $("slider-value").textContent = value.toFixed(2);
    $("slider").setAttribute("aria-valuetext", value.toFixed(2));
    drawn().forEach(refresh);
    if (!slide.waiting) {
      slide.waiting = true;
      requestAnimationFrame(() => { slide.waiting = false; summarise(); });
    }
  };
  const settled = () => { // sorting while the slider moves would make the page jump
    if (/aer|differ/.test($("sort").value) || $("aer-min").value || $("aer-max").value) select();
  };
  const sample = (kind, classes) => {
    const svg = make("svg", { viewBox: "0 0 42 14", "aria-hidden": "true" });
    svg.append(make("line", { class: `link ${classes}`, x1: 2, y1: 7, x2: 40, y2: 7 }));
    if (MARKS[kind]) svg.append(make("path", { class: `mark ${kind}`, d: MARKS[kind](21, 7) }));
    return svg;
  };
  const legend = () => {
    const systems = LAYERS.filter((layer) => layer.on && layer !== gold);
    const rows = [];
    if (gold?.on && systems.length) {
      const split = panelLayers().length > 1;
      const judge = split ? "" : systems.length > 1 ? ` (${systems[0].name})` : "";
      rows.push(["right", `right${judge}`, "right"], ["possible", "possible", "possible"], ["wrong", "wrong", "wrong"], ["missing", "missing", "missing"]);
      for (const layer of systems.slice(1)) if (!(split && layer === compare)) rows.push(["", layer.name, layer.id]);
    } else if (gold?.on) rows.push(["", "sure", "gold"], ["", "possible", "gold only-possible"]);
    else for (const layer of systems) rows.push(["", layer.name, layer.id]);
    const items = rows.map(([kind, text, classes]) => make("li", {}, sample(kind, classes), text));
    $("legend").classList.toggle("judged", Boolean(gold?.on));
    $("legend").replaceChildren(...items, make("li", {}, make("span", { class: "word free" }, "word"), "without a link"));
  };
  const go = (step) => {
    if (!shown.length) return;
    current = Math.max(0, Math.min(shown.length - 1, current + step));
    focusOn(shown[current]);
  };
  const focusOn = (index) => {
    const card = cards[index];
    if (!card.drawn) draw(card);
    card.word = null;
    card.node.focus({ preventScroll: true });
    card.node.scrollIntoView({ block: "nearest" });
  };
  /** Walk over the words of the pair with the focus, saying what each is linked to. */
  const walk = (step) => {
    const card = cards[shown[current]];
    const one = card?.panels[0];
    if (!one) return;
    const words = one.sides.flatMap((side) => [...side.children]);
    if (!words.length) return;
    card.word = card.word === null || card.word === undefined ? (step > 0 ? 0 : words.length - 1) : (card.word + step + words.length) % words.length;
    const texts = card.panels.map((each) => highlight(each, each.sides.flatMap((side) => [...side.children])[card.word]));
    $("live").textContent = texts.map((text, k) => (k ? `${compare.name}: ${text}` : text)).join(". ");
  };
  const nudge = (step) => {
    if ($("slider-box").hidden) return;
    $("slider").value = Number($("slider").value) + step;
    slide();
    settled();
  };
  const KEYS = [
    ["j / ↓", "next pair", ["j", "ArrowDown"], () => go(1)],
    ["k / ↑", "pair before", ["k", "ArrowUp"], () => go(-1)],
    ["→ ←", "next word, word before", ["ArrowRight"], () => walk(1)],
    [null, "", ["ArrowLeft"], () => walk(-1)],
    ["] [", "threshold up, down", ["]"], () => nudge(5)],
    [null, "", ["["], () => nudge(-5)],
    ...LAYERS.map((layer) => [layer.key, `layer ${layer.name}`, [layer.key], () => toggleLayer(layer)]),
    ["l", "links on, off", ["l"], () => toggleView("links")],
    ["h", "heat map on, off", ["h"], () => toggleView("heat")],
    ...(compare ? [["d", "systems side by side or on top of each other", ["d"], () => toggleView("split")]] : []),
    ["t", "links of the pair as text", ["t"], () => { const card = cards[shown[current]]; if (card?.text) card.text.open = !card.text.open; }],
    ["/", "find", ["/"], () => { openTools(true); $("find").focus(); }],
    ["?", "these keys", ["?"], () => $("help").showModal()],
  ];
  const openTools = (open) => {
    $("more-tools").classList.toggle("open", open);
    $("more").setAttribute("aria-expanded", String(open));
  };
  const onKey = (event) => {
    const { key, target } = event;
    if (event.ctrlKey || event.metaKey || event.altKey || $("help").open) return;
    const typing = target.closest("input, select, textarea");
    if (key === "Escape" && typing) { typing.blur(); return; }
    if (typing || (key.length === 1 && !$("keys-on").checked)) return;
    // Arrows belong to the page, and to what scrolls, until a pair has the focus.
    if (key.startsWith("Arrow") && !target.classList.contains("pair")) return;
    const found = KEYS.find((row) => row[2].includes(key));
    if (!found) return;
    event.preventDefault();
    found[3]();
  };

  // ---- corpus report ----

  const bars = (title, rows) => {
    const most = Math.max(1, ...rows.map((row) => row[1]));
    const grid = make("div", { class: "bars" });
    for (const [name, value, note] of rows) {
      const bar = make("i");
      bar.style.width = `${(100 * value) / most}%`;
      bar.style.visibility = value ? "visible" : "hidden"; // however small, but not nothing
      grid.append(make("span", {}, name), bar, make("span", {}, note ?? number(value)));
    }
    return make("section", {}, make("h3", {}, title), grid);
  };
  const share = (value, all) => `${number(value)} (${percent(all ? value / all : 0)})`;
  const scoreRows = ({ counts }) => counts.map((value, k) => [(k / counts.length).toFixed(2), value]);
  const report = (found) => {
    const body = $("report-body");
    for (const [side, name] of [["src", "source"], ["tgt", "target"]]) {
      const rows = Object.entries(found.links_per_word[side]);
      const all = rows.reduce((sum, row) => sum + row[1], 0);
      body.append(bars(`Links per ${name} word: ${percent(found.unaligned[side])} unaligned`, rows.map(([many, value]) => [many, value, share(value, all)])));
    }
    if (found.scored) body.append(bars("Scores of links, from", scoreRows(found.link_scores)));
    body.append(bars(found.scored ? "Scores of pairs, from" : "Share of words with a link, from", scoreRows(found.pair_scores)));
    const items = found.worst.map((row) => {
      const button = make("button", { type: "button" }, `Pair ${number(row.line)}`);
      button.addEventListener("click", () => {
        const index = pairs.findIndex((pair) => pair.n === row.line);
        if (!shown.includes(index)) { clearFilters(); select(); }
        current = shown.indexOf(index);
        focusOn(index);
      });
      const texts = [row.src, row.tgt].map((text) => make("span", { dir: "auto" }, text));
      return make("li", {}, row.score.toFixed(2), button, ...texts);
    });
    body.append(make("section", { class: "wide" }, make("h3", {}, `The ${items.length} worst pairs of ${number(found.pairs)}`), make("ol", { class: "worst" }, ...items)));
    $("report").hidden = false;
  };
  const clearFilters = () => {
    for (const input of document.querySelectorAll("#more-tools input")) input.value = "";
  };

  // ---- start ----

  const start = () => {
    $("title").textContent = document.title;
    $("how").textContent = data.how;
    $("count").textContent = `${number(pairs.length)} pairs`;
    for (const layer of LAYERS) {
      layer.button = make("button", { type: "button", id: `layer-${layer.id}`, "aria-keyshortcuts": layer.key });
      layer.button.append(make("span", { class: `swatch ${layer.id}` }), layer.name, " ", make("kbd", { "aria-hidden": "true" }, layer.key));
      press(layer.button, layer.on);
      layer.button.addEventListener("click", () => toggleLayer(layer));
    }
    $("layers").append(...LAYERS.map((layer) => layer.button));
    for (const node of document.querySelectorAll(".needs-gold")) node.hidden = node.disabled = !gold;
    for (const node of document.querySelectorAll(".needs-compare")) node.hidden = node.disabled = !compare;
    $("view-split").hidden = !compare;
    if (data.threshold !== null) {
      $("slider-box").hidden = false;
      $("slider").value = data.threshold;
      slide();
    }
    $("slider").addEventListener("input", slide);
    $("slider").addEventListener("change", settled);
    $("slider-reset").addEventListener("click", () => { $("slider").value = data.threshold; slide(); settled(); });
    for (const name of ["links", "heat", "split"]) {
      $(`view-${name}`).addEventListener("click", () => { toggleView(name); legend(); });
    }
    for (const node of document.querySelectorAll("#find, #more-tools input, #sort")) {
      node.addEventListener(node.tagName === "SELECT" ? "change" : "input", select);
    }
    for (const name of ["layout", "matrix"]) {
      $(name).addEventListener("change", () => { state[name] = $(name).value; redraw(); });
    }
    $("more").addEventListener("click", () => openTools($("more").getAttribute("aria-expanded") !== "true"));
    $("help-button").addEventListener("click", () => $("help").showModal());
    $("help-close").addEventListener("click", () => $("help").close());
    $("keys").append(...KEYS.filter((row) => row[0]).flatMap(([keys, what]) => [make("dt", {}, make("kbd", {}, keys)), make("dd", {}, what)]));
    document.addEventListener("keydown", onKey);
    list.addEventListener("focusin", (event) => {
      const node = event.target.closest(".pair");
      if (node) current = shown.indexOf(Number(node.dataset.index));
    });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => drawn().forEach(refresh));
    let width = window.innerWidth;
    window.addEventListener("resize", () => {
      top();
      if (window.innerWidth !== width) { width = window.innerWidth; redraw(); }
    });
    const top = () => document.documentElement.style.setProperty("--top", `${$("top").offsetHeight + 8}px`);
    cards = pairs.map((pair, index) => {
      // Not all a stop of the Tab key: j and k walk over them.
      const node = make("article", { class: "pair", tabindex: "-1", "aria-label": `Pair ${pair.n}` });
      node.dataset.index = index;
      node.style.minHeight = `${estimate(pair)}px`;
      return { index, node, drawn: false, panels: [] };
    });
    legend();
    if (data.report) report(data.report);
    select();
    top();
    for (const card of cards) observer.observe(card.node);
  };
  start();
})();
