// The search page. Texts come from documents and queries of anybody, and reach the page as text nodes alone.

const SHOWN = 10;        // documents of each column at first
const ASKED = 20;        // documents that are asked for, so that a move from further down is seen as one
const PAUSE = 140;       // milliseconds without typing before a search
const MARKED = 20_000;   // characters of a text in which words are marked
const TRIED = 4;         // examples that are shown at a time

const $ = (id) => document.getElementById(id);
const query = $("query"), results = $("results"), status = $("status");
const state = { systems: [], collects: false, largest: ASKED, characters: 2000, examples: [], asked: "", turn: 0, columns: new Map() };
let pending = new AbortController();
let timer = 0;

// Requests

class Refused extends Error {
  constructor(status, reason) { super(reason); this.status = status; }
}

async function ask(path, { body, signal } = {}) {
  const headers = { accept: "application/json" };
  const token = sessionStorage.getItem("token");
  if (token) headers.authorization = `Bearer ${token}`;
  if (body) headers["content-type"] = "application/json";
  const answer = await fetch(path, { method: body ? "POST" : "GET", headers, body: body && JSON.stringify(body), signal });
  const content = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Refused(answer.status, content.detail || `The server answered ${answer.status}.`);
  return content;
}

async function askAgain(path, options) {
  try {
    return await ask(path, options);
  } catch (error) {
    if (error.status !== 429) throw error;  // busy: once more, a little later
    await new Promise((done) => setTimeout(done, 700 + 600 * Math.random()));
    return ask(path, options);
  }
}

const reason = (error) => (error instanceof Refused ? error.message : "The server does not answer.");

// Words of the query in texts

const STOP = new Set(("a an and are as at be but by do does for from had has have he how i if in into is it its me my no not of on or our " +
  "she so such than that the their them then there these they this to was we were what when where which who why will with you your").split(" "));
const segmenter = "Segmenter" in Intl ? new Intl.Segmenter(undefined, { granularity: "word" }) : null;

function* words(text) {
  if (segmenter) {
    for (const { segment, index, isWordLike } of segmenter.segment(text)) if (isWordLike) yield [segment, index];
  } else {
    for (const match of text.matchAll(/[\p{L}\p{N}_]+/gu)) yield [match[0], match.index];
  }
}

function stem(word) {
  const lower = word.toLowerCase(), short = lower.replace(/(?:ies|ing|ed|es|s|ly|e)$/u, "");
  return short.length >= 3 ? short : lower;
}

function terms(text) {
  const found = [...words(text)].map(([word]) => word.toLowerCase()).filter((word) => !STOP.has(word));
  return new Set(found.map(stem));
}

function place(text, wanted) {  // where the first word of the query is
  for (const [word, index] of words(text.slice(0, MARKED))) if (wanted.has(stem(word))) return index;
  return 0;
}

function marked(text, wanted) {
  const parts = document.createDocumentFragment();
  let end = 0;
  for (const [word, index] of words(text.slice(0, MARKED))) {
    if (!wanted.has(stem(word))) continue;
    parts.append(text.slice(end, index));
    const mark = document.createElement("mark");
    mark.textContent = word;
    parts.append(mark);
    end = index + word.length;
  }
  parts.append(text.slice(end));
  return parts;
}

// Columns and cards

function show() {
  results.replaceChildren();
  $("tabs").replaceChildren();
  state.columns.clear();
  results.dataset.columns = state.systems.length;
  for (const [number, system] of state.systems.entries()) {
    const column = $("column").content.firstElementChild.cloneNode(true);
    const tab = document.createElement("button");
    column.id = `column-${system.name}`;
    column.setAttribute("aria-labelledby", `tab-${system.name}`);
    column.classList.toggle("leftmost", number === 0);
    column.querySelector("h2").textContent = system.label;
    column.querySelector(".description").textContent = system.description;
    column.querySelector(".description").title = system.description;
    column.querySelector(".more").addEventListener("click", () => more(column));
    Object.assign(tab, { type: "button", id: `tab-${system.name}`, textContent: system.label.replace(/ training$/, "") });
    tab.setAttribute("role", "tab");
    tab.setAttribute("aria-controls", column.id);
    tab.addEventListener("click", () => choose(system.name));
    $("tabs").append(tab);
    results.append(column);
    state.columns.set(system.name, { column, tab, answer: null });
  }
  choose(state.systems.at(-1)?.name);
}

