"use strict";
const all = (selector, root = document) => [...root.querySelectorAll(selector)];

/* Claims and tables are shown if verdict, section and words are asked for; folds open on what was found in them. */
const filters = (() => {
  const claims = all(".claim"), tables = all("#tables > .fold");
  if (!claims.length) return { clear: () => {} };
  const folds = all(".claims > .fold"), wasOpen = new Map();
  const verdicts = all("[data-filter]"), section = document.getElementById("section");
  const words = document.getElementById("words"), count = document.getElementById("count");
  for (const claim of claims)
    claim.dataset.words = `${claim.querySelector("summary").textContent} ${claim.dataset.quantity}`.toLowerCase();
  const text = new Map(tables.map(table => [table, table.textContent.toLowerCase()]));
  const unfold = (fold, found, narrowed) => {
    fold.classList.toggle("hidden", !found);
    if (narrowed && !wasOpen.has(fold)) wasOpen.set(fold, fold.open);
    if (narrowed) fold.open = found;
    else if (wasOpen.has(fold)) { fold.open = wasOpen.get(fold); wasOpen.delete(fold); }
  };
  const apply = () => {
    const on = new Set(verdicts.filter(b => b.getAttribute("aria-pressed") === "true").map(b => b.dataset.filter));
    const asked = words.value.trim().toLowerCase(), narrowed = Boolean(asked || section.value || on.size < verdicts.length);
    let shown = 0;
    for (const claim of claims) {
      const keep = on.has(claim.dataset.verdict) && (!section.value || claim.dataset.section === section.value)
        && claim.dataset.words.includes(asked);
      claim.classList.toggle("hidden", !keep);
      shown += keep;
    }
    for (const fold of folds) unfold(fold, Boolean(fold.querySelector(".claim:not(.hidden)")), narrowed);
    for (const table of tables) unfold(table, text.get(table).includes(asked), Boolean(asked));
    const rest = tables.filter(table => !table.classList.contains("hidden")).length;
    count.textContent = `${shown} of ${claims.length} claims and ${rest} of ${tables.length} tables shown`;
  };
  for (const button of verdicts)
    button.addEventListener("click", () => {
      button.setAttribute("aria-pressed", button.getAttribute("aria-pressed") !== "true");
      apply();
    });
  section.addEventListener("change", apply);
  words.addEventListener("input", apply);
  apply();
  const clear = () => {
    for (const button of verdicts) button.setAttribute("aria-pressed", true);
    section.value = words.value = "";
    apply();
  };
  return { clear };
})();

/* A link shows what it names: folds around it open, and it is found whatever was filtered. */
const follow = () => {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (!target) return;
  if (target.closest(".hidden")) filters.clear();
  for (let fold = target.closest("details"); fold; fold = fold.parentElement.closest("details")) fold.open = true;
  for (const card of all(".card.shown")) card.classList.remove("shown");
  target.closest(".card")?.classList.add("shown");
  (target.closest(".card") ?? target).scrollIntoView();
};
addEventListener("hashchange", follow);
follow();

/* On paper every fold is open; afterwards each is as it was. */
const folded = [];
addEventListener("beforeprint", () => {
  for (const fold of all("details:not([open])")) { fold.open = true; folded.push(fold); }
});
addEventListener("afterprint", () => { while (folded.length) folded.pop().open = false; });

/* Figures: legend entries switch their series off and on; points tell their numbers. */
for (const button of all(".legend button"))
  button.addEventListener("click", () => {
    const on = button.getAttribute("aria-pressed") !== "true";
    button.setAttribute("aria-pressed", on);
    for (const g of all(`[data-series="${button.dataset.toggle}"]`, button.closest("figure")))
      g.classList.toggle("hidden", !on);
  });
const tip = document.getElementById("tip");
document.addEventListener("pointerover", event => {
  const text = event.target.dataset?.tip;
  tip.hidden = !text;
  if (!text) return;
  tip.textContent = text;
  tip.style.left = `${Math.min(event.clientX + 12, innerWidth - tip.offsetWidth - 8)}px`;
  tip.style.top = `${Math.max(4, event.clientY - 34)}px`;
});

