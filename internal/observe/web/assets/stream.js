// SPDX-License-Identifier: Apache-2.0

// The connection to the agent: updates come once a second, and when they stop
// it is tried again until they come back.

/** The agent is gone if it has been silent for so long, in milliseconds. */
const SILENCE = 4000;
/** How long to wait before trying again. */
const PAUSE = 1000;
/** How long what is asked for has to stay the same: somebody may be typing. */
const TYPING = 200;

/**
 * Follows the agent. query returns what to ask for, update gets each update, and
 * lost gets the time of the last one when there are no more, null when there
 * are again. The stream is opened by ask, and again whenever ask is called.
 */
export function follow({ query, update, lost }) {
  let source = null;
  let heard = new Date();
  let wait = null; // the next try
  let watchdog = null;

  function open() {
    source?.close();
    source = new EventSource(`/api/v1/stream?${query()}`);
    source.onmessage = (event) => {
      heard = new Date();
      watch();
      lost(null);
      update(JSON.parse(event.data));
    };
    source.onerror = retry;
    watch();
  }

  function watch() {
    clearTimeout(watchdog);
    watchdog = setTimeout(retry, SILENCE);
  }

  function retry() {
    source?.close();
    clearTimeout(watchdog);
    lost(heard);
    later(PAUSE);
  }

  function later(pause) {
    clearTimeout(wait);
    wait = setTimeout(open, pause);
  }

  return { ask: () => (source ? later(TYPING) : open()) };
}
