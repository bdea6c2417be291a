// SPDX-License-Identifier: Apache-2.0

// The few ways in which the page is changed. All that comes from the agent is
// put in as text, never as markup: names are whatever a configuration says.

/** An element with attributes and children. */
export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

/** Sets a text only where it changes, so that a selection in it stays. */
export function setText(target, text) {
  if (target.textContent !== text) target.textContent = text;
}

/** Sets an attribute; null takes it away. */
export function setAttribute(target, name, value) {
  if (value === null) target.removeAttribute(name);
  else if (target.getAttribute(name) !== value) target.setAttribute(name, value);
}

/**
 * Makes a parent's children those of a list of things, in its order: one for
 * each key, made once and changed from then on.
 */
export function keyed(parent, things, key, make, change) {
  const old = new Map([...parent.children].map((child) => [child.dataset.key, child]));
  let place = parent.firstElementChild;
  for (const thing of things) {
    const name = key(thing);
    let child = old.get(name);
    if (child) old.delete(name);
    else {
      child = make(thing);
      child.dataset.key = name;
    }
    if (child === place) place = place.nextElementSibling;
    else parent.insertBefore(child, place);
    change(child, thing);
  }
  for (const child of old.values()) child.remove();
}
