// The lab page: starts a race, follows its server-sent events, and draws them.
const $ = (id) => document.getElementById(id);
const flows = JSON.parse($("flows").textContent);
const rows = 12; // attempts in the time line at once
let lanes = [], flow = flows[0];

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

// The colors of the curves of each kind, from lab.css.
const colors = { good: "--left", bad: "--bad", within: "--dim", dash: "--dim", limit: "--dim" };
const dark = matchMedia("(prefers-color-scheme: dark)");
dark.addEventListener("change", () => lanes.forEach(draw));

// chart draws curves of [milliseconds, value], all at the same times, from 0 to most. Without the pointer its legend has the last values.
function chart(element, curves, most, label) {
  const data = [curves[0].points.map((p) => p[0] / 1000), ...curves.map((c) => c.points.map((p) => p[1]))];
  const shape = JSON.stringify([element.clientWidth, dark.matches, curves.map((c) => [c.name, c.kind])]);
  element.most = Math.max(1, most) * 1.05;
  element.setAttribute("aria-label", label);
  if (element.shape === shape) return element.plot.setData(data);
  const color = (name) => getComputedStyle(element).getPropertyValue(name);
  const axis = { stroke: color("--dim"), font: "11px system-ui", grid: { stroke: color("--line"), width: 1 }, ticks: { show: false } };
  element.plot?.destroy();
  element.shape = shape;
  element.plot = new uPlot({
    width: element.clientWidth, height: 150,
    scales: { x: { time: false }, y: { range: () => [0, element.most] } },
    axes: [{ ...axis, size: 24, space: 60, values: (_, list) => list.map((v) => `${v} s`) }, { ...axis, size: 44, space: 24 }],
    cursor: { y: false, drag: { x: false } },
    series: [{ label: "after", value: (u, v) => `${(v ?? u.data[0].at(-1)).toFixed(1)} s` }, ...curves.map((c) => ({
      label: c.name, stroke: color(colors[c.kind]), width: c.kind === "limit" ? 1 : 2, dash: c.kind === "limit" || c.kind === "dash" ? [4, 3] : undefined,
      points: { show: false }, value: (u, v, n) => `${Math.round(v ?? u.data[n].at(-1))}${c.unit}`,
    }))],
  }, data, element);
}

// fold adds an event to its attempt.
function fold(lane, e) {
  if (e.kind === "down") lane.outages.push([e.t, Infinity, "…"]);
  else if (e.kind === "back") lane.outages.at(-1)?.splice(1, 2, e.t, e.note);
  if (!e.n) return;
  let p = lane.byNumber.get(e.n);
  if (!p) lane.byNumber.set(e.n, p = { n: e.n, marks: [], pauses: [], leases: [] });
  p.replica = e.replica;
  if (e.client) p.client = e.client;
  p.fence ??= e.fence;
  if (e.kind === "read") p.read ??= e.t;
  else if (e.kind === "acquired") [p.acquired, p.leases] = [p.acquired ?? e.t, [...p.leases.filter((l) => l[1]), [e.t]]];
  else if (e.kind === "released" || e.kind === "left") p.leases.at(-1)?.splice(1, 1, p.released = e.t);
  else if (e.kind === "paused") p.pauses.push([e.t, e.t]);
  else if (e.kind === "resumed") p.pauses.at(-1)[1] = e.t;
  else if (["dropped", "cut", "killed", "gone", "lost", "called"].includes(e.kind)) p.marks.push([e.kind, e.t]);
  else if (e.kind === "stale") [p.stale, p.answer] = [e.t, p.answer ?? "stale"];
  else if (["done", "refused", "failed", "unknown"].includes(e.kind)) [p.answer, p.end] = [e.kind, e.t];
  else p[e.kind] = e.t;
  if (e.note === "arrived late") p.late = true;
  p.last = e.t;
}

// holders are the attempts that held a lock or read, in order; those that wrote over another have it as over.
function holders(lane) {
  const list = [...lane.byNumber.values()].filter((p) => p.acquired !== undefined || p.read !== undefined);
  list.sort((a, b) => (a.acquired ?? a.read) - (b.acquired ?? b.read));
  if (!lane.verdict || lane.verdict.holds) return list;
  const wrote = list.filter((p) => p.committed !== undefined && p.read !== undefined && (p.answer === "done" || p.late)).sort((a, b) => a.committed - b.committed);
  for (const p of wrote) p.over = wrote.findLast((o) => o.committed > p.read && o.committed < p.committed);
  return list;
}

