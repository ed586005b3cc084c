/* The list of pairs: which are in it and in what order, what all of them say, and the address. */
import { $, LAYERS, SIDES, aer, compare, countsOf, data, differ, folded, gold, goldOf, linksOf, number, pairAer, pairs, percent, state, wordsOf } from "./data.js";
import { cards, drawCard, drawnCards, eraseCard, list, refreshCard, reserveRoom } from "./cards.js";
import { describeErrors } from "./errors.js";

export const view = { shown: [], current: -1, ready: false }; // indices of pairs; a place in them
const observer = new IntersectionObserver((entries) => {
  for (const entry of entries) {
    const card = cards[Number(entry.target.dataset.index)];
    if (!card) continue;
    if (entry.isIntersecting && !card.drawn) drawCard(card);
    else if (!entry.isIntersecting && card.drawn && !card.node.contains(document.activeElement)) eraseCard(card);
  }
  if (!view.ready && entries.some((entry) => entry.isIntersecting)) {
    view.ready = true;
    requestAnimationFrame(() => setTimeout(() => {
      performance.mark("mx-first-draw"); // after the frame with the first pairs was painted
      summarise();
    }));
  }
}, { rootMargin: "400px 0px" });
export const watchCard = (card) => observer.observe(card.node);
export const redraw = () => {
  for (const card of cards) if (!card.drawn) reserveRoom(card);
  drawnCards().forEach(drawCard);
};
const range = (name) => ["min", "max"].map((end, k) => {
  const value = $(`${name}-${end}`).value;
  return value === "" ? (k ? Infinity : -Infinity) : Number(value);
});
const ORDERS = {
  n: (pair) => pair.n, score: (pair) => pair.score, aer: pairAer, length: wordsOf, differ,
};
/** What matters most comes first: errors, then differences, then doubt. */
export const firstOrder = () => (data.app ? "n" : gold.there ? "-aer" : compare.there ? "-differ" : "score");
export const select = () => {
  state.find = folded($("find").value.trim());
  const score = range("score"), length = range("length"), error = range("aer");
  const within = (value, [low, high]) => value >= low - 1e-9 && value <= high + 1e-9;
  const byAer = gold.there && (error[0] > -Infinity || error[1] < Infinity);
  const shown = pairs.map((_, index) => index).filter((index) => {
    const pair = pairs[index];
    if (!within(pair.score, score) || !within(wordsOf(pair), length)) return false;
    if (byAer && !(goldOf(pair) && within(100 * pairAer(pair), error))) return false;
    if (!state.find) return true;
    pair.folded ??= SIDES.map((key) => folded(pair[key].join(" ")));
    return pair.folded.some((side) => side.includes(state.find));
  });
  const order = $("sort").value, sign = order[0] === "-" ? -1 : 1;
  const key = ORDERS[order.replace("-", "")];
  const keys = new Map(shown.map((index) => [index, key(pairs[index]) ?? -1])); // without gold: last of the worst
  view.shown = shown.sort((a, b) => sign * (keys.get(a) - keys.get(b)) || a - b);
  view.current = -1;
  list.replaceChildren(...shown.map((index) => cards[index].node));
  drawnCards().forEach(refreshCard); // which mark what was found
  $("none").hidden = shown.length > 0 || (data.app && !pairs.length);
  summarise();
  keepAddress();
};
export const summarise = () => {
  if (!view.ready) return;
  const systems = [LAYERS[0], compare].filter((layer) => layer.there);
  const totals = systems.map(() => [0, 0, 0, 0]), links = systems.map(() => 0);
  for (const index of view.shown) {
    systems.forEach((layer, which) => {
      links[which] += linksOf(pairs[index], layer).length;
      if (goldOf(pairs[index])) countsOf(pairs[index], layer).forEach((value, k) => { totals[which][k] += value; });
    });
  }
  const many = view.shown.length === pairs.length ? number(pairs.length) : `${number(view.shown.length)} of ${number(pairs.length)}`;
  const parts = [`${many} pair${pairs.length === 1 ? "" : "s"}`];
  systems.forEach((layer, which) => {
    const error = gold.there && view.shown.length ? `, AER ${percent(aer(totals[which]))}` : "";
    parts.push(`${which ? `${layer.name}: ` : ""}${number(links[which])} links${error}`);
  });
  $("count").textContent = parts.join(" · ");
  showErrors();
};
const showErrors = () => {
  $("errors").hidden = !gold.there;
  if ($("errors").hidden) return;
  const found = describeErrors(view.shown.map((index) => pairs[index]), (text) => { $("find").value = text; select(); });
  $("errors-line").textContent = `Errors: ${found.line}`;
  if ($("errors").open) $("errors-body").replaceChildren(...found.sections());
};
$("errors").addEventListener("toggle", showErrors);
export const clearFilters = () => {
  for (const input of document.querySelectorAll("#more-tools input")) input.value = "";
};
export const focusOn = (index) => {
  const card = cards[index];
  if (!view.shown.includes(index)) { clearFilters(); select(); }
  view.current = view.shown.indexOf(index);
  if (!card.drawn) drawCard(card);
  card.word = null;
  card.node.focus({ preventScroll: true });
  card.node.scrollIntoView({ block: "nearest" });
};
export const goTo = (step) => {
  if (!view.shown.length) return;
  focusOn(view.shown[Math.max(0, Math.min(view.shown.length - 1, view.current + step))]);
  keepAddress();
};