/* The round explorer. */
(() => {
  const source = document.getElementById("explorer-data");
  if (!source) return;
  const data = JSON.parse(source.textContent), root = document.getElementById("explorer");
  const { tokens, model, against } = data;
  const last = tokens.length - 2;                       // the final token is only predicted
  const unpack = text => {
    const bytes = Uint8Array.from(atob(text), c => c.charCodeAt(0)), view = new DataView(bytes.buffer);
    return t => Array.from({ length: t + 1 }, (_, s) => view.getUint16(2 * (t * (t + 1) / 2 + s), true) / 65535);
  };
  for (const side of [model, against])
    if (side) for (const layer of side.layers) for (const round of layer) round.row = round.attention && unpack(round.attention);
  const visible = text => text.replace(/\n/g, "⏎").replace(/\t/g, "⇥").replace(/^ /, "␣") || "∅";
  const make = (tag, options = {}, ...children) => {
    const element = document.createElement(tag);
    for (const [key, value] of Object.entries(options))
      key in element && key !== "list" ? element[key] = value : element.setAttribute(key, value);
    element.append(...children);
    return element;
  };
  const maps = model.layers.map((rounds, layer) => [
    ...(against?.layers[layer] ?? []).map((round, m, all) => ({
      name: all.length > 1 ? `${data.names.against}, round ${m}` : data.names.against, round, m, other: true })),
    ...rounds.map((round, m) => ({ name: `round ${m}`, round, m })),
  ]);

  const choose = root.querySelector("select");
  maps.forEach((kinds, layer) => kinds.forEach((kind, i) => kind.round.row &&
    choose.append(make("option", { value: `${layer},${i}`, textContent: `layer ${layer}, ${kind.name}` }))));
  const shadeBy = Math.min(1, maps.length - 1);
  choose.value = `${shadeBy},${maps[shadeBy].findLastIndex(kind => kind.round.row)}`;

  const text = root.querySelector(".text");
  const buttons = tokens.map((token, i) => {
    const button = make("button", { type: "button", tabIndex: -1, title: `token ${i}`, ariaLabel: `token ${i}: ${visible(token)}` }, token.replace(/\n/g, "⏎") || "∅");
    if (i > last) button.disabled = true;
    button.addEventListener("click", () => select(i));
    text.append(button, token.includes("\n") ? "\n" : "");
    return button;
  });

  const strip = (weights, colour, label) => {
    const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg"), n = last + 1, top = Math.max(...weights, 1e-9);
    svg.setAttribute("viewBox", `0 0 ${n} 26`);
    svg.setAttribute("preserveAspectRatio", "none");
    svg.setAttribute("class", colour);
    svg.setAttribute("role", "img");
    svg.setAttribute("aria-label", label);
    weights.forEach((w, s) => {
      const bar = document.createElementNS("http://www.w3.org/2000/svg", "rect"), height = 25 * w / top;
      for (const [key, value] of Object.entries({ x: s, y: 26 - height, width: 0.9, height, fill: "currentColor" }))
        bar.setAttribute(key, value);
      bar.dataset.tip = `${visible(tokens[s])} (token ${s}): ${(100 * w).toFixed(1)} %`;
      svg.append(bar);
    });
    return svg;
  };
  const predictions = (side, name, t) => {
    const rows = side.top[t].map(([word, p]) => make("tr", {}, make("td", {}, visible(word)), make("td", {}, `${(100 * p).toFixed(1)} %`)));
    return make("div", {}, make("h3", {}, `${name}: loss ${side.loss[t].toFixed(3)}`), make("table", {}, make("tbody", {}, ...rows)));
  };

  let current = 0;
  const select = t => {
    t = Math.max(0, Math.min(last, t));
    buttons[current].tabIndex = -1;
    buttons[current].removeAttribute("aria-current");
    current = t;
    buttons[t].tabIndex = 0;
    buttons[t].setAttribute("aria-current", "true");
    const [layer, i] = choose.value.split(",").map(Number), shade = maps[layer][i].round.row(t), most = Math.max(...shade);
    buttons.forEach((button, s) => {
      button.style.backgroundColor = s <= t ? `rgba(var(--heat), ${(0.45 * shade[s] / most).toFixed(3)})` : "";
      button.classList.toggle("ahead", s > t + 1);
    });
    const gain = against ? against.loss[t] - model.loss[t] : 0;
    const name = data.names;
    root.querySelector(".said").textContent = `After ${visible(tokens[t])} (token ${t}) comes ${visible(tokens[t + 1])}. `
      + `${name.model} has a loss of ${model.loss[t].toFixed(3)} nats`
      + (against ? `, ${name.against} of ${against.loss[t].toFixed(3)}: ${name.model} is ${Math.abs(gain).toFixed(3)} ${gain >= 0 ? "better" : "worse"}.` : ".");
    root.querySelector(".both").replaceChildren(predictions(model, data.names.model, t), ...(against ? [predictions(against, data.names.against, t)] : []));
    const rows = [];
    maps.forEach((kinds, layer) => {
      const corrections = kinds.filter(kind => kind.round.gate && !kind.other);
      const told = corrections.map(({ name, round }) =>
        `${name}: gate ${round.gate[t].toFixed(3)}, residual norm ${round.residual[t].toFixed(2)}`).join("; ");
      rows.push(make("div", { className: "layer" }, `Layer ${layer}`, make("span", { className: "soft" }, told ? ` ${told}` : "")));
      kinds.forEach((kind, i) => {
        if (!kind.round.row) {
          rows.push(make("span", {}, kind.name), make("span", { className: "soft" }, "no attention map"), make("span", {}));
          return;
        }
        const weights = kind.round.row(t);
        const first = weights.map((w, s) => [w, s]).sort((a, b) => b[0] - a[0]).slice(0, 3);
        const most = first.map(([w, s]) => `${visible(tokens[s])} ${(100 * w).toFixed(0)} %`).join(", ");
        const colour = kind.other ? "s0" : ["s7", "s1", "s2", "s3"][kind.m % 4];
        rows.push(make("span", {}, kind.name), strip(weights, colour, `layer ${layer}, ${kind.name}: most on ${most}`),
          make("span", { className: "top" }, most));
      });
    });
    root.querySelector(".maps").replaceChildren(...rows);
    const box = text.getBoundingClientRect(), at = buttons[t].getBoundingClientRect();
    if (at.top < box.top || at.bottom > box.bottom) text.scrollTop += at.top - box.top - box.height / 2;
  };
  choose.addEventListener("change", () => select(current));
  const moves = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: 10, ArrowUp: -10, Home: -Infinity, End: Infinity };
  root.addEventListener("keydown", event => {
    if (!(event.key in moves) || event.target === choose) return;
    event.preventDefault();
    select(current + moves[event.key]);
    buttons[current].focus({ preventScroll: true });
  });
  root.querySelector(".back").addEventListener("click", () => select(current - 1));
  root.querySelector(".on").addEventListener("click", () => select(current + 1));
  const gains = against ? model.loss.map((loss, t) => against.loss[t] - loss) : model.loss.map(loss => -loss);
  select(gains.indexOf(Math.max(...gains.slice(8))));
})();
