// Dialogs, the side panel, the command palette, completion and action keys. Every page works without this script.
"use strict";

// Dialogs: a confirmation page is shown in a dialog on the page that asked for it. --------------------------------

async function ask(address, options) {
  const answer = await fetch(address, options);
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  const part = $(".sure", page);
  if (!part) { location.href = answer.redirected ? answer.url : address; return; }
  const dialog = $("#ask");
  dialog.replaceChildren(document.adoptNode(part));
  for (const link of $$("a:not(.tabs a)", dialog)) if (/^(Go back|Cancel|Back)/.test(link.textContent.trim())) link.dataset.close = "";
  for (const link of $$(".tabs a", dialog)) link.dataset.dialog = "";
  tellTimes(dialog);
  if (!dialog.open) dialog.showModal();
  $("form input:not([type=hidden]), form button", dialog)?.focus();
}

document.addEventListener("submit", (event) => {
  const button = event.submitter;
  if (!event.target.matches("form[data-dialog]") || !button || button.matches("[data-direct]")) return;
  event.preventDefault();
  const fields = new URLSearchParams(new FormData(event.target));
  if (button.name) fields.append(button.name, button.value);
  ask(button.getAttribute("formaction") ?? event.target.getAttribute("action"), { method: "POST", body: fields });
});

// The side panel -----------------------------------------------------------------------------------------------------

async function show(id) {
  const address = new URL(location.href);
  if (id) address.searchParams.set("job", id);
  else address.searchParams.delete("job");
  history.replaceState(null, "", address);
  const answer = await fetch(address);
  if (!answer.ok) return;
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  const fresh = $("#panel", page);
  if (!fresh) return;
  tellTimes(fresh);
  $("#panel").replaceWith(document.adoptNode(fresh));
  $(".beside").classList.toggle("open", Boolean(id));
  for (const row of $$("tr[data-panel]")) row.classList.toggle("open", row.dataset.panel === id);
}

// A link to another part of this page replaces the parts that differ.
async function part(address) {
  const answer = await fetch(address);
  if (!answer.ok) { location.href = address; return; }
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  for (const each of $$("[data-copy]", page)) each.hidden = false;
  tellTimes(page);
  for (const old of $$("[data-swap]")) {
    const fresh = page.getElementById(old.getAttribute("id"));
    if (fresh) old.replaceWith(document.adoptNode(fresh));
  }
  history.replaceState(null, "", address);
}

document.addEventListener("click", (event) => {
  const at = event.target;
  const piece = at.closest("a[data-part]");
  if (piece && !event.ctrlKey && !event.metaKey) { event.preventDefault(); part(piece.href); return; }
  const link = at.closest("a[data-dialog]");
  if (link && !event.ctrlKey && !event.metaKey && event.button === 0) { event.preventDefault(); ask(link.href); return; }
  if (at.closest("[data-close]")) { event.preventDefault(); $("#ask").close(); return; }
  if (at.closest("[data-panel-close]")) { event.preventDefault(); show(null); return; }
  if (at.closest("[data-dismiss]")) { at.closest(".toast").remove(); return; }
  if (at.closest("[data-palette]")) palette.open();
  const row = at.closest("tr[data-panel]");
  if (row && !at.closest("a, button, input, label, summary") && !String(getSelection())) show(row.dataset.panel);
  for (const pop of $$("details.pop[open]")) if (!pop.contains(at)) pop.open = false;
});

// Toasts stay while the pointer or the focus is on them. -------------------------------------------------------------

for (const toast of $$(".toast")) {
  $("[data-dismiss]", toast).hidden = false;
  const leave = () => { if (toast.matches(":hover, :focus-within")) setTimeout(leave, 2000); else toast.remove(); };
  if (toast.matches(".good")) setTimeout(leave, $("form", toast) ? 15000 : 8000);
}

// Lists of choices, with the keyboard ----------------------------------------------------------------------------------

