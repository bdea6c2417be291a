// SPDX-License-Identifier: Apache-2.0

// The status page: it polls an agent's state and shows it. What somebody looks at
// (filter, order, open services) is in the address, behind #.

import { element, keyed, setText } from "./dom.js";
import { graph, push } from "./graph.js";
import { showAnnouncements, showPeers } from "./routes.js";
import { isOrder, Services } from "./services.js";
import { follow } from "./poll.js";
import { age, bits, count, human } from "./text.js";

const $ = (id) => document.getElementById(id);

const look = { filter: "", order: "name", open: new Set() };
let latest = null;

/** The totals by the names of their elements: which rate, and how it is written. */
const TOTALS = {
  packets: ["packetsPerSecond", human],
  bits: ["bytesPerSecond", bits],
  flows: ["newFlowsPerSecond", human],
  drops: ["dropsPerSecond", human],
};
const draw = Object.fromEntries(Object.keys(TOTALS).map((name) => [name, graph($(`${name}-graph`), { width: 300, height: 64 })]));
let history = null; // of the totals, by rate
let complete = false; // if the graphs have all seconds

const services = new Services($("services"), (name) => {
  if (!look.open.delete(name)) look.open.add(name);
  moved();
});

const agent = follow({
  query: () => {
    const query = new URLSearchParams({ filter: look.filter });
    for (const name of [...look.open].slice(-16)) query.append("open", name); // 16 at most are served
    if (!complete) query.set("history", "");
    return query;
  },
  update: show,
  lost: (since) => {
    const lost = since !== null;
    $("gone").hidden = !lost;
    document.body.classList.toggle("stale", lost);
    if (lost) setText($("gone"), `No answer from the agent since ${since.toLocaleTimeString()}; the page shows the state of that time. Reconnecting …`);
    setSignal($("link"), lost ? "no connection" : "live", lost ? "bad" : "good");
  },
});

/** Shows an update. The graphs get its second, unless it is the one before again. They are read
 * whole again if seconds are missing, as in a hidden tab, or a service has come into view. */
function show(update) {
  const passed = latest ? Date.parse(update.time) - Date.parse(latest.time) : 0;
  latest = update;
  const added = passed !== 0 || Boolean(update.history);
  const known = services.remember(update, added);
  complete = known && (Boolean(update.history) || Math.abs(passed) < 1500);
  showNode(update);
  showTotals(update, added);
  showServices();
  showRoutes(update);
  showDrops(update.status.exits);
  showEvents(update.events);
}

function showNode({ status, notReady, error, time }) {
  const now = Date.parse(time);
  document.title = `${status.node} · Fairlead`;
  setText($("node"), status.node);
  setText($("agent"), `Fairlead ${status.version} · up ${age(status.started, now)}`);
  $("readiness").hidden = false;
  setSignal($("readiness"), notReady ? `not ready: ${notReady}` : "ready", notReady ? "warn" : "good");
  $("unreadable").hidden = !error;
  setText($("unreadable"), `The counters can't be read: ${error ?? ""}`);
  const { config } = status;
  $("refused").hidden = !config.error;
  if (config.error) {
    setText($("refused"), `The configuration was refused ${age(config.refused, now, 1)} ago, and what was loaded before runs on:\n${config.error}`);
  }
  const server = status.kubernetes ?? status.apiServer;
  const facts = [
    ...status.dataplane.attachments.map((a) => [a.interface, `${status.dataplane.kind} ${a.mode}`, a.reason]),
    ["configuration", `revision ${status.revision}, loaded ${age(config.loaded, now, 1)} ago`, `${config.path}, digest ${config.digest}`],
    ...(server ? [["API server", reached(server, now), [server.server, server.error].join(" ")]] : []),
    ["services", `${count(status.services.programmed)} of ${count(status.services.total)} programmed` + notes(status.services, "failed", "panic", "drained")],
    ["backends", `${count(status.backends.inUse)} of ${count(status.backends.total)} in use` + notes(status.backends, "unhealthy", "drained")],
  ];
  keyed($("facts"), facts, ([name]) => name,
    () => element("div", {}, element("dt"), element("dd")),
    (row, [name, value, title]) => {
      setText(row.children[0], name);
      setText(row.children[1], value);
      row.title = title ?? "";
    });
}

/** How an API server is followed. */
const reached = (server, now) => `${server.reachable ? "reached" : "not reached"} for ${age(server.since, now, 1)}` +
  (server.restored ? `, serves what was known ${age(server.restored, now, 1)} ago` : "") +
  (server.problems ? `, ${count(server.problems.length)} problems` : "");

/** Those of some counts that are not zero. */
const notes = (counts, ...names) => names.filter((name) => counts[name] > 0).map((name) => `, ${count(counts[name])} ${name}`).join("");

