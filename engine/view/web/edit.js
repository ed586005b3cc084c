/* Links corrected by hand: the gold layer of a pair, changed cell by cell, and taken back. */
import { LAYERS, cell, gold, linksOf, triples } from "./data.js";

const undone = []; // [pair, what its gold links were]
/** The gold links of a pair; where nobody has made any, one begins with those that are shown. */
export const beginGold = (pair) => pair.gp ?? linksOf(pair, LAYERS[0]).flatMap(([i, j]) => [i, j, 1]);
export const setGold = (pair, flat) => {
  if (flat === undefined) delete pair.gp;
  else pair.gp = flat;
  delete pair.gold;
};
/** Turn a link from none to sure, from sure to possible, from possible to none. */
export const turnLink = (pair, [i, j]) => {
  undone.push([pair, pair.gp]);
  const links = triples(beginGold(pair)), at = links.findIndex((link) => link[0] === i && link[1] === j);
  if (at < 0) links.push([i, j, 1]);
  else if (links[at][2]) links[at][2] = 0;
  else links.splice(at, 1);
  links.sort((a, b) => cell(pair, a) - cell(pair, b));
  setGold(pair, links.flat());
  gold.there = gold.on = true;
  return at < 0 ? "sure" : links.find((link) => link[0] === i && link[1] === j) ? "possible" : "no link";
};
/** Take the last change back; returns its pair. */
export const undoLink = () => {
  const last = undone.pop();
  if (last) setGold(...last);
  return last?.[0];
};
export const forgetChanges = () => { undone.length = 0; };
