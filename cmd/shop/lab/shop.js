// The page of the shop: sends requests with a key for each click, and shows the state that the server streams.
const $ = (id) => document.getElementById(id);
const requestsMax = 10;
let state = { Customers: [], Products: [], Orders: [] };
let seen; // ids of the orders and entries that were shown before

const money = (minor, currency) => `${(minor / 100).toFixed(2)} ${currency}`;
const time = (at) => new Date(at).toLocaleTimeString();
const short = (id) => `…${id.slice(-6)}`;

// element makes an element with children, which may be texts.
function element(name, properties, ...children) {
  const e = Object.assign(document.createElement(name), properties);
  e.append(...children);
  return e;
}

const me = () => state.Customers?.find((c) => c.Name === $("who").customer.value);
const other = () => state.Customers?.find((c) => c.Name !== $("who").customer.value);

// kind says what a problem of the API means for the intent: rejected, open (nothing was done yet), or unknown.
const unknown = ["outcome-unknown", "in-progress", "timeout", "internal"];
const open = ["busy", "lost", "stale", "fence-epoch", "rate-limited", "request-timeout"];
function kind(response, answer) {
  if (response.ok) return "ok";
  const type = answer.type?.replace("/problems/", "") ?? (response.status === 503 ? "busy" : "rejected");
  return unknown.includes(type) ? "unknown" : open.includes(type) ? "open" : "rejected";
}

// attempt sends a request, again with the same key, and adds the answer to its entry in the list.
async function attempt(r) {
  const line = element("p", { textContent: "…" });
  const focused = document.activeElement === r.again;
  r.item.insertBefore(line, r.again);
  r.again.disabled = true;
  let result, text;
  try {
    const response = await fetch(r.path, { method: "POST", headers: { "Content-Type": "application/json", "Idempotency-Key": r.key }, body: r.body });
    const raw = await response.text(), answer = JSON.parse(raw);
    result = kind(response, answer);
    const replayed = response.headers.get("Idempotency-Replayed") === "true";
    const same = replayed && r.raw !== undefined ? (raw === r.raw ? ", the same bytes" : ", other bytes than before!") : "";
    if (result === "ok" || replayed) r.raw = raw;
    const why = answer.detail || answer.title || answer.error;
    text = {
      ok: () => `${r.said(answer)}.`,
      rejected: () => `Refused: ${why}`,
      open: () => `Not done: ${why} You can send it again: the key is still free.`,
      unknown: () => `Unknown: it may have happened, or not. ${why}`,
    }[result]();
    if (replayed) text = `Replayed: ${text} This is the stored answer${same}; nothing happened again.`;
    line.textContent = `${response.status} ${text}`;
  } catch {
    result = "unknown";
    line.textContent = "Unknown: no answer came. It may have happened, or not. Ask again with the same key; do not send a new request.";
  }
  line.className = result;
  r.again.textContent = result === "unknown" ? "Ask again with the same key" : "Send again with the same key";
  r.again.disabled = false;
  if (focused && document.activeElement === document.body) r.again.focus(); // a disabled button has lost it
}

// send makes an intent of a click.
function send(what, path, body, said) {
  const customer = me();
  if (!customer) return;
  const key = crypto.randomUUID(), again = element("button", { type: "button", textContent: "Send again with the same key" });
  const item = element("li", {}, element("b", { textContent: `${customer.Name}: ${what}` }), " ", element("small", { textContent: `key ${short(key)}, ${time(Date.now())}` }), again);
  const r = { item, again, key, path: `/lab/shop/${encodeURIComponent(customer.Name)}/v1/${path}`, body: JSON.stringify(body), said };
  again.addEventListener("click", () => attempt(r));
  $("requests").prepend(item);
  while ($("requests").children.length > requestsMax) $("requests").lastChild.remove();
  attempt(r);
}

const query = (form) => (form.strategy.value ? `?strategy=${encodeURIComponent(form.strategy.value)}` : "");
const minor = (text) => Math.round(Number(text) * 100);

function onSubmit(id, act) {
  $(id).addEventListener("submit", (e) => { e.preventDefault(); act(e.target, e.submitter); });
}

onSubmit("buy", (form) => {
  const quantity = Number(form.quantity.value), sku = form.sku.value;
  send(`buy ${quantity} × ${sku}`, `orders${query(form)}`, { lines: [{ sku, quantity }] }, (o) => `Order ${short(o.id)} for ${money(o.total, o.currency)}`);
});
onSubmit("transfer", (form) => {
  const from = me()?.Account, to = other()?.Account, amount = minor(form.amount.value);
  if (!from || !to) return;
  send(`transfer ${money(amount, from.Currency)} to ${other().Name}`, `transfers${query(form)}`, { from: from.ID, to: to.ID, amount, currency: from.Currency },
    (t) => `Transfer ${short(t.id)} is ${t.state}`);
});
onSubmit("wallet", (form, submitter) => {
  const from = me()?.Wallet, to = other()?.Wallet, amount = minor(form.amount.value), pay = submitter?.value === "pay";
  if (!from || !to) { $("status").textContent = "The wallets are not there: see above which store is missing."; return; }
  const what = pay ? `pay ${money(amount, from.Currency)} to ${other().Name}` : `credit ${money(amount, from.Currency)}`;
  send(what, `wallets/${from.ID}/${pay ? "payments" : "credits"}${query(form)}`, pay ? { to: to.ID, amount } : { amount },
    (o) => `The ${o.kind} of ${money(o.amount, o.currency)}${o.bonus ? ` with a bonus of ${money(o.bonus, o.currency)}` : ""} is done`);
});

