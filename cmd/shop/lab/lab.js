// The lab page: starts a race, follows its server-sent events, and draws them.
const $ = (id) => document.getElementById(id);
const strategies = JSON.parse($("strategies").textContent);
const rows = 12; // purchases in the time line at once
let lanes = [];

// svg makes an element with attributes.
function svg(name, attributes, text) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  if (text !== undefined) element.textContent = text;
  return element;
}

// canvas empties an <svg>, sets its height, and returns its width in pixels.
function canvas(element, height) {
  element.replaceChildren();
  const width = Math.max(200, element.parentElement.clientWidth);
  element.setAttribute("viewBox", `0 0 ${width} ${height}`);
  element.setAttribute("height", height);
  return width;
}

// chart draws curves of [time, value] with their last values.
function chart(element, curves, limit, label) {
  const height = 120, left = 4, right = 96, width = canvas(element, height);
  const points = curves.flatMap((c) => c.points);
  const end = Math.max(1, ...points.map((p) => p[0])), top = Math.max(1, limit || 0, ...points.map((p) => p[1])) * 1.05;
  const x = (t) => left + (width - left - right) * t / end, y = (v) => height - 16 - (height - 24) * v / top;
  element.setAttribute("aria-label", label);
  element.append(svg("path", { class: "axis", d: `M${left} ${y(0)}H${x(end)}` }),
    svg("text", { class: "dim", x: x(end), y: height - 3, "text-anchor": "end" }, `${(end / 1000).toFixed(1)} s`));
  if (limit) element.append(svg("path", { class: "limit", d: `M${left} ${y(limit)}H${x(end)}` }));
  let last = -Infinity;
  const ends = curves.filter((c) => c.points.length).sort((a, b) => a.points.at(-1)[1] - b.points.at(-1)[1]).reverse();
  for (const c of ends) {
    element.append(svg("path", { class: `curve ${c.kind}`, d: "M" + c.points.map((p) => `${x(p[0]).toFixed(1)} ${y(p[1]).toFixed(1)}`).join("L") }));
    const at = last = Math.max(last + 12, Math.max(10, y(c.points.at(-1)[1]) + 4)); // labels do not overlap
    element.append(svg("text", { class: c.kind, x: x(end) + 6, y: at }, `${c.name} ${Math.round(c.points.at(-1)[1])}`));
  }
}

// fold adds an event to its purchase.
function fold(lane, e) {
  let p = lane.byNumber.get(e.n);
  if (!p) lane.byNumber.set(e.n, p = { n: e.n, marks: [], pauses: [] });
  p.replica = e.replica;
  if (e.buyer) p.buyer = e.buyer;
  if (e.fence) p.fence = e.fence;
  if (e.kind === "read" && p.read === undefined) p.read = e.t;
  else if (e.kind === "paused") p.pauses.push([e.t, e.t]);
  else if (e.kind === "resumed") p.pauses.at(-1)[1] = e.t;
  else if (e.kind === "dropped" || e.kind === "lost") p.marks.push([e.kind, e.t]);
  else if (e.kind in answers) [p.answer, p.end] = [e.kind, e.t];
  else if (e.kind !== "read") p[e.kind] = e.t;
  p.last = e.t;
}

// holders are the purchases that held a lock or read the stock, in order; those that wrote over another are stale.
function holders(lane) {
  const list = [...lane.byNumber.values()].filter((p) => p.acquired !== undefined || p.read !== undefined);
  list.sort((a, b) => (a.acquired ?? a.read) - (b.acquired ?? b.read));
  if (!lane.verdict || lane.verdict.holds) return list;
  const sold = list.filter((p) => p.answer === "sold" && p.committed !== undefined).sort((a, b) => a.committed - b.committed);
  for (const p of sold) p.over = sold.findLast((o) => o.committed > p.read && o.committed < p.committed);
  return list;
}

const answers = { sold: "sold", refused: "out of stock", failed: "nothing written", unknown: "unknown" };

// describe says in words what became of a purchase.
function describe(p) {
  const lost = p.marks.some((m) => m[0] === "lost") ? ", lease lost" : "";
  if (!p.buyer) return `a batch${lost}`;
  return `${answers[p.answer] ?? "…"}${lost}${p.over ? `, wrote over #${p.over.n}` : ""}`;
}

