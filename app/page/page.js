// Draws the pictures of the page from its data: waterfalls, calls in flight, latencies. It makes nodes and text only, never
// markup from a string, so no word of the data can be anything else than a word. All times are nanoseconds.
"use strict";

const maker = (space) => (name, attributes = {}, ...children) => {
  const node = document.createElementNS(space, name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.append(...children.flat());
  return node;
};
const svg = maker("http://www.w3.org/2000/svg");
const html = maker("http://www.w3.org/1999/xhtml");

// Sizes in pixels. Across, everything is a share of the width, so a phone, a wide screen and paper get the same picture.
const rowHeight = 12, topMargin = 18, groupHeight = 16, callHeight = 64, binHeight = 72, seriesHeight = 56;
const millisecond = 1e6, second = 1e9;

// looks says how a span is drawn, by its name and its answer: the class of its colour, where it is in its row and how high,
// so that kinds differ without their colours too, and its words in the legend, which has this order.
const looks = new Map([
  ["backend call", ["call", 2, 8, "backend call"]],
  ["queued", ["queued", 2, 8, "queued for it"]],
  ["wait for fill", ["wait", 4.5, 3, "wait for fill"]],
  ["GET", ["get", 1, 5, "GET, a miss"]],
  ["GET hit", ["get hit", 2, 8, "GET, a hit"]],
  ["SET NX PX", ["lock", 6, 5, "SET NX PX, held"]],
  ["SET NX PX acquired", ["lock won", 1, 10, "SET NX PX, acquired"]],
  ["SET", ["set", 0, 7, "SET"]],
  ["DEL", ["del", 5, 7, "DEL"]],
  ["failed", ["failed", 1, 10, "failed"]],
]);

// draw shows a page's data in place of what was shown before.
function draw({ runs, bin_ns: binWidth, stretch_ns: stretch }) {
  const rounds = runs.flatMap((run) => run.rounds);
  const scale = { total: Math.max(1, ...rounds.map((r) => r.elapsed_ns)), peak: Math.max(1, ...rounds.map((r) => r.peak)) };
  document.querySelector(".waterfalls")?.replaceChildren(...runs.flatMap((run) =>
    run.rounds.length > 0 ? run.rounds.map((round) => waterfall(run, round, scale)) : [card(run, "waterfall", "No round was recorded.")]));
  const end = Math.max(0, ...runs.flatMap((run) => run.latencies.map((bin) => bin.from_ns))) + binWidth;
  document.querySelector(".latencies").replaceChildren(...runs.map((run) => histogram(run, { total: end }, binWidth)));
  for (const bars of document.querySelectorAll("[data-bin]")) bars.textContent = durationText(binWidth);
  const series = seriesScale(runs, stretch);
  document.querySelector(".multiples")?.replaceChildren(...runs.map((run) => multiple(run, series, stretch)));
  for (const length of document.querySelectorAll("[data-stretch]")) length.textContent = durationText(stretch);
  for (const section of document.querySelectorAll("[data-drawn]")) section.hidden = false;
}

// card is a picture's frame, in the colour of the mode.
function card({ facts, color }, name, ...caption) {
  const figure = html("figure", { class: "card mode " + name, "data-mode": facts.mode },
    html("figcaption", {}, html("h3", {}, facts.mode), html("p", {}, ...caption)));
  figure.style.setProperty("--mode", color);
  return figure;
}

// waterfall is one round: the calls in flight, and below, over the same time, a row for each worker.
function waterfall(run, round, scale) {
  const { rows } = round, { mode } = run.facts;
  const last = round.omitted ? "the last recorded answer" : "the last answer";
  const figure = card(run, "waterfall", `Round ${round.number}: ${count(round.workers, "worker")}, `,
    html("b", {}, count(round.calls, "backend call")), `, ${last} after `, html("b", {}, durationText(round.elapsed_ns)));
  figure.append(
    ...plots(run, round, scale),
    asTable(`Round ${round.number} of ${mode} as a table`, ["worker", "outcome", "answered after", "backend call", "waited for", "polls", "what it did"],
      rows.map((row) => [row.worker + (row.winner ? " ★" : ""), row.outcome, durationText(row.answer_ns),
        (row.bars ?? []).filter((bar) => bar.kind === "backend call").map(callText).join("; "),
        (row.waits_for ?? []).map((worker) => worker || "not recorded").join(" "), row.waits_for ? row.polls ?? 0 : "", stepsText(row)])));
  pointing(figure, `${count(rows.length, "row")}: point at one to read it`);
  return figure;
}

// plots are a round's two pictures with what explains them. A round that is live goes on: some of its bars are open.
function plots(run, round, scale) {
  const { rows } = round, own = { total: Math.max(1, round.elapsed_ns) }, { mode } = run.facts;
  const used = new Set(), places = placesOf(rows), height = (places.at(-1)?.y ?? 0) + rowHeight;
  const list = svg("svg", { class: "plot rows", height, role: "list", "aria-label": `Waterfall of round ${round.number} of ${mode}, a row for each worker` },
    grid(scale, own), done(round, scale, height), axis("common", scale), axis("own", own));
  for (const { row, y, heading } of places) {
    if (heading) list.append(svg("text", { class: "process", x: 0, y: y - 4 }, heading));
    list.append(workerRow(row, y, places, scale, used));
  }
  return [
    html("div", { style: `--zoom:${scale.total / own.total}` },
      html("p", { class: "peak" }, `calls in flight: ${round.peak} at most${round.omitted ? ", of those recorded" : ""}`),
      svg("svg", { class: "plot calls", height: 66, role: "img", "aria-label": `Backend calls in flight in round ${round.number} of ${mode}: ${callsText(round)}` },
        grid(scale, own),
        svg("g", { class: "spans" }, steps(round, scale)),
        svg("line", { class: "base", x1: 0, x2: "100%", y1: 64.5, y2: 64.5 })),
      list),
    ...(round.live ? [] : [html("p", { class: "detail", "aria-hidden": "true" }), rows.length < round.workers ? html("p", { class: "note left-out" }, leftOut(round)) : ""]),
    html("ul", { class: "legend", "aria-label": "Kinds of bars" }, [...looks.values()].filter(([name]) => used.has(name)).map(swatch),
      [...used].filter((name) => name.startsWith("other ")).map((name) => swatch(["other", 2, 8, name.slice(6)]))),
  ];
}

// placesOf are the rows with their heights; workers of another process come under a heading of their own.
function placesOf(rows) {
  let y = topMargin, process;
  return rows.map((row) => {
    const heading = row.process !== process && row.process;
    process = row.process;
    if (heading) y += groupHeight;
    y += rowHeight;
    return { row, y: y - rowHeight, heading };
  });
}

// workerRow is the bars of one worker, with a line to each winner that it waited for.
function workerRow(row, y, places, scale, used) {
  const spans = svg("g", { class: "spans" });
  for (const bar of row.bars ?? []) {
    for (const [[name, top, height], from, to] of parts(bar)) {
      used.add(name);
      const open = bar.open && to === bar.end_ns ? { "data-open": from } : {};
      spans.append(svg("rect", { class: name.startsWith("other ") ? "other" : name, ...across(scale, from, to), y: y + top, height, ...open }));
    }
  }
  for (const worker of row.waits_for ?? []) {
    const winner = places.find((place) => place.row.worker === worker);
    if (!winner) continue;
    const x = share(scale, filledAt(winner.row));
    spans.append(svg("line", { class: "tie", x1: x, x2: x, y1: winner.y + rowHeight / 2, y2: y + rowHeight / 2 }));
  }
  return svg("g", {
    class: row.winner ? "row winner" : "row", role: "listitem", tabindex: row === places[0].row ? 0 : -1, "aria-label": rowText(row),
    "data-worker": row.worker, "data-waits": (row.waits_for ?? []).join(" "), "data-process": row.process ?? "",
  }, svg("rect", { class: "band", x: 0, width: "100%", y, height: rowHeight }),
    svg("text", { class: "who", x: -6, dy: 9.5, y }, (row.winner ? "★ " : "") + row.worker), spans);
}

// parts are what a span is drawn as: a look, a start and an end. A call that queued has two.
function parts(bar) {
  const call = bar.start_ns + (bar.queued_ns >= millisecond ? bar.queued_ns : 0);
  const look = looks.get(bar.text === "failed" ? "failed" : `${bar.kind} ${bar.text}`) ?? looks.get(bar.kind) ?? ["other " + bar.kind, 2, 8];
  const drawn = [[look, call, bar.end_ns]];
  if (bar.open && bar.text === "queued") return [[looks.get("queued"), bar.start_ns, bar.end_ns]];
  return call > bar.start_ns ? [[looks.get("queued"), bar.start_ns, call], ...drawn] : drawn;
}

// filledAt is when a winner's fill was over: its SET, or its call if there was none.
const filledAt = (winner) => Math.max(0, ...(winner.bars ?? []).filter((bar) => ["backend call", "SET"].includes(bar.kind)).map((bar) => bar.end_ns));

// steps draw the backend calls in flight.
function steps({ in_flight: all }, scale) {
  return (all ?? []).flatMap((step, i) => {
    if (step.n === 0 || i + 1 === all.length) return [];
    const height = callHeight * step.n / scale.peak;
    return [svg("rect", { class: "flight", ...across(scale, step.at_ns, all[i + 1].at_ns), y: callHeight - height, height })];
  });
}

// done marks the time that is left on the common scale when everybody has an answer, if it is worth a word.
function done({ elapsed_ns: elapsed, live }, scale, height) {
  const rest = scale.total - elapsed;
  if (live || rest <= scale.total / 4) return [];
  return svg("g", { class: "common done", "aria-hidden": "true" },
    svg("rect", { ...across(scale, elapsed, scale.total), y: topMargin, height: Math.max(0, height - topMargin) }),
    svg("text", { x: share(scale, elapsed + rest / 2), y: "50%" }, `done, ${durationText(rest)} sooner`));
}

// histogram is how a run's latencies are distributed.
function histogram(run, scale, width) {
  const bins = run.latencies, most = Math.max(0, ...bins.map((bin) => bin.n)), q = run.facts.latency_ms;
  const quantiles = ["p50", "p95", "p99", "max"].map((name) => `${name} ${durationText(q[name] * millisecond)}`).join(", ");
  const text = `${count(bins.reduce((sum, bin) => sum + bin.n, 0), "request")}, ${quantiles}`;
  const figure = card(run, "histogram", text), marks = marksOf(scale);
  figure.append(
    html("p", { class: "peak" }, `${count(most, "request")} in the fullest bar`),
    svg("svg", { class: "plot bins", height: 94, role: "img", "aria-label": `Latencies of ${run.facts.mode}: ${text}` },
      marks.map((at) => svg("line", { class: "grid", x1: share(scale, at), x2: share(scale, at), y1: 0, y2: binHeight + 4 })),
      axisTexts(marks, scale, 90), svg("line", { class: "base", x1: 0, x2: "100%", y1: binHeight + .5, y2: binHeight + .5 }),
      bins.map((bin) => {
        const height = Math.max(1, binHeight * bin.n / most);
        return svg("rect", { class: "latency", ...across(scale, bin.from_ns, bin.from_ns + width), y: binHeight - height, height });
      })),
    asTable(`Latencies of ${run.facts.mode} as a table`, ["from", "to", "requests"],
      bins.map((bin) => [durationText(bin.from_ns), durationText(bin.from_ns + width), bin.n])));
  return figure;
}

// curves are what is drawn of a series: its class, its words, a step's value, and how that is said.
const curves = [
  ["series-calls", "backend calls", (step) => step.calls, String],
  ["series-slowest", "slowest request", (step) => step.slowest_ns, (ns) => durationText(ns)],
  ["series-oldest", "oldest value", (step) => step.oldest_ns, (ns) => durationText(ns)],
];

// seriesScale is what the series of all runs have in common: the time, and the highest value of each curve.
function seriesScale(runs, stretch) {
  const steps = runs.flatMap((run) => run.series);
  const highest = (of) => steps.reduce((most, step) => Math.max(most, of(step)), 0);
  return { total: highest((step) => step.at_ns) + stretch, most: curves.map(([, , of]) => Math.max(1, highest(of))) };
}

// multiple is how one strategy's traffic went: a plot for each curve, all on the scales of all runs.
function multiple(run, scale, stretch) {
  const { facts, series } = run;
  const figure = card(run, "multiple", `${count(facts.requests, "request")}, ${count(facts.backend_calls, "backend call")}`);
  figure.append(...curvePlots(run, scale, stretch),
    asTable(`${facts.mode} over time as a table`, ["from", ...curves.map(([, words]) => words)],
      series.map((step) => [durationText(step.at_ns), ...curves.map(([, , of, say]) => say(of(step)))])));
  return figure;
}

// curvePlots are the plots of a series.
function curvePlots({ facts, series }, scale, stretch) {
  const marks = marksOf(scale);
  return curves.flatMap(([name, words, of, say], i) => {
    const own = series.reduce((most, step) => Math.max(most, of(step)), 0), text = `${words}: ${say(own)} at most`;
    return [
      html("p", { class: "peak" }, `${text} (scale ${say(scale.most[i])})`),
      svg("svg", { class: "plot series", height: seriesHeight + 20, role: "img", "aria-label": `${facts.mode} over time, ${text}` },
        marks.map((at) => svg("line", { class: "grid", x1: share(scale, at), x2: share(scale, at), y1: 0, y2: seriesHeight + 4 })),
        axisTexts(marks, scale, seriesHeight + 16), svg("line", { class: "base", x1: 0, x2: "100%", y1: seriesHeight + .5, y2: seriesHeight + .5 }),
        series.filter((step) => of(step) > 0).map((step) => {
          const height = Math.max(1, seriesHeight * of(step) / scale.most[i]);
          return svg("rect", { class: name, ...across(scale, step.at_ns, step.at_ns + stretch), y: seriesHeight - height, height });
        })),
    ];
  });
}

// Places on the time axis.
const share = (scale, at) => `${+(100 * at / scale.total).toFixed(3)}%`;
const across = (scale, from, to) => ({ x: share(scale, from), width: to > from ? share(scale, to - from) : 1 });

// marksOf are the marks of a time axis: a round number apart, and at most 7 after the 0.
function marksOf(scale) {
  let step = millisecond;
  for (let factors = [2, 2.5, 2], i = 0; scale.total / step >= 8; i++) step *= factors[i % 3]; // 1, 2, 5, 10, ...
  return Array.from({ length: Math.floor(scale.total / step) + 1 }, (_, i) => i * step);
}

const axisTexts = (marks, scale, y) => marks.map((at) => svg("text", { x: share(scale, at), y }, axisText(at)));
const axis = (name, scale) => svg("g", { class: "axis " + name, "aria-hidden": "true" }, axisTexts(marksOf(scale), scale, 11));
const grid = (common, own) => Object.entries({ common, own }).map(([name, scale]) => svg("g", { class: name },
  marksOf(scale).map((at) => svg("line", { class: "grid", x1: share(scale, at), x2: share(scale, at), y1: 0, y2: "100%" }))));

// Words.
const count = (n, one, more = one + "s") => `${n} ${n === 1 ? one : more}`;
const durationText = (ns) => ns >= second ? `${(ns / second).toFixed(2)} s` : `${(ns / millisecond).toFixed(1)} ms`;
const axisText = (ns) => ns === 0 ? "0" : ns < second ? `${ns / millisecond} ms` : `${ns / second} s`;

function callText(bar) {
  const queued = bar.queued_ns >= millisecond ? `, ${durationText(bar.queued_ns)} of it in the queue` : "";
  return durationText(bar.end_ns - bar.start_ns) + queued + (bar.text ? ", " + bar.text : "");
}

// rowText is one worker in words.
function rowText(row) {
  const winners = (row.waits_for ?? []).map((worker) => worker ? `worker ${worker}` : "a worker that is not recorded").join(" and ");
  const won = row.outcome === "filled" ? "won the fill lock and filled" : `won the fill lock, ${row.outcome}`;
  let text = `worker ${row.worker}: ${row.winner ? won : row.outcome}`;
  if (row.process) text = `${row.process}, ${text}`;
  if (winners) text += `${row.winner ? ", having waited" : ""} for ${winners}, ${count(row.polls ?? 0, "poll")}`;
  for (const bar of row.bars ?? []) {
    if (bar.kind === "backend call") text += `, backend call of ${callText(bar)}`;
  }
  return `${text}; answered after ${durationText(row.answer_ns)}`;
}

// stepsText is what a worker did, in order: "GET miss, SET NX PX held by another, wait for fill, 4 x GET miss, GET hit".
function stepsText(row) {
  const all = [];
  for (const bar of row.bars ?? []) {
    const name = `${bar.kind} ${bar.text ?? ""}`.trim();
    if (all.at(-1)?.name === name) all.at(-1).n++;
    else all.push({ name, n: 1 });
  }
  return all.map(({ name, n }) => n > 1 ? `${n} x ${name}` : name).join(", ");
}

function callsText({ in_flight: all, peak }) {
  if (!all?.length) return "no backend call";
  return `at most ${peak} in flight; the first began at ${durationText(all[0].at_ns)}, the last ended at ${durationText(all.at(-1).at_ns)}`;
}

function leftOut({ rows, workers, kept, omitted }) {
  const drawn = `Drawn: ${rows.length} of ${workers} workers`;
  return omitted ? `${drawn}; of the round's spans ${kept} were kept, ${omitted} not.` : `${drawn}, evenly chosen by the time of their answer.`;
}

function swatch([name, y, height, text]) {
  return html("li", {}, svg("svg", { width: 12, height: 12, "aria-hidden": "true" }, svg("rect", { class: name, x: 1, width: 10, y, height })), text);
}

function asTable(name, heads, rows) {
  return html("details", {}, html("summary", {}, "The same as a table"),
    html("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": name }, html("table", {},
      html("thead", {}, html("tr", {}, heads.map((head) => html("th", { scope: "col" }, head)))),
      html("tbody", {}, rows.map(([first, ...others]) =>
        html("tr", {}, html("th", { scope: "row" }, first), others.map((text) => html("td", {}, text))))))));
}

