// What every picture needs: elements made of text nodes, numbers as text, colours, the current choices, the tooltip.

const D = JSON.parse(document.getElementById("data").textContent);
const root = document.documentElement;
const tip = document.getElementById("tip");
const announcer = document.getElementById("announcer");
const SVG = "http://www.w3.org/2000/svg";
const LINE_HEIGHT = 200,
  TALL = 260;

// ---- small tools ----------------------------------------------------------------------------------------------
const put = (node, attributes, children) => {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined && value !== false)
      node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
};
const h = (tag, attributes, ...children) => put(document.createElement(tag), attributes, children);
const v = (tag, attributes, ...children) => put(document.createElementNS(SVG, tag), attributes, children);
const unique = (list) => [...new Set(list)];
const words = (name) => name.replaceAll("_", " ");
const clip = (text, most) => {
  const letters = [...text];
  return letters.length <= most ? text : letters.slice(0, most - 1).join("") + "…";
};
const number = (x) => {
  if (x === null || x === undefined) return "–";
  if (x === 0) return "0";
  const size = Math.abs(x);
  if (size >= 1e5 || size < 1e-3) return x.toExponential(2);
  return size >= 100 ? x.toFixed(size >= 1000 ? 0 : 1) : x.toPrecision(3);
};
const tickText = (x) =>
  x !== 0 && (Math.abs(x) >= 1e5 || Math.abs(x) < 1e-3) ? x.toExponential(0) : String(Number(x.toPrecision(6)));
const interval = (low, high) => (low === null || low === undefined ? "" : `[${number(low)}, ${number(high)}]`);

// Wraps a label to at most `lines` lines, at spaces, underscores or CamelCase capitals.
const wrap = (text, most, lines = 2) => {
  const parts = clip(text, 120).split(/(?<=[ _/·-])|(?<=[a-z0-9])(?=[A-Z])/u);
  const wrapped = [""];
  for (const part of parts) {
    if ([...wrapped.at(-1), ...part].length > most && wrapped.at(-1)) wrapped.push(part);
    else wrapped[wrapped.length - 1] += part;
  }
  const kept = wrapped.slice(0, lines);
  if (wrapped.length > lines) kept[lines - 1] += wrapped.slice(lines).join("");
  return kept.map((line) => clip(line.trim(), most));
};

// ---- theme and colours ----------------------------------------------------------------------------------------
const prefers = matchMedia("(prefers-color-scheme: dark)");
let theme = prefers.matches ? "dark" : "light";
const colours = () => D.colours[theme];
const mix = (ramp, share) => {
  const place = Math.min(Math.max(share, 0), 1) * (ramp.length - 1);
  const left = Math.min(Math.floor(place), ramp.length - 2);
  const [a, b] = [ramp[left], ramp[left + 1]].map((c) => [1, 3, 5].map((i) => parseInt(c.slice(i, i + 2), 16)));
  return `rgb(${a.map((x, i) => Math.round(x + (b[i] - x) * (place - left))).join(" ")})`;
};
const ramp = (share) => mix(colours().ramp, share);
const inOrder = (place, count) => ramp(0.36 + 0.64 * (place / Math.max(1, count - 1))); // the first colour must be visible, too
const diverging = (share) => mix(colours().diverging, share);
const onColour = (colour) => {
  if (colour === "none") return theme === "dark" ? "#ffffff" : "#14181c";
  const [r, g, b] = colour.match(/\d+/g).map(Number);
  return 0.299 * r + 0.587 * g + 0.114 * b > 140 ? "#14181c" : "#ffffff";
};
const ordered = D.models.length > 1 && D.models.every((model) => model.step !== undefined);
const stepOrder = ordered ? D.models.map((m, i) => i).sort((a, b) => D.models[a].step - D.models[b].step) : [];
const colourOf = (model) => {
  if (ordered) return inOrder(stepOrder.indexOf(model), D.models.length);
  return colours().lines[model % colours().lines.length];
};
const dashOf = (model) => (ordered ? null : [null, "6 3", "2 3"][Math.floor(model / colours().lines.length) % 3]);

// ---- current settings -------------------------------------------------------------------------------------------
const curves = [...D.scan, ...D.stress];
const options = (name, of = curves) => unique(of.map((line) => line[name])).filter((word) => word !== "-");
const sameDepth = unique([...curves, ...D.eval].map((line) => line.depth)).length === 1;
const chosen = { x: sameDepth ? "layer" : "depth", hidden: new Set() };
for (const name of ["rows", "tokens", "pooling", "norm"]) chosen[name] = options(name)[0];
const seen = (line) => !chosen.hidden.has(line.model);

// The lines of the current setting; a metric without that setting shows the first one that it has.
const fitting = (lines) => {
  let kept = lines;
  for (const name of ["rows", "tokens", "pooling", "norm"]) {
    const has = unique(kept.map((line) => line[name]));
    const word = has.includes(chosen[name]) ? chosen[name] : has[0];
    kept = kept.filter((line) => line[name] === word);
  }
  return kept;
};
// How many examples the lines were computed on, if they all agree.
const countOf = (lines) => {
  const counts = unique(lines.map((line) => line.n));
  const [one] = unique(lines.map((line) => line.example));
  return counts.length === 1 && counts[0] ? `${counts[0]} ${one}s.` : "";
};
const settingOf = (line, lines) =>
  ["rows", "tokens", "pooling", "norm"]
    .filter((name) => line[name] !== "-" && options(name, lines).length > 1)
    .map((name) => `${name} ${line[name]}`)
    .join(", ");

// ---- the tooltip, and the text for screen readers ------------------------------------------------------------------------------------
const showTip = (title, lines, box, x, y) => {
  tip.replaceChildren(
    h("b", {}, clip(title, 80)),
    h(
      "table",
      {},
      ...lines
        .slice(0, 14)
        .map((line) =>
          h(
            "tr",
            {},
            h("td", {}, line.colour ? swatch(line.colour, line.dash) : ""),
            h("td", { class: "name" }, clip(line.name, 60)),
            ...line.cells.map((cell) => h("td", {}, cell)),
          ),
        ),
    ),
  );
  tip.hidden = false;
  const [w, tall] = [tip.offsetWidth, tip.offsetHeight];
  const left = box.left + x + 14 + w > root.clientWidth - 4 ? box.left + x - w - 14 : box.left + x + 14;
  tip.style.left = `${Math.max(4, Math.min(left, root.clientWidth - w - 4)) + scrollX}px`;
  tip.style.top = `${Math.max(4, Math.min(box.top + y - tall / 2, innerHeight - tall - 4)) + scrollY}px`;
};
const hideTip = () => {
  tip.hidden = true;
};
const announce = (title, lines) => {
  announcer.textContent = `${clip(title, 80)}. ${lines.map((l) => `${clip(l.name, 60)} ${l.cells.join(" ")}`).join("; ")}`;
};
const swatch = (colour, dash) =>
  v(
    "svg",
    { width: 18, height: 8, "aria-hidden": "true" },
    v("line", { x1: 0, x2: 18, y1: 4, y2: 4, stroke: colour, "stroke-width": 3, "stroke-dasharray": dash }),
  );
