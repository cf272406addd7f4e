// Live updates, local times, row selection and keyboard shortcuts. Every page works without this script.
"use strict";

const $ = (selector, root = document) => root.querySelector(selector);
const $$ = (selector, root = document) => [...root.querySelectorAll(selector)];
const meta = (name) => $(`meta[name="${name}"]`)?.content ?? "";

// Times ---------------------------------------------------------------------------------------------------------

// The reader may choose 12 or 24 hours, and UTC, in the menu; otherwise the browser's language and zone decide.
const reader = (name) => { try { return localStorage.getItem(`tidemill-${name}`); } catch { return null; } };
const taste = {
  ...(reader("clock") ? { hourCycle: reader("clock") === "12" ? "h12" : "h23" } : {}),
  ...(reader("zone") ? { timeZone: reader("zone") } : {}),
};
const day = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium", ...taste });
const clock = new Intl.DateTimeFormat(undefined, { timeStyle: "medium", ...taste });
const hour = new Intl.DateTimeFormat(undefined, { timeStyle: "short", ...taste });
const exact = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit", fractionalSecondDigits: 3, hourCycle: "h23", ...taste });
const weekday = new Intl.DateTimeFormat(undefined, { weekday: "short", day: "numeric", hour: "2-digit", ...taste });

function span(seconds) {
  if (seconds < 60) return `${Math.floor(seconds)} s`;
  const parts = [];
  for (const [size, name] of [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]]) {
    const count = Math.floor(seconds / size);
    seconds -= count * size;
    if (count) parts.push(`${count} ${name}`);
    else if (parts.length) break;
  }
  return parts.slice(0, 2).join(" ");
}

function tellTime(element) {
  const at = new Date(element.dateTime);
  if (element.dataset.time === "age") {
    const apart = (Date.now() - at) / 1000;
    const [size, unit] = [[86400, "d"], [3600, "h"], [60, "min"]].find(([size]) => Math.abs(apart) >= size) ?? [1, "s"];
    const words = `${Math.round(Math.abs(apart) / size)} ${unit}`;
    element.dataset.name ??= element.title.split(" ")[0];
    element.textContent = apart <= -1 ? `in ${words}` : apart < 1 ? "now" : words;
    element.title = `${element.dataset.name} ${day.format(at)} (${element.dateTime.slice(0, 19).replace("T", " ")} UTC)`;
  } else if (element.dataset.time === "ago") {
    const apart = (Date.now() - at) / 1000;
    element.textContent = apart < -1 ? `in ${span(-apart)}` : apart < 1 ? "now" : `${span(apart)} ago`;
    element.title = `${day.format(at)} (${element.dateTime.slice(0, 19).replace("T", " ")} UTC)`;
  } else if (element.dataset.time === "clock") {
    element.textContent = exact.format(at);
  } else if (element.dataset.time === "short") {
    element.textContent = (Date.now() - at < 36 * 3600e3 ? hour : weekday).format(at);
  } else {
    const today = at.toDateString() === new Date().toDateString();
    element.textContent = (today ? clock : day).format(at);
  }
}

const tellTimes = (root) => $$("time[data-time]", root).forEach(tellTime);
setInterval(() => $$('time[data-time="ago"], time[data-time="age"]').forEach(tellTime), 1000);

// Live updates ----------------------------------------------------------------------------------------------------

// Minimum milliseconds between refreshes. Including the server and the fetch, a change shows within a second.
const PACE = 600;

const live = {
  kinds: new Set(document.body.dataset.kinds.split(/\s+/).filter(Boolean)),
  held: false, // paused by the user
  due: false, // something changed since the last refresh
  asking: false,
  last: 0,
  least: PACE, // longer after a failure
  timer: 0,
  failures: 0,
};

const typed = () => $$("[data-swap] input:not([type=checkbox], [type=radio], [type=hidden]), [data-swap] textarea")
  .some((field) => field.value !== field.defaultValue);
