"use strict";
// What the page can do beyond being read. Everything that it shows is text: elements are made one by one
// and filled through textContent, so that no name in a report can become markup. It asks nothing of anybody.

const WORDS = JSON.parse(document.getElementById("words").textContent);
const SIGN = { error: "✗", warning: "!", info: "i" };

/** A word or sentence with its values filled in. */
function say(name, ...values) {
  return WORDS[name].replace(/\{(\d)\}/g, (_, place) => String(values[place]));
}

/** An element with attributes and children; strings become text. */
function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== false && value !== null) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children);
  return element;
}

/** Ranks as people write them, `0..3, 8` or `0-3 8`: pairs of first and last; null if it is something else. */
function parseRanges(text) {
  const parts = text.split(/[\s,]+/).filter(Boolean);
  const pairs = parts.map((part) => /^(\d{1,9})(?:(?:\.\.|-)(\d{1,9}))?$/.exec(part));
  if (!parts.length || pairs.includes(null)) return null;
  return pairs.map(([, first, last]) => [Number(first), Number(last ?? first)]);
}

/** Whether a number lies in one of the pairs. */
function within(pairs, number) {
  return pairs.some(([first, last]) => first <= number && number <= last);
}

/** Runs after the last call only, so that a filter does not run for every letter. */
function later(wait, action) {
  let timer = 0;
  return (...values) => {
    clearTimeout(timer);
    timer = setTimeout(action, wait, ...values);
  };
}

// Filter of findings and rules

const filter = document.getElementById("filter");
const controls = Object.fromEntries(
  ["state", "severity", "rank", "node"].map((name) => [name, document.getElementById(`filter-${name}`)]),
);
const findings = [...document.querySelectorAll("article.finding[data-rule]")];
const rules = [...document.querySelectorAll("tr[id^='rule-']")];
const verdicts = new Map(rules.map((row) => [row.id.slice(5), row.classList[0]]));

/** What is asked for now; empty for what is not. */
function asked() {
  const wanted = { state: "", severity: "", ranks: null, node: "" };
  wanted.state = controls.state.value;
  wanted.severity = controls.severity.value;
  if (controls.rank) {
    const text = controls.rank.value.trim();
    wanted.ranks = text ? parseRanges(text) : null;
    controls.rank.toggleAttribute("aria-invalid", Boolean(text) && !wanted.ranks);
    wanted.node = controls.node.value.trim().toLowerCase();
  }
  return wanted;
}

/** Whether something is about a rank or node that is asked for: yes, no, or maybe where its list is cut. */
function about(element, wanted) {
  if (!wanted.ranks && !wanted.node) return "yes";
  const ranks = parseRanges(element.dataset.ranks ?? "") ?? [];
  const nodes = (element.dataset.nodes ?? "").toLowerCase().split("\n");
  const ranked = !wanted.ranks || ranks.some(([first, last]) => wanted.ranks.some(([a, b]) => a <= last && first <= b));
  const noded = !wanted.node || nodes.some((name) => name.includes(wanted.node));
  return ranked && noded ? "yes" : "cut" in element.dataset ? "maybe" : "no";
}

/** Show those that match. On paper all are there: see report.css. */
function show(elements, verdict, wanted) {
  let shown = 0;
  let doubtful = false;
  for (const element of elements) {
    const state = verdict(element);
    const fits =
      (!wanted.state || (wanted.state === "open" ? !["pass", "not-applicable"].includes(state) : wanted.state === state)) &&
      (!wanted.severity || element.dataset.severity.split(" ").includes(wanted.severity));
    const answer = fits ? about(element, wanted) : "no";
    element.classList.toggle("out", answer === "no");
    element.classList.toggle("maybe", answer === "maybe");
    shown += answer !== "no";
    doubtful ||= answer === "maybe";
  }
  return [shown, doubtful];
}

function applyFilter() {
  const wanted = asked();
  const [shownFindings, doubtful] = show(findings, (one) => verdicts.get(one.dataset.rule), wanted);
  const [shownRules, unsure] = show(rules, (row) => row.classList[0], wanted);
  for (const body of document.querySelectorAll(".rules tbody")) {
    body.classList.toggle("out", !body.querySelector("tr[id]:not(.out)"));
  }
  const any = wanted.state || wanted.severity || wanted.ranks || wanted.node;
  const words = [say("shown", shownFindings, findings.length, shownRules, rules.length)];
  if (doubtful || unsure) words.push(say("maybe"));
  document.getElementById("filter-status").textContent = any ? words.join(" ") : "";
}

function resetFilter() {
  for (const control of Object.values(controls)) if (control) control.value = "";
  applyFilter();
}

/** What a link leads to is shown, whatever the filter says, with what is folded in it. */
function follow() {
  const name = decodeURIComponent(location.hash.slice(1));
  const rank = /^rank-(\d{1,9})$/.exec(name);
  if (rank) return void tables[0]?.showRank(Number(rank[1]));
  const target = name ? document.getElementById(name) : null;
  if (!target) return;
  if (target.closest(".out")) resetFilter();
  for (const details of target.querySelectorAll("details:not(.about)")) details.open = true;
  target.scrollIntoView();
}

for (const control of Object.values(controls)) control?.addEventListener("input", later(120, applyFilter));
document.getElementById("filter-reset").addEventListener("click", resetFilter);
filter.hidden = false;
// The filter of the page without script asks less: this one stands for both.
document.querySelector(".checklist > .filter")?.setAttribute("hidden", "");
addEventListener("beforeprint", () => {
  for (const details of document.querySelectorAll("main details:not(.about)")) details.open = true;
});
