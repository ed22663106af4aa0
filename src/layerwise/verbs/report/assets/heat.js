// Heat maps: rows of cells with marks, read by pointer and arrow keys.
//
// rows: [{label, note, cells: [{share, text, full, tipLines, mark}]}], columns: [label]. `share` is the place of a value on
// the colour scale, `text` stands in the cell where there is room, `full` in the table, `tipLines` in the tip.

const COLUMN_LABEL = 28; // maximum letters of a slanted label

const heatLayout = (width, { rows, columns, slanted, gapBefore, low }) => {
  const narrow = width < 560;
  const length = (text) => [...text].length;
  const most = Math.min(narrow ? 14 : 30, Math.max(...rows.map((row) => length(row.label))) + 1);
  const labels = rows.map((row) => wrap(row.label, most, narrow ? 3 : 2));
  const noted = !narrow && rows.some((row) => row.note);
  const notes = noted ? Math.max(...rows.map((row) => length(row.note || ""))) * 6.2 + 12 : 0;
  const left = Math.max(...labels.flat().map(length)) * 6.5 + 10;
  const lengths = columns.map((label) => length(clip(String(label), COLUMN_LABEL)));
  const top = slanted ? Math.max(...lengths) * 4.9 + 14 : 6;
  const step = (width - left - notes) / columns.length;
  const beyond = lengths.map((letters, c) => letters * 4 - (columns.length - c - 0.5) * step); // a slanted label may extend beyond the edge
  const right = slanted ? Math.max(8, ...beyond) : 8;
  const gap = gapBefore >= 0 ? 6 : 0;
  const wide = Math.min((width - left - notes - right - gap) / columns.length, slanted ? 74 : 60);
  const heights = labels.map((lines) => Math.max(low ? 17 : 24, lines.length * 12.5 + 3));
  const tops = [];
  let bottom = top;
  for (const height of heights) {
    tops.push(bottom);
    bottom += height;
  }
  const fx = (column) => left + column * wide + (gapBefore >= 0 && column >= gapBefore ? gap : 0);
  return { width, labels, noted, left, top, wide, heights, tops, bottom, fx, tall: bottom + (slanted ? 6 : 34) };
};

const heatMap = (plot, { rows, columns, colour = ramp, axis = "layer", slanted = false, gapBefore = -1 }) => {
  const width = Math.max(plot.clientWidth, 240);
  const at = heatLayout(width, { rows, columns, slanted, gapBefore, low: rows.length > 14 });
  const svg = v("svg", { viewBox: `0 0 ${width} ${at.tall}`, height: at.tall, "aria-hidden": "true" });
  rows.forEach((row, r) => drawRow(svg, row, r, at, colour));
  if (slanted) drawSlantedLabels(svg, columns, at);
  else drawLayerLabels(svg, columns, at, axis, gapBefore);
  plot.replaceChildren(svg);
  readableCells(plot, svg, rows, at);
};

const drawRow = (svg, row, r, at, colour) => {
  const { fx, wide } = at;
  const [top, height, middle] = [at.tops[r], at.heights[r], at.tops[r] + at.heights[r] / 2];
  at.labels[r].forEach((line, i) => {
    const y = middle + 4 + (i - (at.labels[r].length - 1) / 2) * 12.5;
    svg.append(v("text", { class: "strong", x: at.left - 8, y, "text-anchor": "end" }, line));
  });
  const between = wide > 4 ? 1 : 0;
  row.cells.forEach((cell, c) => {
    const x = fx(c) + wide / 2;
    const fill = cell.share === null ? "none" : colour(cell.share);
    const box = { x: fx(c) + between / 2, y: top + 0.5, width: Math.max(0.5, wide - between), height: height - 1 };
    svg.append(v("rect", { ...box, fill, rx: wide > 10 ? 2 : 0 }));
    if (cell.text && wide >= [...cell.text].length * 6 + 4) {
      svg.append(v("text", { x, y: middle + 4, "text-anchor": "middle" }, cell.text));
      svg.lastChild.style.fill = onColour(fill);
    }
    if (cell.mark && wide > 3) drawMark(svg, cell.mark, x, middle, Math.min(5, wide / 2 - 0.5), fill);
  });
  if (at.noted) svg.append(v("text", { x: fx(row.cells.length) + 8, y: middle + 4 }, row.note || ""));
};