class Choices {
  constructor(field, list, choose) {
    this.field = field;
    this.list = list;
    this.choose = choose;
    this.at = -1;
    list.addEventListener("mousedown", (event) => {
      const item = event.target.closest("li");
      if (item) { event.preventDefault(); choose(item); }
    });
  }
  fill(choices) {
    this.list.replaceChildren(...choices.map(([value, hint, target], number) => {
      const item = document.createElement("li");
      item.id = `${this.list.id}-${number}`;
      item.setAttribute("role", "option");
      item.dataset.value = target ?? value;
      item.append(value);
      if (hint) { const words = document.createElement("span"); words.textContent = hint; item.append(words); }
      return item;
    }));
    this.mark(-1);
  }
  mark(number) {
    const items = [...this.list.children];
    this.at = items.length ? Math.max(-1, Math.min(number, items.length - 1)) : -1;
    items.forEach((item, index) => item.setAttribute("aria-selected", String(index === this.at)));
    if (this.at >= 0) { this.field.setAttribute("aria-activedescendant", items[this.at].id); items[this.at].scrollIntoView({ block: "nearest" }); }
    else this.field.removeAttribute("aria-activedescendant");
  }
  key(event) {
    if (event.key === "ArrowDown") this.mark(this.at + 1);
    else if (event.key === "ArrowUp") this.mark(this.at - 1);
    else return false;
    event.preventDefault();
    return true;
  }
  get chosen() { return this.list.children[this.at]; }
}

// Completion of the last word in the search box ------------------------------------------------------------------------

function complete(field) {
  const source = $(field.dataset.complete);
  const list = document.createElement("ul");
  list.className = "completions";
  list.id = "completions";
  list.hidden = true;
  list.setAttribute("role", "listbox");
  list.setAttribute("aria-label", "Completions");
  field.parentElement.append(list);
  for (const [name, value] of [["role", "combobox"], ["aria-expanded", "false"], ["aria-controls", list.id], ["aria-autocomplete", "list"]]) field.setAttribute(name, value);
  const hide = (hidden) => { list.hidden = hidden; field.setAttribute("aria-expanded", String(!hidden)); };
  const choices = new Choices(field, list, (item) => {
    const value = item.dataset.value;
    const done = !/[:.>]$/.test(value);
    field.value = field.value.replace(/\S*$/, "") + value + (done ? " " : "");
    hide(true);
    field.focus();
    if (!done) suggest();
  });
  function suggest() {
    const word = /\S*$/.exec(field.value)[0].toLowerCase();
    const fits = [...source.options].map((each) => [each.value, each.textContent])
      .filter(([value]) => value.toLowerCase().startsWith(word) && value.toLowerCase() !== word && (word || /[:.>]$/.test(value)))
      .slice(0, 12);
    choices.fill(fits);
    hide(fits.length === 0);
  }
  field.addEventListener("input", suggest);
  field.addEventListener("focus", suggest);
  field.addEventListener("blur", () => hide(true));
  field.addEventListener("keydown", (event) => {
    if (list.hidden || choices.key(event)) return;
    if (event.key === "Escape") { event.preventDefault(); hide(true); }
    else if ((event.key === "Enter" || event.key === "Tab") && choices.chosen) { event.preventDefault(); choices.choose(choices.chosen); }
  });
}

for (const field of $$("[data-complete]")) complete(field);

// The command palette --------------------------------------------------------------------------------------------------

const palette = {
  names: null,
  acts() {
    return $$("main .title :is(button, a.button, summary.button), #acts :is(button, a.button, summary)")
      .filter((act) => !act.disabled && act.textContent.trim() && !act.closest("details > form") && act.getClientRects().length);
  },
  choose(item) {
    const target = item.dataset.value;
    if (!target.startsWith("act:")) { location.href = target; return; }
    const act = this.acts()[Number(target.slice(4))];
    $("#palette").close();
    act?.focus();
    act?.click();
  },
  async open() {
    const dialog = $("#palette");
    if (!dialog || dialog.open || !$(".head")) return;
    dialog.showModal();
    this.field.value = "";
    this.suggest();
    if (this.names) return;
    this.names = [];
    try {
      const answer = await fetch(this.field.dataset.source);
      if (answer.ok) this.names = await answer.json();
    } catch { /* only pages are listed */ }
    this.suggest();
  },
  suggest() {
    const typed = this.field.value.trim();
    const words = typed.toLowerCase().split(/\s+/);
    // The actions of this page, by their position: a button may be replaced while the palette is open.
    const acts = this.acts().map((act, number) => [act.textContent.replace(/\s+/g, " ").trim(), "action", `act:${number}`]);
    const pages = $$(".rooms a").map((link) => [link.textContent, "page", link.href]);
    const all = [...pages, ...acts, ...(this.names ?? [])];
    const fits = all.filter(([name, kind]) => words.every((word) => `${name} ${kind}`.toLowerCase().includes(word))).slice(0, 30);
    if (/^[0-9a-f-]{6,36}$/i.test(typed)) fits.unshift([typed, "job id", `${this.field.dataset.source}?id=${encodeURIComponent(typed)}`]);
    else if (typed) fits.push([typed, "search jobs", `${$("a[data-go=j]").href.split("?")[0]}?q=${encodeURIComponent(typed)}`]);
    this.choices.fill(fits);
    this.choices.mark(0);
  },
};
palette.field = $("#palette input");
if (palette.field) {
  palette.choices = new Choices(palette.field, $("#palette-list"), (item) => palette.choose(item));
  palette.field.addEventListener("input", () => palette.suggest());
  palette.field.addEventListener("keydown", (event) => {
    if (palette.choices.key(event)) return;
    if (event.key === "Enter" && palette.choices.chosen) { event.preventDefault(); palette.choices.choose(palette.choices.chosen); }
  });
}
for (const button of $$("[data-palette], .reader")) button.hidden = false;