function choose(name) {
  for (const [other, { column, tab }] of state.columns) {
    column.classList.toggle("chosen", other === name);
    tab.setAttribute("aria-selected", String(other === name));
    tab.tabIndex = other === name ? 0 : -1;
  }
}

function more(column) {
  column.classList.add("all");
  column.querySelector(".more").hidden = true;
  column.querySelector(".card.beyond")?.focus();
}

function card(result, wanted) {
  const item = $("card").content.firstElementChild.cloneNode(true);
  item.dataset.id = result.id;
  item.classList.toggle("beyond", result.rank > SHOWN);
  item.querySelector(".rank").textContent = result.rank;
  item.querySelector(".id").textContent = item.querySelector(".id").title = result.id;
  item.querySelector(".relevant").hidden = !result.relevant;
  item.querySelector(".score").textContent = result.score.toFixed(result.score >= 10 ? 1 : 3);
  item.querySelector(".votes").hidden = !state.collects || result.text === null;
  vote(item, result.vote);
  fill(item, result, wanted, false);
  item.querySelector(".expand").addEventListener("click", () => expand(item, result, wanted));
  item.querySelector(".good").addEventListener("click", () => send(item, 1));
  item.querySelector(".bad").addEventListener("click", () => send(item, -1));
  return item;
}

function fill(item, result, wanted, open) {
  const text = item.querySelector(".text");
  if (result.text === null) {
    text.textContent = "The text is not at hand.";
    text.classList.add("missing");
    return;
  }
  let shown = open ? result.text : result.text.replace(/\s+/gu, " ");
  const first = open ? 0 : place(shown, wanted);
  if (first > 220) shown = `… ${shown.slice(first - 60).replace(/^\S*\s/u, "")}`;
  text.replaceChildren(marked(shown, wanted));
  item.classList.toggle("open", open);
  item.querySelector(".expand").setAttribute("aria-expanded", String(open));
  item.querySelector(".expand").textContent = open ? "Show less" : "Show all";
}

function measure(column) {  // which texts are cut off
  for (const item of column.querySelectorAll(".card:not(.open)")) {
    const text = item.querySelector(".text");
    item.classList.toggle("long", text.scrollHeight > text.clientHeight + 2 || text.textContent.startsWith("… "));
  }
}

async function expand(item, result, wanted) {
  const open = !item.classList.contains("open");
  if (open && result.more) {
    try {
      result.text = (await ask(`api/document?id=${encodeURIComponent(result.id)}`)).text;
      result.more = false;
    } catch (error) {
      tell(reason(error), true);
    }
  }
  fill(item, result, wanted, open);
}

function moves() {  // each column beside the one to its left
  let left = null;
  for (const { column, answer } of state.columns.values()) {
    const before = left && new Map(left.results.map((result) => [result.id, result.rank]));
    for (const item of column.querySelectorAll(".card")) {
      const move = item.querySelector(".move"), rank = Number(item.querySelector(".rank").textContent);
      const gain = before?.has(item.dataset.id) ? before.get(item.dataset.id) - rank : null;
      const [sign, said] = !before ? ["", ""] : gain === null ? ["new", `not among the first ${ASKED} to the left`]
        : gain > 0 ? [`▲ ${gain}`, `${gain} higher than to the left`] : gain < 0 ? [`▼ ${-gain}`, `${-gain} lower than to the left`]
        : ["=", "same rank as to the left"];
      move.className = `move${!before ? "" : gain === null ? " new" : gain > 0 ? " up" : gain < 0 ? " down" : ""}`;
      move.textContent = sign;
      move.title = said;
    }
    left = answer;
  }
}

function draw(name, answer) {
  const entry = state.columns.get(name), { column } = entry;
  const wanted = terms(answer.query);
  entry.answer = answer;
  column.classList.remove("waiting", "all");
  column.querySelector("ol").replaceChildren(...answer.results.map((result) => card(result, wanted)));
  column.querySelector(".milliseconds").textContent = `${Math.max(1, Math.round(answer.milliseconds))} ms`;
  column.querySelector(".more").hidden = answer.results.length <= SHOWN;
  say(column, answer.results.length ? "" : "Nothing found.");
  const first = column.querySelector(".first"), best = answer.results.find((result) => result.relevant);
  first.textContent = answer.judged === null ? "" : best ? `first relevant: ${best.rank}` : `none relevant in ${answer.results.length}`;
  first.classList.toggle("none", !best);
  measure(column);
  moves();
}

