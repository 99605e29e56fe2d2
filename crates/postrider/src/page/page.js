"use strict";
// The status page: asks for a key once, then looks every second. Builds elements only from text.

const at = (id) => document.getElementById(id);
const history_ = [];
const HISTORY = 300;
let key = sessionStorage.getItem("postrider-key") || "";
let everywhere = true;
let slow = 0;

// A demo hands its key over in the fragment, which no server and no log ever sees.
if (location.hash.startsWith("#key=")) {
  key = decodeURIComponent(location.hash.slice(5));
  sessionStorage.setItem("postrider-key", key);
  history.replaceState(null, "", location.pathname);
}

async function call(path, body, tenant) {
  const headers = { Authorization: "Bearer " + key };
  // An admin looks at all tenants, but acts for one.
  if (everywhere) headers["Postrider-Tenant"] = tenant || "*";
  if (body) headers["Content-Type"] = "application/json";
  const answer = await fetch(path, { method: body ? "POST" : "GET", headers, body: body && JSON.stringify(body) });
  if (answer.status === 403 && everywhere && !body) { everywhere = false; return call(path); }
  if (answer.status === 401) throw new Error("401");
  const value = await answer.json();
  if (!answer.ok) throw new Error(value.detail || value.title);
  return value;
}

function make(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name === "onclick") element.addEventListener("click", value);
    else element.setAttribute(name, value);
  }
  for (const child of children) element.append(child);
  return element;
}

const number = (n) => Number(n || 0).toLocaleString("en", { maximumFractionDigits: 1 });
const clock = (text) => (text ? text.slice(11, 19) : "–");
function span(seconds) {
  if (seconds == null) return "–";
  if (seconds < 120) return Math.round(seconds) + " s";
  if (seconds < 7200) return Math.round(seconds / 60) + " min";
  return Math.round(seconds / 3600) + " h";
}
function fill(id, rows, columns) {
  if (!rows.length) rows = [make("tr", {}, make("td", { colspan: columns, class: "quiet" }, "nothing here"))];
  at(id).replaceChildren(...rows);
}

function drawStats(stats) {
  // Rates are the operator's: a tenant's key does not see them.
  const rates = stats.rates || { accepted_per_s: null, sent_per_s: null, retried_per_s: null };
  const show = { accepted: rates.accepted_per_s, sent: rates.sent_per_s, retried: rates.retried_per_s,
    depth: stats.depth, "in-flight": stats.in_flight };
  for (const [id, value] of Object.entries(show)) at(id).textContent = value == null ? "–" : number(value);
  at("oldest").textContent = span(stats.oldest_pending_s);
  const dead = Object.values(stats.dead_letters).reduce((a, b) => a + b, 0);
  at("dead-count").textContent = number(dead);
  at("reasons").textContent = Object.entries(stats.dead_letters).filter(([, n]) => n).map(([r, n]) => `${r} ${number(n)}`).join(" · ");
  at("where").textContent = `${location.host} · version ${stats.version} · up ${span(stats.uptime_s)}`;
  const states = Object.entries(stats.states).filter(([, n]) => n);
  const total = states.reduce((sum, [, n]) => sum + n, 0) || 1;
  at("states").replaceChildren(...states.map(([state, n]) =>
    make("li", {}, make("span", { class: "dot s-" + state }), `${state} ${number(n)}`)));
  at("bar").replaceChildren(...states.map(([state, n]) => {
    const part = make("span", { class: "s-" + state });
    part.style.flexGrow = String(Math.max(n / total, 0.004));
    return part;
  }));
  history_.push(rates);
  if (history_.length > HISTORY) history_.shift();
  drawChart();
}

function drawChart() {
  const series = { accepted: "accepted_per_s", sent: "sent_per_s", retried: "retried_per_s" };
  const top = Math.max(1, ...history_.flatMap((r) => Object.values(series).map((name) => r[name])));
  at("chart-max").textContent = `top ${number(top)} / s`;
  const paths = Object.entries(series).map(([cls, name]) => {
    const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
    const points = history_.map((r, i) => {
      const x = 600 - (history_.length - 1 - i) * (600 / (HISTORY - 1));
      return `${x.toFixed(1)},${(116 - (r[name] / top) * 110).toFixed(1)}`;
    });
    path.setAttribute("class", cls);
    path.setAttribute("d", points.length ? "M" + points.join("L") : "");
    return path;
  });
  at("chart").replaceChildren(...paths);
}

