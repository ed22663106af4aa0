// The sections of the page, each drawn in its place; then the controls, the theme, printing and copying.

// ---- sections -------------------------------------------------------------------------------------------------
const sections = {
  curves() {
    for (const metric of metricNames(D.scan)) {
      const all = D.scan.filter((line) => line.metric === metric);
      card(inside("curves"), () => {
        const lines = named(fitting(all).filter(seen)),
          { unit, larger } = about(metric);
        const setting = lines.length ? settingOf(lines[0], all) : "";
        return {
          title: words(metric),
          note: [larger ? `Larger means: ${larger}.` : "", setting ? `Shown: ${setting}.` : "", countOf(lines)]
            .filter(Boolean)
            .join(" "),
          picture: (plot) => lineChart(plot, lines, { unit }),
          table: () => lineTable(`${words(metric)}${unit ? `, ${unit}` : ""}; 95 % intervals in brackets`, lines),
        };
      });
    }
  },
  inside() {
    for (const metric of metricNames(D.inside))
      for (const model of unique(D.inside.map((line) => line.model))) {
        const all = D.inside.filter((line) => line.metric === metric && line.model === model);
        if (!all.length) continue;
        card(inside("inside"), () => {
          const points = unique(all.map((line) => line.point));
          // fitting() needs one line per setting, so it is asked for each point.
          const lines = points
            .flatMap((point) => fitting(all.filter((line) => line.point === point)))
            .map((line, i) => ({
              ...line,
              name: words(line.name),
              colour: colours().lines[i % colours().lines.length],
              dash: line.stream ? undefined : "5 3",
            }));
          return {
            title: words(metric),
            note: [
              D.models.length > 1 ? clip(D.models[model].label, 40) : "",
              lines.length ? settingOf(lines[0], all) : "",
              lines.length ? lines[0].note : "",
            ]
              .filter(Boolean)
              .join("; "),
            key: [
              h("div", { class: "key" }, ...lines.map((line) => h("span", {}, swatch(line.colour, line.dash), line.name))),
            ],
            picture: (plot) => lineChart(plot, lines, { unit: about(metric).unit }),
            table: () => lineTable(`${words(metric)} inside the block`, lines),
          };
        });
      }
  },
  heat() {
    let model = D.scan[0].model;
    const models = unique(D.scan.map((line) => line.model));
    if (models.length > 1)
      chooser(
        "heat",
        "model",
        models.map((m) => [m, D.models[m].label]),
        (m) => {
          model = Number(m);
          one.redraw(true);
        },
      );
    const one = card(inside("heat"), () => {
      const mine = D.scan.filter((line) => line.model === model);
      const lines = metricNames(mine).map((metric) => fitting(mine.filter((l) => l.metric === metric))[0]);
      const layers = unique(lines.flatMap((line) => line.layers)).sort((a, b) => a - b);
      const rows = lines.map((line) => {
        const known = line.value.filter((y) => y !== null);
        const [low, high] = [Math.min(...known), Math.max(...known)];
        return {
          label: words(line.metric),
          note: known.length ? `${number(low)} to ${number(high)}` : "",
          cells: layers.map((layer) => {
            const i = line.layers.indexOf(layer),
              y = i < 0 ? null : line.value[i];
            const bounds = line.low && i >= 0 ? interval(line.low[i], line.high[i]) : "";
            return {
              share: share(y, low, high),
              full: number(y),
              tipLines: [{ name: `layer ${layer}`, cells: [number(y), bounds, about(line.metric).unit] }],
            };
          }),
        };
      });
      return {
        title: D.models[model].label,
        note: "Each row has its own scale, from its minimum to its maximum.",
        key: [scaleKey("min", "max")],
        picture: (plot) => heatMap(plot, { rows, columns: layers }),
        table: () => heatTable(`${D.models[model].label}: metrics by layer`, { rows, columns: layers }),
      };
    });
  },
  scores() {
    drawScores();
  },
  correlation() {
    drawCorrelation();
  },
  stress() {
    for (const metric of metricNames(D.stress))
      for (const condition of unique(D.stress.map((line) => line.condition)))
        for (const model of unique(D.stress.map((line) => line.model))) {
          const all = D.stress.filter((l) => l.metric === metric && l.condition === condition && l.model === model);
          if (!all.length) continue;
          card(inside("stress"), () => {
            const lines = fitting(all)
              .sort((a, b) => a.level - b.level)
              .map((line, i, of) => ({
                ...line,
                name: `level ${tickText(line.level)}`,
                colour: inOrder(i, of.length),
              }));
            return {
              title: `${words(condition)}: ${words(metric)}`,
              note: [
                D.models.length > 1 ? clip(D.models[model].label, 40) : "",
                lines.length ? settingOf(lines[0], all) : "",
              ]
                .filter(Boolean)
                .join(", "),
              key: [h("div", { class: "key" }, ...lines.map((line) => h("span", {}, swatch(line.colour), line.name)))],
              picture: (plot) => lineChart(plot, lines, { unit: about(metric).unit }),
              table: () => lineTable(`${words(condition)}: ${words(metric)}`, lines),
            };
          });
        }
  },
  tradeoff() {
    drawTradeOff();
  },
  training() {
    for (const metric of metricNames(D.scan)) {
      const all = D.scan.filter((line) => line.metric === metric);
      card(inside("training"), () => {
        const lines = fitting(all)
          .filter(seen)
          .sort((a, b) => D.models[a.model].step - D.models[b.model].step);
        const known = lines.flatMap((line) => line.value).filter((y) => y !== null);
        const [low, high] = [Math.min(...known), Math.max(...known)];
        const layers = unique(lines.flatMap((line) => line.layers)).sort((a, b) => a - b);
        const rows = lines.map((line) => ({
          label: `step ${D.models[line.model].step}`,
          cells: layers.map((layer) => {
            const y = line.value[line.layers.indexOf(layer)] ?? null;
            return {
              share: share(y, low, high),
              full: number(y),
              tipLines: [{ name: `layer ${layer}`, cells: [number(y), about(metric).unit] }],
            };
          }),
        }));
        return {
          title: words(metric),
          note: lines.length ? settingOf(lines[0], all) : "",
          key: known.length ? [scaleKey(number(low), number(high))] : [],
          picture: (plot) =>
            rows.length
              ? heatMap(plot, { rows, columns: layers })
              : plot.replaceChildren(h("div", { class: "empty" }, "All models are hidden. Choose one above.")),
          table: () => heatTable(`${words(metric)} by layer and training step`, { rows, columns: layers }),
        };
      });
    }
  },
  changes() {
    const pairs = D.pairs;
    let pair = 0;
    if (pairs.length > 1)
      chooser(
        "changes",
        "pair",
        pairs.map((p, i) => [i, p.name]),
        (p) => {
          pair = Number(p);
          redrawAll();
        },
      );
    for (const metric of metricNames(pairs.flatMap((p) => p.changes))) {
      card(inside("changes"), () => {
        const all = pairs[pair].changes.filter((line) => line.metric === metric);
        const lines = fitting(all).map((line) => ({ ...line, name: "difference", colour: colours().lines[0] }));
        return {
          title: words(metric),
          note: [
            pairs[pair].name,
            lines.length ? settingOf(lines[0], all) : "",
            lines.length && lines[0].paired ? "paired by text" : "not paired",
          ]
            .filter(Boolean)
            .join(", "),
          picture: (plot) => lineChart(plot, lines, { unit: about(metric).unit, zero: true }),
          table: () => lineTable(`${words(metric)}: ${pairs[pair].name}`, lines),
        };
      });
    }
  },
  cka() {
    for (const pair of D.pairs.filter((p) => p.cka)) {
      const rows = pair.cka.values
        .map((line, i) => ({
          label: `layer ${pair.cka.first_layers[i]}`,
          cells: line.map((y, j) => ({
            share: y,
            full: number(y),
            text: y === null ? "" : y.toFixed(2).replace("0.", "."),
            tipLines: [{ name: `layer ${pair.cka.second_layers[j]} of ${pair.second}`, cells: [number(y)] }],
          })),
        }))
        .reverse();
      card(inside("cka"), () => ({
        title: pair.name,
        note: `Rows are layers of ${clip(pair.first, 60)}. Based on ${pair.cka.n} texts, tokens ${pair.cka.tokens}, mean pooling.`,
        key: [scaleKey("0 (unrelated)", "1 (identical up to rotation)")],
        picture: (plot) =>
          heatMap(plot, { rows, columns: pair.cka.second_layers, axis: `layer of ${clip(pair.second, 40)}` }),
        table: () => heatTable(`Linear CKA: ${pair.name}`, { rows, columns: pair.cka.second_layers }),
      }));
    }
  },
};

