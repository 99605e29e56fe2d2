// What pages do beyond forms and links: news from the server, keys, time zone, colours, copying.
(() => {
  const one = (selector, from = document) => from.querySelector(selector);
  const all = (selector, from = document) => [...from.querySelectorAll(selector)];
  const SILENT_MS = 5000;

  function announce(text) {
    const place = one("#announce");
    if (place) place.textContent = text;
  }

  // Times: UTC, the zone of the browser, or that of the recipient whom the page is about.
  const local = Intl.DateTimeFormat().resolvedOptions().timeZone;
  let zone = localStorage.getItem("postrider-zone") === "local" ? "local" : "UTC";
  // For dates of the browser: none for its own.
  window.postriderTimeZone = () => (zone === "local" ? undefined : zone);
  function isZone(name) {
    try { return Boolean(name && Intl.DateTimeFormat("en", { timeZone: name })); } catch { return false; }
  }
  function nextZone(button) {
    const recipient = button.dataset.recipient;
    const all = ["UTC", "local", ...(isZone(recipient) ? [recipient] : [])];
    zone = all[(all.indexOf(zone) + 1) % all.length];
    // Another page is about another recipient.
    if (zone !== recipient) localStorage.setItem("postrider-zone", zone);
  }
  function zoneName(button) {
    if (zone === "local") return local;
    return zone === "UTC" ? zone : `${button.dataset.recipient} (recipient)`;
  }
  function clock(iso) {
    const options = { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23", timeZone: window.postriderTimeZone() };
    return new Intl.DateTimeFormat("en-GB", options).format(new Date(iso));
  }
  function day(iso) {
    return new Intl.DateTimeFormat("sv-SE", { month: "2-digit", day: "2-digit", timeZone: window.postriderTimeZone() }).format(new Date(iso));
  }
  function showTimes(from = document) {
    const today = day(new Date());
    for (const time of all("time:not(.ago)", from)) {
      const iso = time.dateTime;
      if (!iso) continue;
      const text = (day(iso) === today ? "" : `${day(iso)} `) + clock(iso);
      if (time.textContent !== text) time.textContent = text;
    }
    const button = one("#zone");
    if (button) button.textContent = zoneName(button);
  }
  function showAges() {
    for (const time of all("time.ago")) {
      const seconds = Math.round((Date.now() - new Date(time.dateTime)) / 1000);
      const past = Math.abs(seconds);
      const [count, unit] = past < 60 ? [past, "s"] : past < 3600 ? [Math.floor(past / 60), "min"] : past < 172800 ? [Math.floor(past / 3600), "h"] : [Math.floor(past / 86400), "d"];
      const text = past < 2 ? "now" : seconds > 0 ? `${count} ${unit} ago` : `in ${count} ${unit}`;
      if (past < 36000 && past >= 3600) continue;
      if (time.textContent !== text) time.textContent = text;
    }
  }

  // News: one event per second has the names of the parts that changed. Those are fetched that nobody is in.
  let heard = Date.now();
  let stream;
  const waiting = new Map();
  const isUsed = (part) => part.matches(":focus-within") || Boolean(one(".scroll:hover, .problem:hover, details[open].confirm, .picked", part));
  function changed(part) {
    if (!isUsed(part)) {
      waiting.delete(part.id);
      return htmx.trigger(part, "changed");
    }
    const count = (waiting.get(part.id) || 0) + 1;
    waiting.set(part.id, count);
    const held = one(".held", part);
    if (!held) return;
    held.hidden = false;
    one("button", held).textContent = `${count} new: show`;
  }
  function follow() {
    const live = one("#live");
    if (!live || stream || document.hidden) return;
    stream = new EventSource(live.dataset.stream);
    stream.addEventListener("tick", (event) => {
      const news = JSON.parse(event.data);
      heard = Date.now();
      document.body.classList.remove("stale");
      one(".stale-banner").hidden = true;
      live.classList.add("on");
      live.replaceChildren("live");
      live.dataset.at = news.at;
      all("[data-region]").filter((part) => news.changed.includes(part.dataset.region)).forEach(changed);
    });
  }
  function look() {
    showAges();
    const live = one("#live");
    if (!live || document.hidden || Date.now() - heard < SILENT_MS) return;
    document.body.classList.add("stale");
    live.classList.remove("on");
    const at = live.dataset.at || new Date(heard).toISOString();
    live.textContent = `as of ${clock(at)}`;
    one(".stale-banner").hidden = false;
    one(".stale-banner b").textContent = `as of ${clock(at)}`;
    if (stream?.readyState === EventSource.CLOSED) { stream = null; follow(); }
  }
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) { stream?.close(); stream = null; return; }
    heard = Date.now();
    follow();
    all("[data-region]").forEach((part) => htmx.trigger(part, "changed"));
  });

  // Rows: j and k go, Enter opens, x selects.
  const rows = () => all("[data-row]").filter((row) => row.offsetParent);
  function step(by) {
    const list = rows();
    const next = list[Math.min(Math.max(list.findIndex((row) => row.classList.contains("chosen")) + by, 0), list.length - 1)];
    if (!next) return;
    all(".chosen").forEach((row) => row.classList.remove("chosen"));
    next.classList.add("chosen");
    next.scrollIntoView({ block: "nearest" });
    announce(next.innerText.replace(/\s+/g, " ").slice(0, 200));
  }
  // A part that is fetched anew keeps the marks of its rows.
  let marks = [];
  const link = (row) => one("a", row)?.href;
  document.addEventListener("htmx:beforeSwap", () => {
    const names = (row) => ["chosen", "picked"].filter((name) => row.classList.contains(name));
    marks = all(".chosen, .picked").map((row) => [link(row), names(row)]);
  });
  document.addEventListener("htmx:afterSwap", () => {
    for (const [to, names] of marks) rows().find((row) => to && link(row) === to)?.classList.add(...names);
  });
  let isGoing = false;
  function key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const isField = event.target.closest("input, textarea, select");
    if (event.key === "Escape" && isField) return event.target.blur();
    if (isField) return;
    if (isGoing) {
      isGoing = false;
      const to = one(`nav [data-key="${CSS.escape(event.key)}"]`);
      if (to) { event.preventDefault(); to.click(); }
      return;
    }
    const chosen = one(".chosen");
    switch (event.key) {
      case "/": event.preventDefault(); (one("#q") || one("#find"))?.focus(); break;
      case "g": isGoing = true; setTimeout(() => { isGoing = false; }, 1500); break;
      case "j": step(1); break;
      case "k": step(-1); break;
      case "x": if (chosen) { chosen.classList.toggle("picked"); announce(chosen.classList.contains("picked") ? "selected" : "not selected"); } break;
      case "Enter": if (chosen && event.target === document.body) one("a", chosen)?.click(); break;
      case "?": one("#help")?.showModal(); break;
    }
  }

  async function copy(button, text) {
    const before = button.textContent;
    try { await navigator.clipboard.writeText(text); button.textContent = "Copied"; } catch { button.textContent = text.length < 60 ? text : "Cannot copy here"; }
    announce(button.textContent);
    setTimeout(() => { button.textContent = before; }, 1800);
  }
  function click(event) {
    const target = event.target.closest("button, a");
    if (!target) return;
    if (target.dataset.copy) return copy(target, target.dataset.copy);
    if ("copyLink" in target.dataset) return copy(target, new URL(target.dataset.copyLink || location.href, location.href).href);
    if (target.dataset.help) { event.preventDefault(); return one("#help").showModal(); }
    if (target.closest(".held")) { const part = target.closest("[data-region]"); waiting.delete(part.id); target.blur(); return htmx.trigger(part, "changed"); }
    if (target.id === "zone") {
      nextZone(target);
      showTimes();
      dispatchEvent(new Event("postrider:colours"));
    }
    if (target.id === "theme") {
      const root = document.documentElement;
      const isDark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
      root.dataset.theme = isDark ? "light" : "dark";
      document.cookie = `postrider_theme=${root.dataset.theme}; path=/; max-age=31536000; samesite=strict`;
      dispatchEvent(new Event("postrider:colours"));
    }
  }

  // A link has a one-time code behind #, which no server sees before a person uses it.
  function useLink() {
    const hash = location.hash;
    const problem = hash.match(/^#problem=(prb_[0-9a-f]+)$/);
    if (problem) return location.replace(`/problems/${problem[1]}`);
    const again = one("main[data-again]");
    if (again && hash.startsWith("#code=")) return location.replace(`/sign-in${hash}`);
    if (again) return location.replace(again.dataset.again);
    const found = hash.match(/^#(?:code|portal)=(.+)$/);
    if (!found) return;
    history.replaceState(null, "", location.pathname + location.search);
    const field = one(".sign-in #key");
    if (!field) return;
    field.value = decodeURIComponent(found[1]);
    one(".from-link").hidden = false;
  }

  addEventListener("DOMContentLoaded", () => {
    useLink();
    showTimes();
    follow();
    setInterval(look, 1000);
    document.addEventListener("keydown", key);
    document.addEventListener("click", click);
    document.addEventListener("change", (event) => { if (event.target.dataset.submit) event.target.form.requestSubmit(); });
    document.body.addEventListener("htmx:afterSettle", (event) => {
      const part = document.getElementById(event.detail.elt?.id) || document.body;
      showTimes(part);
      dispatchEvent(new CustomEvent("postrider:fresh", { detail: part }));
    });
  });
})();