function drawLanes(lanes) {
  fill("lanes", lanes.map((lane) => make("tr", {},
    make("td", {}, lane.channel), make("td", { class: "wide" }, lane.provider), make("td", {}, lane.class), make("td", {}, lane.tenant),
    make("td", { class: "n" }, number(lane.pending)), make("td", { class: "n" }, number(lane.in_flight)), make("td", {}, clock(lane.next_due)))), 7);
}

const idButton = (id) => make("button", { class: "id", title: id, onclick: () => explain(id) }, "…" + id.slice(-8));
function lastAnswer(delivery) {
  const last = delivery.log[delivery.log.length - 1];
  if (!last) return "never attempted";
  return [last.status, last.code, last.detail].filter(Boolean).join(" ") || last.outcome;
}
function act(what, delivery) {
  return async (event) => {
    event.target.disabled = true;
    try { await call("/v1/dead-letters/" + what, { ids: [delivery.id] }, delivery.tenant); slow = 0; } catch (error) { event.target.textContent = error.message; }
  };
}
function drawDead(items) {
  fill("dead", items.map((d) => make("tr", {},
    make("td", {}, idButton(d.id)), make("td", {}, d.reason || "–"), make("td", {}, d.channel), make("td", { class: "wide" }, lastAnswer(d)),
    make("td", { class: "n" }, number(d.attempts)), make("td", {}, clock(d.changed_at)),
    make("td", {}, make("button", { onclick: act("replay", d) }, "Replay"), " ", make("button", { onclick: act("discard", d) }, "Discard")))), 7);
}

function timeline(delivery) {
  const marks = delivery.log.slice(-12).map((a) => {
    const kind = a.outcome === "accepted" ? " ok" : a.next_at ? "" : " end";
    return make("span", { class: "try" + kind, title: `${clock(a.at)} ${a.status || a.code || a.outcome}, ${a.latency_ms} ms → ${a.decision}` });
  });
  return make("span", { class: "tries" }, ...marks);
}
function drawRecent(items) {
  fill("recent", items.map((d) => make("tr", {},
    make("td", {}, idButton(d.id)), make("td", {}, make("span", { class: "dot s-" + d.state }), d.state), make("td", {}, d.channel),
    make("td", {}, d.class), make("td", { class: "wide" }, d.provider), make("td", {}, timeline(d)), make("td", {}, clock(d.changed_at)))), 7);
}

async function explain(id) {
  const box = at("detail");
  try {
    const why = await call(`/v1/deliveries/${id}/explain`);
    const steps = why.delivery.log.map((a) => make("li", {},
      `${clock(a.at)} · ${[a.status, a.code].filter(Boolean).join(" ") || a.outcome} · ${a.latency_ms} ms → ${a.decision}` +
      (a.retry_after ? ` · Retry-After ${a.retry_after}` : "") + (a.next_at ? ` · next ${clock(a.next_at)}` : "")));
    box.replaceChildren(make("code", {}, why.id), make("p", {}, why.summary),
      make("p", { class: "quiet" }, why.waits_for ? "It waits for " + why.waits_for + "." : ""),
      make("ol", {}, ...steps), make("p", { class: "quiet" }, why.can_do.join(" · ")));
  } catch (error) { box.replaceChildren(make("p", { class: "error" }, error.message)); }
  box.hidden = false;
  box.scrollIntoView({ block: "nearest" });
}

async function look() {
  const [stats, lanes] = await Promise.all([call("/v1/stats"), call("/v1/lanes?limit=12")]);
  drawStats(stats);
  drawLanes(lanes.lanes);
  if (slow-- <= 0) {
    slow = 1;
    const [dead, recent] = await Promise.all([call("/v1/dead-letters?limit=20"), call("/v1/deliveries?limit=25")]);
    drawDead(dead.items);
    drawRecent(recent.items);
  }
}

function mark(on, text) {
  at("live").textContent = text;
  at("live").className = "badge " + (on ? "on" : "off");
}

async function run() {
  try {
    await look();
    at("main").hidden = false;
    mark(true, "live");
  } catch (error) {
    if (error.message === "401") return ask(key ? "This key is not known here." : "");
    mark(false, "no answer");
  }
  setTimeout(run, document.hidden ? 5000 : 1000);
}

function ask(problem) {
  mark(false, "needs a key");
  at("ask-error").textContent = problem;
  at("ask").showModal();
}

at("ask").addEventListener("cancel", (event) => event.preventDefault());
at("ask-form").addEventListener("submit", () => {
  key = at("key").value.trim();
  everywhere = true;
  sessionStorage.setItem("postrider-key", key);
  run();
});
run();
