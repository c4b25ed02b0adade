
// Draws the plots of the report with uPlot, those that are in sight: a browser keeps no canvas for hundreds of them.
const shown = new Map(); // by element
const sight = new IntersectionObserver((list) => list.forEach((e) => (e.isIntersecting ? show : hide)(e.target)), { rootMargin: "300px" });
const redraw = () => [...shown.keys()].forEach((element) => { hide(element); show(element); });
addEventListener("resize", redraw);
addEventListener("beforeprint", () => { // paper has all of them
  sight.disconnect();
  document.querySelectorAll(".plot").forEach(show);
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);

// draw is called by a script in the figure of a plot.
function draw(plot) {
  const element = document.currentScript.parentElement.querySelector(".plot");
  element.plot = plot;
  sight.observe(element);
}

function hide(element) {
  shown.get(element)?.destroy();
  shown.delete(element);
}

function show(element) {
  const { at, lines, until, faults, unit } = element.plot;
  const color = (name) => getComputedStyle(element).getPropertyValue("--" + name);
  const text = (v) => (v == null ? "" : unit === "ms" && v >= 1000 ? `${+(v / 1000).toFixed(1)} s` : `${v}${unit && ` ${unit}`}`);
  const axis = { stroke: color("soft"), font: "11px system-ui", grid: { stroke: color("grid"), width: 1 }, ticks: { show: false } };
  const decades = (u, list) => list.map((v) => (unit !== "ms" || Number.isInteger(Math.log10(v)) ? v : null));
  const shade = (u) => (faults ?? []).forEach(([from, to]) => {
    const left = u.valToPos(from, "x", true), right = u.valToPos(Math.min(to, until), "x", true);
    u.ctx.fillStyle = color("fault") + "29";
    u.ctx.fillRect(left, u.bbox.top, Math.max(2, right - left), u.bbox.height);
  });
  const below = (u) => { // what is below 0
    const { top, height } = u.bbox, zero = (u.valToPos(0, "y", true) - top) / height;
    if (!Number.isFinite(zero)) return "transparent"; // of its marker in the legend
    const fill = u.ctx.createLinearGradient(0, top, 0, top + height);
    [[0, "00"], [Math.min(1, zero), "00"], [Math.min(1, zero), "48"], [1, "48"]].forEach(([y, alpha]) => fill.addColorStop(y, color("bad") + alpha));
    return fill;
  };
  hide(element);
  shown.set(element, new uPlot({
    width: element.clientWidth, height: 230,
    scales: {
      x: { time: false, range: [0, until] },
      y: unit === "ms" ? { distr: 3, range: (u, low, high) => uPlot.rangeLog(1, high ?? 1, 10, true) }
        : { range: (u, low, high) => uPlot.rangeNum(Math.min(0, low), Math.max(1, high), { min: { pad: 0.1, soft: 0, mode: 1 }, max: { pad: 0.05 } }) },
    },
    axes: [{ ...axis, size: 24, space: 60, values: (u, list) => list.map((v) => `${v} s`) },
      { ...axis, size: 52, space: 34, grid: { ...axis.grid, filter: decades }, values: (u, list) => list.map(text) }],
    cursor: { y: false, drag: { x: false } },
    hooks: { drawClear: [shade] },
    series: [{ label: "at", value: (u, v) => (v == null ? "" : `${v} s`) }, ...lines.map((line) => ({
      label: line.name, stroke: color(line.color), width: 2, dash: line.dashed ? [5, 4] : undefined, points: { show: false },
      fill: line.values.some((v) => v < 0) ? below : undefined, fillTo: 0, value: (u, v) => text(v),
    }))],
  }, [at ?? [], ...lines.map((line) => line.values)], element));
}
