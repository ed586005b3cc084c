/* The card of a pair: its head, links, heat map, and links as text; drawn only while it is in view. */
import { $, TOP, LAYERS, KINDS, compare, goldOf, judged, linksOf, make, number, pairAer, pairs, panelLayers, percent, state } from "./data.js";
import { arrangePanel, drawLinks, estimateHeight, highlight, makePanel } from "./links.js";
import { makeHeatMap, paintHeatMap, sizeHeatMap } from "./heat_map.js";
import { drawPng, drawSvg, saveFile } from "./saving.js";
import { turnLink } from "./edit.js";

export const list = $("list");
export const cards = []; // by index of the pair
export const hooks = { changed: () => {}, visited: () => {} }; // gold links of a pair; the link to one

export const makeCard = (index) => {
  // Not all a stop of the Tab key: j and k walk over them.
  const node = make("article", { class: "pair", tabindex: "-1", "aria-label": `Pair ${pairs[index].n}` });
  const card = { index, node, drawn: false, panels: [] };
  node.dataset.index = index;
  reserveRoom(card);
  node.addEventListener("click", (event) => {
    const word = event.target.closest(".word");
    if (state.edit && word) chooseWord(card, word);
  });
  return card;
};
const roomOf = () => Math.max(200, list.clientWidth - 28);
export const reserveRoom = (card) => { card.node.style.minHeight = `${estimateHeight(pairs[card.index], roomOf())}px`; };
export const drawCard = (card) => {
  const pair = pairs[card.index];
  const body = make("div", { class: "body" });
  card.panels = [];
  card.node.replaceChildren(makeHead(card, pair), body);
  card.node.style.minHeight = "";
  card.heat = state.heat ? makeHeatMap(pair, (link) => state.edit && changeLink(card, link)) : null;
  const box = make("div", { class: "panels" });
  if (state.links) {
    body.append(box);
    card.panels = panelLayers().map((layers) => makePanel(box, pair, layers));
  }
  if (card.heat) body.append(card.heat.figure);
  card.text = make("details", { class: "text" }, make("summary", {}, "Links as text"));
  card.text.addEventListener("toggle", () => listText(card));
  card.node.append(card.text);
  card.drawn = true;
  arrangeCard(card, body, box);
  refreshCard(card);
};
/** Give links and heat map their shares of the width: side by side if that leaves room for both. */
const arrangeCard = (card, body, box) => {
  const whole = body.clientWidth, gap = 32;
  let room = whole;
  if (card.heat) {
    const beside = whole - sizeHeatMap(card.heat, whole, !card.panels.length) - gap;
    body.classList.toggle("beside", card.panels.length > 0 && beside >= 380);
    if (beside >= 380) room = beside;
  }
  const each = card.panels.length > 1 && room / 2 - gap > 420 ? room / 2 - gap : room;
  box.style.maxWidth = `${room}px`;
  for (const one of card.panels) {
    one.node.style.maxWidth = `${each}px`;
    arrangePanel(one, each);
  }
};
export const eraseCard = (card) => {
  // What the filter took out of the page has no height of its own.
  if (card.node.offsetHeight) card.node.style.minHeight = `${card.node.offsetHeight}px`;
  else reserveRoom(card);
  card.node.replaceChildren();
  card.drawn = false;
  card.panels = [];
  card.heat = null;
};
const makeHead = (card, pair) => {
  const address = make("a", { href: `#pair=${pair.n}`, title: "Link to this pair" }, `Pair ${number(pair.n)}`);
  address.addEventListener("click", (event) => { event.preventDefault(); hooks.visited(card.index); });
  card.meta = make("span", { class: "meta" });
  const save = (kind, act) => {
    const button = make("button", { type: "button", "aria-label": `Save pair ${pair.n} as ${kind}` }, kind);
    button.addEventListener("click", () => card.panels[0] && act(card.panels[0]));
    button.hidden = !state.links;
    return button;
  };
  const tools = make("span", { class: "save" },
    save("SVG", (one) => saveFile(`pair-${pair.n}.svg`, drawSvg(one), "image/svg+xml")),
    save("PNG", (one) => drawPng(one).then((picture) => saveFile(`pair-${pair.n}.png`, picture))));
  return make("header", {}, make("h2", { id: `h${card.index}` }, address), card.meta, tools);
};
/** After the slider, a layer or a correction: links, numbers and text of a card; words stay. */
export const refreshCard = (card) => {
  const pair = pairs[card.index];
  for (const one of card.panels) drawLinks(one);
  if (card.heat) paintHeatMap(card.heat);
  const first = LAYERS[0];
  const parts = [`score ${pair.score.toFixed(2)}`, `${pair.s.length} × ${pair.t.length} words`, `${number(linksOf(pair, first).length)} links`];
  if (goldOf(pair)) {
    parts.push(`AER ${percent(pairAer(pair))}`);
    if (compare.there) parts.push(`${compare.name}: AER ${percent(pairAer(pair, compare))}`);
  }
  if (pair.note) parts.push(pair.note);
  card.meta.textContent = parts.join(" · ");
  listText(card);
};
const listText = (card) => {
  card.text.querySelector("ul")?.remove();
  if (!card.text.open) return;
  const pair = pairs[card.index], items = [], several = LAYERS.filter((layer) => layer.there).length > 1;
  for (const layers of panelLayers()) {
    for (const [layer, [i, j, score], kind] of judged(pair, layers)) {
      const value = layer.id !== "gold" && score >= 0 ? ` ${(score / TOP).toFixed(2)}` : "";
      const note = several ? ` (${[layer.name, KINDS[kind]].filter(Boolean).join(", ")})` : "";
      items.push(make("li", {}, make("bdi", {}, pair.s[i]), " – ", make("bdi", {}, pair.t[j]), `${value}${note}`));
    }
  }
  card.text.append(make("ul", {}, ...(items.length ? items : [make("li", {}, "no links")])));
};

