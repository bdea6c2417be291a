// SPDX-License-Identifier: Apache-2.0

// The table of services, and within it those of their backends.

import { element, keyed, setAttribute, setText } from "./dom.js";
import { graph, push } from "./graph.js";
import { age, bits, endpoint, human, percent } from "./text.js";

/** How bad a state is, by its first word. */
const LEVELS = { ok: "good", error: "bad", panic: "bad", degraded: "warn", drained: "quiet", draining: "quiet", pending: "quiet", deleting: "quiet" };
const SEVERITY = { bad: 0, warn: 1, quiet: 2, good: 3 };

const level = (state) => LEVELS[state.match(/^[a-z]+/)?.[0]] ?? "warn";

/** What the columns are sorted by; numbers the largest first. */
const ORDERS = {
  name: (a, b) => a.name.localeCompare(b.name, "en", { numeric: true }),
  backends: (a, b) => a.backendsInUse - b.backendsInUse,
  packets: (a, b) => b.packetsPerSecond - a.packetsPerSecond,
  bits: (a, b) => b.bytesPerSecond - a.bytesPerSecond,
  flows: (a, b) => b.tracking.flows - a.tracking.flows,
  unstable: (a, b) => b.tracking.unstable - a.tracking.unstable,
  state: (a, b) => SEVERITY[level(a.condition)] - SEVERITY[level(b.condition)],
};

export const isOrder = (name) => Object.hasOwn(ORDERS, name);

const COLUMNS = 9;

/** A table of services in a body. toggle is called with the name of a service
 * whose backends somebody wants to see, or no longer. */
export class Services {
  constructor(body, toggle) {
    this.body = body;
    this.toggle = toggle;
    this.histories = new Map(); // packets a second, by VIP
  }

  /** Shows what an update says; open are the names of the open services. */
  show(update, { order, open }) {
    const sorted = update.services.toSorted((a, b) => ORDERS[order](a, b) || ORDERS.name(a, b));
    const rows = sorted.flatMap((service) => {
      const rows = [{ key: endpoint(service), service }];
      if (open.has(service.name)) rows.push({ key: `${endpoint(service)} backends`, service, detail: true });
      return rows;
    });
    keyed(this.body, rows, (row) => row.key, (row) => (row.detail ? makeDetail(row) : this.makeRow(row.service)),
      (child, row) => (row.detail ? changeDetail(child, row.service, update) : this.changeRow(child, row.service, open)));
  }

  /** Adds the latest second, if it is a new one, to the histories of the services in view. Returns
   * false if a service is new there, and its history isn't in the update. */
  remember({ services, history }, added) {
    const kept = new Map();
    let known = true;
    for (const service of services) {
      const key = endpoint(service);
      known &&= Boolean(history) || this.histories.has(key);
      const points = service.history ?? this.histories.get(key) ?? [];
      if (!service.history && added) push(points, service.packetsPerSecond);
      kept.set(key, points);
    }
    this.histories = kept;
    return known;
  }

  makeRow(service) {
    const button = element("button", { type: "button", class: "open" }, element("span", { class: "name" }), element("span", { class: "vip" }));
    button.addEventListener("click", () => this.toggle(row.dataset.name));
    const spark = element("div", { class: "spark" });
    const cells = {
      mode: element("td", { class: "wide mono" }),
      backends: element("td", { class: "backends" }, element("span", { class: "meter" }, element("i")), element("span")),
      packets: element("td", { class: "number" }),
      bits: element("td", { class: "number medium" }),
      flows: element("td", { class: "number wide" }),
      unstable: element("td", { class: "number wide" }),
      state: element("td", {}, element("span", { class: "state" })),
    };
    const row = element("tr", { "data-name": service.name }, element("th", { scope: "row" }, button), cells.mode, cells.backends,
      cells.packets, element("td", { class: "wide" }, spark), cells.bits, cells.flows, cells.unstable, cells.state);
    row.parts = cells;
    row.draw = graph(spark, { width: 120, height: 24 });
    return row;
  }

