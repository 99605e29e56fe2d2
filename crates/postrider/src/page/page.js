// The status page: asks for a key once, refreshes every second, replays and discards on request.

import { drawProblem, drawProblems } from "./problems.js";
import { at, drawDead, drawDetail, drawLanes, drawAccounts, drawRecent, drawStats, remember, short } from "./view.js";

const TIMEOUT_MS = 8000;
const shown = { dead: 8, recent: 15 };
const chosen = { state: null, reason: null };
let key = sessionStorage.getItem("postrider-key") || "";
let everywhere = true;
let remembered = false;
let explained = null;
let refreshes = 0;
let asked = false;
let timer;

// A link has a one-time code, which no server and no log sees before a person uses it. A link never replaces a session,
// and signs nobody in without a click.
let code = "";
let unused = "";
// A link of an alert leads to one problem.
let wanted = location.hash.startsWith("#problem=") ? decodeURIComponent(location.hash.slice(9)) : null;
if (location.hash.startsWith("#code=")) {
  if (key) unused = "You are signed in already, so the link was not used. Open it in another tab.";
  else code = decodeURIComponent(location.hash.slice(6));
}
if (location.hash) history.replaceState(null, "", location.pathname);

class WrongKey extends Error {}
class NoAnswer extends Error {}

async function call(path, body, tenant) {
  const headers = { Authorization: "Bearer " + key };
  // An admin reads all tenants, but acts for one.
  if (everywhere) headers["Postrider-Tenant"] = tenant || "*";
  if (body) headers["Content-Type"] = "application/json";
  let answer;
  try {
    answer = await fetch(path, { method: body ? "POST" : "GET", headers, body: body && JSON.stringify(body), signal: AbortSignal.timeout(TIMEOUT_MS) });
  } catch { throw new NoAnswer("The server does not answer."); }
  if (answer.status === 403 && everywhere && !body) { everywhere = false; return call(path); }
  const value = await answer.json().catch(() => ({}));
  if (answer.status === 401) throw new WrongKey(value.detail);
  if (!answer.ok) throw new Error(value.detail || value.title || `The server answered ${answer.status}.`);
  return value;
}

async function signIn(given) {
  const body = JSON.stringify({ code: given });
  const answer = await fetch("/v1/sign-in", { method: "POST", headers: { "Content-Type": "application/json" }, body });
  const value = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Error(value.detail || `The server answered ${answer.status}.`);
  return value;
}

const query = (path, parameters) => path + "?" + new URLSearchParams(Object.entries(parameters).filter(([, value]) => value != null));

// A list is not refreshed while the pointer or the keyboard focus is in it.
function markIfHeld(id) {
  const still = !asked && at(id).matches(":focus-within, :hover");
  at(id + "-held").hidden = !still;
  return still;
}

async function refresh() {
  const lists = refreshes++ % 2 === 0;
  // One call first: it shows whether the key is valid, and what it may see.
  const stats = await call("/v1/stats");
  const [lanes, dead, recent, wrong] = await Promise.all([
    call("/v1/lanes?limit=12"),
    lists && call(query("/v1/dead-letters", { limit: shown.dead, reason: chosen.reason })),
    lists && call(query("/v1/deliveries", { limit: shown.recent, state: chosen.state })),
    lists && call("/v1/problems"),
  ]);
  if (stats.rates && !remembered) {
    remember((await call("/v1/stats/history")).rates);
    remembered = true;
  }
  drawStats(stats, chosen, choose);
  drawLanes(lanes.lanes);
  // Only an admin key may see accounts.
  if (stats.rates && lists) drawAccounts((await call("/v1/accounts")).accounts);
  if (lists) {
    drawProblems(wrong.problems, openProblem, actOnProblem);
    if (wanted) {
      const id = wanted;
      wanted = null;
      await openProblem(id);
    }
    if (!markIfHeld("dead")) drawDead(dead.items, chosen.reason, explain, act);
    if (!markIfHeld("recent")) drawRecent(recent.items, chosen.state, explain);
    asked = false;
    at("dead-more").hidden = !dead.next || shown.dead >= 500;
    at("recent-more").hidden = !recent.next || shown.recent >= 500;
    if (explained?.pending) await refreshDetail();
  }
}