// options keeps the choice while the list changes.
function options(select, list) {
  const labels = list.map(([value, label]) => `${value}\n${label}`).join("\n");
  if (select.dataset.labels === labels) return;
  const chosen = select.value;
  select.dataset.labels = labels;
  select.replaceChildren(...list.map(([value, label]) => element("option", { value, textContent: label })));
  if (list.some(([value]) => value === chosen)) select.value = chosen;
}

const rows = (id, list) => $(id).tBodies[0].replaceChildren(...list.map((cells) => element("tr", {}, ...cells.map((c) => element("td", { textContent: c })))));

// news fills a list, and marks what was not there before. What stays keeps its element, and so the focus.
function news(id, list) {
  const old = new Map([...$(id).children].map((li) => [li.shows, li]));
  $(id).replaceChildren(...list.map(([key, ...content]) => {
    const shows = `${key} ${content.length}`;
    return Object.assign(old.get(shows) ?? element("li", { shows }, ...content), { className: seen && !seen.has(key) ? "new" : "" });
  }));
  return list.map(([key]) => key);
}

// cancel is the button beside an order of this customer.
function cancel(o) {
  const b = element("button", { type: "button", textContent: "Give back" });
  b.setAttribute("aria-label", `Give back ${o.Quantity} × ${o.SKU}`);
  b.addEventListener("click", () => send(`give back ${o.Quantity} × ${o.SKU}`, `orders/${o.ID}/cancel`, undefined, () => "The stock has it again"));
  return b;
}

// show shows the state.
function show() {
  const customers = state.Customers ?? [], named = Object.fromEntries(customers.map((c) => [c.Account.ID, c.Name]));
  const chosen = $("who").customer.value || location.hash.slice(1); // a window stays its customer when it is loaded again
  options($("who").customer, customers.map((c) => [c.Name, c.Name]));
  if (customers.some((c) => c.Name === chosen)) $("who").customer.value = chosen;
  options($("buy").sku, (state.Products ?? []).map((p) => [p.SKU, p.Name]));
  for (const e of document.querySelectorAll(".other")) e.textContent = other()?.Name ?? "the other";
  rows("products", (state.Products ?? []).map((p) => [p.Name, money(p.Price, p.Currency), p.Stock, p.ClientMax ? `at most ${p.ClientMax} each` : ""]));
  rows("accounts", customers.map(({ Name, Account: a }) => [Name, money(a.Balance, a.Currency), money(a.Balance - a.Held, a.Currency)]));
  rows("wallets", customers.map(({ Name, Wallet: w }) => [Name, w ? money(w.Balance, w.Currency) : "MongoDB does not say"]));
  const shown = news("orders", (state.Orders ?? []).map((o) => [`${o.ID}/${o.SKU}/${o.Status}`,
    `${o.Customer || "another client"}: ${o.Quantity} × ${o.SKU}, ${money(o.Total, o.Currency)}, ${o.Status} `, element("small", { textContent: `${short(o.ID)} ${time(o.CreatedAt)}` }),
    ...(o.Status === "confirmed" && o.Customer && o.Customer === me()?.Name ? [cancel(o)] : [])]));
  const entries = (list, id, currency) => list.sort((a, b) => Date.parse(b.CreatedAt) - Date.parse(a.CreatedAt)).slice(0, 12).map((e) => [`${e.Name}/${e[id]}`,
    `${e.Name}: ${e.Delta > 0 ? "+" : ""}${money(e.Delta, currency)} `, element("small", { textContent: `${short(e[id])} ${time(e.CreatedAt)}` })]);
  shown.push(...news("ledger", entries(customers.flatMap((c) => (c.Account.Entries ?? []).map((e) => ({ ...e, Name: c.Name }))), "Transfer", customers[0]?.Account.Currency)));
  shown.push(...news("entries", entries(customers.flatMap((c) => (c.Wallet?.Entries ?? []).map((e) => ({ ...e, Name: c.Name }))), "Operation", customers[0]?.Wallet?.Currency)));
  $("down").replaceChildren(...(state.Down ?? []).map((d) => element("p", { className: "error" }, element("b", { textContent: d.Store }), ` ${d.Means}`)));
  const fresh = seen && state.Orders?.find((o) => !seen.has(`${o.ID}/${o.SKU}/${o.Status}`));
  if (fresh) $("status").textContent = `${fresh.Customer || "Another client"}: ${fresh.Quantity} × ${fresh.SKU}, ${fresh.Status}.`;
  seen = new Set(shown);
}

const source = new EventSource("/lab/shop/events");
source.addEventListener("state", (e) => { state = JSON.parse(e.data); show(); });
source.onopen = () => { $("status").textContent = "Connected: what you see is live."; };
source.onerror = () => {
  $("status").textContent = source.readyState === EventSource.CLOSED
    ? "The server does not stream to this window: perhaps the page is open in too many windows. Close some, and load it again."
    : "The connection was lost. Trying again; what you see is old.";
};
$("who").addEventListener("change", () => { history.replaceState(null, "", `#${me().Name}`); show(); });
$("who").addEventListener("submit", (e) => e.preventDefault());
