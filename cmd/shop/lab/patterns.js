// The page of patterns: measures one lock after another, and writes the figure below it.
const $ = (id) => document.getElementById(id);
const cells = [...document.querySelectorAll("[data-measure]")];
const figure = new Intl.NumberFormat("en", { maximumFractionDigits: 0, maximumSignificantDigits: 2, roundingPriority: "morePrecision" });

// rowName is the number of a pattern and its title.
const rowName = (cell) => cell.dataset.pattern;

function button(cell) {
  const b = Object.assign(document.createElement("button"), { textContent: "Measure" });
  b.setAttribute("aria-label", `Measure ${rowName(cell)}`);
  b.addEventListener("click", () => all([cell]));
  return b;
}

// list adds the figures to the table at the top, the fastest first.
function list(cell, answer) {
  const figures = $("figures"), row = figures.tBodies[0].insertRow();
  const link = Object.assign(document.createElement("a"), { href: `#${cell.dataset.measure}`, textContent: rowName(cell) });
  row.dataset.median = answer.median_us;
  row.insertCell().append(link);
  row.insertCell().textContent = figure.format(answer.median_us);
  row.insertCell().textContent = figure.format(answer.per_second);
  const others = [...figures.tBodies[0].rows].filter((r) => r === row || r.cells[0].innerText !== link.textContent);
  figures.tBodies[0].replaceChildren(...others.sort((a, b) => a.dataset.median - b.dataset.median));
  figures.hidden = false;
}

// measure measures one lock, and returns a sentence about it.
async function measure(cell) {
  const out = cell.querySelector("output");
  out.className = "";
  out.textContent = "…";
  try {
    const response = await fetch(`/lab/patterns/${cell.dataset.measure}`, { method: "POST" });
    const answer = await response.json();
    if (!response.ok) throw new Error(answer.error);
    out.textContent = `${figure.format(answer.median_us)} µs, ${figure.format(answer.per_second)} per second`;
    list(cell, answer);
  } catch (error) {
    out.className = "error";
    out.textContent = error instanceof TypeError ? "The server does not answer." : error.message;
  }
  return `${rowName(cell)}: ${out.textContent}`;
}

// all measures several, one at a time.
async function all(wanted) {
  const buttons = document.querySelectorAll("button"), focused = document.activeElement;
  buttons.forEach((b) => { b.disabled = true; });
  for (const [n, cell] of wanted.entries()) {
    $("status").textContent = `Measuring ${n + 1} of ${wanted.length}: ${rowName(cell)}`;
    $("status").textContent = await measure(cell);
  }
  if (wanted.length > 1) $("status").textContent = `Measured ${wanted.length} patterns.`;
  buttons.forEach((b) => { b.disabled = false; });
  if (document.activeElement === document.body) focused.focus(); // a disabled button has lost it
}

for (const cell of cells) {
  cell.id = cell.dataset.measure;
  cell.append("On this machine: ", document.createElement("output"), button(cell));
}
$("all").addEventListener("click", () => all(cells));
