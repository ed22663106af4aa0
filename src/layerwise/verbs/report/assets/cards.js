// A card: a picture, its caption, and the same numbers as a table. Drawn when it comes near the screen, and after a choice.

// ---- cards: a picture, its caption, and its table ---------------------------------------------------------------
const cards = [];
const nearby = new IntersectionObserver(
  (entries) => {
    for (const entry of entries) if (entry.isIntersecting) entry.target.redraw();
  },
  { rootMargin: "300px" },
);

// `make` gives {title, note, key, picture(plot), table() -> {caption, head, rows}} for the current choices.
const card = (parent, make) => {
  const title = h("h3"),
    note = h("p", { class: "note" }),
    body = h("div", { class: "body" }),
    key = h("div");
  const flip = h(
    "button",
    {
      type: "button",
      "aria-pressed": "false",
      onclick: () => {
        flip.setAttribute("aria-pressed", String(flip.getAttribute("aria-pressed") === "false"));
        flip.textContent = flip.getAttribute("aria-pressed") === "true" ? "Chart" : "Table";
        article.redraw(true);
      },
    },
    "Table",
  );
  const article = h("article", { class: "card" }, h("header", {}, h("div", {}, title, note), flip), body, key);
  let stale = true;
  body.style.minHeight = `${LINE_HEIGHT}px`;
  article.stale = () => {
    stale = true;
  };
  article.redraw = (now) => {
    if (!stale && !now) return;
    stale = false;
    const made = make();
    title.textContent = clip(made.title, 200);
    note.textContent = made.note || "";
    flip.setAttribute("aria-label", `${clip(made.title, 60)}: show as a table`);
    body.style.minHeight = "";
    if (flip.getAttribute("aria-pressed") === "true") {
      body.replaceChildren(tableOf(made.table()));
      key.replaceChildren();
      return;
    }
    const plot = h("div", {
      class: "plot",
      tabindex: 0,
      role: "application",
      "aria-roledescription": "chart",
      "aria-label": `${clip(made.title, 80)}. Use the arrow keys to read the values, or the button before it to show a table.`,
    });
    body.replaceChildren(plot);
    made.picture(plot);
    key.replaceChildren(...(made.key || []));
  };
  parent.append(article);
  cards.push(article);
  nearby.observe(article);
  return article;
};
const tableOf = ({ caption, head, rows }) =>
  h(
    "div",
    { class: "scroll", tabindex: 0, role: "region", "aria-label": clip(caption, 80) },
    h(
      "table",
      {},
      h("caption", {}, clip(caption, 200)),
      h("thead", {}, h("tr", {}, ...head.map((c) => h("th", { scope: "col" }, clip(c, 60))))),
      h(
        "tbody",
        {},
        ...rows.map((row) =>
          h("tr", {}, ...row.map((c, i) => h(i ? "td" : "th", i ? {} : { scope: "row" }, clip(String(c), 80)))),
        ),
      ),
    ),
  );

const redrawAll = () => {
  hideTip();
  for (const one of cards) {
    one.stale();
    const box = one.getBoundingClientRect();
    if (box.bottom > -300 && box.top < innerHeight + 300) one.redraw();
    else {
      nearby.unobserve(one);
      nearby.observe(one);
    }
  }
};

// ---- controls -------------------------------------------------------------------------------------------------
const select = (label, words, current, change) =>
  h(
    "label",
    { class: "choice" },
    label,
    h(
      "select",
      { onchange: (event) => change(event.target.value) },
      ...words.map(([value, text]) =>
        h("option", { value, selected: String(value) === String(current) }, clip(text, 60)),
      ),
    ),
  );
const bar = document.getElementById("controls");
const chips = h("div", { class: "chips", role: "group", "aria-label": "Models shown" });
const drawChips = () =>
  chips.replaceChildren(
    ...D.models.map((model, i) =>
      h(
        "button",
        {
          type: "button",
          class: "chip",
          title: clip(model.full, 300),
          "aria-pressed": String(!chosen.hidden.has(i)),
          onclick: () => {
            if (chosen.hidden.has(i)) chosen.hidden.delete(i);
            else chosen.hidden.add(i);
            chips.children[i].setAttribute("aria-pressed", String(!chosen.hidden.has(i)));
            redrawAll();
          },
        },
        swatch(colourOf(i), dashOf(i)),
        h("span", {}, clip(model.label, 80)),
      ),
    ),
  );
const drawControls = () => {
  drawChips();
  bar.append(chips);
  for (const name of ["rows", "tokens", "pooling", "norm"]) {
    const has = options(name);
    if (has.length > 1)
      bar.append(
        select(
          name,
          has.map((w) => [w, words(w)]),
          chosen[name],
          (word) => {
            chosen[name] = word;
            redrawAll();
          },
        ),
      );
  }
  if (curves.length || D.eval.length) {
    bar.append(
      select(
        "x axis",
        [
          ["depth", "relative depth"],
          ["layer", "layer number"],
        ],
        chosen.x,
        (word) => {
          chosen.x = word;
          redrawAll();
        },
      ),
    );
  }
  bar.hidden = !curves.length && !D.eval.length;
};
const themeButton = document.getElementById("theme");
const setTheme = (name) => {
  theme = name;
  root.dataset.theme = name;
  themeButton.textContent = name === "dark" ? "Light" : "Dark";
  themeButton.setAttribute("aria-label", `Switch to the ${name === "dark" ? "light" : "dark"} theme`);
};
themeButton.addEventListener("click", () => {
  setTheme(theme === "dark" ? "light" : "dark");
  drawChips();
  redrawAll();
});
prefers.addEventListener("change", () => {
  setTheme(prefers.matches ? "dark" : "light");
  drawChips();
  redrawAll();
});

const inside = (id) => document.querySelector(`#${id} .cards`);
const chooser = (id, label, words, change) => inside(id).before(select(label, words, words[0][0], change));
const metricNames = (lines) => {
  const known = Object.keys(D.metrics),
    names = unique(lines.map((line) => line.metric));
  return names.sort((a, b) => (known.indexOf(a) + 1 || 999) - (known.indexOf(b) + 1 || 999));
};
const about = (metric) => D.metrics[metric] || { unit: "", larger: "" };