// ---- scores of tasks ------------------------------------------------------------------------------------------
const scoreSettings = () => unique(D.eval.map((l) => [l.tokens, l.pooling, l.norm].join(", ")));
const drawScores = () => {
  let setting = scoreSettings()[0],
    model = D.eval[0].model;
  const lineOf = (l) => [l.tokens, l.pooling, l.norm].join(", ") === setting;
  if (scoreSettings().length > 1)
    chooser(
      "scores",
      "tokens, pooling, norm",
      scoreSettings().map((w) => [w, w]),
      (w) => {
        setting = w;
        redrawAll();
      },
    );
  const models = unique(D.eval.map((line) => line.model));
  if (models.length > 1)
    chooser(
      "scores",
      "model",
      models.map((m) => [m, D.models[m].label]),
      (m) => {
        model = Number(m);
        redrawAll();
      },
    );
  const tasks = unique(D.eval.map((line) => line.metric));
  card(inside("scores"), () => {
    const lines = named(
      models
        .filter((m) => !chosen.hidden.has(m))
        .map((m) => meanLine(D.eval.filter((l) => l.model === m && lineOf(l))))
        .filter(Boolean),
    );
    return {
      title: tasks.length > 1 ? `Mean of ${tasks.length} tasks` : tasks[0],
      note: "Points from 0 to 100. A ring is the last layer after the final norm, the model's usual output." +
        (lines.some((line) => line.low) ? " Bands are 95 % intervals." : ""),
      picture: (plot) => lineChart(plot, lines, { unit: "points", tall: TALL }),
      table: () => lineTable("Mean score by layer", lines),
    };
  });
  card(inside("scores"), () => {
    const lines = D.eval.filter((line) => line.model === model && lineOf(line));
    const layers = unique(lines.flatMap((line) => line.layers)).sort((a, b) => a - b);
    const normed = lines.some((line) => line.normed);
    const rows = lines.map((line) => scoreRow(line, layers, normed));
    const columns = normed ? [...layers, "norm"] : layers;
    return {
      title: D.models[model].label,
      note: "Each task has its own scale. Diamond: best layer. Ring: the model's usual output. Right: best | last score.",
      key: [scaleKey("worst layer", "best layer")],
      picture: (plot) => heatMap(plot, { rows, columns, gapBefore: normed ? layers.length : -1 }),
      table: () => heatTable(`${D.models[model].label}: points by task and layer`, { rows, columns }),
    };
  });
};
const meanLine = (lines) => {
  if (!lines.length) return null;
  const layers = lines[0].layers.filter((layer) =>
    lines.every((l) => (l.value[l.layers.indexOf(layer)] ?? null) !== null),
  );
  const mean = (list) => list.reduce((a, b) => a + b, 0) / list.length;
  const normed = lines.every((l) => l.normed && l.normed.value !== null)
    ? { layer: lines[0].normed.layer, value: mean(lines.map((l) => l.normed.value)) }
    : undefined;
  return {
    ...lines[0],
    layers,
    value: layers.map((layer) => mean(lines.map((l) => l.value[l.layers.indexOf(layer)]))),
    ...meanInterval(lines, layers),
    normed,
  };
};
// Tasks are independent data sets: half widths of their intervals add up as squares. Shown if every task has one.
const meanInterval = (lines, layers) => {
  if (!lines.every((l) => l.low)) return { low: undefined, high: undefined };
  const bound = (name, sign) =>
    layers.map((layer) => {
      const halves = lines.map((l) => {
        const i = l.layers.indexOf(layer);
        return l[name][i] === null ? NaN : l[name][i] - l.value[i];
      });
      const mean = lines.reduce((sum, l) => sum + l.value[l.layers.indexOf(layer)], 0) / lines.length;
      const y = mean + (sign * Math.hypot(...halves)) / lines.length;
      return Number.isFinite(y) ? y : null;
    });
  return { low: bound("low", -1), high: bound("high", 1) };
};
const scoreRow = (line, layers, normed) => {
  const all = layers.map((layer) => line.value[line.layers.indexOf(layer)] ?? null);
  if (normed) all.push(line.normed ? line.normed.value : null);
  const known = all.filter((y) => y !== null);
  const [low, high] = [Math.min(...known), Math.max(...known)];
  const lastAt = normed && all.at(-1) !== null ? all.length - 1 : layers.length - 1,
    bestAt = all.indexOf(high);
  const bounds = layers.map((layer) => {
    const i = line.layers.indexOf(layer);
    return line.low && i >= 0 ? interval(line.low[i], line.high[i]) : "";
  });
  if (normed) bounds.push(line.normed ? interval(line.normed.low, line.normed.high) : "");
  const cells = all.map((y, i) => {
    const mark = i === bestAt ? "best" : i === lastAt ? "last" : null;
    const place = i < layers.length ? `layer ${layers[i]}` : "last layer, normed";
    const gain =
      y !== null && all[lastAt] !== null
        ? `${y >= all[lastAt] ? "+" : "−"}${Math.abs(y - all[lastAt]).toFixed(1)} from the last`
        : "";
    return {
      share: share(y, low, high),
      full: y === null ? "" : `${y.toFixed(2)} ${bounds[i]}`.trim(),
      mark,
      tipLines: [{ name: place, cells: [y === null ? "–" : y.toFixed(2), bounds[i], gain, mark || ""] }],
    };
  });
  const note = known.length && all[lastAt] !== null ? `${high.toFixed(1)} | ${all[lastAt].toFixed(1)}` : "";
  return { label: line.metric, cells, note };
};

