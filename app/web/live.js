// What goes on: the feed of the program, drawn. Pictures are those of page.js, with bars that are still open.
"use strict";

(() => {
  const at = (id) => document.getElementById(id);
  const still = matchMedia("(prefers-reduced-motion: reduce)");
  let state = null, shown = "", pictures = [], fresh = new Set(), told = new Map();

  // The feed. The browser comes back by itself when the program is gone, and is told everything anew.
  function listen() {
    const feed = new EventSource("feed");
    feed.addEventListener("open", () => { at("gone").hidden = true; });
    feed.addEventListener("state", (event) => become(JSON.parse(event.data)));
    feed.addEventListener("picture", (event) => {
      const picture = JSON.parse(event.data);
      pictures[picture.run] = { ...picture, received: performance.now() };
      fresh.add(picture.run);
      wake();
    });
    feed.addEventListener("error", () => {
      at("gone").textContent = "The program does not answer. This page looks for it, and goes on when it is back.";
      at("gone").hidden = false;
      if (feed.readyState !== EventSource.CLOSED) return;
      setTimeout(listen, 2000); // it was refused, and the browser has given up
    });
  }

  // become shows a state.
  function become(next) {
    const show = `${next.program} ${next.show}`, isNew = show !== shown;
    state = next;
    if (isNew) {
      [shown, pictures, fresh, told] = [show, [], new Set(), new Map()];
      if (state.choice) form.use(state.choice);
      at("pictures").replaceChildren(...state.runs.map((run) => frame(run)));
      at("faults").replaceChildren();
    }
    form.running(state.running, state.stopping);
    at("standing").textContent = standing();
    at("early").hidden = !state.error;
    at("early").textContent = state.error ? `Ended early: ${state.error}` : "";
    at("idle").hidden = state.runs.length > 0;
    at("live").hidden = !(state.running || state.runs.length > 0 && !drawnWhole());
    at("gauges").hidden = !state.running || state.processes > 0;
    numbers();
    result(isNew);
    news();
    wake();
  }

  const current = () => state.runs.findLastIndex((run) => run.begun);
  const facts = (i) => state.result?.data.runs.find((run) => run.facts.mode === state.runs[i].mode)?.facts ?? state.runs[i].facts;
  const over = (i) => !state.running || i < current();
  // Traffic that is no gallery's is drawn while it goes on only.
  const drawnWhole = () => state.result && (state.result.gallery || state.result.data.runs.some((run) => run.rounds.length > 0) && !state.traffic);

  function standing() {
    if (state.show === 0) return "Nothing runs";
    const i = current(), run = state.runs[i];
    if (!state.running) return state.error ? "Not finished" : "Finished";
    if (state.stopping) return "Stopping: the locks are released";
    if (!run) return "Getting ready";
    const place = state.runs.length > 1 ? ` (${i + 1} of ${state.runs.length})` : "";
    if (state.traffic) return `${run.mode}${place}, under traffic`;
    return `${run.mode}${place}, ${run.facts.rounds} of ${count(state.rounds, "round")} over`;
  }

  // news are for those who do not see: a strategy begins, and what it came to.
  function news() {
    const lines = [];
    const tell = (key, text) => {
      if (told.get(key) !== text) lines.push(text);
      told.set(key, text);
    };
    if (state.running && current() >= 0) tell("begins", `${state.runs[current()].mode} begins.`);
    for (const { facts } of state.result?.data.runs ?? []) tell(facts.mode, `${facts.mode}: ${facts.verdict.ok ? "ok" : "not ok"}, ${facts.verdict.text}.`);
    if (state.error) tell("error", `Ended early: ${state.error}.`);
    if (lines.length > 0) at("news").textContent = lines.join(" ");
  }

  // Numbers: a card for each strategy.
  function numbers() {
    if (state.runs.length > 0) at("numbers").replaceChildren(...state.runs.map((run, i) => numbersOf(run, facts(i), i)));
    at("links").replaceChildren(...(state.result?.addresses ?? []).map(({ text, url }) => html("li", {}, html("a", { href: url, rel: "noreferrer" }, text))));
  }

  function numbersOf(run, facts, i) {
    const final = Boolean(state.result), there = !final || facts.requests > 0;
    const [badge, look] = final ? !there ? ["not run", ""] : facts.verdict.ok ? ["✓ ok", "ok"] : ["✗ not ok", "bad"]
      : !run.begun ? ["waiting", ""] : over(i) ? ["over", ""] : ["running", "runs"];
    const card = html("article", { class: "card mode", "data-mode": run.mode }, html("h3", {}, run.mode, " ", html("span", { class: `badge ${look}` }, badge)));
    card.style.setProperty("--mode", run.color);
    if (!there || !final && facts.rounds === 0) {
      card.append(html("p", { class: "note" }, run.about));
      return card;
    }
    const gallery = facts.calls_per_ttl > 0;
    const big = gallery ? facts.calls_per_ttl : facts.calls_per_expiry;
    card.append(html("p", { class: "big" }, facts.expiries > 0 ? big.toFixed(big < 10 && gallery ? 2 : 1) : "–", " ",
      html("small", {}, gallery ? "calls per TTL" : "calls per expiry")));
    const time = (ms) => final ? durationText(ms * millisecond) : "–";
    const rows = [["backend calls", "backend_calls", facts.backend_calls], ["expiries", "expiries", facts.expiries], ["requests", "requests", facts.requests],
      ["hit", "outcomes.hit", facts.outcomes.hit], ["filled", "outcomes.filled", facts.outcomes.filled], ["waited", "outcomes.waited", facts.outcomes.waited],
      ["errors", "outcomes.error", facts.outcomes.error], ["most in flight", "backend_peak", final ? facts.backend_peak : "–"],
      ["latency p50", "", time(facts.latency_ms.p50)], ["latency p99", "", time(facts.latency_ms.p99)]];
    card.append(html("table", {}, html("tbody", {}, rows.map(([name, key, value]) =>
      html("tr", key ? { "data-key": key } : {}, html("th", { scope: "row" }, name), html("td", {}, String(value)))))));
    if (final) card.append(html("p", { class: "verdict" }, facts.verdict.text), ...facts.first_errors.map((text) => html("p", { class: "note" }, `First error: ${text}`)));
    return card;
  }

  // result draws a show that is over, with the renderer of the report.
  function result(isNew) {
    const whole = state.result;
    at("result").hidden = !whole || whole.data.runs.length === 0;
    if (at("result").hidden) return;
    draw(whole.data);
    document.querySelector("[aria-labelledby=waterfall]").hidden = !drawnWhole() || whole.gallery;
    document.querySelector("[aria-labelledby=series]").hidden = !whole.gallery;
    document.querySelector(".toggle").hidden = whole.data.runs.length < 2;
    const modes = whole.data.runs.map(({ facts, color }) => [facts.mode, color]);
    at("compared").hidden = !whole.compared;
    if (whole.compared) {
      const heads = modes.length === 2 && !whole.gallery ? [...modes, ["ratio"]] : modes;
      at("compared").querySelector(".scroll").replaceChildren(table("compared", [["figure"], ...heads], whole.compared.map((cells) => [cells])));
    }
    at("ledger").querySelector(".scroll").replaceChildren(table("ledger", [["key"], ...modes], whole.ledger.map(({ key, values }) => [[key, ...values], key])));
  }

  function table(name, heads, rows) {
    const head = ([text, color]) => {
      const cell = html("th", { scope: "col", class: color ? "mode" : "" }, text);
      if (color) cell.style.setProperty("--mode", color);
      return cell;
    };
    return html("table", { class: name }, html("thead", {}, html("tr", {}, heads.map(head))),
      html("tbody", {}, rows.map(([[first, ...others], key]) => html("tr", key ? { "data-key": key } : {},
        html("th", { scope: "row" }, first), others.map((text) => html("td", {}, text))))));
  }

  // Pictures. Each strategy has a frame from the beginning, so that nothing jumps.
  const frame = (run) => card({ facts: run, color: run.color }, state.traffic ? "multiple" : "waterfall", html("span", { class: "say" }, run.about,
    state.processes > 0 && !state.traffic ? `. The workers are in ${count(state.processes, "process", "processes")} of their own: their round is drawn when all is over.` : ""));

  // nice is a scale's end that is not changed too often.
  function nice(length) {
    for (let unit = 100 * millisecond; ; unit *= 10) {
      for (const factor of [1, 1.5, 2, 2.5, 3, 4, 5, 6, 8]) if (length < factor * unit) return factor * unit;
    }
  }

  // goes reports whether a round goes on, and so reaches to this moment.
  const goes = (picture, i) => picture?.round && state.running && i === current() && !picture.round.over && picture.round.elapsed_ns > 0;

  // aged is a round as it is now, if nothing else has happened in it.
  function aged(picture, i, now) {
    const { round } = picture;
    if (!goes(picture, i)) return round;
    const elapsed = round.elapsed_ns + Math.max(0, now - picture.received) * millisecond;
    return { ...round, elapsed_ns: elapsed, in_flight: round.in_flight.map((step, n, all) => n + 1 === all.length ? { ...step, at_ns: elapsed } : step),
      rows: round.rows.map((row) => ({ ...row, bars: row.bars?.map((bar) => bar.open ? { ...bar, end_ns: elapsed, queued_ns: bar.text === "queued" ? elapsed - bar.start_ns : bar.queued_ns } : bar) })) };
  }

  // drawFresh draws what is new. All rounds have one scale: when that changes, all are drawn.
  let scale = { total: 1, peak: 1 };
  function drawFresh(now) {
    if (at("live").hidden) return fresh.clear();
    const rounds = pictures.map((picture, i) => picture?.round && aged(picture, i, now));
    const next = { total: nice(1.05 * Math.max(0, ...rounds.map((round) => round?.elapsed_ns ?? 0))), peak: Math.max(1, ...rounds.map((round) => round?.peak ?? 0)) };
    const stretched = next.total !== scale.total || next.peak !== scale.peak;
    scale = next;
    for (const [i, picture] of pictures.entries()) {
      if (!picture || !state.runs[i] || !(stretched || fresh.has(i))) continue;
      const run = state.runs[i], figure = at("pictures").children[i];
      if (picture.round) drawRound(figure, run, rounds[i]);
      if (picture.series) drawTraffic(figure, run, picture);
    }
    fresh.clear();
    drawn = now;
    if (state.processes === 0 || state.traffic) thinned();
  }

  function drawRound(figure, run, round) {
    figure.querySelector(".say").replaceChildren(`Round ${round.number} of ${state.rounds}: `, html("b", {}, count(round.calls, "backend call")),
      round.over ? `, all answered after ${durationText(round.elapsed_ns)}` : "");
    replaceAfterCaption(figure, plots({ facts: run }, round, scale));
  }

  function drawTraffic(figure, run, { series, stretch_ns: stretch, window_ns: window, calls }) {
    const all = pictures.filter((p) => p?.series).map((p) => ({ series: p.series }));
    const scale = { ...seriesScale(all, stretch), total: Math.min(window, state.each_ns || window) };
    figure.querySelector(".say").replaceChildren("The last 30 s: ", html("b", {}, count(calls, "backend call")), " in all");
    replaceAfterCaption(figure, curvePlots({ facts: run, series }, scale, stretch));
  }

  const replaceAfterCaption = (figure, nodes) => figure.replaceChildren(figure.firstElementChild, ...nodes);

  function thinned() {
    const rounds = pictures.filter((p) => p?.round);
    const few = rounds.find((p) => p.round.rows.length < p.round.workers)?.round;
    const rows = few ? `Shown are the steps of ${few.rows.length} of ${few.workers} workers. ` : "";
    at("thinned").textContent = state.traffic ? "Ten pictures a second at most, half a second to a bar; each request counts when it was answered."
      : `${rows}Ten pictures a second at most, made of the steps as they happen; a waiter's polls are left out. ` +
        "When all is over, the first round is drawn from its trace.";
  }

  // Gauges of the run that goes on: from what the feed said, and the time since.
  function gauges(now) {
    const i = current(), picture = pictures[i];
    if (!state.running || !picture) return;
    const since = (now - picture.received) * millisecond, run = state.runs[i];
    const most = state.traffic ? Math.max(10, ...(pictures.map((p) => p?.peak ?? 0))) : state.workers;
    picture.peak = Math.max(picture.in_flight, picture.peak ?? 0);
    const runs = picture.in_flight - picture.queued;
    gauge("flight", [runs / most, picture.queued / most], `${picture.in_flight}${picture.queued > 0 ? `: ${runs} run, ${picture.queued} queue` : ""}` +
      (picture.waiting > 0 ? `; ${picture.waiting} wait for a fill` : ""));
    const left = (life) => Math.max(0, life.left_ns - since);
    const key = picture.key, age = key ? key.length_ns - left(key) : 0;
    gauge("key", [key ? left(key) / key.length_ns : 0], !key ? "not known yet" : left(key) === 0 ? "expired" : run.grace && age > state.ttl_ns
      ? `overdue for ${tenths(age - state.ttl_ns)}, kept for ${tenths(left(key))}` : `lives for ${tenths(run.grace ? state.ttl_ns - age : left(key))}`);
    const lock = picture.lock, holder = picture.holder ? `worker ${picture.holder}` : "another process";
    gauge("lock", [lock ? left(lock) / lock.length_ns : 0], !run.locks ? `${run.mode} has none` : !lock ? "free" : left(lock) === 0 ? "expired"
      : `held by ${holder}, for ${tenths(left(lock))} at most`);
    const faults = picture.faults ?? [];
    if (at("faults").childElementCount !== faults.length || at("faults").lastElementChild?.textContent !== faults.at(-1)?.text) {
      at("faults").replaceChildren(...faults.map(({ text }) => html("li", {}, text)));
    }
  }

  const tenths = (ns) => `${(ns / second).toFixed(1)} s`;

  function gauge(name, shares, text) {
    const place = at("gauge-" + name), value = place.querySelector(".value");
    [...place.querySelectorAll("i")].forEach((bar, i) => { bar.style.width = `${(100 * Math.min(1, shares[i] ?? 0)).toFixed(1)}%`; });
    if (value.textContent !== text) value.textContent = text;
  }

  // grow lets the open bars of the round that goes on reach to this moment, between two drawings of it.
  let drawn = 0;
  function grow(now) {
    const i = current(), picture = pictures[i];
    if (!goes(picture, i)) return;
    if (now - drawn >= 100) fresh.add(i);
    if (still.matches) return;
    const time = Math.min(scale.total, picture.round.elapsed_ns + Math.max(0, now - picture.received) * millisecond);
    for (const bar of at("pictures").children[i].querySelectorAll("[data-open]")) bar.setAttribute("width", share(scale, Math.max(0, time - Number(bar.dataset.open))));
  }

  // One loop draws, as long as there is something that moves.
  let awake = false;
  function wake() {
    if (awake) return;
    awake = true;
    requestAnimationFrame(frameOf);
  }
  function frameOf(now) {
    awake = false;
    if (fresh.size > 0) drawFresh(now);
    gauges(now);
    if (state) grow(now);
    if (state?.running) still.matches ? setTimeout(wake, 500) : wake();
  }

  listen();
})();
