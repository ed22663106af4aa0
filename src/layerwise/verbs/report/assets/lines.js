// Line charts: curves with bands by depth or layer, read by pointer and arrow keys. The data say which scale to use
// and whether the ring of the normed last layer fits (verbs/report/scales.py).

const ticks = (low, high, count) => {
  const raw = (high - low) / count || 1,
    size = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].find((m) => m * size >= raw) * size;
  const found = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + step * 1e-9; k++)
    found.push(Number((k * step).toPrecision(12)));
  return found;
};
const logTicks = (low, high) => {
  const all = [];
  for (let e = Math.floor(Math.log10(low)); e <= Math.ceil(Math.log10(high)); e++)
    for (const m of [1, 2, 5]) all.push(m * 10 ** e);
  const inside = all.filter((t) => t >= low * 0.999 && t <= high * 1.001);
  const tens = inside.filter((t) => Math.abs(Math.log10(t) % 1) < 1e-9);
  const step = Math.ceil(tens.length / 5);
  return inside.length <= 5
    ? inside
    : tens.length >= 2
      ? tens.filter((t, i) => i % step === 0)
      : inside.filter((t, i) => i % 2 === 0);
};
const xOf = (layer, depth) => (chosen.x === "depth" ? layer / depth : layer);

const lineChart = (plot, lines, { unit = "", zero = false, tall = LINE_HEIGHT } = {}) => {
  const width = Math.max(plot.clientWidth, 220);
  const points = lines.map((line) =>
    line.layers.map((layer, i) => ({
      layer,
      x: xOf(layer, line.depth),
      y: line.value[i],
      low: line.low ? line.low[i] : null,
      high: line.high ? line.high[i] : null,
    })),
  );
  const values = points
    .flat()
    .flatMap((p) => [p.y, p.low, p.high])
    .concat(lines.map((l) => (l.normed && !l.normed.edge ? l.normed.value : null)))
    .filter((y) => y !== null && y !== undefined);
  if (!values.length) {
    plot.replaceChildren(h("div", { class: "empty" }, "All models are hidden. Choose one above."));
    return;
  }
  let [low, high] = [Math.min(...values), Math.max(...values)];
  const heights = points
    .flat()
    .map((p) => p.y)
    .filter((y) => y !== null);
  const log = lines.some((line) => line.log);
  if (log) low = Math.max(low, Math.min(...heights) / 2);
  if (zero) [low, high] = [Math.min(low, 0), Math.max(high, 0)];
  if (low === high) [low, high] = [low - Math.abs(low) * 0.05 - 0.01, high + Math.abs(high) * 0.05 + 0.01];
  const yTicks = log ? logTicks(low, high) : ticks(low, high, 4);
  const pad = { left: 10 + 6.4 * Math.max(...yTicks.map((t) => tickText(t).length)), right: 12, top: 16, bottom: 36 };
  const inner = { w: width - pad.left - pad.right, h: tall - pad.top - pad.bottom };
  const most = chosen.x === "depth" ? 1 : Math.max(1, ...lines.map((l) => Math.max(...l.layers)));
  const fx = (x) => pad.left + (x / most) * inner.w;
  const scaled = log ? Math.log : (y) => y;
  const margin = (scaled(high) - scaled(low)) * 0.04;
  const fy = (y) =>
    pad.top +
    inner.h *
      (1 - (scaled(log ? Math.max(y, low) : y) - scaled(low) + margin) / (scaled(high) - scaled(low) + 2 * margin));
  const svg = v("svg", { viewBox: `0 0 ${width} ${tall}`, height: tall, "aria-hidden": "true" });
  for (const t of yTicks) {
    svg.append(
      v("line", {
        class: zero && t === 0 ? "axis" : "grid",
        x1: pad.left,
        x2: width - pad.right,
        y1: fy(t),
        y2: fy(t),
      }),
      v("text", { x: pad.left - 6, y: fy(t) + 4, "text-anchor": "end" }, tickText(t)),
    );
  }
  const xTicks =
    chosen.x === "depth" ? [0, 0.25, 0.5, 0.75, 1] : unique(ticks(0, most, Math.min(8, inner.w / 40)).map(Math.round));
  for (const t of xTicks) {
    svg.append(
      v("line", { class: "axis", x1: fx(t), x2: fx(t), y1: tall - pad.bottom, y2: tall - pad.bottom + 4 }),
      v(
        "text",
        { x: fx(t), y: tall - pad.bottom + 16, "text-anchor": "middle" },
        chosen.x === "depth" ? `${t * 100}%` : t,
      ),
    );
  }
  svg.append(
    v("line", { class: "axis", x1: pad.left, x2: width - pad.right, y1: tall - pad.bottom, y2: tall - pad.bottom }),
    v(
      "text",
      { x: pad.left + inner.w / 2, y: tall - 4, "text-anchor": "middle" },
      chosen.x === "depth" ? "depth" : "layer",
    ),
    v("text", { x: 0, y: 9 }, [unit, log ? "log scale" : ""].filter(Boolean).join(", ")),
  );
  lines.forEach((line, i) => drawLine(svg, line, points[i], fx, fy, inner.w / Math.max(1, points[i].length)));
  drawEdges(svg, lines, fx, { above: pad.top, below: tall - pad.bottom });
  plot.replaceChildren(svg);
  readable(plot, svg, lines, points, fx, fy, { tall, pad, width });
};

