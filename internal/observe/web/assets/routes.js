// SPDX-License-Identifier: Apache-2.0

// The tables of what is announced, and of the peers that are told.

import { element, keyed, setAttribute, setText } from "./dom.js";
import { age, count } from "./text.js";

/** How good a condition of an announcement is, by how it begins. */
const TONES = [["announced", "good"], ["leaving", "warn"], ["not announced", "warn"], ["no peer", "bad"], ["hook fails", "bad"]];

const tone = (condition) => TONES.find(([words]) => condition.startsWith(words))?.[1] ?? "warn";

/** Shows announcements in a body. */
export function showAnnouncements(body, list, now) {
  keyed(body, list, (a) => a.prefix, () => row("th mono", "td", "td mono wide", "td medium", "td mono wide", "td wide", "td state"), (child, a) => {
    const [prefix, services, peers, since, hop, attributes, state] = child.children;
    setText(prefix, a.prefix);
    setText(services, listed(a.services, a.serviceCount));
    setText(peers, listed(a.peers));
    setText(since, a.since ? age(a.since, now) : "–");
    setText(hop, a.nextHop ?? "self");
    setText(attributes, listed(a.attributes));
    setState(state, a.condition, tone(a.condition));
    setAttribute(child, "title", `withdrawn ${count(a.withdrawals)} times`);
  });
}

/** Shows peers in a body. */
export function showPeers(body, list, now) {
  const cells = ["th mono", "td number", "td medium", "td number medium", "td health", "td number wide", "td number wide", "td state"];
  keyed(body, list, (p) => `${p.address} ${p.routerID ?? ""}`, () => row(...cells), (child, p) => {
    const [address, asn, since, flaps, bfd, messages, routes, state] = child.children;
    setText(address, p.address);
    setText(asn, String(p.asn));
    setText(since, p.since ? age(p.since, now) : "–");
    setText(flaps, count(p.flaps));
    setText(bfd.firstChild, p.bfd ?? "–");
    setAttribute(bfd.firstChild, "class", p.bfd ? `health ${p.bfd === "up" ? "good" : "bad"}` : "");
    setAttribute(bfd, "title", [p.bfdReason, `${count(p.bfdFlaps ?? 0)} flaps`].filter(Boolean).join(", "));
    setText(messages, `${count(p.messagesReceived)} / ${count(p.messagesSent)}`);
    setText(routes, `${count(p.routesReceived)} / ${count(p.routesAnnounced)}`);
    const omitted = p.omittedRoutes ? `, ${count(p.omittedRoutes)} routes not announced: ${p.omittedReason}` : "";
    const next = p.nextTry && Date.parse(p.nextTry) > now ? `, next try in ${age(new Date(now).toISOString(), Date.parse(p.nextTry))}` : "";
    setState(state, [p.state, p.reason].filter(Boolean).join(": ") + next + omitted,
      p.state !== "established" ? "bad" : omitted ? "warn" : "good");
  });
}

/** Makes a row of cells: a tag and its classes each; state and health are marks
 * within their cell. */
function row(...cells) {
  return element("tr", {}, ...cells.map((cell) => {
    const [tag, ...classes] = cell.split(" ");
    const mark = classes.find((name) => name === "state" || name === "health");
    if (mark) return element(tag, {}, element("span", { class: mark }));
    return element(tag, tag === "th" ? { scope: "row", class: classes.join(" ") } : { class: classes.join(" ") });
  }));
}

function setState(cell, text, tone) {
  setText(cell.firstChild, text);
  setAttribute(cell.firstChild, "class", `state ${tone}`);
}

/** A list, with how many more there are than its words. */
function listed(words, all = words.length) {
  if (all === 0) return "–";
  return words.join(", ") + (all > words.length ? `, ${count(all - words.length)} more` : "");
}
