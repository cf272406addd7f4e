// The schedule form: arguments of the chosen task, time zones, and a preview while typing. Every page works without this script.
"use strict";

// The chosen task decides which arguments are asked for. ---------------------------------------------------------------

async function loadPart(select) {
  const address = new URL(select.dataset.loads, location.href);
  address.searchParams.set(select.name, select.value);
  const answer = await fetch(address);
  if (!answer.ok) return;
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  const old = document.getElementById(select.dataset.into);
  const fresh = page.getElementById(select.dataset.into);
  if (!fresh) return;
  // What was typed is kept where the new task has an argument of the same name.
  for (const field of $$("[name]", fresh)) {
    const before = $(`[name="${CSS.escape(field.name)}"]`, old);
    if (before?.value && field.matches("input, textarea")) field.value = before.value;
  }
  old.replaceWith(document.adoptNode(fresh));
}

document.addEventListener("change", (event) => {
  if (event.target.matches("[data-loads]")) loadPart(event.target);
});

// Time zones: the reader's own comes first, each with its time of day. --------------------------------------------------

function timeIn(zone) {
  try {
    return new Intl.DateTimeFormat(undefined, { ...taste, timeZone: zone, timeStyle: "short" }).format(new Date());
  } catch { return ""; } // a zone that this browser does not know
}

function pickZone(field) {
  const zones = [...$(`#${field.getAttribute("list")}`).options].map((each) => each.value);
  const own = reader("zone") || Intl.DateTimeFormat().resolvedOptions().timeZone;
  const first = [...new Set([own, "UTC"].filter((zone) => zone && (zones.includes(zone) || zone === "UTC")))];
  field.removeAttribute("list"); // the browser's own list would cover this one
  const list = document.createElement("ul");
  list.className = "completions";
  list.id = "zone-list";
  list.hidden = true;
  list.setAttribute("role", "listbox");
  list.setAttribute("aria-label", "Time zones");
  field.parentElement.append(list);
  for (const [name, value] of [["role", "combobox"], ["aria-expanded", "false"], ["aria-controls", list.id], ["aria-autocomplete", "list"]]) field.setAttribute(name, value);
  const hide = (hidden) => { list.hidden = hidden; field.setAttribute("aria-expanded", String(!hidden)); };
  const choices = new Choices(field, list, (item) => {
    field.value = item.dataset.value;
    hide(true);
    field.dispatchEvent(new Event("input", { bubbles: true }));
    hide(true);
  });
  const suggest = (all) => {
    const words = (all ? "" : field.value).toLowerCase().split(/[\s_/]+/).filter(Boolean);
    const fits = (zone) => words.every((word) => zone.toLowerCase().includes(word));
    const found = [...first, ...zones.filter((zone) => !first.includes(zone))].filter(fits).slice(0, 40);
    choices.fill(found.map((zone) => [zone, `${zone === own ? "your time, " : ""}${timeIn(zone)}`, zone]));
    hide(found.length === 0 || (found.length === 1 && found[0] === field.value));
  };
  field.addEventListener("focus", () => { field.select(); suggest(true); });
  field.addEventListener("input", (event) => { if (event.isTrusted) suggest(false); });
  field.addEventListener("blur", () => hide(true));
  field.addEventListener("keydown", (event) => {
    if (list.hidden && event.key === "ArrowDown") { event.preventDefault(); suggest(true); return; }
    if (list.hidden || choices.key(event)) return;
    if (event.key === "Escape") { event.preventDefault(); hide(true); }
    else if (event.key === "Enter") { event.preventDefault(); if (choices.chosen) choices.choose(choices.chosen); else hide(true); }
    else if (event.key === "Tab" && choices.chosen) choices.choose(choices.chosen);
  });
}

for (const field of $$("[data-pick-zone]")) pickZone(field);

// The preview beside the form ----------------------------------------------------------------------------------------------

const UNSENT = /^(arg\.|args$|csrf$|key$|task$|definition$|queue$|priority$|tags$|jitter)/;

function previewOf(form) {
  const box = $("#preview");
  const from = $("#preview-from");
  let timer = 0;
  let asked = 0;
  async function look() {
    const number = ++asked;
    const address = new URL(form.dataset.preview, location.href);
    for (const [name, value] of new FormData(form)) if (!UNSENT.test(name) && value !== "") address.searchParams.append(name, value);
    if (from.value) address.searchParams.set("preview_from", from.value);
    let text;
    try {
      const answer = await fetch(address);
      if (!answer.ok) return;
      text = await answer.text();
    } catch { return; } // the form still works; the next key asks again
    if (number !== asked) return; // a later key has asked since
    const page = new DOMParser().parseFromString(text, "text/html");
    const fresh = page.getElementById("previewed");
    if (!fresh) return;
    tellTimes(fresh);
    box.replaceChildren(...document.adoptNode(fresh).childNodes);
  }
  const soon = () => { clearTimeout(timer); timer = setTimeout(look, 200); };
  form.addEventListener("input", soon);
  form.addEventListener("change", soon);
  from.addEventListener("input", soon);
  $(".from", box.parentElement).hidden = false;
  look();
}

for (const form of $$("form[data-preview]")) previewOf(form);
