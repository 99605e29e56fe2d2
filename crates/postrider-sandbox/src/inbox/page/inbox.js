// The page of the inbox: asks for the list when the server says that something changed, and orders answers.

import { at, drawAnswers, drawChannels, drawDetail, drawEmpty, drawList } from "./view.js";

const SILENCE_MS = 5000;
const STEP = 50;
let kind = "";
let words = "";
let chosen = null;
let chosenVersion = null;
let limit = STEP;
let stream = null;
let heard = Date.now();
let asking = false;
let again = false;

// The view is in the address, so a link shows the same.
function readAddress() {
  const given = new URLSearchParams(location.search);
  kind = given.get("kind") || "";
  words = given.get("q") || "";
  chosen = Number(given.get("message")) || null;
  at("search").value = words;
}
function writeAddress() {
  const given = new URLSearchParams();
  if (kind) given.set("kind", kind);
  if (words) given.set("q", words);
  if (chosen) given.set("message", chosen);
  history.replaceState(null, "", given.size ? "?" + given : location.pathname);
}

async function call(path, method, body) {
  const answer = await fetch(path, { method: method || "GET", headers: body ? { "Content-Type": "application/json" } : {}, body: body && JSON.stringify(body) });
  if (answer.status === 404) return null;
  if (answer.status === 204) return {};
  const value = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Error(value.error || `The sandbox answered ${answer.status}.`);
  return value;
}

function notice(text) {
  at("notice").textContent = text;
  clearTimeout(notice.timer);
  notice.timer = setTimeout(() => { at("notice").textContent = ""; }, 4000);
}

async function refresh() {
  if (asking) { again = true; return; }
  asking = true;
  try {
    const list = await call("/sandbox/inbox?" + new URLSearchParams({ limit: Math.min(limit, 500), kind, q: words }));
    if (kind && !list.kinds.some((known) => known.kind === kind)) kind = "";
    drawChannels(list.kinds, kind, choose);
    drawAnswers(list.kinds.find((known) => known.kind === kind), order);
    const focused = document.activeElement?.dataset?.number;
    drawList(list.messages, chosen, open);
    if (focused) document.querySelector(`[data-number="${CSS.escape(focused)}"]`)?.focus();
    at("more").hidden = list.more === 0;
    at("empty").hidden = list.messages.length > 0;
    if (!list.messages.length) drawEmpty(list.samples, Boolean(words || kind), copy);
    await refreshDetail();
  } catch (error) {
    notice(error.message);
  } finally {
    asking = false;
    if (again) { again = false; refresh(); }
  }
}

async function refreshDetail() {
  showDetail(Boolean(chosen));
  if (!chosen) return;
  const message = await call(`/sandbox/inbox/${chosen}`);
  if (!message) { close(); return; }
  if (message.version === chosenVersion) return;
  chosenVersion = message.version;
  drawDetail(message, close, copy);
}

function showDetail(isShown) {
  at("detail").hidden = !isShown;
  at("main").classList.toggle("alone", !isShown);
}

function choose(next) { kind = next; limit = STEP; writeAddress(); refresh(); }
async function open(number) {
  chosen = number;
  chosenVersion = null;
  writeAddress();
  await refresh();
  at("detail").focus({ preventScroll: false });
}
function close() { chosen = null; chosenVersion = null; showDetail(false); writeAddress(); refresh(); }
async function order(of, script) {
  try { await call(`/sandbox/next/${of}`, "PUT", { script }); } catch (error) { notice(error.message); }
  refresh();
}
async function copy(text) {
  try { await navigator.clipboard.writeText(text); notice("Copied."); } catch { notice("The browser does not allow copying; select the text."); }
}

at("search").addEventListener("input", () => { words = at("search").value.trim(); limit = STEP; writeAddress(); refresh(); });
at("more").addEventListener("click", () => { limit += STEP; refresh(); });
at("clear").addEventListener("click", async () => {
  const button = at("clear");
  if (button.dataset.sure !== "yes") {
    button.dataset.sure = "yes";
    button.textContent = "Empty it: sure?";
    setTimeout(() => { button.dataset.sure = ""; button.textContent = "Empty the inbox"; }, 4000);
    return;
  }
  button.dataset.sure = "";
  button.textContent = "Empty the inbox";
  try { await call("/sandbox/inbox", "DELETE"); } catch (error) { notice(error.message); }
  refresh();
});
document.addEventListener("keydown", (event) => {
  const typing = event.target.matches?.("input");
  if (event.key === "/" && !typing) { event.preventDefault(); at("search").focus(); }
  if (event.key === "Escape" && chosen && !typing) close();
});

// One stream; closed while nobody looks.
function listen() {
  stream?.close();
  stream = new EventSource("/sandbox/inbox/events");
  const alive = () => { heard = Date.now(); showLife(); };
  stream.addEventListener("change", () => { alive(); refresh(); });
  stream.addEventListener("alive", alive);
}
function showLife() {
  const silent = Date.now() - heard > SILENCE_MS;
  at("live").textContent = silent ? `no answer since ${new Date(heard).toLocaleTimeString("en-GB")}` : "live";
  at("live").className = "badge " + (silent ? "off" : "on");
  at("main").classList.toggle("stale", silent);
}
document.addEventListener("visibilitychange", () => {
  if (document.hidden) { stream?.close(); stream = null; } else { heard = Date.now(); listen(); }
});
setInterval(() => { if (stream) showLife(); }, 1000);

readAddress();
listen();