function say(column, message, wrong = false) {
  const nothing = column.querySelector(".nothing");
  nothing.textContent = message;
  nothing.hidden = !message;
  nothing.classList.toggle("wrong", wrong);
}

function tell(message, wrong = false) {
  status.textContent = message;
  status.classList.toggle("wrong", wrong);
}

// Searching

function changed() {
  clearTimeout(timer);
  timer = setTimeout(search, PAUSE);
}

async function search() {
  clearTimeout(timer);
  const text = query.value.trim();
  if (text === state.asked) return;
  state.asked = text;
  const turn = ++state.turn;
  pending.abort();  // answers to what was typed before are not wanted any more
  pending = new AbortController();
  history.replaceState(null, "", text ? `#${new URLSearchParams({ q: text })}` : location.pathname);
  $("legend").hidden = true;
  if (!text) {
    tell("");
    for (const { column } of state.columns.values()) clear(column);
    return;
  }
  const began = performance.now(), { signal } = pending;
  const answers = await Promise.all(state.systems.map(async ({ name }) => {
    const { column } = state.columns.get(name);
    column.classList.add("waiting");
    try {
      const answer = await askAgain("api/search", { body: { query: text, k: Math.min(ASKED, state.largest), system: name }, signal });
      if (turn === state.turn) draw(name, answer);
      return answer;
    } catch (error) {
      if (turn === state.turn) {
        clear(column);
        say(column, reason(error), true);
      }
      return null;
    }
  }));
  if (turn !== state.turn) return;
  const answer = answers.find(Boolean), seconds = Math.round(performance.now() - began);
  if (!answer) {
    tell("No system answered.", true);
    return;
  }
  const judged = answer.judged === null ? "" : ` A judged query: ${answer.judged === 1 ? "1 document is" : `${answer.judged} documents are`} relevant.`;
  tell(`Answered in ${seconds} ms.${judged}`);
  $("legend").hidden = state.systems.length < 2;
  $("legend-judged").hidden = answer.judged === null;
}

function clear(column) {
  const entry = state.columns.get(column.id.replace("column-", ""));
  entry.answer = null;
  column.classList.remove("waiting");
  column.querySelector("ol").replaceChildren();
  column.querySelector(".more").hidden = true;
  for (const part of [".milliseconds", ".first"]) column.querySelector(part).textContent = "";
  say(column, "");
}

function start(text) {
  query.value = text.slice(0, state.characters);
  search();
  query.focus();
}

// Votes

function vote(item, grade) {
  item.dataset.vote = grade;
  item.querySelector(".good").setAttribute("aria-pressed", String(grade === 1));
  item.querySelector(".bad").setAttribute("aria-pressed", String(grade === -1));
}

async function send(item, pressed) {
  if (!state.collects || item.querySelector(".votes").hidden) return;
  const { id } = item.dataset, before = Number(item.dataset.vote), grade = before === pressed ? 0 : pressed;
  const system = item.closest(".column").id.replace("column-", "");
  const alike = () => [...results.querySelectorAll(".card")].filter((other) => other.dataset.id === id);
  const { asked } = state;
  alike().forEach((other) => vote(other, grade));
  try {
    await askAgain("api/judgments", { body: { query: asked, id, grade, system } });
    if (asked === state.asked) tell({ 1: "Voted: relevant.", 0: "The vote was taken back.", [-1]: "Voted: not relevant." }[grade]);
  } catch (error) {
    if (asked === state.asked) alike().forEach((other) => vote(other, before));
    tell(reason(error), true);
  }
}

// Keys

const seen = (column) => [...column.querySelectorAll(".card")].filter((item) => item.offsetParent !== null);

function step(item, by) {
  const items = seen(item.closest(".column")), next = items.indexOf(item) + by;
  if (next < 0) query.focus();
  else items[Math.min(next, items.length - 1)].focus();
}