const drawSlantedLabels = (svg, columns, { fx, wide, top }) => {
  columns.forEach((label, c) => {
    const [x, y] = [fx(c) + wide / 2, top - 6];
    svg.append(
      v("text", { class: "strong", x, y, transform: `rotate(-52 ${x} ${y})` }, clip(String(label), COLUMN_LABEL)),
    );
  });
};

// As many layer numbers as fit; the column after the gap always has its label.
const drawLayerLabels = (svg, columns, { fx, wide, left, bottom }, axis, gapBefore) => {
  const every = [1, 2, 5, 10, 20, 25, 50].find((n) => n * wide >= 24) || 100;
  columns.forEach((label, c) => {
    const crowded = c < gapBefore && fx(gapBefore) - fx(c) < 32;
    if (c !== gapBefore && (c % every || crowded)) return;
    svg.append(v("text", { x: fx(c) + wide / 2, y: bottom + 15, "text-anchor": "middle" }, label));
  });
  svg.append(v("text", { x: (left + fx(columns.length)) / 2, y: bottom + 30, "text-anchor": "middle" }, axis));
};

const drawMark = (svg, mark, x, y, size, fill) => {
  const ink = onColour(fill);
  const shape =
    mark === "best"
      ? v("path", { d: `M${x} ${y - size}L${x + size} ${y}L${x} ${y + size}L${x - size} ${y}Z` })
      : v("circle", { cx: x, cy: y, r: size * 0.8 });
  shape.setAttribute("fill", mark === "best" ? ink : "none");
  shape.setAttribute("stroke", ink);
  shape.setAttribute("stroke-width", 1.4);
  svg.append(shape);
};

const readableCells = (plot, svg, rows, { fx, tops, heights, wide, width }) => {
  const frame = v("rect", { class: "frame", visibility: "hidden" });
  svg.append(frame);
  let at = null;
  const show = (r, c, announced) => {
    at = [Math.max(0, Math.min(rows.length - 1, r)), 0];
    const row = rows[at[0]];
    at[1] = Math.max(0, Math.min(row.cells.length - 1, c));
    const cell = row.cells[at[1]];
    for (const [name, value] of Object.entries({
      x: fx(at[1]),
      y: tops[at[0]],
      width: wide,
      height: heights[at[0]],
      visibility: "visible",
    }))
      frame.setAttribute(name, value);
    const box = svg.getBoundingClientRect();
    showTip(row.label, cell.tipLines, box, fx(at[1]) + wide / 2, tops[at[0]] + heights[at[0]] / 2);
    if (announced) announce(row.label, cell.tipLines);
  };
  const hide = () => {
    frame.setAttribute("visibility", "hidden");
    hideTip();
    at = null;
  };
  const follow = (event) => {
    const box = svg.getBoundingClientRect();
    const [x, y] = [((event.clientX - box.left) / box.width) * width, event.clientY - box.top];
    const r = tops.findIndex((t, i) => y >= t && y < t + heights[i]);
    const c = rows[0].cells.findIndex((_, i) => x >= fx(i) && x < fx(i) + wide);
    if (r < 0 || c < 0) hide();
    else show(r, c);
  };
  svg.addEventListener("pointermove", follow);
  svg.addEventListener("pointerdown", follow);
  svg.addEventListener("pointerleave", hide);
  plot.addEventListener("blur", hide);
  plot.addEventListener("keydown", (event) => {
    if (event.key === "Escape") hide();
    const move = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0] }[event.key];
    if (!move) return;
    event.preventDefault();
    if (at === null) show(0, 0, true);
    else show(at[0] + move[0], at[1] + move[1], true);
  });
};
const heatTable = (caption, { rows, columns }) => ({
  caption,
  head: ["", ...columns.map(String)],
  rows: rows.map((row) => [row.label, ...row.cells.map((cell) => cell.full ?? cell.text ?? "")]),
});
const scaleKey = (low, high, colour = ramp) => {
  const steps = v("svg", { width: 120, height: 10, "aria-hidden": "true" });
  for (let i = 0; i < 24; i++) steps.append(v("rect", { x: i * 5, y: 0, width: 5, height: 10, fill: colour(i / 23) }));
  return h("div", { class: "scale" }, h("span", {}, low), steps, h("span", {}, high));
};
const share = (x, low, high) => (x === null ? null : high > low ? (x - low) / (high - low) : 0.5);