const selected = () => $$("input[data-row]:checked").length > 0;
const busy = () => {
  const at = document.activeElement;
  return selected() || typed() || $("dialog[open]:not(#help)") !== null
    || (at !== null && at.closest("[data-swap]") !== null && at.matches("input:not([type=checkbox]), textarea, select"));
};
const still = () => live.held || document.hidden || busy();

function moved(kinds) {
  if (kinds && !kinds.some((kind) => live.kinds.has(kind))) return;
  live.due = true;
  plan();
}

function plan() {
  if (!live.due || live.asking || live.timer || still()) return;
  const wait = Math.max(0, live.last + live.least - Date.now());
  live.timer = setTimeout(() => { live.timer = 0; look(); }, wait);
}

async function look() {
  if (still()) return;
  live.asking = true;
  live.due = false;
  live.last = Date.now();
  try {
    const answer = await fetch(location.href, { headers: { "x-tidemill-live": "1" }, redirect: "manual" });
    if (answer.status === 200) swap(await answer.text());
    else if (answer.status === 204 || answer.status === 503) live.due = true;
    else if (answer.status === 401 || answer.type === "opaqueredirect") return trouble("Your session has ended. Load the page again to sign in.");
    trouble(null);
    live.least = answer.status === 200 ? PACE : Math.min(live.least * 2, 8000);
  } catch {
    live.due = true;
    live.least = Math.min(live.least * 2, 15000);
    trouble("The server cannot be reached. This page shows what it knew; it tries again by itself.");
  } finally {
    live.asking = false;
    plan();
  }
}

function swap(text) {
  if (still()) { live.due = true; return; }
  const page = new DOMParser().parseFromString(text, "text/html");
  for (const fresh of $$("[data-swap]", page)) {
    const id = fresh.getAttribute("id"); // not fresh.id: a form field named "id" would hide it
    const old = document.getElementById(id);
    if (!old) continue;
    for (const field of $$('input[name="csrf"]', fresh)) field.setAttribute("value", meta("csrf"));
    for (const each of $$("[data-copy]", fresh)) each.hidden = false;
    tellTimes(fresh);
    const open = new Set($$("details[open][id]", old).map((each) => each.id));
    for (const each of $$("details[id]", fresh)) if (open.has(each.id)) each.open = true;
    if (old.outerHTML === fresh.outerHTML) continue;
    const focus = old.contains(document.activeElement) ? keep(document.activeElement) : null;
    const tails = [old, ...$$("[data-tail]", old)].filter((each) => each.hasAttribute("id")).map((each) => [
      each.getAttribute("id"), each.scrollTop, follow.button?.getAttribute("aria-controls") === each.getAttribute("id") ? follow.on : atEnd(each),
    ]);
    old.replaceWith(document.adoptNode(fresh));
    for (const [id, top, bottom] of tails) {
      const each = document.getElementById(id);
      if (each) each.scrollTop = bottom ? each.scrollHeight : top;
    }
    focus?.()?.focus({ preventScroll: true });
  }
  rows.refresh();
}

// Returns a function that finds the same element after its part of the page was replaced, or null if it is gone.
function keep(element) {
  const anchor = element.closest("[id], [data-href]");
  const id = anchor.getAttribute("id");
  const where = id ? `#${CSS.escape(id)}` : `[data-href="${CSS.escape(anchor.dataset.href)}"]`;
  const alike = $$(element.tagName, anchor);
  return () => {
    const again = $(where);
    if (anchor === element || !again) return again;
    const found = $$(element.tagName, again);
    return found.length === alike.length ? found[alike.indexOf(element)] : null;
  };
}

function trouble(words) {
  const box = $("#trouble");
  box.hidden = words === null;
  box.textContent = words ?? "";
}

