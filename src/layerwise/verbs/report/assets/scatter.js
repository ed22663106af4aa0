// Scatter plots: the score of each layer by its cost, with a line through the Pareto front.

const scatter = (plot, rows, cost, unit, model) => {
  const width = Math.max(plot.clientWidth, 220),
    tall = TALL,
    colour = colourOf(model);
  if (!rows.length) {
    plot.replaceChildren(h("div", { class: "empty" }, "No layer has both a score and a cost."));
    return;
  }
  const range = (name) => {
    const all = rows.map((r) => r[name]),
      a = Math.min(...all),
      b = Math.max(...all),
      m = (b - a || Math.abs(a) || 1) * 0.08;
    return [a - m, b + m];
  };
  const [xs, ys] = [range(cost), range("score")];
  const [xTicks, yTicks] = [ticks(...xs, Math.max(2, width / 80)), ticks(...ys, 5)];
  const pad = { left: 12 + 6.4 * Math.max(...yTicks.map((t) => tickText(t).length)), right: 14, top: 18, bottom: 38 };
  const fx = (x) => pad.left + ((x - xs[0]) / (xs[1] - xs[0])) * (width - pad.left - pad.right);
  const fy = (y) => tall - pad.bottom - ((y - ys[0]) / (ys[1] - ys[0])) * (tall - pad.top - pad.bottom);
  const svg = v("svg", { viewBox: `0 0 ${width} ${tall}`, height: tall, "aria-hidden": "true" });
  for (const t of yTicks)
    svg.append(
      v("line", { class: "grid", x1: pad.left, x2: width - pad.right, y1: fy(t), y2: fy(t) }),
      v("text", { x: pad.left - 6, y: fy(t) + 4, "text-anchor": "end" }, tickText(t)),
    );
  for (const t of xTicks)
    svg.append(
      v("line", { class: "axis", x1: fx(t), x2: fx(t), y1: tall - pad.bottom, y2: tall - pad.bottom + 4 }),
      v("text", { x: fx(t), y: tall - pad.bottom + 16, "text-anchor": "middle" }, tickText(t)),
    );
  svg.append(
    v("line", { class: "axis", x1: pad.left, x2: width - pad.right, y1: tall - pad.bottom, y2: tall - pad.bottom }),
    v("text", { x: (pad.left + width) / 2, y: tall - 4, "text-anchor": "middle" }, unit(cost)),
    v("text", { x: 0, y: 10 }, unit("score")),
  );
  const front = rows.filter((r) => r.pareto).sort((a, b) => a[cost] - b[cost]);
  if (front.length > 1)
    svg.append(
      v("path", {
        d: `M${front.map((r) => `${fx(r[cost])} ${fy(r.score)}`).join("L")}`,
        fill: "none",
        stroke: colour,
        "stroke-width": 1.6,
      }),
    );
  const taken = [];
  for (const r of [...rows].sort((a, b) => Boolean(b.pareto) - Boolean(a.pareto))) {
    const [x, y] = [fx(r[cost]), fy(r.score)];
    svg.append(
      v("circle", { cx: x, cy: y, r: 4, fill: r.pareto ? colour : "var(--card)", stroke: colour, "stroke-width": 1.5 }),
    );
    if (taken.some(([a, b]) => Math.abs(a - x) < 17 && Math.abs(b - y) < 12)) continue;
    taken.push([x, y]);
    svg.append(v("text", { class: r.pareto ? "strong" : null, x, y: y - 8, "text-anchor": "middle" }, r.layer));
  }
  plot.replaceChildren(svg);
  let at = -1;
  const show = (i, announced) => {
    at = Math.max(0, Math.min(rows.length - 1, i));
    const r = rows[at],
      tipLines = [
        { name: unit("score"), cells: [number(r.score)] },
        { name: unit(cost), cells: [number(r[cost])] },
      ];
    showTip(
      `layer ${r.layer}${r.pareto ? ", Pareto-optimal" : ""}`,
      tipLines,
      svg.getBoundingClientRect(),
      fx(r[cost]),
      fy(r.score),
    );
    if (announced) announce(`layer ${r.layer}`, tipLines);
  };
  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect(),
      near = (r) =>
        Math.hypot(
          fx(r[cost]) - ((event.clientX - box.left) / box.width) * width,
          fy(r.score) - (event.clientY - box.top),
        );
    const best = rows.reduce((b, r, i) => (near(r) < near(rows[b]) ? i : b), 0);
    if (near(rows[best]) < 24) show(best);
    else hideTip();
  });
  svg.addEventListener("pointerleave", hideTip);
  plot.addEventListener("blur", hideTip);
  plot.addEventListener("keydown", (event) => {
    const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: rows.length - 1 }[event.key];
    if (event.key === "Escape") hideTip();
    if (to === undefined) return;
    event.preventDefault();
    show(to, true);
  });
};
