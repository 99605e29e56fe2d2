// Draws what is wrong, on top of the page, and one problem in the dialog. Builds elements only from text.

import { at, keyed, make, number, when } from "./view.js";

const WORDS = { critical: "critical", warning: "warning", notice: "notice" };

function whom(problem) {
  const names = problem.tenants.map((tenant) => tenant.tenant);
  if (!names.length) return "the whole server";
  return names.length > 3 ? `${names.slice(0, 3).join(", ")} and ${names.length - 3} more` : names.join(", ");
}

function place(problem) {
  return [problem.channel, problem.provider, problem.outcome].filter(Boolean).join(" · ");
}

function state(problem) {
  if (problem.resolved_at) return ["resolved ", when(problem.resolved_at)];
  if (problem.muted) return ["muted until ", when(problem.muted.until)];
  if (problem.acknowledged) return ["acknowledged ", when(problem.acknowledged.at)];
  return ["open"];
}

// One button: who takes care of it acknowledges; then it can be muted, and both can be undone.
function button(problem, act) {
  if (problem.resolved_at) return null;
  const [what, label] = problem.muted ? ["unmute", "Unmute"] : problem.acknowledged ? ["mute", "Mute for 1 h"] : ["acknowledge", "Acknowledge"];
  return make("button", { onclick: (event) => act(problem, what, event.currentTarget) }, label);
}

function facts(problem) {
  const count = problem.count ? [" · ", make("b", {}, number(problem.count)), problem.peak > problem.count ? ` (at most ${number(problem.peak)})` : ""] : [];
  return make("p", { class: "quiet" }, "since ", when(problem.since), ...count, " · for ", whom(problem), problem.channel ? ` · ${problem.channel}` : "", " · ", ...state(problem));
}

export function drawProblems(problems, open, act) {
  at("wrong").hidden = !problems.length;
  at("wrong-none").hidden = problems.length > 0;
  const sign = (problem) => JSON.stringify([problem.id, problem.state]);
  keyed(at("wrong-list"), problems, sign, (problem) => make("li", { class: "problem p-" + problem.severity },
    make("div", { class: "bar-top" },
      make("h3", {}, make("span", { class: "severity" }, WORDS[problem.severity]), " ",
        make("a", { href: problem.link, onclick: (event) => { event.preventDefault(); open(problem.id); } }, problem.title)),
      button(problem, act)),
    make("p", {}, problem.what),
    facts(problem),
    make("p", {}, make("span", { class: "quiet" }, "Postrider: "), problem.doing)));
}

// Whole, with what can be done.
export function drawProblem(problem, act) {
  at("detail-title").textContent = problem.title;
  const row = (label, ...value) => make("p", {}, make("span", { class: "quiet" }, label + ": "), ...value);
  at("detail-body").replaceChildren(...[
    make("p", {}, make("span", { class: "severity p-" + problem.severity }, WORDS[problem.severity]), " ", problem.what),
    facts(problem),
    place(problem) ? row("Where", place(problem)) : null,
    row("Postrider", problem.doing),
    row("You can", problem.remedy),
    problem.status_page ? row("Status page", make("a", { href: problem.status_page, rel: "noreferrer" }, problem.status_page)) : null,
    row("On the command line", make("code", {}, `postrider problems show ${problem.id}`)),
    button(problem, act),
  ].filter(Boolean));
}
