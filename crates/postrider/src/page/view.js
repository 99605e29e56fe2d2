// Draws the status page from the data that it gets. Builds elements only from text. Makes no requests.

const SVG = "http://www.w3.org/2000/svg";
const HISTORY = 300;
const CHIPS = { dead: 5, recent: 7 };

// In the order in which a delivery passes through them.
const STATES = {
  queued: "on disk, waits for its turn", sending: "a call to its provider is under way",
  retrying: "failed, will be tried again", parked: "waits, uses up no attempts: for a working credential, or to be released after a restore",
  sent: "its provider accepted it; it is not known whether it arrived", delivered: "the receiving side reported its arrival",
  seen: "was displayed", clicked: "was clicked", dismissed: "was dismissed",
  gone: "the address does not exist any more", expired: "its time to live ended first",
  failed: "a dead letter until it is replayed or discarded", cancelled: "withdrawn before it was sent",
  suppressed: "held back by a rule",
};
// Shown even at 0, so that the layout does not jump.
const USUAL = ["queued", "sending", "retrying", "sent", "gone", "expired", "failed"];
const REASONS = {
  permanent: "Refused for good. Read the provider's answer, fix the receiver or the sender, then replay.",
  retries_exhausted: "Every attempt failed. Replay once the receiver works again; if there are many, slowly: postrider dead replay --reason retries_exhausted --rate 50",
  ttl: "Its next attempt would have come too late. Discard it, or replay it if it still matters.",
  ambiguous: "Sent, but never answered. Ask the receiver for this delivery id. If it has it, discard; if not, replay.",
  poison: "It was being sent during three crashes, or cannot be read. Check the log and the disk before you replay it.",
  refused: "Its provider's breaker was open, and its class does not wait. Replay when the provider accepts calls again.",
};
const THEN = {
  done: "done", retry: "tried again", again: "tried again at once", park: "parked until fixed",
  expire: "expired", dead_letter: "dead letter", mark_gone: "address marked as gone",
};

const SHORT = { refused_stream: "refused", not_written: "not written" };

export const at = (id) => document.getElementById(id);
export const short = (id) => "…" + id.slice(-8);

export function make(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name === "onclick") element.addEventListener("click", value);
    else if (value != null) element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child != null));
  return element;
}
const cell = (label, attributes, ...children) => make("td", { "data-label": label, ...attributes }, ...children);
export const number = (n) => Number(n || 0).toLocaleString("en", { maximumFractionDigits: n < 10 ? 1 : 0 });
const clock = (time) => time.slice(11, 23);