// describe says in words what became of an attempt.
function describe(p) {
  const answers = { failed: "nothing written", unknown: "unknown", stale: "nothing written", ...flow.Words };
  const lost = p.marks.some((m) => m[0] === "lost") ? "lease lost, " : "";
  if (p.stale) return `${lost}⊘ fence refused`;
  if (p.late) return `${lost}late write${p.over ? ` over #${p.over.n}` : ""}`;
  return lost + (p.client ? answers[p.answer] ?? "…" : "a batch") + (p.over ? `, wrote over #${p.over.n}` : "");
}

// timeline draws the window of attempts that begins at lane.first.
function timeline(lane) {
  const all = holders(lane), element = lane.node.querySelector(".time"), range = lane.node.querySelector("input");
  const most = Math.max(0, all.length - rows), first = Math.min(lane.first ?? most, most), list = all.slice(first, first + rows);
  const height = 34 * Math.max(1, list.length) + 18, width = canvas(element, height), short = width < 420;
  [range.max, range.value, range.hidden] = [most, first, most === 0];
  lane.node.querySelector("output").textContent = list.length ? `${first + 1} to ${first + list.length} of ${all.length}` : "none yet";
  lane.node.querySelector(".holders figcaption").textContent = `Who held what, and when${lane.told ?? ""}${lane.outages.map(([from, to, note]) => `. The lock server was killed after ${from.toFixed(0)} ms${to < Infinity ? `, and came back after ${(to - from).toFixed(0)} ms, ${note}` : ""}`).join("")}`;
  element.setAttribute("aria-label", list.map((p) => `request ${p.n} on replica ${p.replica}${p.fence ? `, fence ${p.fence}` : ""}: ${describe(p)}`).join("; "));
  if (!list.length) return;
  const begin = Math.min(...list.map((p) => p.acquired ?? p.read)), end = Math.max(begin + 1, ...list.map((p) => Math.max(p.released ?? p.committed ?? p.last, ...p.pauses.map((q) => q[1]))));
  const x = (t) => 2 + (width - 6) * Math.min(1, Math.max(0, (t - begin) / (end - begin)));
  const bar = (kind, from, to, y, h) => element.append(svg("rect", { class: kind, x: x(from), y, height: h, width: Math.max(2, x(to) - x(from)) }));
  const outages = lane.outages.filter(([from, to]) => from < end && to > begin);
  for (const [from, to] of outages) bar("down", from, to, 0, height - 18);
  list.forEach((p, row) => {
    const y = 34 * row, done = p.committed ?? p.stale ?? p.end ?? p.last;
    const label = svg("text", { class: p.over || p.stale ? "bad" : "", x: 2, y: y + 12 },
      `#${p.n} ${short ? "r" : "replica "}${p.replica}${p.client && !short ? ` client ${p.client}` : ""}${p.fence ? ` fence ${String(p.fence).replace(/^.+(.{6})$/, "…$1")}` : ""}: ${describe(p)}`);
    element.append(label);
    for (const [from, to] of p.pauses) bar("paused", from, to, y + 14, 16);
    for (const [from, to] of p.leases) bar("lock", from, to ?? p.last, y + 16, 12);
    if (p.read !== undefined) bar(p.over ? "stale" : "work", p.read, done, y + 19, 6);
    for (const [kind, t] of p.marks) {
      if (kind === "called") element.append(svg("circle", { class: "call", cx: x(t), cy: y + 22, r: 4 }));
      else if (kind === "lost") element.append(svg("text", { class: "bad", x: Math.min(x(t), width - 10), y: y + 27 }, "✕"));
      else element.append(svg("path", { class: "mark", d: `M${x(t) - 5} ${y + 15}h10l-5 10z` }));
    }
    if (p.stale) element.append(svg("text", { class: "bad", x: Math.min(x(p.stale), width - 12), y: y + 27 }, "⊘"));
  });
  element.append(svg("text", { class: "dim", x: 2, y: height - 2 }, `${begin.toFixed(0)} ms`),
    svg("text", { class: "dim", x: width - 4, y: height - 2, "text-anchor": "end" }, `${end.toFixed(0)} ms`));
}

