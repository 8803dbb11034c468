'use strict';
// The pages are whole without this script. It makes them live: when the node says that something may have changed, it fetches the same
// page once more, and exchanges the parts with data-live.
(() => {
  const live = document.getElementById('live');
  const events = document.body.dataset.events;
  if (!live || !events || !window.EventSource) return;

  const least = 1000; // ms between two refreshes
  const share = 50; // a refresh that takes long is made so much more seldom
  const mostRows = 500;
  let busy = false;
  let wanted = false;

  function say(text, state) {
    if (live.textContent !== text) live.textContent = text;
    live.className = 'live ' + state;
  }

  // exchange puts the parts of a new page into this one. A part in which somebody types stays.
  function exchange(page) {
    for (const old of document.querySelectorAll('[data-live]')) {
      const fresh = page.getElementById(old.id);
      const active = document.activeElement;
      const inside = active && old.contains(active);
      if (!fresh || fresh.isEqualNode(old) || inside && active.matches('input, select, textarea')) continue;
      const offsets = [...old.querySelectorAll('.scroll')].map((box) => box.scrollLeft);
      const scrolls = inside && active.classList.contains('scroll') ? [...old.querySelectorAll('.scroll')].indexOf(active) : -1;
      old.replaceChildren(...[...fresh.childNodes].map((node) => document.importNode(node, true)));
      const boxes = [...old.querySelectorAll('.scroll')];
      offsets.forEach((left, i) => { if (boxes[i] && left) boxes[i].scrollLeft = left; });
      if (inside) {
        const again = active.id ? document.getElementById(active.id) : boxes[scrolls];
        (again || document.getElementById('content')).focus({preventScroll: true});
      }
    }
  }

  function refresh() {
    if (busy || document.hidden) {
      wanted = true;
      return;
    }
    busy = true;
    wanted = false;
    const begun = performance.now();
    const request = new XMLHttpRequest();
    request.open('GET', location.href);
    request.responseType = 'document';
    request.timeout = 10000;
    request.setRequestHeader('X-Lockstep-Live', '1');
    request.onloadend = () => {
      const page = request.response;
      if (request.status && new URL(request.responseURL).pathname !== location.pathname) {
        location.reload(); // the login has ended
        return;
      }
      if (request.status === 200 && page) {
        exchange(page);
        document.body.dataset.refreshed = String(Date.now());
      }
      setTimeout(() => {
        busy = false;
        if (wanted) refresh();
      }, Math.max(least, share * (performance.now() - begun)));
    };
    request.send();
  }

  // note puts a message about a lock on top of the table of messages. textContent keeps it text, whatever it is.
  const log = document.getElementById('log');
  function note(texts) {
    if (!log) return;
    const row = document.createElement('tr');
    for (const text of texts) {
      const cell = document.createElement('td');
      cell.className = 'name';
      cell.textContent = text;
      row.append(cell);
    }
    log.prepend(row);
    while (log.rows.length > mostRows) log.lastElementChild.remove();
  }

  // shown makes control characters visible, and cuts a long text.
  function shown(value) {
    if (value === undefined || value === null) return '';
    const text = [...String(value).slice(0, 400)].slice(0, 200).join('');
    return text.replace(/[\u0000-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g, (c) => '\\u' + c.charCodeAt(0).toString(16).padStart(4, '0')) + (text.length < String(value).length ? '…' : '');
  }

  function onState(event) {
    const state = JSON.parse(event.data);
    const missing = state.missing && state.missing.members;
    if (state.error || missing && missing.startsWith('CLUSTERDOWN')) say('no leader', 'off');
    else say('live', 'on');
    refresh();
  }

  function onLock(event) {
    const told = JSON.parse(event.data);
    const m = told.message || {};
    note([told.event, told.db, told.unreadable ? '(too long to show)' : m.key, m.owner, m.token, m.user, m.reason].map(shown));
    refresh();
  }

  // A page that nobody sees does not listen: the node and the browser have few connections for streams.
  let source = null;
  function listen() {
    source = new EventSource(events);
    source.addEventListener('state', onState);
    source.addEventListener('lock', onLock);
    source.addEventListener('lost', (event) => note(['(' + JSON.parse(event.data).messages + ' messages were lost)', '', '', '', '', '', '']));
    source.addEventListener('end', () => location.reload());
    source.onerror = () => {
      say('not connected', 'off');
      if (source.readyState === EventSource.CLOSED) { // refused: the login has ended, or there are too many streams
        refresh();
        setTimeout(() => { if (!document.hidden && source.readyState === EventSource.CLOSED) listen(); }, 5 * least);
      }
    };
  }
  document.addEventListener('visibilitychange', () => {
    source.close();
    if (document.hidden) {
      say('paused', '');
    } else {
      listen();
      refresh();
    }
  });
  window.addEventListener('pagehide', () => source.close());
  listen();
})();