// ---- correlation ----------------------------------------------------------------------------------------------
// A correlation has the rows, tokens and pooling of its metric, but no norm.
const settled = (rows) => fitting(rows.map((row) => ({ ...row, norm: "-" })));
const scoredAs = (row) => (row.transform === "none" ? row.task_pooling : `${row.task_pooling} + ${row.transform}`);
const drawCorrelation = () => {
  let measure = "spearman";
  const measures = [
    ["spearman", "Spearman"],
    ["kendall", "Kendall"],
    ["distance", "distance correlation"],
  ];
  chooser("correlation", "measure", measures, (m) => {
    measure = m;
    redrawAll();
  });
  const scored = unique(D.correlation.flatMap((found) => found.rows.map(scoredAs)));
  let as = scored[0];
  if (scored.length > 1)
    chooser(
      "correlation",
      "pooling and map of the scores",
      scored.map((w) => [w, w]),
      (w) => {
        as = w;
        redrawAll();
      },
    );
  for (const found of D.correlation) {
    card(inside("correlation"), () => {
      const shown = found.rows.filter((row) => scoredAs(row) === as);
      const metrics = metricNames(shown);
      const columns = metrics.map((metric) => ({
        metric,
        rows: settled(shown.filter((r) => r.metric === metric)),
      }));
      const tasks = unique(shown.map((row) => row.task));
      const rows = tasks.map((task) => ({
        label: task,
        cells: columns.map(({ metric, rows: mine }) => {
          const row = mine.find((r) => r.task === task),
            y = row ? row[measure] : null,
            p = row ? row[`${measure}_bends_p`] : null;
          const bends = p === null ? "bends: not tested" : `bends ${number(row[`${measure}_bends`])}, p ${number(p)}`;
          const text = y === null ? "" : y.toFixed(2).replace("-", "−").replace("0.", ".");
          return {
            share: y === null ? null : (y + 1) / 2,
            text,
            full: y === null ? "" : `${y.toFixed(2)} (${bends})`,
            tipLines: [{ name: words(metric), cells: [number(y), row ? bends : "", row ? `${row.layers} layers` : ""] }],
          };
        }),
      }));
      return {
        title: D.models[found.model].label,
        note:
          (shown.length ? `${shown[0].layers} layers. ` : "No metric goes with these scores. ") +
          "The correlation is a description without a p-value: two curves that both rise or fall with depth correlate " +
          "anyway. The p-value in the text of each cell tests the bends: whether the curves turn at the same layers.",
        key: [scaleKey(measure === "distance" ? "(no sign)" : "−1", "1", diverging)],
        picture: (plot) => heatMap(plot, { rows, columns: metrics.map(words), colour: diverging, slanted: true }),
        table: () => heatTable(`${measure} correlation of metrics and scores over layers`, { rows, columns: metrics.map(words) }),
      };
    });
  }
};