// timeline draws the window of purchases that begins at lane.first.
function timeline(lane) {
  const all = holders(lane), element = lane.node.querySelector(".time"), range = lane.node.querySelector("input");
  const most = Math.max(0, all.length - rows), first = Math.min(lane.first ?? most, most), list = all.slice(first, first + rows);
  const height = 34 * Math.max(1, list.length) + 18, width = canvas(element, height), short = width < 420;
  [range.max, range.value, range.hidden] = [most, first, most === 0];
  lane.node.querySelector("output").textContent = list.length ? `${first + 1} to ${first + list.length} of ${all.length}` : "none yet";
  element.setAttribute("aria-label", list.map((p) => `purchase ${p.n} on replica ${p.replica}${p.fence ? `, fence ${p.fence}` : ""}: ${describe(p)}`).join("; "));
  if (!list.length) return;
  const begin = Math.min(...list.map((p) => p.acquired ?? p.read)), end = Math.max(begin + 1, ...list.map((p) => p.released ?? p.committed ?? p.last));
  const x = (t) => 2 + (width - 6) * Math.min(1, Math.max(0, (t - begin) / (end - begin)));
  const bar = (kind, from, to, y, h) => element.append(svg("rect", { class: kind, x: x(from), y, height: h, width: Math.max(2, x(to) - x(from)) }));
  list.forEach((p, row) => {
    const y = 34 * row, done = p.committed ?? p.end ?? p.last;
    const label = svg("text", { class: p.over ? "bad" : "", x: 2, y: y + 12 },
      `#${p.n} ${short ? "r" : "replica "}${p.replica}${p.buyer && !short ? ` buyer ${p.buyer}` : ""}${p.fence ? ` fence …${String(p.fence).slice(-6)}` : ""}: ${describe(p)}`);
    element.append(label);
    if (p.acquired !== undefined) bar("lock", p.acquired, p.released ?? p.left ?? p.last, y + 16, 12);
    if (p.read !== undefined) bar(p.over ? "stale" : "work", p.read, done, y + 19, 6);
    for (const [from, to] of p.pauses) bar("paused", from, to, y + 17, 10);
    for (const [kind, t] of p.marks) {
      if (kind === "lost") element.append(svg("text", { class: "bad", x: Math.min(x(t), width - 10), y: y + 27 }, "✕"));
      else element.append(svg("path", { class: "mark", d: `M${x(t) - 5} ${y + 15}h10l-5 10z` }));
    }
  });
  element.append(svg("text", { class: "dim", x: 2, y: height - 2 }, `${begin.toFixed(0)} ms`),
    svg("text", { class: "dim", x: width - 4, y: height - 2, "text-anchor": "end" }, `${end.toFixed(0)} ms`));
}

// draw draws one lane.
function draw(lane) {
  const s = lane.samples.at(-1);
  if (!s) return;
  const redis = lane.strategy.Stores.includes("redis");
  const curve = (name, kind, value, first) => ({ name, kind, points: [[0, first], ...lane.samples.map((s) => [s.t, value(s)])] });
  chart(lane.node.querySelector(".stock"), [curve("sold", "sold", (s) => s.stock.sold, 0), curve("left", "left", (s) => s.stock.left, s.stock.opening)],
    s.stock.opening, `sold ${s.stock.sold} of ${s.stock.opening}, ${s.stock.left} left`);
  const waits = redis ? [curve("lock p99", "dash", (s) => s.wait99, 0)] : [];
  chart(lane.node.querySelector(".latency"), [curve("p50", "left", (s) => s.p50, 0), curve("p99", "sold", (s) => s.p99, 0), ...waits], 0, `p50 ${s.p50} ms, p99 ${s.p99} ms`);
  const numbers = {
    "units sold": s.stock.sold, "stock left": s.stock.left, "answers": s.answered, "per second": s.per_second.toFixed(0),
    "p50 ms": s.p50.toFixed(1), "p99 ms": s.p99.toFixed(1), "run again": s.retried, "faults": s.faults,
    ...(redis && { "lock p50": s.wait50.toFixed(1), "lock p99": s.wait99.toFixed(1), "lock busy": s.busy, "leases lost": s.lost, "without lock": s.alone }),
  };
  lane.node.querySelector("dl").replaceChildren(...Object.entries(numbers).map(([name, value]) => {
    const div = document.createElement("div");
    div.append(Object.assign(document.createElement("dt"), { textContent: name }), Object.assign(document.createElement("dd"), { textContent: value }));
    return div;
  }));
  if (!lane.verdict) lane.node.querySelector(".verdict").textContent = `sold ${s.stock.sold} of ${s.stock.opening} so far`;
  timeline(lane);
}