// pointing marks the row that is pointed at or has the focus, and what it is tied to: a waiter's winners, a winner's
// waiters. The arrow keys go from row to row.
function pointing(figure, hint) {
  const rows = [...figure.querySelectorAll(".row")], detail = figure.querySelector(".detail");
  const waitsFor = (row, other) => row.dataset.waits.split(" ").includes(other.dataset.worker);
  let focused = null;
  const mark = (row) => {
    figure.classList.toggle("marked", row !== null);
    for (const other of rows) {
      other.classList.toggle("current", other === row);
      other.classList.toggle("tied", row !== null && other !== row && (waitsFor(row, other) || waitsFor(other, row)));
    }
    detail.textContent = row ? row.getAttribute("aria-label") : hint;
  };
  mark(null);
  rows.forEach((row, i) => {
    row.addEventListener("pointerenter", () => mark(row));
    row.addEventListener("pointerleave", () => mark(focused));
    row.addEventListener("focus", () => {
      for (const other of rows) other.tabIndex = other === row ? 0 : -1;
      mark(focused = row);
    });
    row.addEventListener("blur", () => mark(focused = null));
    row.addEventListener("keydown", (event) => {
      const to = { ArrowDown: i + 1, ArrowUp: i - 1, Home: 0, End: rows.length - 1 }[event.key];
      if (event.key === "Escape") row.blur();
      if (rows[to] === undefined) return;
      event.preventDefault();
      rows[to].focus();
    });
  });
}