// ---- trade-off ------------------------------------------------------------------------------------------------
const drawTradeOff = () => {
  const costs = ["latency", "parameters", "memory"].filter((name) =>
    D.tradeoff.some((t) => t.rows.some((row) => row[name] !== null && row[name] !== undefined)),
  );
  let cost = costs[0];
  if (costs.length > 1)
    chooser(
      "tradeoff",
      "cost",
      costs.map((c) => [c, c]),
      (c) => {
        cost = c;
        redrawAll();
      },
    );
  for (const front of D.tradeoff) {
    const unit = (name) => (front.units[name] ? `${name}, ${clip(String(front.units[name]), 24)}` : name);
    card(inside("tradeoff"), () => ({
      title: D.models[front.model].label,
      note: "Filled points are Pareto-optimal: no other layer is both better and cheaper. Numbers are layers.",
      picture: (plot) =>
        scatter(
          plot,
          front.rows.filter((r) => Number.isFinite(r[cost]) && Number.isFinite(r.score)),
          cost,
          unit,
          front.model,
        ),
      table: () => ({
        caption: "Score and cost by layer",
        head: ["layer", unit("score"), ...costs.map(unit), "Pareto-optimal"],
        rows: front.rows.map((r) => [
          r.layer,
          number(r.score),
          ...costs.map((c) => number(r[c])),
          r.pareto ? "yes" : "",
        ]),
      }),
    }));
  }
};