// ---- words: walked over, and linked by hand ----

const allWords = (one) => one.words.flat();
const sayWords = (card, word) => {
  const texts = card.panels.map((each) => highlight(each, allWords(each)[word] ?? null));
  $("live").textContent = texts.map((text, k) => (k ? `${compare.name}: ${text}` : text)).join(". ");
};
/** Walk over the words of the pair, saying what each is linked to. */
export const walkWords = (card, step) => {
  const one = card?.panels[0], count = one ? allWords(one).length : 0;
  if (!count) return;
  const before = card.word ?? null;
  card.word = before === null ? (step > 0 ? 0 : count - 1) : (before + step + count) % count;
  sayWords(card, card.word);
  allWords(one)[card.word].scrollIntoView({ block: "nearest", inline: "nearest" });
};
/** Enter: choose the word that was walked to, as a click does. */
export const enterWord = (card) => {
  const one = card?.panels[0];
  if (one && card.word !== null && card.word !== undefined) chooseWord(card, allWords(one)[card.word]);
};
const chooseWord = (card, word) => {
  const one = card.panels.find((each) => allWords(each).includes(word));
  const side = one.words.findIndex((words) => words.includes(word)), place = Number(word.dataset.place);
  const first = card.chosen;
  forgetChoice(card);
  if (first && first.side !== side) {
    changeLink(card, side ? [first.place, place] : [place, first.place]);
    return;
  }
  if (first && first.place === place) return; // the word itself again: let go of it
  card.chosen = { side, place };
  for (const each of card.panels) each.words[side][place].classList.add("chosen");
  $("live").textContent = `${word.textContent}: now choose a word of the other side`;
};
export const forgetChoice = (card) => {
  card.chosen = null;
  for (const node of card.node.querySelectorAll(".chosen")) node.classList.remove("chosen");
};
const changeLink = (card, link) => {
  const pair = pairs[card.index], what = turnLink(pair, link);
  hooks.changed(card);
  $("live").textContent = `${pair.s[link[0]]} – ${pair.t[link[1]]}: ${what}`;
};
export const drawnCards = () => cards.filter((card) => card.drawn);