// amount is a figure as it is shown.
const amount = (figure, value) => (figure.Unit ? value / 100 : value);
const words = (figure, value) => (figure.Unit ? `${(value / 100).toFixed(2)} ${figure.Unit}` : String(value));

// draw draws one lane.
function draw(lane) {
  const s = lane.samples.at(-1);
  if (!s) return;
  const stores = lane.strategy.Stores, waits = stores.some((store) => store !== "postgres"), leases = stores.includes("redis") || stores.includes("etcd");
  const curve = (name, kind, value, first = 0, unit = "") => ({ name, kind, unit, points: [[0, first], ...lane.samples.map((s) => [s.t, value(s)])] });
  const summary = flow.Figures.map((f) => `${f.Label} ${words(f, s.figures[f.Key])}`).join(", ");
  const drawn = flow.Figures.filter((f) => f.Curve), limit = flow.Figures.find((f) => f.Key === flow.Limit);
  const kind = (f) => (f.Curve === "bad" && limit && s.figures[f.Key] <= s.figures[limit.Key] ? "within" : f.Curve);
  const samples = lanes.flatMap((l) => l.samples); // both panels have one scale of values
  const figures = drawn.map((f) => curve(f.Label, kind(f), (s) => amount(f, s.figures[f.Key]), amount(f, lane.samples[0].figures[f.Key]), f.Unit && ` ${f.Unit}`));
  if (limit) figures.push(curve(limit.Label, "limit", (s) => s.figures[limit.Key], s.figures[limit.Key]));
  chart(lane.node.querySelector(".figures"), figures,
    Math.max(...samples.flatMap((s) => drawn.map((f) => amount(f, s.figures[f.Key]))), limit ? s.figures[limit.Key] : 0), summary);
  const lock = waits ? [curve("lock p99", "dash", (s) => s.wait99)] : [];
  chart(lane.node.querySelector(".latency"), [curve("p50", "good", (s) => s.p50), curve("p99", "bad", (s) => s.p99), ...lock],
    Math.max(...samples.flatMap((s) => [s.p99, s.wait99 ?? 0])), `p50 ${s.p50} ms, p99 ${s.p99} ms`);
  const numbers = {
    ...Object.fromEntries(flow.Figures.map((f) => [f.Label, words(f, s.figures[f.Key])])),
    "answers": s.answered, "per second": s.per_second.toFixed(0),
    "p50 ms": s.p50.toFixed(1), "p99 ms": s.p99.toFixed(1), "run again": s.retried, "faults": s.faults,
    ...(waits && { "lock p50 ms": s.wait50.toFixed(1), "lock p99 ms": s.wait99.toFixed(1), "lock busy": s.busy }),
    ...(leases && { "leases lost": s.lost }),
    ...(stores.includes("redis") && { "without lock": s.alone }), ...(stores.includes("etcd") && { "fence refused": s.stale }),
  };
  lane.node.querySelector("dl").replaceChildren(...Object.entries(numbers).map(([name, value]) => {
    const div = document.createElement("div");
    div.append(Object.assign(document.createElement("dt"), { textContent: name }), Object.assign(document.createElement("dd"), { textContent: value }));
    return div;
  }));
  if (!lane.verdict) lane.node.querySelector(".verdict").textContent = `${s.answered} answers so far`;
  timeline(lane);
}

// show shows a verdict, and the part of the time line that explains it.
function show(lane, verdict) {
  lane.verdict = verdict;
  const means = (name) => flow.Invariants.find((i) => name.endsWith(`(${i.Code})`))?.Means;
  const node = lane.node.querySelector(".verdict"), broken = Object.entries(verdict.broken).map(([name, n]) => `${name}: ${n}${means(name) ? `, against “${means(name)}”` : ""}`);
  node.className = `verdict ${verdict.holds ? "good" : "bad"}`;
  node.textContent = `${verdict.holds ? "✓" : "✗"} ${verdict.text}`;
  const small = document.createElement("small");
  small.textContent = verdict.holds ? `every invariant holds in the store${lane.strategy.Safe ? "" : ", this time"}` : `violations in the store: ${broken.join("; ")}`;
  node.append(small);
  const all = holders(lane), told = all.findIndex((p) => p.over || p.stale || p.pauses.length || p.marks.some((m) => m[0] !== "called"));
  const at = told < 0 ? all.findLastIndex((p) => p.answer === "done") - rows / 2 : told - 3; // or where the last request has its effect
  lane.first = Math.max(0, at);
  lane.told = told < 0 ? ": the last requests with an effect" : ": around the first fault, or the first lost update";
}

