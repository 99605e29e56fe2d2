// The API explorer: shows every operation of /openapi.json, and makes calls to this server with the key of this tab.

const TIMEOUT_MS = 15000;
const STREAM_MS = 5000;
const DEPTH_MAX = 6;
const at = (id) => document.getElementById(id);
const stored = (name) => sessionStorage.getItem(name) || "";

/** An element with attributes and children; texts are never read as HTML. */
function make(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === false || value == null) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child != null));
  return element;
}

/** Words in backquotes become code. */
function marked(text) {
  return (text || "").split("`").map((part, index) => (index % 2 ? make("code", {}, part) : part));
}

let api;
const resolve = (schema) => (schema?.$ref ? schema.$ref.slice(2).split("/").reduce((value, name) => value?.[name], api) : schema) || {};

/** A value of the form that a schema describes. */
function sample(schema, depth = 0) {
  const it = resolve(schema);
  if (it.example !== undefined) return it.example;
  if (it.enum) return it.enum[0];
  if (it.const !== undefined) return it.const;
  if (depth > DEPTH_MAX) return null;
  const choice = (it.oneOf || it.anyOf || []).find((part) => part.type !== "null");
  if (choice) return sample(choice, depth + 1);
  if (it.allOf) return Object.assign({}, ...it.allOf.map((part) => sample(part, depth + 1)));
  const type = Array.isArray(it.type) ? it.type.find((name) => name !== "null") : it.type;
  if (type === "object" || it.properties) {
    return Object.fromEntries(Object.entries(it.properties || {}).map(([name, part]) => [name, sample(part, depth + 1)]));
  }
  if (type === "array") return [sample(it.items, depth + 1)];
  if (type === "integer" || type === "number") return it.minimum ?? 0;
  if (type === "boolean") return true;
  if (it.format === "date-time") return "2026-11-18T09:30:00Z";
  return type === "string" ? "…" : null;
}

const pretty = (value) => (typeof value === "string" ? value : JSON.stringify(value, null, 2));

function operations() {
  const all = [];
  for (const [path, item] of Object.entries(api.paths)) {
    for (const [method, call] of Object.entries(item)) all.push({ path, method, call, id: call.operationId, tag: call.tags?.[0] || "other" });
  }
  return all;
}

const name = (method) => make("span", { class: "method " + method }, method.toUpperCase());

function draw() {
  at("version").textContent = "version " + api.info.version;
  at("about").append(...marked(api.info.description));
  const all = operations();
  const tags = [...(api.tags || []).map((tag) => tag.name), ...all.map((one) => one.tag)];
  for (const tag of new Set(tags)) {
    const mine = all.filter((one) => one.tag === tag);
    const links = mine.map((one) => make("li", { "data-find": one.id }, make("a", { href: "#" + one.id }, name(one.method), one.path)));
    at("index").append(make("section", {}, make("h2", {}, tag), make("ul", {}, links)));
    at("operations").append(make("section", {}, make("h2", {}, tag), mine.map(drawCall)));
  }
}

function drawCall(one) {
  const inside = make("div", { class: "inside" });
  const summary = make("summary", {}, name(one.method), make("code", {}, one.path), make("span", { class: "quiet" }, marked(one.call.summary)));
  const details = make("details", { class: "call", id: one.id, "data-find": one.id }, summary, inside);
  details.addEventListener("toggle", () => {
    if (details.open && !inside.childElementCount) fill(inside, one);
  });
  one.words = [one.method, one.path, one.tag, one.call.summary, one.call.description].join(" ").toLowerCase();
  found.set(one.id, one.words);
  return details;
}
const found = new Map();