async function run() {
  clearTimeout(timer);
  if (!key) return ask("");
  try {
    await refresh();
    at("main").hidden = false;
    at("main").classList.remove("stale");
    mark(true, "live");
  } catch (error) {
    remembered = false;
    if (error instanceof WrongKey) return ask(error.message);
    at("main").classList.add("stale");
    mark(false, error instanceof NoAnswer ? "no answer, trying again" : error.message);
  }
  clearTimeout(timer);
  timer = setTimeout(run, document.hidden ? 5000 : 1000);
}

function refreshNow() {
  refreshes = 0;
  asked = true;
  return run();
}

function choose(what) {
  Object.assign(chosen, what);
  refreshNow();
}

let noticeTimer;
function notify(text, bad) {
  at("notice").className = bad ? "bad" : "";
  at("notice").textContent = text;
  clearTimeout(noticeTimer);
  noticeTimer = setTimeout(() => { at("notice").textContent = ""; }, bad ? 8000 : 4000);
}

async function act(what, delivery, button) {
  button.disabled = true;
  try {
    const done = await call("/v1/dead-letters/" + what, { ids: [delivery.id] }, delivery.tenant);
    if (!(done.replayed || done.discarded)) notify(`${short(delivery.id)} is not a dead letter any more.`, true);
    else notify(what === "replay" ? `${short(delivery.id)} is queued again.` : `${short(delivery.id)} is discarded; its content is erased.`);
    if (what === "discard") at("detail").close();
    if (explained) explained.pending = true;
    await refreshNow();
  } catch (error) {
    notify(error.message, true);
    button.disabled = false;
  }
}

async function openProblem(id) {
  try {
    drawProblem(await call(`/v1/problems/${encodeURIComponent(id)}`), actOnProblem);
    explained = null;
    if (!at("detail").open) at("detail").showModal();
  } catch (error) { notify(error.message, true); }
}

async function actOnProblem(problem, what, button) {
  button.disabled = true;
  try {
    const now = await call(`/v1/problems/${problem.id}/${what}`, what === "mute" ? { for_s: 3600 } : {});
    notify({ acknowledge: "Acknowledged. It stays until its cause ends.", mute: "No alerts about it for an hour.", unmute: "Alerts about it are sent again." }[what]);
    if (at("detail").open) drawProblem(now, actOnProblem);
    await refreshNow();
  } catch (error) {
    notify(error.message, true);
    button.disabled = false;
  }
}

async function explain(id) {
  explained = { id, pending: true };
  try {
    await refreshDetail();
    if (!at("detail").open) at("detail").showModal();
  } catch (error) { notify(error.message, true); }
}
async function refreshDetail() {
  const { id } = explained;
  const why = await call(`/v1/deliveries/${id}/explain`);
  if (explained?.id !== id) return;
  explained.pending = ["queued", "sending", "retrying", "parked"].includes(why.state);
  drawDetail(why, act);
}
at("detail").addEventListener("close", () => { explained = null; });
at("detail").addEventListener("click", (event) => { if (event.target === at("detail")) at("detail").close(); });

function mark(on, text) {
  if (at("live").textContent !== text) at("live").textContent = text;
  at("live").className = "badge " + (on ? "on" : "off");
}

function ask(problem) {
  mark(false, "needs a key");
  at("ask-error").textContent = problem || (code && "A link brought you here. Go on only if you asked for it.");
  at("key").value = code;
  code = "";
  if (!at("ask").open) at("ask").showModal();
}
// Without a key there is nothing to show: Escape does not close the dialog.
at("ask").addEventListener("close", async () => {
  key = at("key").value.trim();
  if (at("ask").returnValue !== "open" || !key) return ask("");
  at("ask").returnValue = "";
  everywhere = true;
  if (key.startsWith("code_")) {
    const [given] = [key, key = ""];
    try { key = (await signIn(given)).key; } catch (error) { return ask(error.message); }
  }
  sessionStorage.setItem("postrider-key", key);
  run();
});

at("dead-more").addEventListener("click", () => { shown.dead += 25; refreshNow(); });
at("recent-more").addEventListener("click", () => { shown.recent += 25; refreshNow(); });
if (unused) notify(unused, true);
run();
