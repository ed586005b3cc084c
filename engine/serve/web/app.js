/* The web app: sentences are typed, aligned at once, corrected by hand, and kept as a project. */
import { $, TOP, data, make, number, pairs, state, triples } from "./data.js";
import { cards, drawCard, hooks } from "./cards.js";
import { saveFile } from "./saving.js";
import { forgetChanges, setGold } from "./edit.js";
import { forgetFrequencies } from "./errors.js";
import { focusOn, view } from "./pair_list.js";
import { renewPairs, setThreshold } from "./page.js";

const WAIT = 120; // milliseconds after a key; people who type fast need about so many for the next
const GROUP = 40; // pairs that are asked for together, so that the first are seen soon
const STORE = "mx-align project";
const SOFT_LENGTH = 1500; // characters of a side; of longer ones matrices are not asked for

// ---- what is asked ----

const say = (text, bad = false) => {
  $("status").textContent = text;
  $("status").classList.toggle("bad", bad);
};
const linesOf = () => {
  const sides = ["src-text", "tgt-text"].map((id) => $(id).value.replace(/\s+$/, "").split("\n"));
  const count = Math.max(...sides.map((side) => (side.length === 1 && !side[0] ? 0 : side.length)));
  return Array.from({ length: count }, (_, k) => sides.map((side) => side[k] ?? ""));
};
/** Two pairs with one key have the same answer. */
const keyOf = ([src, tgt]) => JSON.stringify([$("langs").value, $("method").value, $("tokens").value, src, tgt]);
const post = async (path, body, signal) => {
  const headers = { "Content-Type": "application/json" }, token = $("token").value;
  if (token) headers.Authorization = `Bearer ${token}`;
  const response = await fetch(path, { method: "POST", headers, body: JSON.stringify(body), signal });
  const answer = await response.json().catch(() => ({ error: `the server answered ${response.status}` }));
  if (response.status === 401) $("token-box").hidden = false;
  if (!response.ok) throw new Error(answer.error);
  return answer;
};
const whole = (value) => Math.floor(Math.min(1, Math.max(0, value)) * TOP);
/** The pair of an answer, as the page draws it; links keep their side of the threshold. */
const pairOf = (row, place, key) => {
  const cut = data.threshold, links = row.links.flatMap(([i, j], k) => [i, j, Math.max(cut, whole(row.scores[k]))]);
  const pair = { n: place + 1, s: row.src, t: row.tgt, score: row.score, l: links, key, bytes: { m: null, f: null, b: null, sn: null, tn: null } };
  if (row.src_null?.length) Object.assign(pair.bytes, { sn: Uint8Array.from(row.src_null, whole), tn: Uint8Array.from(row.tgt_null, whole) });
  const { soft } = row;
  // The matrix is over the words that were aligned, which need not be the user's tokens.
  if (soft && String(soft.src) === String(row.src) && String(soft.tgt) === String(row.tgt)) {
    const cells = (rows) => Uint8Array.from(rows.flat(), whole), linked = new Set(row.links.map(([i, j]) => i * row.tgt.length + j));
    pair.bytes.m = cells(soft.scores).map((value, at) => (linked.has(at) ? Math.max(value, cut) : Math.min(value, cut - 1)));
    Object.assign(pair.bytes, { f: cells(soft.fwd), b: cells(soft.bwd) });
  }
  return pair;
};
const empty = (place, key) => ({ n: place + 1, s: [], t: [], score: 0, l: [], key });

// ---- typing ----

let asked = null; // what is being asked, to be given up for the next
let begun = new Map(); // gold of a project whose pairs are still to come: by place
/** Corrections stay with their words, whatever else about the pair has changed. */
const keepGold = (pair, before, place) => {
  const given = begun.get(place);
  const same = (words) => words && words[0].join("\t") === pair.s.join("\t") && words[1].join("\t") === pair.t.join("\t");
  if (given && same(given.words)) setGold(pair, given.gold);
  else if (before?.gp && same([before.s, before.t])) setGold(pair, before.gp);
  begun.delete(place);
};
const showPairs = (changed) => {
  forgetFrequencies();
  renewPairs();
  for (const place of changed) if (cards[place]?.drawn) drawCard(cards[place]);
  keepProject();
};
/** Show the target with the tags of the source; what has no place is told. */
const carryTags = async () => {
  try {
    const lines = linesOf(), answer = await post("/project", { langs: $("langs").value, method: $("method").value, pairs: lines.map(([src, tgt]) => ({ src, tgt })) });
    $("marked").value = answer.results.map((row) => row.tgt).join("\n");
    $("marked-box").hidden = false;
    const lost = answer.results.flatMap((row) => row.unplaced);
    say(lost.length ? `Without a place: ${lost.join(", ")}` : "", lost.length > 0);
  } catch (error) {
    say(error instanceof TypeError ? "The server cannot be reached." : error.message, true);
  }
};
const realign = async () => {
  asked?.abort();
  const control = (asked = new AbortController());
  const lines = linesOf(), keys = lines.map(keyOf);
  const waiting = keys.map((_, place) => place).filter((place) => pairs[place]?.key !== keys[place]);
  const gone = pairs.length > lines.length;
  pairs.length = Math.min(pairs.length, lines.length);
  if (!waiting.length) {
    if (gone) showPairs([]);
    say("");
    performance.mark("mx-aligned");
    return;
  }
  const start = performance.now();
  try {
    for (let first = 0; first < waiting.length; first += GROUP) {
      const group = waiting.slice(first, first + GROUP);
      const short = group.every((place) => lines[place].every((text) => text.length <= SOFT_LENGTH));
      const answer = await post("/align", {
        langs: $("langs").value, method: $("method").value, tokens: $("tokens").value, soft: short && $("method").value === "model",
        pairs: group.map((place) => ({ src: lines[place][0], tgt: lines[place][1] })),
      }, control.signal);
      if (control !== asked) return;
      data.matrix = answer.method === "model"; // only then are links all cells above the threshold
      setThreshold(answer.threshold ?? 0.5);
      data.how = answer.signature;
      $("how").textContent = data.how;
      group.forEach((place, k) => {
        for (let at = pairs.length; at < place; at++) pairs[at] = empty(at, null);
        const pair = pairOf(answer.results[k], place, keys[place]);
        keepGold(pair, pairs[place], place);
        pairs[place] = pair;
      });
      showPairs(group);
      if (first + GROUP < waiting.length) say(`${number(first + GROUP)} of ${number(waiting.length)} pairs`);
    }
    say(`${Math.round(performance.now() - start)} ms`);
    performance.mark("mx-aligned");
  } catch (error) {
    if (error.name === "AbortError") return;
    say(error instanceof TypeError ? "The server cannot be reached." : error.message, true);
  }
};
let timer = 0;
const later = () => {
  clearTimeout(timer);
  timer = setTimeout(realign, WAIT);
};