function span(seconds) {
  if (seconds == null) return "–";
  if (seconds < 10) return `${Math.max(0, Math.floor(seconds * 10) / 10)} s`;
  if (seconds < 120) return `${Math.round(seconds)} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  if (seconds < 172800) return `${Math.round(seconds / 3600)} h`;
  return `${Math.round(seconds / 86400)} d`;
}

// Ages use the clock of the server, not of this computer.
let ahead = 0;
const ago = (time) => (Date.now() + ahead - Date.parse(time)) / 1000;
function age(time) {
  const seconds = ago(time);
  if (Math.abs(seconds) < 1) return "now";
  return seconds < 0 ? "in " + span(Math.ceil(-seconds)) : span(Math.floor(seconds)) + " ago";
}
export const when = (time) => make("time", { datetime: time, title: time }, age(time));
function tick() {
  for (const element of document.querySelectorAll("time")) {
    const text = age(element.dateTime);
    if (element.textContent !== text) element.textContent = text;
  }
}

// Shows `items` as children. Keeps an element whose item did not change, so that focus and a half-done
// click survive the next refresh.
export function keyed(parent, items, keyOf, draw, empty) {
  const before = new Map([...parent.children].map((child) => [child.key, child]));
  const wanted = items.map((item) => {
    const key = keyOf(item), text = JSON.stringify(item), old = before.get(key);
    return old && old.text === text ? old : Object.assign(draw(item), { key, text });
  });
  if (!wanted.length && empty) wanted.push(before.get("empty") || Object.assign(empty(), { key: "empty" }));
  for (const child of [...parent.children]) if (!wanted.includes(child)) child.remove();
  wanted.forEach((child, i) => { if (parent.children[i] !== child) parent.insertBefore(child, parent.children[i] || null); });
}
function rows(id, items, draw, columns, empty) {
  const key = (item) => item.id || [item.name, item.tenant, item.channel, item.provider, item.class].join(" ");
  keyed(at(id), items, key, draw, () => make("tr", {}, make("td", { colspan: columns, class: "quiet empty" }, empty)));
}

export function drawStats(stats, chosen, choose) {
  ahead = Date.parse(stats.now) - Date.now();
  // Only an admin key sees rates.
  document.body.classList.toggle("tenant-view", !stats.rates);
  const rates = stats.rates || {};
  const dead = Object.values(stats.dead_letters).reduce((sum, n) => sum + n, 0);
  const show = { accepted: rates.accepted_per_s, sent: rates.sent_per_s, retried: rates.retried_per_s,
    depth: stats.depth, "in-flight": stats.in_flight, "dead-count": dead };
  for (const [id, value] of Object.entries(show)) at(id).textContent = number(value);
  at("dead-count").parentElement.classList.toggle("alarm", dead > 0);
  at("oldest").textContent = span(stats.oldest_pending_s);
  at("lag").textContent = span(stats.lag_s);
  drawRoom(stats.server_capacity || stats.capacity);
  at("where").textContent = `${location.host} · version ${stats.version} · up ${span(stats.uptime_s)}`;
  drawStates(stats.states, chosen.state, (state) => choose({ state }));
  drawReasons(stats.dead_letters, chosen.reason, (reason) => choose({ reason }));
  keyed(at("problems"), stats.problems || [], (problem) => problem.code + problem.since, (problem) => make("li", {}, problem.what));
  if (stats.rates) drawChart(stats.rates);
  tick();
}

// How much is pending, and how much may be. At 100 %, new messages get 429.
function drawRoom(capacity) {
  const percent = Math.min(100, capacity.fill * 100);
  const of = (name, text) => capacity[name + "_max"] ? `${text(capacity[name])} of ${text(capacity[name + "_max"])}` : text(capacity[name]);
  const size = (bytes) => bytes < 1e6 ? `${number(bytes / 1e3)} kB` : bytes < 1e9 ? `${number(bytes / 1e6)} MB` : `${number(bytes / 1e9)} GB`;
  at("fill").firstElementChild.style.width = percent ? `max(2px, ${percent}%)` : "0";
  at("fill").setAttribute("aria-valuenow", percent.toFixed(1));
  at("room").title = `${percent.toFixed(1)} % of the capacity: ${of("deliveries", number)} deliveries, ${of("bytes", size)}`;
  at("room").classList.toggle("alarm", capacity.fill >= 0.8);
}

function drawStates(states, chosen, choose) {
  const total = Object.values(states).reduce((sum, n) => sum + n, 0);
  const there = Object.keys(STATES).filter((state) => states[state] || state === chosen || (total && USUAL.includes(state)));
  keyed(at("bar"), there.filter((state) => states[state]), (state) => state, (state) => make("span", { class: "s-" + state }));
  for (const part of at("bar").children) part.style.flexGrow = String(states[part.key] / total);
  keyed(at("states"), there, (state) => state, (state) => make("li", {},
    make("button", { title: STATES[state] + "; press to list only these", onclick: (event) => choose(isPressed(event) ? null : state) },
      make("span", { class: "dot s-" + state }), state + " ", make("b", {}))),
    () => make("li", { class: "quiet" }, "No messages yet. The first POST /v1/messages appears here."));
  setCounts(at("states"), states, chosen);
}

// Numbers change in place, so that a button that is being pressed is not replaced.
const isPressed = (event) => event.currentTarget.getAttribute("aria-pressed") === "true";
function setCounts(list, counts, chosen) {
  for (const item of list.children) {
    const button = item.querySelector("button");
    if (!button) continue;
    item.classList.toggle("none", !counts[item.key]);
    item.querySelector("b").textContent = number(counts[item.key]);
    button.setAttribute("aria-pressed", item.key === chosen);
  }
}

function drawReasons(reasons, chosen, choose) {
  const there = Object.keys(REASONS).filter((reason) => reasons[reason] || reason === chosen);
  keyed(at("reasons"), there, (reason) => reason, (reason) => make("li", {},
    make("button", { title: "press to list only these", onclick: (event) => choose(isPressed(event) ? null : reason) }, make("b", {}), " " + reason),
    make("span", { class: "quiet" }, REASONS[reason])));
  setCounts(at("reasons"), reasons, chosen);
}

let history = [];
// The rates before the page was opened.
export function remember(rates) {
  history = rates.slice(-HISTORY + 1);
}
function roundUp(top) {
  const power = 10 ** Math.floor(Math.log10(top));
  return [1, 2, 5, 10].map((step) => step * power).find((value) => value >= top);
}
// The height is the square root of the rate, so that a burst does not flatten the usual values.
function drawChart(rates) {
  history.push(rates);
  if (history.length > HISTORY) history.shift();
  const series = { accepted: "accepted_per_s", sent: "sent_per_s", retried: "retried_per_s" };
  const top = roundUp(Math.max(1, ...history.flatMap((r) => Object.values(series).map((name) => r[name]))));
  at("chart-max").textContent = number(top);
  at("chart-mid").textContent = number(top / 4);
  const shape = (tag, attributes) => {
    const element = document.createElementNS(SVG, tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    return element;
  };
  const lines = [6, 61, 116].map((y) => shape("line", { x1: 0, x2: 600, y1: y, y2: y }));
  const paths = Object.entries(series).map(([cls, name]) => {
    const points = history.map((r, i) => `${(600 - (history.length - 1 - i) * (600 / (HISTORY - 1))).toFixed(1)},${(116 - Math.sqrt(r[name] / top) * 110).toFixed(1)}`);
    return shape("path", { class: cls, d: "M" + points.join("L") });
  });
  at("chart").replaceChildren(...lines, ...paths);
  at("chart").setAttribute("aria-label", `Per second, now: accepted ${rates.accepted_per_s}, sent ${rates.sent_per_s}, retried ${rates.retried_per_s}`);
}

// The name of a gate says what it requires. For a lane that it holds up, say what is wrong.
const HELD = {
  "tenant not paused": "tenant paused", "lane not paused": "paused", "provider takes calls": "provider asked for a pause",
  breaker: "provider fails", credential: "credential refused",
};
// The gate that holds a lane up, and until when if that is known.
function laneState(lane) {
  const dot = make("span", { class: "dot l-" + lane.state });
  if (lane.state === "ready") return [dot, "ready"];
  const until = lane.until ? [", ", when(lane.until)] : [];
  return [dot, lane.state + " ", make("span", { class: "quiet" }, HELD[lane.held_by] || lane.held_by, ...until)];
}
function breaker(lane) {
  const kind = { open: "end", half_open: "again", forced_open: "end", forced_closed: "stop" }[lane.breaker];
  const name = lane.breaker.replaceAll("_", " ");
  return kind ? make("span", { class: "try " + kind }, name) : make("span", { class: "quiet" }, name);
}

export function drawLanes(lanes) {
  rows("lanes", lanes, (lane) => make("tr", {},
    cell("Channel", {}, lane.channel), cell("Provider", { class: "wide" }, lane.provider), cell("Class", {}, lane.class), cell("Tenant", {}, lane.tenant),
    cell("State", { title: lane.waits_for }, make("span", {}, ...laneState(lane))), cell("Breaker", {}, breaker(lane)),
    cell("Pending", { class: "n" }, number(lane.pending)), cell("In flight", { class: "n" }, number(lane.in_flight)),
    cell("Next due", {}, lane.next_due ? when(lane.next_due) : "–")), 9, "Nothing is pending.");
}

// The worst of an account's credentials: when it expires, or why it cannot be used.
function credential(account) {
  const worst = (account.credentials || []).find((one) => one.state === account.credential);
  if (!worst) return "–";
  const kind = worst.kind.replaceAll("_", " ");
  if (worst.state === "ok") return make("span", { class: "quiet" }, kind + (worst.expires_at ? ", ends " : ""), ...(worst.expires_at ? [when(worst.expires_at)] : []));
  const said = worst.state === "unusable" ? "cannot be used" : worst.state === "ending" ? "ends" : "expired";
  return make("span", { title: worst.problem || "Run postrider doctor for help." },
    make("span", { class: "try " + (worst.state === "ending" ? "again" : "end") }, `${kind} ${said}`), ...(worst.expires_at ? [" ", when(worst.expires_at)] : []));
}

export function drawAccounts(accounts) {
  at("accounts-section").hidden = accounts.length === 0;
  rows("accounts", accounts, (account) => make("tr", {},
    cell("Account", {}, account.name), cell("Channel", {}, account.channel), cell("Tenant", {}, account.tenant), cell("Priority", { class: "n" }, number(account.priority)),
    cell("State", {}, ...(account.held_by ? [`held: ${account.held_by}`, ...(account.until ? [", until ", when(account.until)] : [])] : [account.state])),
    cell("Credential", {}, credential(account)),
    cell("Calls", { class: "n" }, number(account.calls)), cell("Taken over", { class: "n" }, number(account.failovers))), 8, "");
}

// The status, the code and the detail of an answer, without repetition.
function answer(attempt) {
  const words = [attempt.status, attempt.code, attempt.detail === attempt.code ? null : attempt.detail].filter(Boolean);
  if (attempt.strike) words.push(`strike against the address: ${attempt.strike}`);
  return words.join(" · ") || attempt.outcome;
}
function kind(attempt) {
  if (attempt.outcome === "accepted") return "ok";
  if (attempt.decision === "dead_letter") return "end";
  if (!attempt.next_at && attempt.decision !== "again") return "stop";
  return attempt.counted ? "again" : "free";
}
function chip(attempt) {
  const text = String(attempt.status || SHORT[attempt.code] || attempt.code || attempt.outcome).replaceAll("_", " ");
  const title = `${clock(attempt.at)} UTC: ${answer(attempt)}, ${attempt.latency_ms} ms; ${THEN[attempt.decision] || attempt.decision}` +
    (attempt.counted ? "" : " (not counted as an attempt)");
  return make("li", {}, make("span", { class: "try " + kind(attempt), title }, text));
}
function timeline(delivery, most) {
  const chips = delivery.log.slice(-most).map(chip);
  const left_out = delivery.log.length - chips.length;
  if (left_out) chips.unshift(make("li", { class: "quiet" }, `${left_out} before`));
  if (delivery.due_at && ["queued", "retrying", "parked"].includes(delivery.state)) {
    chips.push(make("li", {}, make("span", { class: "try next", title: "when it is due next" }, when(delivery.due_at))));
  }
  if (chips.length) return make("ol", { class: "tries" }, ...chips);
  const why = { gone: "not attempted: the address was gone already", cancelled: "not attempted: cancelled before" };
  return make("span", { class: "quiet" }, why[delivery.state] || "none yet");
}

const open = (id, explain) => make("button", { class: "id", title: "Explain " + id, "aria-label": "Explain delivery ending in " + id.slice(-8), onclick: () => explain(id) }, short(id));
const state = (name) => [make("span", { class: "dot s-" + name }), name];

export function drawRecent(items, filtered, explain) {
  rows("recent", items, (d) => make("tr", {},
    cell("Delivery", {}, open(d.id, explain)), cell("State", { title: STATES[d.state] }, make("span", {}, ...state(d.state))),
    cell("Channel", { title: d.provider }, d.channel), cell("Class", {}, d.class), cell("Attempts", {}, timeline(d, CHIPS.recent)), cell("Changed", {}, when(d.changed_at))),
  6, filtered ? "None is in this state now." : "No messages yet.");
}

// To discard needs a second press.
function discardButton(act) {
  const button = make("button", { onclick: () => {
    if (button.classList.contains("sure")) return act(button);
    button.classList.add("sure");
    button.textContent = "Really?";
    setTimeout(() => { button.classList.remove("sure"); button.textContent = "Discard"; }, 4000);
  } }, "Discard");
  return button;
}
function deadButtons(delivery, act) {
  const replay = make("button", { onclick: () => act("replay", delivery, replay) }, "Replay");
  return [replay, " ", discardButton((button) => act("discard", delivery, button))];
}

export function drawDead(items, filtered, explain, act) {
  rows("dead", items, (d) => make("tr", {},
    cell("Delivery", {}, open(d.id, explain)), cell("Reason", { title: REASONS[d.reason] }, d.reason || "–"), cell("Channel", { title: d.provider }, d.channel),
    cell("Attempts", {}, timeline(d, CHIPS.dead)), cell("Last answer", { class: "wide" }, d.log.length ? answer(d.log[d.log.length - 1]) : "never attempted"),
    cell("Since", {}, when(d.changed_at)), make("td", { class: "does" }, ...deadButtons(d, act))),
  7, filtered ? "None for this reason now." : "None. A delivery that cannot be sent stays here, with its reason, until you replay or discard it.");
}

export function drawDetail(why, act) {
  const d = why.delivery;
  const attempts = d.log.map((a, i) => make("tr", {},
    cell("", {}, `${i + 1}`),
    cell("At (UTC)", { class: "time" }, clock(a.at), make("span", { class: "quiet" }, i ? " +" + span((Date.parse(a.at) - Date.parse(d.log[i - 1].at)) / 1000) : "")),
    cell("Answer", {}, make("span", {}, make("span", { class: "try " + kind(a) }, String(a.status || a.outcome)), " ",
      [a.code, a.detail === a.code ? null : a.detail, a.strike ? `strike against the address: ${a.strike}` : null].filter(Boolean).join(" · "), a.retry_after ? ` · Retry-After ${a.retry_after}` : "")),
    cell("Took", {}, `${a.latency_ms} ms`),
    cell("Then", {}, (THEN[a.decision] || a.decision) + (a.next_at ? ` at ${clock(a.next_at)}` : "") + (a.counted ? "" : ", not counted"))));
  const head = make("tr", {}, ...["", "At (UTC)", "Answer", "Took", "Then"].map((text) => make("th", { scope: "col" }, text)));
  const sign = { open: "✓", waiting: "…", closed: "✗" };
  at("detail-title").replaceChildren(...state(d.state), d.reason ? ` · ${d.reason}` : "");
  at("detail-body").replaceChildren(
    make("code", {}, why.id),
    make("p", { class: "summary" }, why.summary),
    why.waits_for ? make("p", {}, `It waits for ${why.waits_for}.`) : "",
    d.reason ? make("p", { class: "quiet" }, REASONS[d.reason]) : "",
    make("p", { class: "facts quiet" }, ...[`${d.channel} to ${d.provider}`, `class ${d.class}`, `tenant ${d.tenant}`, d.recipient ? `recipient ${d.recipient}` : null, `message ${d.message}`]
      .filter(Boolean).map((text) => make("span", {}, text))),
    d.log.length ? make("div", { class: "scroll" }, make("table", {}, make("thead", {}, head), make("tbody", {}, ...attempts))) : make("p", { class: "quiet" }, "It was never attempted."),
    make("h3", {}, "Gates"),
    make("ul", { class: "gates" }, ...why.gates.map((g) => make("li", {}, `${sign[g.verdict] || g.verdict} ${g.gate}`, make("span", { class: "quiet" }, ` ${g.detail}`)))),
    why.can_do.length ? make("h3", {}, "What you can do") : "",
    make("ul", {}, ...why.can_do.map((text) => make("li", {}, make("code", {}, text)))),
    d.state === "failed" ? make("p", { class: "does-here" }, ...deadButtons(d, act)) : "");
}