function listen() {
  if (live.kinds.size === 0 || !meta("live")) return;
  let source = null;
  let poll = 0;
  const open = () => {
    source = new EventSource(meta("live"));
    source.addEventListener("change", (event) => { live.failures = 0; moved(JSON.parse(event.data).kinds); });
    source.onopen = () => {
      live.failures = 0;
      clearInterval(poll);
      poll = 0;
      moved(null); // changes before the stream opened were not reported
    };
    source.onerror = () => {
      live.failures += 1;
      if (live.failures < 3 && source.readyState !== EventSource.CLOSED) return;
      source.close(); // streams are unavailable: poll, and retry later
      source = null;
      poll ||= setInterval(() => moved(null), 5000);
      setTimeout(() => { if (!document.hidden && !source) open(); }, 30000);
    };
  };
  const close = () => { source?.close(); source = null; };
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) { close(); return; }
    if (!source) open();
    moved(null);
  });
  if (!document.hidden) open();
  addEventListener("pagehide", close);
  // Some content depends on time alone, such as a worker's last heartbeat. Such pages declare an interval in seconds.
  const every = Number(document.body.dataset.every);
  if (every) setInterval(() => moved(null), every * 1000);
  const button = $("#live");
  if (button) {
    button.hidden = false;
    button.addEventListener("click", hold);
  }
}

function hold() {
  const button = $("#live");
  live.held = !live.held;
  button.setAttribute("aria-pressed", String(!live.held));
  $(".word", button).textContent = live.held ? "Held" : "Live";
  plan();
}

// The log ---------------------------------------------------------------------------------------------------------------

const atEnd = (each) => each.matches("[data-tail]") && each.scrollTop + each.clientHeight >= each.scrollHeight - 8;

// The switch beside a log. While it is on, the log scrolls to new lines. Its state lasts while the tab is open.
const follow = {
  button: $("#follow"),
  on: true,
  place: `tidemill-follow ${location.pathname}`,
  tops: new WeakMap(), // where each log was scrolled to
  begin() {
    if (!this.button) return;
    try { this.on = sessionStorage.getItem(this.place) !== "off"; } catch { /* without storage it is on */ }
    this.button.setAttribute("aria-pressed", String(this.on));
    this.button.hidden = false;
    this.button.addEventListener("click", () => this.set(!this.on));
    document.addEventListener("scroll", (event) => { if (event.target === this.log()) this.scrolled(event.target); }, true);
  },
  log() { return document.getElementById(this.button.getAttribute("aria-controls")); },
  set(on) {
    this.on = on;
    try { sessionStorage.setItem(this.place, on ? "on" : "off"); } catch { /* it is forgotten with the page */ }
    this.button.setAttribute("aria-pressed", String(on));
    $("#follow-said").textContent = on ? "The log follows new lines." : "The log no longer follows new lines.";
    const log = this.log();
    if (on && log) log.scrollTop = log.scrollHeight;
  },
  // The script itself only scrolls to the end, so that a step up is one of the reader.
  scrolled(log) {
    const before = this.tops.get(log) ?? log.scrollHeight;
    this.tops.set(log, log.scrollTop);
    if (this.on && log.scrollTop < before && !atEnd(log)) this.set(false);
  },
};

// Rows --------------------------------------------------------------------------------------------------------------

const rows = {
  at: -1,
  all: () => $$("[data-href]"),
  go(step) {
    const all = this.all();
    if (!all.length) return;
    all[this.at]?.classList.remove("at");
    this.at = Math.min(Math.max(this.at + step, 0), all.length - 1);
    all[this.at].classList.add("at");
    all[this.at].scrollIntoView({ block: "nearest" });
  },
  refresh() {
    const all = this.all();
    if (this.at >= 0 && all[this.at]) all[this.at].classList.add("at");
    const count = $$("input[data-row]:checked").length;
    for (const box of $$("input[data-row]")) box.closest("tr")?.setAttribute("aria-selected", String(box.checked));
    for (const each of $$("[data-selected]")) each.textContent = String(count);
    for (const each of $$("[data-needs-selection]")) each.disabled = count === 0;
    plan();
  },
};

