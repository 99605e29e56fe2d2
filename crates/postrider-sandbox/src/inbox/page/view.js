// Draws the inbox from the data that it gets. Builds elements only from text. Makes no requests.

export const at = (id) => document.getElementById(id);

export function make(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name === "onclick") element.addEventListener("click", value);
    else if (value != null) element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child != null));
  return element;
}

const ZONE = Intl.DateTimeFormat().resolvedOptions().timeZone;
at("zone").textContent = `times in ${ZONE}`;
const clock = (time) => new Date(time).toLocaleTimeString("en-GB");
const full = (time) => new Date(time).toLocaleString("en-GB", { dateStyle: "medium", timeStyle: "medium" }) + " " + ZONE;
const when = (time) => make("time", { datetime: time, title: time, class: "when" }, clock(time));

// What can be ordered for the next message.
const ANSWERS = [
  ["429:2", "429", "too many requests, Retry-After: 2"],
  ["410", "410", "the address is gone"],
  ["503", "503", "unavailable"],
  ["hang", "nothing", "no answer for a minute"],
];

const CLASSES = { accepted: "accepted", "accepted, no answer": "accepted", refused: "refused", "no answer": "none", "under way": "way" };
function tried(attempt) {
  const text = attempt.status ? `${attempt.status} ${attempt.result}` : attempt.result;
  const why = attempt.ordered ? " (ordered)" : "";
  return make("li", null, make("span", { class: "try " + (CLASSES[attempt.result] || ""), title: full(attempt.at) }, text + why));
}
const tries = (message) => make("ol", { class: "tries", "aria-label": "Attempts" }, ...message.attempts.map(tried));

export function drawChannels(kinds, chosen, choose) {
  const all = kinds.reduce((sum, kind) => sum + kind.messages, 0);
  const button = (kind, label, count, ordered) => make("li", null, make("button", {
    type: "button", "data-kind": kind, "aria-pressed": String(kind === chosen), class: ordered ? "ordered" : null,
    title: ordered ? "an answer is ordered for its next message" : null, onclick: () => choose(kind),
  }, label, make("b", null, String(count))));
  at("channels").replaceChildren(
    button("", "all", all, false),
    ...kinds.map((kind) => button(kind.kind, kind.channel, kind.messages, kind.next.length > 0)),
  );
}

// The buttons act on the chosen channel; without one, there are none.
export function drawAnswers(kind, order) {
  if (!kind) {
    at("next-title").textContent = "Choose a channel to order the answer to its next message.";
    at("answers").replaceChildren();
    return;
  }
  at("next-title").textContent = `Answer the next ${kind.channel} with`;
  const isOrdered = (word) => kind.next.length > 0 && kind.next[0] === word;
  at("answers").replaceChildren(...ANSWERS.map(([word, label, title]) => make("button", {
    type: "button", "data-answer": word, title, "aria-pressed": String(isOrdered(word)),
    onclick: () => order(kind.kind, isOrdered(word) ? [] : [word]),
  }, label)));
}

export function drawList(messages, chosen, open) {
  at("messages").replaceChildren(...messages.map((message) => make("li", null, make("button", {
    type: "button", class: "message", "data-number": message.number, "data-channel": message.channel,
    "data-state": message.state, "aria-current": message.number === chosen ? "true" : null, onclick: () => open(message.number),
  },
    make("span", { class: "title" }, message.title),
    make("span", { class: "kind" }, message.channel),
    make("span", { class: "to" }, message.to || "refused by a check"),
    when(message.at),
    message.preview ? make("span", { class: "preview" }, message.preview) : null,
    tries(message),
  ))));
}

export function drawEmpty(samples, isSearch, copy) {
  const list = Array.isArray(samples) ? samples : [];
  if (isSearch) return at("empty").replaceChildren(make("p", { class: "quiet" }, "Nothing matches. Change the search or the channel."));
  at("empty").replaceChildren(
    make("p", { class: "quiet" }, list.length ? "Nothing yet. Send one, with the key that the terminal shows in POSTRIDER_KEY:" : "Nothing yet."),
    ...list.flatMap((sample) => [make("h3", null, sample.channel), copyable(sample.curl, `Copy the curl line for ${sample.channel}`, copy)]),
  );
}

function copyable(text, label, copy) {
  return make("div", { class: "with-copy" }, make("pre", { tabindex: "0" }, text),
    make("button", { type: "button", "aria-label": label, onclick: () => copy(text) }, "Copy"));
}

const facts = (pairs) => make("dl", { class: "facts" }, ...pairs.filter(([, value]) => value)
  .flatMap(([name, value]) => [make("dt", null, name), make("dd", null, value)]));
const MARKS = { pass: "✓ valid", fail: "✗ invalid", unknown: "? not checked" };
const check = (name, result) => make("p", { class: "check " + result.verdict, "data-verdict": result.verdict },
  make("b", null, MARKS[result.verdict]), make("span", null, `${name}: ${result.detail}`));