// Action keys ------------------------------------------------------------------------------------------------------------

document.addEventListener("keydown", (event) => {
  if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") { event.preventDefault(); palette.open(); return; }
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input:not([type=checkbox]), textarea, select") || $("dialog[open]")) return;
  const row = rows.all()[rows.at];
  if (event.key === "v" && row?.dataset.panel) show(row.dataset.panel);
  else if (event.key === "Escape" && $(".beside.open")) show(null);
  else if ("rnc".includes(event.key) && !going) {
    const act = `[data-key="${event.key}"]`;
    const button = (row && $(act, row)) ?? $(`#panel ${act}`) ?? $(`.acts ${act}`);
    if (button) { event.preventDefault(); button.click(); }
    else if (row || document.body.dataset.page === "job") refuse(document.body.dataset.refusal);
  }
});

// Tells readers why a key that changes jobs does nothing for them.
function refuse(words) {
  $(".toast.refused")?.remove();
  if (!words) return;
  const box = document.createElement("div");
  box.className = "said toast bad refused";
  box.setAttribute("role", "alert");
  box.textContent = words;
  $("#main").prepend(box);
  setTimeout(() => box.remove(), 8000);
}

// The chart: a read-out under the pointer; a click or a drag opens the jobs of that time --------------------------------

const brush = { from: null };

function readOut(bar, chart) {
  let box = $(".readout", chart);
  if (!box) { box = document.createElement("div"); box.className = "readout"; chart.append(box); }
  const [, ...values] = $("title", bar).textContent.split(": ");
  box.textContent = `${day.format(new Date(bar.dataset.since))}: ${values.join(": ")}`;
  const area = chart.getBoundingClientRect(), place = bar.getBoundingClientRect();
  const left = place.left - area.left;
  box.style.left = left > area.width / 2 ? "" : `${left + place.width + 8}px`;
  box.style.right = left > area.width / 2 ? `${area.width - left + 8}px` : "";
}

document.addEventListener("pointermove", (event) => {
  const bar = event.target.closest?.(":is([data-brush], [data-readout]) g[data-since]");
  const chart = bar?.closest("[data-brush], [data-readout]");
  for (const box of $$(".readout")) if (box.parentElement !== chart) box.remove();
  if (!bar) return;
  readOut(bar, chart);
  if (!brush.from || !chart.contains(brush.from)) return;
  const bars = $$("g[data-since]", chart);
  const [first, last] = [bars.indexOf(brush.from), bars.indexOf(bar)].sort((a, b) => a - b);
  bars.forEach((each, at) => each.classList.toggle("within", at >= first && at <= last));
});
document.addEventListener("pointerdown", (event) => {
  brush.from = event.button === 0 ? event.target.closest?.("[data-brush] g[data-since]") : null;
  if (brush.from) event.preventDefault();
});
document.addEventListener("pointerup", (event) => {
  const to = event.target.closest?.("[data-brush] g[data-since]");
  if (brush.from && to) {
    const [first, last] = [brush.from, to].sort((a, b) => a.dataset.since < b.dataset.since ? -1 : 1);
    const address = new URL(to.closest("[data-brush]").dataset.brush, location.href);
    address.searchParams.set("since", first.dataset.since);
    address.searchParams.set("until", last.dataset.until);
    location.href = address;
  }
  brush.from = null;
});

// The reader's clock and time zone ---------------------------------------------------------------------------------------

for (const button of $$("[data-clock], [data-zone]")) {
  const name = "clock" in button.dataset ? "clock" : "zone";
  const value = button.dataset[name];
  const press = () => { const on = (reader(name) ?? "") === value; button.classList.toggle("on", on); button.setAttribute("aria-pressed", String(on)); };
  button.addEventListener("click", () => { localStorage.setItem(`tidemill-${name}`, value); location.reload(); });
  press();
}