function aside(item, by) {
  const names = [...state.columns.keys()], column = item.closest(".column");
  const name = names[names.indexOf(column.id.replace("column-", "")) + by];
  if (!name) return;
  choose(name);
  const items = seen(state.columns.get(name).column);
  (items.find((other) => other.dataset.id === item.dataset.id) || items[Math.min(seen(column).indexOf(item), items.length - 1)] || item).focus();
}

function pressed(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  const typing = event.target === query, item = event.target.closest?.(".card");
  const actions = {
    ArrowDown: () => (item ? step(item, 1) : first()), ArrowUp: () => item && step(item, -1),
    ArrowLeft: () => item && aside(item, -1), ArrowRight: () => item && aside(item, 1),
    Escape: () => (typing ? query.blur() : query.focus()),
    "/": () => { query.focus(); query.select(); }, "?": () => $("help").showModal(),
    j: () => (item ? step(item, 1) : first()), k: () => item && step(item, -1),
    h: () => item && aside(item, -1), l: () => item && aside(item, 1),
    u: () => item && send(item, 1), d: () => item && send(item, -1),
    Enter: () => item && event.target === item && item.querySelector(".expand").click(),
  };
  const known = typing ? ["ArrowDown", "Escape"] : Object.keys(actions);
  if (!known.includes(event.key) || event.target.closest?.("[role=tablist]")) return;
  if (event.key === "Enter" && event.target !== item) return;  // a button's own
  event.preventDefault();
  actions[event.key]();
}

function first() {
  const column = [...state.columns.values()].map((entry) => entry.column).find((other) => seen(other).length);
  if (column) seen(column)[0].focus();
}

function same(event) {  // the same document in other columns
  const item = event.target.closest?.(".card");
  for (const other of results.querySelectorAll(".card")) {
    other.classList.toggle("same", Boolean(item) && other !== item && other.dataset.id === item.dataset.id);
  }
}

// The beginning

function examples() {
  const pool = [...state.examples];
  const chosen = Array.from({ length: Math.min(TRIED, pool.length) }, () => pool.splice(Math.floor(Math.random() * pool.length), 1)[0]);
  $("examples").hidden = !chosen.length;
  $("more-examples").hidden = state.examples.length <= TRIED;
  $("examples").querySelector("ul").replaceChildren(...chosen.map((text) => {
    const item = document.createElement("li"), button = document.createElement("button");
    Object.assign(button, { type: "button", textContent: text, title: text, dir: "auto" });
    button.addEventListener("click", () => start(text));
    item.append(button);
    return item;
  }));
}

async function begin() {
  try {
    const about = await ask("api/systems");
    Object.assign(state, { systems: about.systems, collects: about.collects, largest: about.largest_k, characters: about.query_characters, examples: about.examples });
    query.maxLength = about.query_characters;
    $("about").textContent = [about.data, `${about.documents.toLocaleString("en")} documents`].filter(Boolean).join(" · ");
    document.querySelector(".of-votes").hidden = !about.collects;
    show();
    examples();
    const given = new URLSearchParams(location.hash.slice(1)).get("q");
    if (given && !query.value) query.value = given.slice(0, about.query_characters);
    if (query.value) search();
    else if (matchMedia("(hover: hover)").matches) query.focus();
  } catch (error) {
    if (error.status === 401) $("token").showModal();
    else tell(reason(error), true);
  }
}

query.addEventListener("input", changed);
$("form").addEventListener("submit", (event) => { event.preventDefault(); search(); });
$("more-examples").addEventListener("click", examples);
$("help-open").addEventListener("click", () => $("help").showModal());
$("token-form").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem("token", $("token-value").value.trim());
  $("token").close();
  begin();
});
$("tabs").addEventListener("keydown", (event) => {
  const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  const names = [...state.columns.keys()], now = names.findIndex((name) => state.columns.get(name).tab === event.target);
  if (!by || now < 0) return;
  const name = names[(now + by + names.length) % names.length];
  choose(name);
  state.columns.get(name).tab.focus();
});
document.addEventListener("keydown", pressed);
results.addEventListener("mouseover", same);
results.addEventListener("mouseleave", same);
results.addEventListener("focusin", same);
window.addEventListener("resize", () => state.columns.forEach(({ column }) => measure(column)));
begin();