/** The inputs, the buttons and the answer of one operation. */
function fill(inside, one) {
  const { call, id } = one;
  if (call.description) inside.append(make("p", {}, marked(call.description)));
  const inputs = (call.parameters || []).map((parameter) => ({ parameter, input: input(parameter, id) }));
  if (inputs.length) {
    inside.append(make("h3", {}, "Parameters"));
    inputs.forEach(({ parameter, input }) => inside.append(field(parameter, input)));
  }
  const [type, media] = Object.entries(call.requestBody?.content || {})[0] || [];
  const body = type && drawBody(inside, one, media);
  const answer = make("div", { role: "status", "aria-live": "polite" });
  const request = () => build(one, inputs, type, body?.value);
  const send = make("button", { type: "button", class: "main", onclick: () => perform(request, answer, send) }, "Send");
  const copy = make("button", { type: "button", onclick: () => copyText(curl(request()), copy) }, "Copy as curl");
  inside.append(make("div", { class: "actions" }, send, copy), answer, make("h3", {}, "Answers"), drawAnswers(call));
}

function input(parameter, id) {
  const wanted = parameter.in === "path";
  return make("input", {
    id: `${id}-${parameter.name}`, placeholder: parameter.example == null ? "" : String(parameter.example),
    required: wanted, autocomplete: "off", spellcheck: "false",
  });
}

function field(parameter, input) {
  const label = make("label", { for: input.id }, make("code", {}, parameter.name), ` in the ${parameter.in}`, parameter.required ? ", required" : "");
  return make("div", { class: "field" }, label, input, parameter.description ? make("p", {}, marked(parameter.description)) : null);
}

function drawBody(inside, one, media) {
  const usual = resolve(media.schema).example;
  const examples = Object.entries(media.examples || {}).map(([label, { value }]) => [label, value]);
  if (usual !== undefined || !examples.length) examples.unshift(["usual", usual ?? sample(media.schema)]);
  const first = examples[0][1];
  const area = make("textarea", { id: one.id + "-body", rows: Math.min(18, pretty(first).split("\n").length + 1), spellcheck: "false" });
  area.value = pretty(first);
  const choose = make("select", { id: one.id + "-example" }, examples.map(([label]) => make("option", {}, label)));
  choose.addEventListener("change", () => { area.value = pretty(examples[choose.selectedIndex][1]); });
  inside.append(make("h3", {}, "Body"));
  if (one.call.requestBody.description) inside.append(make("p", { class: "quiet" }, marked(one.call.requestBody.description)));
  if (examples.length > 1) inside.append(make("div", { class: "field" }, make("label", { for: choose.id }, "Example"), choose));
  inside.append(make("label", { for: area.id, class: "unseen" }, "Body of the request"), area);
  return area;
}

function drawAnswers(call) {
  return make("ul", { class: "answers" }, Object.entries(call.responses).map(([status, response]) => {
    const media = Object.entries(response.content || {}).find(([type]) => type === "application/json");
    const shown = media && status.startsWith("2") ? make("pre", {}, pretty(media[1].example ?? sample(media[1].schema))) : null;
    return make("li", {}, make("b", {}, status), ...marked(response.description), shown);
  }));
}

/** The call as the inputs describe it. Throws if a part of the path is missing. */
function build(one, inputs, type, body) {
  let path = one.path;
  const query = new URLSearchParams();
  const headers = {};
  for (const { parameter, input } of inputs) {
    const value = input.value.trim();
    if (parameter.in === "path") {
      if (!value) { input.focus(); throw new Error(`Fill in ${parameter.name} first.`); }
      path = path.replace(`{${parameter.name}}`, encodeURIComponent(value));
    } else if (value && parameter.in === "query") query.set(parameter.name, value);
    else if (value) headers[parameter.name] = value;
  }
  const isOpen = (one.call.security || []).some((one) => !Object.keys(one).length);
  if (!isOpen && stored("postrider-key")) headers.Authorization = "Bearer " + stored("postrider-key");
  if (!isOpen && stored("postrider-tenant")) headers["Postrider-Tenant"] = stored("postrider-tenant");
  if (type) headers["Content-Type"] = type;
  return { method: one.method.toUpperCase(), path: path + (query.size ? "?" + query : ""), headers, body: type ? body : undefined };
}

const quote = (text) => `'${text.replaceAll("'", "'\\''")}'`;