// Only web addresses become links.
function link(url) {
  return /^https?:\/\//i.test(url) ? make("a", { href: url, rel: "noreferrer noopener", target: "_blank" }, url) : document.createTextNode(url);
}

// Parts of which one is shown at a time.
function tabs(parts) {
  const buttons = parts.map(([label], index) => make("button", { type: "button", "aria-pressed": String(index === 0), onclick: () => show(index) }, label));
  const bodies = parts.map(([, body], index) => { body.hidden = index > 0; return body; });
  function show(chosen) {
    buttons.forEach((button, index) => button.setAttribute("aria-pressed", String(index === chosen)));
    bodies.forEach((body, index) => { body.hidden = index !== chosen; });
  }
  return [make("div", { class: "tabs" }, ...buttons), ...bodies];
}

const FORMS = {
  mail(message, view) {
    const parts = [];
    if (view.has_html) {
      parts.push(["HTML", make("div", null,
        make("iframe", { src: `/sandbox/inbox/${message.number}/html`, sandbox: "", referrerpolicy: "no-referrer", title: "The mail as HTML" }),
        view.links.length ? make("h3", null, "Links") : null,
        view.links.length ? make("ul", { class: "links" }, ...view.links.map((url) => make("li", null, link(url)))) : null)]);
    }
    if (view.text != null) parts.push(["Text", make("pre", { tabindex: "0" }, view.text)]);
    parts.push(["Headers", facts(view.headers)]);
    const attached = view.attachments.map((file) => `${file.name} (${file.kind}, ${file.bytes} bytes)`).join(", ");
    return [facts([["From", view.from], ["Attachments", attached]]),
      ...view.dkim.map((result) => check("DKIM", result)), ...tabs(parts)];
  },
  text(message, view) {
    const count = view.segments.length;
    return [facts([["From", view.from], ["Size", `${count} ${count === 1 ? "segment" : "segments"}, ${view.units} units of ${view.encoding}`]]),
      make("div", { class: "bubbles" }, ...view.segments.map((text, index) => make("p", { class: "bubble" }, text,
        count > 1 ? make("small", null, `segment ${index + 1} of ${count}`) : null)))];
  },
  notification(message, view) {
    const picture = (name, url) => url && [name, link(url)];
    const shown = view.is_silent
      ? make("p", { class: "quiet" }, "A silent push: only the app learns of it.")
      : make("div", { class: "notification" },
        make("p", { class: "app" }, make("span", null, view.app), make("span", null, clock(message.at))),
        view.heading ? make("p", null, make("b", null, view.heading)) : null,
        make("p", null, view.body),
        view.actions.length ? make("p", { class: "actions" }, ...view.actions.map((label) => make("span", { class: "action" }, label))) : null);
    const more = [picture("Opens", view.link), picture("Icon", view.icon), picture("Picture", view.image), ...view.facts].filter(Boolean);
    return [make("div", { class: "phone" }, shown), facts(more),
      ...(view.data == null ? [] : [make("h3", null, "Data"), make("pre", { tabindex: "0" }, JSON.stringify(view.data, null, 2))])];
  },
  card(message, view) {
    const part = ({ part, value }) => ({
      heading: () => make("h3", null, value), text: () => make("p", null, value), line: () => make("hr"),
      fact: () => make("p", null, make("b", null, value[0] + ": "), value[1]),
      button: () => make("span", { class: "action" }, value[0], " ", value[1] ? link(value[1]) : null),
      image: () => make("p", null, "Picture: ", link(value)),
    })[part]();
    return [facts([["Service", view.service]]), make("div", { class: "card" }, ...view.parts.map(part))];
  },
  call(message, view, copy) {
    return [view.signature ? check("Signature", view.signature) : null, make("h3", null, "The same call again"), copyable(view.curl, "Copy the curl line", copy)];
  },
};

export function drawDetail(message, close, copy) {
  const view = message.view;
  const request = message.request;
  const drawn = view ? FORMS[view.form](message, view, copy) : [make("p", { class: "quiet" }, "The provider refused it before its content was sent.")];
  const source = request && make("details", null, make("summary", null, `Request: ${request.method} ${request.uri}, ${request.bytes} bytes`),
    facts(request.headers), make("pre", { tabindex: "0" }, request.body ?? request.body_base64 ?? ""),
    make("p", null, make("a", { href: `/sandbox/inbox/${message.number}/raw` }, "Save the body")));
  const parts = [
    make("div", { class: "bar-top" }, make("h2", { id: "detail-title" }, message.title), make("button", { type: "button", "aria-label": "Close the message", onclick: close }, "Close")),
    facts([["Channel", message.channel], ["To", message.to], ["Arrived", make("time", { datetime: message.at, title: message.at }, full(message.at))], ["Id", message.id]]),
    message.rejected ? check("Checks", { verdict: "fail", detail: message.rejected }) : null,
    tries(message), ...drawn, source,
  ];
  at("detail").replaceChildren(...parts.filter(Boolean));
}