// ---- start -------------------------------------------------------------------------------------------------------
setTheme(theme);
drawControls();
for (const [id, draw] of Object.entries(sections)) if (document.getElementById(id)) draw();
let width = innerWidth;
addEventListener("resize", () => {
  if (innerWidth !== width) {
    width = innerWidth;
    redrawAll();
  }
});
let onScreen = null; // the theme to restore after printing
addEventListener("beforeprint", () => {
  hideTip();
  onScreen ??= theme;
  setTheme("light"); // print in the light theme
  for (const one of cards) one.redraw(true);
  for (const more of document.querySelectorAll("details")) more.open = true;
});
addEventListener("afterprint", () => {
  setTheme(onScreen ?? theme);
  onScreen = null;
  redrawAll();
});
for (const button of document.querySelectorAll("button[data-copies]")) {
  button.hidden = false;
  button.addEventListener("click", async () => {
    const text = document.getElementById(button.dataset.copies);
    getSelection().selectAllChildren(text);
    // The promise of the clipboard may stay open for ever, if the browser waits for a permission.
    if (!document.execCommand("copy")) await navigator.clipboard.writeText(text.textContent);
    button.textContent = "Copied";
    setTimeout(() => {
      button.textContent = "Copy";
    }, 1500);
  });
}
// The page is ready once the first charts are on the screen.
requestAnimationFrame(() =>
  setTimeout(() => {
    performance.mark("drawn");
    root.dataset.ready = "yes";
  }),
);