// setUp makes the panels of a race.
function setUp(settings) {
  lanes = settings.strategies.map((name) => {
    const node = $("lane").content.firstElementChild.cloneNode(true), strategy = flow.Strategies.find((s) => s.Name === name);
    node.querySelector("h2").textContent = name + (strategy.Safe ? "" : " (wrong)");
    node.querySelector(".why").textContent = strategy.Why;
    node.querySelector(".what").textContent = flow.Words.what;
    const lane = { node, strategy, samples: [], byNumber: new Map(), outages: [] };
    node.querySelector("input").addEventListener("input", (e) => { [lane.first, lane.told] = [Number(e.target.value)]; timeline(lane); });
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
    lanes.forEach(draw);
  });
  source.addEventListener("verdict", (e) => {
    source.close();
    JSON.parse(e.data).forEach((verdict, n) => show(lanes[n], verdict));
    lanes.forEach(draw);
    $("status").textContent = lanes.map((l) => `${l.strategy.Name} ${l.verdict.text}.`).join(" ");
    $("again").hidden = false;
    $("run").disabled = false;
  });
  source.addEventListener("outage", (e) => {
    $("error").textContent = JSON.parse(e.data).error;
    $("error").hidden = false;
  });
  source.addEventListener("failed", (e) => { source.close(); fail(`The race failed: ${JSON.parse(e.data).error}`); });
  source.onerror = () => {
    if (source.readyState === EventSource.CLOSED) fail("The server does not know this race any more. Press Run again.");
    else $("status").textContent = "The connection was lost. Trying again …";
  };
  source.onopen = () => { $("status").textContent = "The race is running."; };
}

const form = $("settings");

form.addEventListener("submit", async (e) => {
  e.preventDefault();
  const f = new FormData(e.target), number = (name) => Number(f.get(name));
  const settings = { seed: number("seed"), flow: f.get("flow"), strategies: [f.get("left"), f.get("right")], clients: number("clients"), size: number("size"), fault: f.get("fault") };
  $("error").hidden = true;
  $("run").disabled = true;
  $("status").textContent = "Connecting …";
  try {
    const response = await fetch("/lab/races", { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(settings) });
    const answer = await response.json();
    if (!response.ok) return fail(answer.error);
    flow = flows.find((each) => each.Name === settings.flow);
    setUp(settings);
    $("again").hidden = true;
    $("command").textContent = answer.command;
    $("download").href = `/lab/races/${answer.id}`;
    follow(answer.id);
  } catch (error) {
    fail(`The server does not answer: ${error.message}`);
  }
});

const faults = { none: "none", pause: "pause a replica", drop: "drop the lock", cut: "cut the lock store off", kill: "kill the lock server" };
const hint = () => { $("hint").textContent = chosen().Faults[form.fault.value] ?? ""; };
const chosen = () => flows.find((each) => each.Name === form.flow.value);

// choose fills the form with what a flow offers, and its defaults.
function choose() {
  const next = chosen(), d = next.Default;
  const fill = (select, list, value) => {
    select.replaceChildren(...list.map(([name, text]) => new Option(text, name)));
    select.value = value;
  };
  const names = next.Strategies.map((s) => [s.Name, s.Name + (s.Safe ? "" : " (wrong)")]);
  fill(form.left, names, d.strategies[0]);
  fill(form.right, names, d.strategies[1]);
  fill(form.fault, Object.entries(faults).filter(([name]) => name === "none" || next.Faults[name]), d.fault);
  [form.clients.value, form.size.value, $("size").textContent] = [d.clients, d.size, next.Size];
  [$("title").textContent, $("about").textContent] = [next.Title, `${next.About} Press Run.`];
  $("paused").textContent = next.Words.paused;
  hint();
}
form.flow.addEventListener("change", choose);
form.fault.addEventListener("change", hint);
choose();
addEventListener("resize", () => lanes.forEach(draw));