function curl({ method, path, headers, body }) {
  const parts = [`curl -X ${method} ${quote(location.origin + path)}`];
  for (const [header, value] of Object.entries(headers)) {
    // The key itself is not copied: a shell's history keeps what is typed.
    parts.push(header === "Authorization" ? '-H "Authorization: Bearer $POSTRIDER_KEY"' : "-H " + quote(`${header}: ${value}`));
  }
  if (body) parts.push("--data-binary " + quote(body));
  return parts.join(" \\\n  ");
}

async function copyText(text, button) {
  try { await navigator.clipboard.writeText(text); button.textContent = "Copied"; }
  catch { button.textContent = "The browser refuses to copy"; }
  setTimeout(() => { button.textContent = "Copy as curl"; }, 2000);
}

async function perform(request, answer, button) {
  button.disabled = true;
  const began = performance.now();
  try {
    const { path, ...options } = request();
    const reply = await fetch(path, { ...options, signal: AbortSignal.timeout(TIMEOUT_MS) });
    const type = reply.headers.get("content-type") || "";
    const text = type.startsWith("text/event-stream") ? await firstEvents(reply) : await reply.text();
    const took = Math.round(performance.now() - began);
    const good = reply.ok ? "good" : "bad";
    let shown = text;
    if (type.includes("json") && !type.includes("ndjson")) { try { shown = pretty(JSON.parse(text)); } catch { /* shown as it is */ } }
    answer.replaceChildren(make("p", {}, make("b", { class: "status " + good }, `${reply.status} ${reply.statusText}`), ` in ${took} ms, ${type || "no content"}`), make("pre", { tabindex: "0" }, shown || "(empty)"));
  } catch (error) {
    const why = error.name === "TimeoutError" ? "The server did not answer in time." : error.name === "TypeError" ? "The server cannot be reached." : error.message;
    answer.replaceChildren(make("p", { class: "error" }, why));
  }
  button.disabled = false;
}

/** What a stream of events says in its first seconds. */
async function firstEvents(reply) {
  const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();
  const end = performance.now() + STREAM_MS;
  let text = "";
  for (;;) {
    const left = end - performance.now();
    const rest = new Promise((done) => setTimeout(() => done({ done: true }), Math.max(0, left)));
    const { value, done } = await Promise.race([reader.read(), rest]);
    if (done) break;
    text += value;
  }
  await reader.cancel();
  return text + "\n(the stream goes on)";
}

function search() {
  const words = at("search").value.toLowerCase().split(/\s+/).filter(Boolean);
  const hits = new Set([...found].filter(([, text]) => words.every((word) => text.includes(word))).map(([id]) => id));
  document.querySelectorAll("[data-find]").forEach((element) => { element.hidden = !hits.has(element.dataset.find); });
  document.querySelectorAll("#index section, #operations section").forEach((section) => {
    section.hidden = !section.querySelector("[data-find]:not([hidden])");
  });
  at("nothing").hidden = hits.size > 0;
}

/** A link to an operation opens it. It never makes the call. */
function openLinked() {
  const details = at(location.hash.slice(1));
  if (details?.matches("details.call")) { details.open = true; details.scrollIntoView(); }
}

for (const [field, item] of [["key", "postrider-key"], ["tenant", "postrider-tenant"]]) {
  at(field).value = stored(item);
  at(field).addEventListener("input", () => sessionStorage.setItem(item, at(field).value.trim()));
}
at("identity").addEventListener("submit", (event) => event.preventDefault());
at("search").addEventListener("input", search);
addEventListener("hashchange", openLinked);
addEventListener("keydown", (event) => {
  if (event.key !== "/" || event.target.matches("input, textarea, select")) return;
  event.preventDefault();
  at("search").focus();
});
try {
  api = await (await fetch("/openapi.json")).json();
  draw();
  openLinked();
} catch {
  at("about").className = "error";
  at("about").textContent = "The description of the API cannot be loaded. Reload the page when the server answers.";
}
