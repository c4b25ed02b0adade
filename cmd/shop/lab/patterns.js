// The page of patterns: measures one lock after another, and writes the figures beside its row.
const $ = (id) => document.getElementById(id);
const cells = [...document.querySelectorAll("[data-measure]")];
const figure = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

// rowName is the number of a row's pattern and its name.
const rowName = (cell) => [...cell.parentElement.cells].slice(0, 2).map((c) => c.innerText.trim()).filter(Boolean).join(" ");

function button(cell) {
  const b = Object.assign(document.createElement("button"), { textContent: "Measure" });
  b.setAttribute("aria-label", `Measure ${rowName(cell)}`);
  b.addEventListener("click", () => all([cell]));
  return b;
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
  } catch (error) {
    out.className = "error";
    out.textContent = error instanceof TypeError ? "The server does not answer." : error.message;
  }
  return `${rowName(cell)}: ${out.textContent}`;
}

// all measures several, one at a time.
async function all(list) {
  const buttons = document.querySelectorAll("button");
  buttons.forEach((b) => { b.disabled = true; });
  for (const [n, cell] of list.entries()) {
    $("status").textContent = `Measuring ${n + 1} of ${list.length}: ${rowName(cell)}`;
    $("status").textContent = await measure(cell);
  }
  if (list.length > 1) $("status").textContent = `Measured ${list.length} patterns.`;
  buttons.forEach((b) => { b.disabled = false; });
}

for (const cell of cells) cell.append(document.createElement("output"), button(cell));
$("all").addEventListener("click", () => all(cells));