const drawLine = (svg, line, points, fx, fy, room) => {
  const runs = [[]];
  for (const p of points) {
    if (p.y === null) runs.push([]);
    else runs.at(-1).push(p);
  }
  const at = (x, y) => `${fx(x).toFixed(1)} ${fy(y).toFixed(1)}`;
  for (const run of runs.filter((r) => r.length)) {
    const banded = run.filter((p) => p.low !== null && p.high !== null);
    if (banded.length > 1) {
      const band = [
        ...banded.map((p) => at(p.x, p.high)),
        ...banded
          .slice()
          .reverse()
          .map((p) => at(p.x, p.low)),
      ];
      svg.append(v("path", { d: `M${band.join("L")}Z`, fill: line.colour, "fill-opacity": 0.16 }));
    }
    svg.append(
      v("path", {
        d: `M${run.map((p) => at(p.x, p.y)).join("L")}`,
        fill: "none",
        stroke: line.colour,
        "stroke-width": 1.9,
        "stroke-dasharray": line.dash,
        "stroke-linejoin": "round",
        class: "curve",
      }),
    );
    if (room > 8 || run.length === 1)
      for (const p of run)
        svg.append(v("circle", { cx: fx(p.x).toFixed(1), cy: fy(p.y).toFixed(1), r: 2, fill: line.colour }));
  }
  if (line.normed && line.normed.value !== null && !line.normed.edge) {
    svg.append(
      v("circle", {
        cx: fx(xOf(line.normed.layer, line.depth)),
        cy: fy(line.normed.value),
        r: 4,
        fill: "none",
        stroke: line.colour,
        "stroke-width": 1.8,
      }),
    );
  }
};

// Rings outside the picture: an arrow at the edge with the value; values of several models stand side by side.
const drawEdges = (svg, lines, fx, edges) => {
  for (const [edge, y] of Object.entries(edges)) {
    let right = null;
    for (const line of lines.filter((l) => l.normed && l.normed.edge === edge)) {
      const x = right ?? fx(xOf(line.normed.layer, line.depth));
      const tip = edge === "above" ? y - 6 : y + 6;
      const text = number(line.normed.value);
      svg.append(
        v("path", { class: "edge", d: `M${x - 4} ${y}L${x + 4} ${y}L${x} ${tip}Z`, fill: "none", stroke: line.colour, "stroke-width": 1.6 }),
        v("text", { class: "strong", x: x - 8, y: edge === "above" ? y + 1 : y - 4, "text-anchor": "end" }, text),
      );
      right = x - 16 - 6.6 * text.length;
    }
  }
};