// ---- projects ----

const projectOf = () => ({
  format: "mx-align project", version: 1, name: $("project").value, langs: $("langs").value, tokens: $("tokens").value,
  src: $("src-text").value, tgt: $("tgt-text").value,
  gold: pairs.flatMap((pair, place) => (pair.gp === undefined ? [] : [{ place, words: [pair.s, pair.t], links: triples(pair.gp) }])),
});
const isWords = (value) => Array.isArray(value) && value.every((word) => typeof word === "string");
const isGold = (row) => Number.isInteger(row?.place) && Array.isArray(row.words) && row.words.length === 2 && row.words.every(isWords)
  && Array.isArray(row.links) && row.links.every((link) => Array.isArray(link) && link.length === 3 && link.every(Number.isInteger)
    && link[0] >= 0 && link[1] >= 0 && link[0] < row.words[0].length && link[1] < row.words[1].length);
const openProject = (text) => {
  let project = null;
  try {
    project = JSON.parse(text);
  } catch { /* told below */ }
  if (project?.format !== "mx-align project" || typeof project.src !== "string" || typeof project.tgt !== "string"
    || !Array.isArray(project.gold) || !project.gold.every(isGold)) {
    say("This is no project that was saved here.", true);
    return;
  }
  $("project").value = String(project.name ?? "project");
  for (const name of ["langs", "tokens"]) {
    if ([...$(name).options].some((option) => option.value === project[name])) $(name).value = project[name];
  }
  $("src-text").value = project.src;
  $("tgt-text").value = project.tgt;
  begun = new Map(project.gold.map((row) => [row.place, { words: row.words, gold: row.links.flat() }]));
  pairs.length = 0;
  forgetChanges();
  showPairs([]);
  realign();
};
const keepProject = () => {
  if (begun.size) return; // not all of it is here yet
  try {
    localStorage.setItem(STORE, JSON.stringify(projectOf()));
  } catch { /* full or forbidden: it can still be saved as a file */ }
};

// ---- start ----

const fill = (id, values) => $(id).append(...values.map((value) => make("option", { value }, value)));
const startApp = () => {
  fill("langs", data.app.langs);
  fill("tokens", data.app.tokens);
  // Without statistics there is one method, whose scores are all shown.
  fill("method", data.app.method.length > 2 ? data.app.method : ["model"]);
  $("method-box").hidden = data.app.method.length < 3;
  $("token").value = sessionStorage.getItem("mx-align token") ?? "";
  $("token").addEventListener("change", () => { sessionStorage.setItem("mx-align token", $("token").value); realign(); });
  for (const id of ["src-text", "tgt-text"]) $(id).addEventListener("input", later);
  for (const id of ["langs", "method", "tokens"]) $(id).addEventListener("change", realign);
  $("markup").addEventListener("click", carryTags);
  $("turn").addEventListener("click", () => {
    const turned = $("langs").value.split("-").reverse().join("-"), src = $("src-text").value;
    if (data.app.langs.includes(turned)) $("langs").value = turned;
    $("src-text").value = $("tgt-text").value;
    $("tgt-text").value = src;
    realign();
  });
  $("project-save").addEventListener("click", () => saveFile(`${$("project").value || "project"}.json`, JSON.stringify(projectOf()), "application/json"));
  $("project-open").addEventListener("click", () => $("project-file").click());
  $("project-file").addEventListener("change", async () => {
    const [file] = $("project-file").files;
    if (file) openProject(await file.text());
    $("project-file").value = "";
  });
  $("project-new").addEventListener("click", () => openProject(JSON.stringify({ ...projectOf(), src: "", tgt: "", gold: [], name: "project" })));
  document.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && event.ctrlKey && event.target.closest("textarea") && view.shown.length) focusOn(view.shown[0]);
    else if (event.key === "i" && !event.ctrlKey && !event.metaKey && !event.altKey && !event.target.closest("input, select, textarea") && $("keys-on").checked) {
      event.preventDefault();
      $("src-text").focus();
    }
  });
  const refresh = hooks.changed;
  hooks.changed = (card) => { refresh(card); keepProject(); };
  state.split = false;
  const kept = localStorage.getItem(STORE);
  if (kept) openProject(kept);
};
startApp();