// ---- the address: what is looked at can be sent to somebody ----

const INPUTS = ["find", "score-min", "score-max", "aer-min", "aer-max", "length-min", "length-max", "layout", "matrix"];
const FIRST = { layout: "rows", matrix: "m" };
let held = ""; // the address that this page wrote itself
export const keepAddress = () => {
  if (data.app || !keepAddress.begun) return;
  const parts = new URLSearchParams();
  for (const name of INPUTS) if ($(name).value !== (FIRST[name] ?? "")) parts.set(name, $(name).value);
  if ($("sort").value !== firstOrder()) parts.set("sort", $("sort").value);
  if (state.cut !== null && state.cut !== data.threshold) parts.set("cut", state.cut);
  const layers = LAYERS.filter((layer) => layer.there && layer.on !== (layer.id !== "fwd" && layer.id !== "bwd"));
  if (layers.length) parts.set("turned", layers.map((layer) => layer.id).join(" "));
  const views = ["links", "heat", "split"].filter((name) => state[name] !== (name !== "heat"));
  if (views.length) parts.set("views", views.join(" "));
  const index = view.shown[view.current];
  if (index !== undefined) parts.set("pair", pairs[index].n);
  held = `#${parts}`;
  history.replaceState(null, "", held === "#" ? location.href.split("#")[0] : held);
};
/** Show what the address says; `toggle` turns a layer or a view. */
export const readAddress = (toggleLayer, toggleView) => {
  keepAddress.begun = true;
  if (data.app || location.hash === held) return;
  const parts = new URLSearchParams(location.hash.slice(1));
  for (const name of INPUTS) $(name).value = parts.get(name) ?? FIRST[name] ?? "";
  for (const name of ["layout", "matrix"]) {
    if (!$(name).value) $(name).value = FIRST[name];
    state[name] = $(name).value;
  }
  const order = parts.get("sort") ?? firstOrder();
  if ([...$("sort").options].some((option) => option.value === order && !option.disabled)) $("sort").value = order;
  if (data.threshold !== null) {
    $("slider").value = Number(parts.get("cut") ?? data.threshold);
    $("slider").dispatchEvent(new Event("input"));
  }
  const turned = (parts.get("turned") ?? "").split(" "), views = (parts.get("views") ?? "").split(" ");
  for (const layer of LAYERS) if (layer.there && layer.on !== ((layer.id !== "fwd" && layer.id !== "bwd") !== turned.includes(layer.id))) toggleLayer(layer);
  for (const name of ["links", "heat", "split"]) if (state[name] !== ((name !== "heat") !== views.includes(name))) toggleView(name);
  select();
  redraw();
  const index = pairs.findIndex((pair) => String(pair.n) === parts.get("pair"));
  if (index >= 0) focusOn(index);
  keepAddress();
};