// Form sections that apply only to one choice: data-show-when="name=value".
function showWhen() {
  for (const part of $$("[data-show-when]")) {
    const [name, value] = part.dataset.showWhen.split("=");
    const chosen = $$(`[name="${CSS.escape(name)}"]`, part.closest("form")).find((each) => each.type !== "radio" || each.checked);
    part.hidden = chosen?.value !== value;
  }
}

document.addEventListener("change", (event) => {
  showWhen();
  if (event.target.matches("input[data-all-rows]")) {
    for (const box of $$("input[data-row]")) box.checked = event.target.checked;
  }
  if (event.target.matches("input[data-row], input[data-all-rows]")) rows.refresh();
  if (event.target.matches("[data-submit]")) event.target.form.requestSubmit();
});

// Copies to the clipboard. The clipboard API needs https or localhost; elsewhere execCommand still works.
async function put(text) {
  if (navigator.clipboard) { await navigator.clipboard.writeText(text); return; }
  const field = document.createElement("textarea");
  field.value = text;
  field.className = "sr";
  document.body.append(field);
  field.select();
  document.execCommand("copy");
  field.remove();
}

document.addEventListener("click", async (event) => {
  const copy = event.target.closest("[data-copy]");
  if (copy) {
    await put($(copy.dataset.copy).textContent);
    copy.dataset.words ??= copy.textContent; // keep the original label, also after a second click
    copy.textContent = "Copied";
    setTimeout(() => { copy.textContent = copy.dataset.words; }, 1500);
  }
  if (event.target.closest("[data-help]")) $("#help").showModal();
  for (const menu of $$("details[data-menu][open]")) {
    if (!menu.contains(event.target) && (menu.matches(".me") || narrow.matches)) menu.open = false;
  }
});

// Keyboard shortcuts ------------------------------------------------------------------------------------------------

let going = 0;

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input:not([type=checkbox]), textarea, select")) return;
  const key = event.key;
  if (Date.now() - going < 1200) {
    going = 0;
    const link = $(`a[data-go="${CSS.escape(key)}"]`);
    if (link) { event.preventDefault(); link.click(); }
    return;
  }
  const row = rows.all()[rows.at];
  if (key === "g") going = Date.now();
  else if (key === "/") { const field = $("[data-search]"); if (field) { event.preventDefault(); field.focus(); field.select(); } }
  else if (key === "j") rows.go(1);
  else if (key === "k") rows.go(-1);
  else if (key === "x" && row) { const box = $("input[data-row]", row); if (box) { box.checked = !box.checked; rows.refresh(); } }
  else if (key === "Enter" && row && !event.target.closest("a, button, summary, input")) location.href = row.dataset.href;
  else if (key === "p" && !$("#live")?.hidden) hold();
  else if (key === "f" && follow.button) follow.set(!follow.on);
  else if (key === "?") $("#help").showModal();
});

// Initialisation ------------------------------------------------------------------------------------------------------

document.documentElement.classList.add("scripted");
for (const each of $$("[data-help], [data-copy]")) each.hidden = false;
const narrow = matchMedia("(max-width: 40rem)");
const fitMenu = () => { const rooms = $("details.rooms"); if (rooms) rooms.open = !narrow.matches; };
narrow.addEventListener("change", fitMenu); // when a phone is rotated or a window is resized
fitMenu();
for (const each of $$("[data-tail]")) each.scrollTop = each.scrollHeight;
follow.begin();
tellTimes(document);
showWhen();
rows.refresh();
listen();

// A link from another site arrives without the session cookie (SameSite). A request from this page sends it.
if (document.body.dataset.page === "sign-in") {
  fetch(location.href, { redirect: "manual" }).then((answer) => {
    const next = $('input[name="next"]').value;
    if (answer.type === "opaqueredirect") location.replace(new URL(next.slice(1), new URL("./", location.href)));
  });
}