// Pointer and arrow keys move a cursor over the layers; the tooltip shows the value of every line there.
const readable = (plot, svg, lines, points, fx, fy, { tall, pad, width }) => {
  const stops = unique(points.flat().map((p) => p.x)).sort((a, b) => a - b);
  const cursor = v("g", { visibility: "hidden" });
  svg.append(cursor);
  let at = -1;
  const show = (index, announced) => {
    at = Math.max(0, Math.min(stops.length - 1, index));
    const x = stops[at];
    const tipLines = [];
    cursor.replaceChildren(v("line", { class: "cursor", x1: fx(x), x2: fx(x), y1: pad.top, y2: tall - pad.bottom }));
    lines.forEach((line, i) => {
      const near = points[i].reduce((a, b) => (Math.abs(b.x - x) < Math.abs(a.x - x) ? b : a));
      if (Math.abs(near.x - x) > (chosen.x === "depth" ? 0.51 / line.depth : 0)) return;
      if (near.y !== null)
        cursor.append(
          v("circle", {
            class: "halo",
            cx: fx(near.x),
            cy: fy(near.y),
            r: 4.5,
            fill: line.colour,
            "stroke-width": 1.5,
          }),
        );
      tipLines.push({
        name: line.name,
        colour: line.colour,
        dash: line.dash,
        cells: [`layer ${near.layer}`, number(near.y), interval(near.low, near.high)],
      });
      if (line.normed && line.normed.layer === near.layer) {
        tipLines.push({
          name: "after the final norm",
          cells: ["", number(line.normed.value), interval(line.normed.low, line.normed.high)],
        });
      }
    });
    const title = chosen.x === "depth" ? `depth ${Math.round(x * 100)}%` : `layer ${x}`;
    cursor.setAttribute("visibility", "visible");
    showTip(title, tipLines, svg.getBoundingClientRect(), fx(x), tall / 2);
    if (announced) announce(title, tipLines);
  };
  const hide = () => {
    cursor.setAttribute("visibility", "hidden");
    hideTip();
    at = -1;
  };
  const follow = (event) => {
    const box = svg.getBoundingClientRect();
    const x = ((event.clientX - box.left) / box.width) * width;
    show(stops.reduce((best, stop, i) => (Math.abs(fx(stop) - x) < Math.abs(fx(stops[best]) - x) ? i : best), 0));
  };
  svg.addEventListener("pointermove", follow);
  svg.addEventListener("pointerdown", follow);
  svg.addEventListener("pointerleave", hide);
  plot.addEventListener("blur", hide);
  plot.addEventListener("keydown", (event) => {
    const to = { ArrowRight: at + 1, ArrowLeft: at < 0 ? stops.length - 1 : at - 1, Home: 0, End: stops.length - 1 }[
      event.key
    ];
    if (event.key === "Escape") hide();
    if (to === undefined) return;
    event.preventDefault();
    show(to, true);
  });
};

const lineTable = (caption, lines) => {
  const layers = unique(lines.flatMap((line) => line.layers)).sort((a, b) => a - b);
  const cell = (line, layer) => {
    const i = line.layers.indexOf(layer);
    return i < 0 ? "" : `${number(line.value[i])} ${line.low ? interval(line.low[i], line.high[i]) : ""}`;
  };
  const rows = layers.map((layer) => [layer, ...lines.map((line) => cell(line, layer))]);
  if (lines.some((line) => line.normed)) {
    rows.push([
      "last layer, normed",
      ...lines.map((l) => (l.normed ? `${number(l.normed.value)} ${interval(l.normed.low, l.normed.high)}` : "")),
    ]);
  }
  return { caption, head: ["layer", ...lines.map((line) => line.name)], rows };
};
const named = (lines) =>
  lines.map((line) => ({
    ...line,
    name: D.models[line.model].label,
    colour: colourOf(line.model),
    dash: dashOf(line.model),
  }));
