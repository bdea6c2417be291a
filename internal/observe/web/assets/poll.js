// SPDX-License-Identifier: Apache-2.0

// The requests to the agent, one a second: when they fail, they are repeated until
// they succeed.

/** The agent is gone if it has not answered for so long, in milliseconds. */
const SILENCE = 4000;
/** The time between requests: a bit less than the agent's second, so that none is missed. */
const PERIOD = 900;
/** How long what is asked for has to stay the same: somebody may be typing. */
const TYPING = 200;

/**
 * Follows the agent. query returns what to ask for, update gets each answer, and
 * lost gets the time of the last one when there are no more, null when there
 * are again. The first request is sent by ask, and another one whenever ask is called.
 */
export function follow({ query, update, lost }) {
  let answered = new Date();
  let wait = null; // the next request
  let latest = null; // the request whose answer is of interest

  async function poll() {
    wait = null;
    latest?.abort();
    const own = new AbortController();
    latest = own;
    const timeout = setTimeout(() => own.abort(), SILENCE);
    let body = null;
    try {
      const response = await fetch(`/api/v1/page?${query()}`, { signal: own.signal });
      if (response.ok) body = await response.json();
    } catch {
      // The agent can't be reached.
    }
    clearTimeout(timeout);
    if (own !== latest) return;
    wait ??= setTimeout(poll, PERIOD);
    if (body) {
      answered = new Date();
      lost(null);
      update(body);
    } else {
      lost(answered);
    }
  }

  return {
    ask: () => {
      clearTimeout(wait);
      wait = setTimeout(poll, latest ? TYPING : 0);
    },
  };
}