function setSignal(target, text, tone) {
  setText(target, text);
  target.className = `pill ${tone}`;
}

function showTotals({ history: whole, totals, error }, added) {
  if (whole) history = whole;
  for (const [name, [rate, written]] of Object.entries(TOTALS)) {
    if (!whole && added) push(history[rate], error ? null : totals[rate]);
    setText($(name), written(totals[rate]));
    draw[name](history[rate]);
  }
}

function showServices() {
  if (!latest) return;
  services.show(latest, look);
  const { services: list, matching, status } = latest;
  $("none").hidden = list.length > 0;
  setText($("none"), status.services.total === 0 ? "There are no services." : "No service matches.");
  const all = look.filter ? `${count(matching)} of ${count(status.services.total)}` : count(matching);
  setText($("shown"), list.length < matching ? `${all}; shown are ${list.length}: those in trouble, then the busiest` : all);
}

function showRoutes({ routes, status, time }) {
  const { bgp } = status;
  $("routes").hidden = !bgp.enabled;
  if (!bgp.enabled) return;
  const { announcements, peers } = routes;
  const prefixes = bgp.announced + bgp.withheld;
  const cut = announcements.length < prefixes || peers.length < bgp.peers ? "; shown are those in trouble, then the first" : "";
  const by = bgp.hook
    ? `hook ${bgp.hook.program}, ${count(bgp.hook.pending)} pending${bgp.hook.reason ? `, fails: ${bgp.hook.reason}` : ""}`
    : `${count(bgp.sessions)} of ${count(bgp.peers)} peers established`;
  setText($("announced"), `${count(bgp.announced)} of ${count(prefixes)} announced, ${by}${cut}`);
  $("peers").closest("table").hidden = Boolean(bgp.hook);
  showAnnouncements($("announcements"), announcements, Date.parse(time));
  showPeers($("peers"), peers, Date.parse(time));
}

function showDrops(exits) {
  const drops = exits.filter((exit) => exit.name.startsWith("drop_") && exit.packets > 0)
    .sort((a, b) => b.packetsPerSecond - a.packetsPerSecond || b.packets - a.packets);
  $("no-drops").hidden = drops.length > 0;
  $("reasons").closest("table").hidden = drops.length === 0;
  keyed($("reasons"), drops, (exit) => exit.name,
    () => element("tr", {}, element("th", { scope: "row" }), element("td", { class: "number" }), element("td", { class: "number" })),
    (row, exit) => {
      setText(row.children[0], exit.name.slice("drop_".length).replaceAll("_", " "));
      setText(row.children[1], human(exit.packetsPerSecond));
      setText(row.children[2], count(exit.packets));
      row.classList.toggle("active", exit.packetsPerSecond > 0);
    });
}

function showEvents(events) {
  const shown = events.map((event) => event.time).join(" ");
  if (shown === $("events").dataset.shown) return;
  $("events").dataset.shown = shown;
  $("no-events").hidden = events.length > 0;
  $("events").replaceChildren(...events.map((event) => element("li", {},
    element("time", { datetime: event.time }, new Date(event.time).toLocaleTimeString()),
    element("span", { class: "kind" }, event.kind),
    element("span", {}, element("b", {}, event.object), ` ${event.reason}`))));
}

/** Takes what is looked at from the address. */
function readAddress() {
  const query = new URLSearchParams(location.hash.slice(1));
  look.filter = query.get("filter") ?? "";
  look.order = isOrder(query.get("sort") ?? "") ? query.get("sort") : "name";
  look.open = new Set(query.getAll("open"));
  if ($("filter").value !== look.filter) $("filter").value = look.filter;
  showOrder();
}

/** What is looked at has changed: the address says so, and the agent is asked
 * for it. */
function moved() {
  const query = new URLSearchParams();
  if (look.filter) query.set("filter", look.filter);
  if (look.order !== "name") query.set("sort", look.order);
  for (const name of look.open) query.append("open", name);
  window.history.replaceState(null, "", `#${query}`);
  showOrder();
  showServices();
  agent.ask();
}

function showOrder() {
  for (const head of document.querySelectorAll("th[data-sort]")) {
    const { sort } = head.dataset;
    head.setAttribute("aria-sort", sort !== look.order ? "none" : sort === "name" || sort === "state" || sort === "backends" ? "ascending" : "descending");
  }
}

for (const head of document.querySelectorAll("th[data-sort]")) {
  head.firstChild.addEventListener("click", () => {
    look.order = head.dataset.sort;
    moved();
  });
}
$("filter").addEventListener("input", (event) => {
  look.filter = event.target.value;
  moved();
});
window.addEventListener("hashchange", () => {
  readAddress();
  showServices();
  agent.ask();
});
readAddress();
agent.ask();
