/* The page: buttons, slider, keys, report, and the start. */
import { $, TOP, LAYERS, compare, data, findLayers, gold, make, number, pairs, panelLayers, percent, press, shownLayers, state } from "./data.js";
import { cards, drawCard, drawnCards, enterWord, forgetChoice, hooks, list, makeCard, refreshCard, walkWords } from "./cards.js";
import { MARKS } from "./links.js";
import { focusOn, firstOrder, goTo, keepAddress, readAddress, redraw, select, summarise, view, watchCard } from "./pair_list.js";
import { LISTS, saveList } from "./saving.js";
import { undoLink } from "./edit.js";

// ---- tools ----

const toggleLayer = (layer) => {
  if (!layer.there) return;
  layer.on = !layer.on;
  showLayers();
  drawnCards().forEach(drawCard);
  keepAddress();
};
/** Show a button for each layer that there is. */
const showLayers = () => {
  for (const layer of LAYERS) {
    layer.button.hidden = !layer.there;
    press(layer.button, layer.on);
  }
  for (const [name, layer] of [["gold", gold], ["compare", compare]]) {
    for (const node of document.querySelectorAll(`.needs-${name}`)) node.hidden = node.disabled = !layer.there;
  }
  $("view-split").hidden = !compare.there;
  legend();
};
const toggleView = (name) => {
  state[name] = !state[name];
  press($(`view-${name}`), state[name]);
  $("matrix-box").hidden = !(state.heat && pairs.some((pair) => pair.m !== undefined || pair.bytes?.m));
  legend();
  redraw();
  keepAddress();
};
const toggleEdit = () => {
  state.edit = !state.edit;
  press($("edit"), state.edit);
  document.body.classList.toggle("editing", state.edit);
  $("live").textContent = state.edit ? "Correcting: choose a word of each side to turn their link" : "No longer correcting";
  if (!state.edit) drawnCards().forEach(forgetChoice);
};
const slide = () => {
  state.cut = Number($("slider").value);
  const value = state.cut === data.threshold ? data.cut : state.cut / TOP;
  $("slider-value").textContent = value.toFixed(2);
  $("slider").setAttribute("aria-valuetext", value.toFixed(2));
  drawnCards().forEach(refreshCard);
  if (!slide.waiting) {
    slide.waiting = true;
    requestAnimationFrame(() => { slide.waiting = false; summarise(); });
  }
};
const settle = () => { // sorting while the slider moves would make the page jump
  if (/aer|differ/.test($("sort").value) || $("aer-min").value || $("aer-max").value) select();
  keepAddress();
};
const sample = (kind, classes) => {
  const svg = make("svg", { viewBox: "0 0 42 14", "aria-hidden": "true" });
  svg.append(make("line", { class: `link ${classes}`, x1: 2, y1: 7, x2: 40, y2: 7 }));
  if (MARKS[kind]) svg.append(make("path", { class: `mark ${kind}`, d: MARKS[kind](21, 7) }));
  return svg;
};
const legend = () => {
  const on = shownLayers(), systems = on.filter((layer) => layer !== gold), rows = [];
  if (on.includes(gold) && systems.length) {
    const split = panelLayers().length > 1;
    const judge = split ? "" : systems.length > 1 ? ` (${systems[0].name})` : "";
    rows.push(["right", `right${judge}`, "right"], ["possible", "possible", "possible"], ["wrong", "wrong", "wrong"], ["missing", "missing", "missing"]);
    for (const layer of systems.slice(1)) if (!(split && layer === compare)) rows.push(["", layer.name, layer.id]);
  } else if (on.includes(gold)) rows.push(["", "sure", "gold"], ["", "possible", "gold only-possible"]);
  else for (const layer of systems) rows.push(["", layer.name, layer.id]);
  const items = rows.map(([kind, text, classes]) => make("li", {}, sample(kind, classes), text));
  $("legend").classList.toggle("judged", on.includes(gold));
  $("legend").replaceChildren(...items, make("li", {}, make("span", { class: "word free" }, "word"), "without a link"));
};
const nudge = (step) => {
  if ($("slider-box").hidden) return;
  $("slider").value = Number($("slider").value) + step;
  slide();
  settle();
};
const currentCard = () => cards[view.shown[view.current]];
const takeBack = () => {
  const pair = undoLink();
  if (pair) hooks.changed(cards[pairs.indexOf(pair)]);
};
const KEYS = [
  ["j / ↓", "next pair", ["j", "ArrowDown"], () => goTo(1)],
  ["k / ↑", "pair before", ["k", "ArrowUp"], () => goTo(-1)],
  ["→ ←", "next word, word before", ["ArrowRight"], () => walkWords(currentCard(), 1)],
  [null, "", ["ArrowLeft"], () => walkWords(currentCard(), -1)],
  ["] [", "threshold up, down", ["]"], () => nudge(5)],
  [null, "", ["["], () => nudge(-5)],
  ...LAYERS.map((layer) => [layer.key, `layer ${layer.name}`, [layer.key], () => toggleLayer(layer)]),
  ["l", "links on, off", ["l"], () => toggleView("links")],
  ["h", "heat map on, off", ["h"], () => toggleView("heat")],
  ["d", "systems side by side or on top of each other", ["d"], () => compare.there && toggleView("split")],
  ["e", "correct links: Enter takes the word, then one of the other side", ["e"], () => toggleEdit()],
  [null, "", ["Enter"], () => enterWord(currentCard())],
  ["u", "take the last correction back", ["u"], () => takeBack()],
  ["t", "links of the pair as text", ["t"], () => { const card = currentCard(); if (card?.text) card.text.open = !card.text.open; }],
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
  if (key === "Escape" && typing) {
    if (typing.id === "find" && typing.value) {
      typing.value = ""; // browsers empty the box without a word to anybody
      event.preventDefault();
      select();
    } else typing.blur();
    return;
  }
  if (typing || (key.length === 1 && !$("keys-on").checked)) return;
  // Arrows belong to the page, and to what scrolls, until a pair has the focus.
  if ((key.startsWith("Arrow") || key === "Enter") && !target.classList.contains("pair")) return;
  const found = KEYS.find((row) => row[2].includes(key));
  if (!found || (key === "Enter" && !state.edit)) return;
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
  return make("section", {}, make("h2", {}, title), grid);
};
const share = (value, all) => `${number(value)} (${percent(all ? value / all : 0)})`;
const scoreRows = ({ counts }) => counts.map((value, k) => [(k / counts.length).toFixed(2), value]);
const showReport = (found) => {
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
    button.addEventListener("click", () => focusOn(pairs.findIndex((pair) => pair.n === row.line)));
    const texts = [row.src, row.tgt].map((text) => make("span", { dir: "auto" }, text));
    return make("li", {}, row.score.toFixed(2), button, ...texts);
  });
  body.append(make("section", { class: "wide" }, make("h2", {}, `The ${items.length} worst pairs of ${number(found.pairs)}`), make("ol", { class: "worst" }, ...items)));
  $("report").hidden = false;
};