// show shows a verdict, and the part of the time line that explains it.
function show(lane, verdict) {
  lane.verdict = verdict;
  const node = lane.node.querySelector(".verdict"), broken = Object.entries(verdict.broken).map(([name, n]) => `${name}: ${n}`);
  node.className = `verdict ${verdict.holds ? "good" : "bad"}`;
  node.textContent = `${verdict.holds ? "✓" : "✗"} ${verdict.text}`;
  const small = document.createElement("small");
  small.textContent = verdict.holds ? `every invariant holds in the tables${lane.strategy.Safe ? "" : ", this time"}` : `violations in the tables: ${broken.join(", ")}`;
  node.append(small);
  const all = holders(lane), told = all.findIndex((p) => p.over || p.pauses.length || p.marks.length);
  const at = told < 0 ? all.findLastIndex((p) => p.answer === "sold") - rows / 2 : told - 3; // or where the last unit is sold
  lane.first = Math.max(0, at);
  draw(lane);
}

// setUp makes the panels of a race.
function setUp(settings) {
  lanes = settings.strategies.map((name) => {
    const node = $("lane").content.firstElementChild.cloneNode(true), strategy = strategies.find((s) => s.Name === name);
    node.querySelector("h2").textContent = name + (strategy.Safe ? "" : " (wrong)");
    node.querySelector(".why").textContent = strategy.Why;
    const lane = { node, strategy, samples: [], byNumber: new Map() };
    node.querySelector("input").addEventListener("input", (e) => { lane.first = Number(e.target.value); timeline(lane); });
    return lane;
  });
  $("lanes").replaceChildren(...lanes.map((l) => l.node));
}

function fail(text) {
  $("error").textContent = text;
  $("error").hidden = false;
  $("status").textContent = "";
  $("run").disabled = false;
}

// follow reads the stream of a race until its verdict.
function follow(id) {
  const source = new EventSource(`/lab/races/${id}/events`);
  source.addEventListener("progress", (e) => {
    const { lane, sample, events } = JSON.parse(e.data);
    for (const event of events ?? []) fold(lanes[lane], event);
    lanes[lane].samples.push(sample);
    draw(lanes[lane]);
  });
  source.addEventListener("verdict", (e) => {
    source.close();
    JSON.parse(e.data).forEach((verdict, n) => show(lanes[n], verdict));
    $("status").textContent = lanes.map((l) => `${l.strategy.Name} ${l.verdict.text}.`).join(" ");
    $("again").hidden = false;
    $("run").disabled = false;
  });
  source.addEventListener("failed", (e) => { source.close(); fail(`The race failed: ${JSON.parse(e.data).error}`); });
  source.onerror = () => {
    if (source.readyState === EventSource.CLOSED) fail("The server does not know this race any more. Press Run again.");
    else $("status").textContent = "The connection was lost. Trying again …";
  };
  source.onopen = () => { $("status").textContent = "The race is running."; };
}

$("settings").addEventListener("submit", async (e) => {
  e.preventDefault();
  const f = new FormData(e.target), number = (name) => Number(f.get(name));
  const settings = { seed: number("seed"), strategies: [f.get("left"), f.get("right")], clients: number("clients"), stock: number("stock"), fault: f.get("fault") };
  $("error").hidden = true;
  $("run").disabled = true;
  $("status").textContent = "Making tables …";
  try {
    const response = await fetch("/lab/races", { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(settings) });
    const answer = await response.json();
    if (!response.ok) return fail(answer.error);
    setUp(settings);
    $("again").hidden = true;
    $("command").textContent = answer.command;
    $("download").href = `/lab/races/${answer.id}`;
    follow(answer.id);
  } catch (error) {
    fail(`The server does not answer: ${error.message}`);
  }
});

const hints = {
  none: "", pause: "Twice, the replica of a holder stops for longer than the lock's TTL, after it has read the stock. A holder that looks at its lease before COMMIT writes nothing.",
  drop: "For about every fourth purchase, the key of its lock is deleted in Redis after it has read the stock. The holder is not told. Without a lock in Redis there is nothing to drop.",
};
$("settings").fault.addEventListener("change", (e) => { $("hint").textContent = hints[e.target.value]; });
$("hint").textContent = hints[$("settings").fault.value];
addEventListener("resize", () => lanes.forEach(draw));