  changeRow(row, service, open) {
    const { mode, backends, packets, bits: rate, flows, unstable, state } = row.parts;
    row.dataset.name = service.name;
    const button = row.querySelector("button");
    setAttribute(button, "aria-expanded", String(open.has(service.name)));
    setText(button.children[0], service.name);
    setText(button.children[1], endpoint(service));
    setText(mode, service.forward ?? "–");
    changeBackends(backends, service);
    setText(packets, human(service.packetsPerSecond));
    setText(rate, bits(service.bytesPerSecond));
    setText(flows, human(service.tracking.flows));
    setText(unstable, human(service.tracking.unstable));
    setText(state.firstChild, service.condition);
    setAttribute(state.firstChild, "class", `state ${level(service.condition)}`);
    setAttribute(state.firstChild, "title", service.condition);
    row.draw(this.histories.get(endpoint(service)));
  }
}

/** Backends in use of all, as a bar and in words. */
function changeBackends(cell, service) {
  const { backends: all, backendsInUse: used, backendsHealthy: healthy, backendsDrained: drained } = service;
  const [meter, text] = cell.children;
  meter.firstChild.style.width = all > 0 ? `${(100 * Math.min(used, all)) / all}%` : "0";
  setAttribute(meter, "class", `meter ${used === 0 ? "bad" : used < all - drained ? "warn" : "good"}`);
  setText(text, `${used}/${all}`);
  setAttribute(cell, "title", `${used} of ${all} in use, ${healthy} healthy, ${drained} drained`);
}

function makeDetail({ service }) {
  const heads = ["Backend", "Weight", "Health", "Share", "Packets/s", "Bits/s", "Next hop", "State"];
  const classes = ["", "number wide", "", "medium", "number", "number medium", "wide", ""];
  const head = element("tr", {}, ...heads.map((text, i) => element("th", { scope: "col", class: classes[i] }, text)));
  const table = element("table", { "aria-label": `Backends of ${service.name}` }, element("thead", {}, head), element("tbody"));
  return element("tr", { class: "detail" }, element("td", { colspan: COLUMNS }, table, element("p", { class: "quiet empty" })));
}

function changeDetail(row, service, update) {
  const here = endpoint(service);
  const list = update.backends.filter((b) => b.service === service.name && endpoint(b.vip) === here);
  const [table, note] = row.firstChild.children;
  keyed(table.tBodies[0], list, (b) => `${b.address} ${b.port}`, makeBackend, (child, b) => changeBackend(child, b, Date.parse(update.time)));
  const missing = service.backends - list.length;
  note.hidden = missing <= 0;
  setText(note, list.length === 0 ? "Loading …" : `${missing} more: at /api/v1/backends?service=${service.name}`);
}

function makeBackend() {
  return element("tr", {},
    element("th", { scope: "row", class: "mono" }),
    element("td", { class: "number wide" }),
    element("td", {}, element("span", { class: "health" }), element("small", { class: "quiet" })),
    element("td", { class: "medium share" }, element("span", { class: "meter good" }, element("i")), element("span")),
    element("td", { class: "number" }),
    element("td", { class: "number medium" }),
    element("td", { class: "wide mono" }),
    element("td", {}, element("span", { class: "state" })));
}

/** What a state of health looks like. */
const HEALTH = { healthy: "good", unhealthy: "bad", checking: "warn" };

function changeBackend(row, b, now) {
  const [address, weight, health, share, packets, rate, hop, state] = row.children;
  setText(address, b.address.includes(":") ? `[${b.address}]:${b.port}` : `${b.address}:${b.port}`);
  setText(weight, String(b.weight));
  const known = b.health?.state || "unchecked";
  setText(health.firstChild, known);
  setAttribute(health.firstChild, "class", `health ${HEALTH[known] ?? "quiet"}`);
  const since = b.health?.since ? `for ${age(b.health.since, now)}` : "";
  setText(health.lastChild, [since, b.health?.reason].filter(Boolean).join(": "));
  share.firstChild.firstChild.style.width = percent(b.share);
  setText(share.lastChild, percent(b.share));
  setText(packets, human(b.packetsPerSecond));
  setText(rate, bits(b.bytesPerSecond));
  setText(hop, b.nextHop ?? "–");
  const [text, tone] = condition(b);
  setText(state.firstChild, text);
  setAttribute(state.firstChild, "class", `state ${tone}`);
}

function condition(b) {
  if (b.drained) return ["drained", "quiet"];
  if (b.inUse) return b.reason ? [`in use: ${b.reason}`, "warn"] : ["in use", "good"];
  return b.weight === 0 ? ["drained: weight 0", "quiet"] : [`out: ${b.reason || "unknown"}`, "bad"];
}
