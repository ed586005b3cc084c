/* What goes wrong most often in the pairs of the list: words, and classes of words. */
import { LAYERS, cell, folded, goldOf, linksOf, make, number, pairs, percent, triples } from "./data.js";

const SHOWN = 12;
const LENGTHS = [["1 – 3 letters", 3], ["4 – 6", 6], ["7 – 9", 9], ["10 and more", Infinity]];
const COUNTS = [["once", 1], ["2 – 5 times", 5], ["6 – 20 times", 20], ["more often", Infinity]];

let frequency = null; // of folded words in all pairs of the page
const frequencyOf = (word) => {
  if (!frequency) {
    frequency = new Map();
    for (const pair of pairs) for (const each of [...pair.s, ...pair.t]) frequency.set(folded(each), (frequency.get(folded(each)) ?? 0) + 1);
  }
  return frequency.get(folded(word)) ?? 0;
};
export const forgetFrequencies = () => { frequency = null; };
const classOf = (rows, value) => rows.findIndex((row) => value <= row[1]);
/** Count wrong and missing links by words, and by the classes of the words at both ends. */
export const countErrors = (list) => {
  const tables = { length: LENGTHS, count: COUNTS };
  const found = { wrong: new Map(), missing: new Map(), classes: {}, total: [0, 0, 0, 0] };
  for (const name of Object.keys(tables)) found.classes[name] = tables[name].map(() => [0, 0, 0, 0]); // made, wrong, sure, missing
  const note = (pair, [i, j], at, bad) => {
    const words = [pair.s[i], pair.t[j]];
    for (const word of words) {
      for (const [name, value] of [["length", [...word].length], ["count", frequencyOf(word)]]) {
        const row = found.classes[name][classOf(tables[name], value)];
        row[at]++;
        if (bad) row[at + 1]++;
      }
    }
    found.total[at]++;
    if (!bad) return;
    found.total[at + 1]++;
    const map = at ? found.missing : found.wrong, key = words.map(folded).join("\t");
    map.set(key, (map.get(key) ?? 0) + 1);
  };
  for (const pair of list) {
    const wanted = goldOf(pair);
    if (!wanted) continue;
    const links = linksOf(pair, LAYERS[0]), made = new Set(links.map((link) => cell(pair, link)));
    for (const link of links) note(pair, link, 0, !wanted.possible.has(cell(pair, link)));
    for (const link of triples(pair.gp)) if (link[2]) note(pair, link, 2, !made.has(cell(pair, link)));
  }
  return found;
};
const listWords = (title, map, onFind) => {
  const rows = [...map].sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1)).slice(0, SHOWN);
  const items = rows.map(([key, many]) => {
    const [src, tgt] = key.split("\t");
    const button = make("button", { type: "button", title: "Find the source word" }, make("bdi", {}, src), " – ", make("bdi", {}, tgt));
    button.addEventListener("click", () => onFind(src));
    return make("li", {}, button, ` ${number(many)}×`);
  });
  return make("section", {}, make("h2", {}, title), make("ol", { class: "words" }, ...(items.length ? items : [make("li", {}, "none")])));
};
const classTable = (title, names, rows) => {
  const head = make("tr", {}, make("td"), ...["links", "wrong", "sure", "missing"].map((text) => make("th", { scope: "col" }, text)));
  const body = rows.map(([made, wrong, sure, missing], k) => make("tr", {}, make("th", { scope: "row" }, names[k][0]), make("td", {}, number(made)),
    make("td", {}, percent(made ? wrong / made : 0)), make("td", {}, number(sure)), make("td", {}, percent(sure ? missing / sure : 0))));
  return make("section", {}, make("table", {}, make("caption", {}, title), make("thead", {}, head), make("tbody", {}, ...body)));
};
/** One line about the errors, and the tables. */
export const describeErrors = (list, onFind) => {
  const found = countErrors(list), [made, wrong, sure, missing] = found.total;
  return {
    line: `${number(wrong)} of ${number(made)} links are wrong, ${number(missing)} of ${number(sure)} sure ones missing`,
    sections: () => [
      listWords("Most often wrong", found.wrong, onFind), listWords("Most often missing", found.missing, onFind),
      classTable("By the length of the linked words", LENGTHS, found.classes.length),
      classTable("By how often the words are on this page", COUNTS, found.classes.count),
    ],
  };
};