// ---- start ----

const placeTop = () => document.documentElement.style.setProperty("--top", `${$("top").offsetHeight + 8}px`);
const makeButtons = () => {
  for (const layer of LAYERS) {
    layer.button = make("button", { type: "button", id: `layer-${layer.id}`, "aria-keyshortcuts": layer.key });
    layer.button.append(make("span", { class: `swatch ${layer.id}` }), layer.name, " ", make("kbd", { "aria-hidden": "true" }, layer.key));
    layer.button.addEventListener("click", () => toggleLayer(layer));
  }
  $("layers").append(...LAYERS.map((layer) => layer.button));
  for (const name of ["links", "heat", "split"]) {
    press($(`view-${name}`), state[name]);
    $(`view-${name}`).addEventListener("click", () => toggleView(name));
  }
  $("edit").addEventListener("click", toggleEdit);
  $("more").addEventListener("click", () => openTools($("more").getAttribute("aria-expanded") !== "true"));
  $("help-button").addEventListener("click", () => $("help").showModal());
  $("help-close").addEventListener("click", () => $("help").close());
  $("save").addEventListener("change", () => {
    const kind = $("save").value;
    $("save").value = "";
    // Pairs of the list in its order; a file of links beside the text has its order.
    if (kind in LISTS) saveList(kind, view.shown.map((index) => pairs[index]));
  });
  $("keys").append(...KEYS.filter((row) => row[0]).flatMap(([keys, what]) => [make("dt", {}, make("kbd", {}, keys)), make("dd", {}, what)]));
};
const listen = () => {
  $("slider").addEventListener("input", slide);
  $("slider").addEventListener("change", settle);
  $("slider-reset").addEventListener("click", () => { $("slider").value = data.threshold; slide(); settle(); });
  for (const node of document.querySelectorAll("#find, #more-tools input, #sort")) {
    node.addEventListener(node.tagName === "SELECT" ? "change" : "input", select);
  }
  for (const name of ["layout", "matrix"]) {
    $(name).addEventListener("change", () => { state[name] = $(name).value; redraw(); keepAddress(); });
  }
  document.addEventListener("keydown", onKey);
  list.addEventListener("focusin", (event) => {
    const node = event.target.closest(".pair");
    if (node) view.current = view.shown.indexOf(Number(node.dataset.index));
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => drawnCards().forEach(refreshCard));
  let width = window.innerWidth;
  window.addEventListener("resize", () => {
    placeTop();
    if (window.innerWidth !== width) { width = window.innerWidth; redraw(); }
  });
  window.addEventListener("hashchange", () => readAddress(toggleLayer, toggleView));
  hooks.changed = (card) => {
    const begun = card.panels.some((one) => !one.layers.includes(gold)) && panelLayers().flat().includes(gold);
    showLayers();
    if (begun) drawnCards().forEach(drawCard); // the first correction of all brings the layer
    else if (card.drawn) refreshCard(card);
    summarise();
  };
  hooks.visited = (index) => { focusOn(index); keepAddress(); };
};
/** After pairs came or changed: cards for all of them, and the list. */
export const renewPairs = () => {
  findLayers();
  while (cards.length < pairs.length) {
    cards.push(makeCard(cards.length));
    watchCard(cards.at(-1));
  }
  cards.length = pairs.length;
  showLayers();
  select();
};
/** Let the slider begin at the threshold that the links were made with. */
export const setThreshold = (value) => {
  if (data.cut === value) return;
  data.cut = value;
  data.threshold = Math.min(TOP, Math.max(2, Math.ceil(value * TOP)));
  $("slider-box").hidden = false;
  $("slider").value = data.threshold;
  slide();
};
const start = () => {
  $("title").textContent = document.title;
  $("how").textContent = data.how;
  $("count").textContent = `${number(pairs.length)} pairs`;
  makeButtons();
  if (data.threshold !== null) {
    $("slider-box").hidden = false;
    $("slider").value = data.threshold;
    slide();
  }
  listen();
  if (data.report) showReport(data.report);
  $("sort").value = firstOrder();
  renewPairs();
  placeTop();
  readAddress(toggleLayer, toggleView);
};
start();
