/* The page: what is typed, chosen and switched is one state, which stands in the address behind the #. */
import { mostAttended, percent, picture, quoted, strip, visible } from "./drawing.js";

const $ = id => document.getElementById(id);
const make = (tag, properties = {}, ...children) => {
  const element = document.createElement(tag);
  for (const [key, value] of Object.entries(properties))
    key in element ? element[key] = value : element.setAttribute(key, value);
  element.append(...children);
  return element;
};
const START = "def read(self, path):\n    with open(path";
const WRITTEN = 20;  // tokens of one "Write"
const tab = `${Date.now()}-${Math.random()}`;

let about, view, number = 0, running = null, writing = false;
let state = { text: START, added: [], position: null, patches: {}, head: "mean", shade: "surprise 0" };
let steps = [];  // what is known of each added token: chosen and alternatives, or null

/* The state in the address. */
const written = () => {
  const fields = new URLSearchParams({ text: state.text });
  if (state.added.length) fields.set("added", state.added.join(","));
  if (state.position !== null) fields.set("token", state.position);
  const patches = Object.entries(state.patches).map(([place, factor]) => `${place}:${factor}`);
  if (patches.length) fields.set("rounds", patches.join(","));
  fields.set("head", state.head);
  fields.set("shade", state.shade);
  return `#${fields}`;
};
const readAddress = hash => {
  const fields = new URLSearchParams(hash.slice(1));
  if (!fields.has("text")) return;
  const whole = text => /^\d{1,9}$/.test(text);
  const patches = {};
  for (const [place, factor] of (fields.get("rounds") ?? "").split(",").map(part => part.split(":")))
    if (/^\d+\.\d+\.\d+$/.test(place) && Number.isFinite(Number(factor))) patches[place] = Number(factor);
  state = {
    text: fields.get("text"), patches, head: fields.get("head") ?? "mean", shade: fields.get("shade") ?? "surprise 0",
    added: (fields.get("added") ?? "").split(",").filter(whole).map(Number),
    position: whole(fields.get("token") ?? "") ? Number(fields.get("token")) : null,
  };
  steps = state.added.map(() => null);
};
const remember = () => history.replaceState(null, "", written());

/* Questions: one at a time, the newest wins. */
const trouble = message => { $("trouble").hidden = !message; $("trouble").textContent = message ?? ""; };
const lines = async function* (response) {
  const reader = response.body.getReader(), decoder = new TextDecoder();
  for (let held = "", ended = false; !ended;) {
    const { done, value } = await reader.read();
    ended = done;
    held += done ? decoder.decode() : decoder.decode(value, { stream: true });
    const whole = held.split("\n");
    held = done ? "" : whole.pop();
    for (const line of whole) if (line) yield JSON.parse(line);
  }
};
const ask = async (what, more = {}, take = () => {}) => {
  running?.abort();
  running = new AbortController();
  const mine = ++number, patches = Object.entries(state.patches).map(([place, factor]) => {
    const [side, layer, round] = place.split(".").map(Number);
    return { side, layer, round, factor };
  });
  const body = JSON.stringify({ tab, number: mine, text: state.text, added: state.added, position: state.position, patches, ...more });
  const slow = setTimeout(() => { $("status").textContent = "computing …"; }, 300);
  try {
    const response = await fetch(what, { method: "POST", body, headers: { "Content-Type": "application/json" }, signal: running.signal });
    let answer = null;
    for await (answer of lines(response)) {
      if (mine !== number) return null;
      if (response.status === 403) trouble(`The server was started again and has a new address. Open the one it printed; this view is what stands behind the # of the address above.`);
      else if (answer.error || answer.refused) trouble(answer.refused ?? answer.error);
      else { trouble(); take(answer); continue; }
      return null;
    }
    return answer;
  } catch (error) {
    if (error.name !== "AbortError")
      trouble(`The server has stopped. Start it again with\n${about ? about.command : "boosted-attention explore"}\nand open the address it prints; this view is what stands behind the # of the address above.`);
  } finally {
    clearTimeout(slow);
    if (mine === number) $("status").textContent = "";
  }
  return null;
};
const wait = on => {
  $("sides").classList.toggle("waiting", on);
  $("save").disabled = on;
};
const look = async () => {
  remember();
  showEdits();
  if (!state.text && !state.added.length) {
    running?.abort();  // layers of the text before would go on coming
    number++;
    $("status").textContent = "";
    trouble("Type a text: there is no token to look at yet.");
    return;
  }
  wait(true);
  const last = await ask("view", {}, part => {
    if (part.tokens) { view = part; show(); }
    else showLayer(part);
    wait(view.sides.some((side, i) => side.layers.length < about.sides[i].rounds.length));
  });
  if (!last) return;
  if ($("head").selectedIndex < 0) $("head").value = state.head = "mean";  // no layer has so many
  if ($("save").disabled) trouble("The answer ended early. Change the text, or load the page again.");
};

/* What stays on the page: one row of controls per round. */
const rows = new Map();  // "side.layer.round": the parts of its row that change
const build = () => {
  const millions = about.sides.map(side => `${side.name} (${(side.parameters / 1e6).toFixed(2)} M parameters, ${side.rounds.length} layers)`);
  $("about").textContent = `${millions.join(" beside ")}; at most ${about.longest} tokens`;
  $("by-label").hidden = about.sides.length < 2;
  $("by").append(...about.sides.map((side, i) => make("option", { value: i, textContent: side.name })));
  const shades = [["none", "nothing"]];
  about.sides.forEach((side, i) => {
    const of = about.sides.length > 1 ? `${side.name}: ` : "";
    shades.push([`surprise ${i}`, `${of}surprise`]);
    const parts = [];
    side.rounds.forEach((rounds, layer) => {
      const group = make("div", {}, make("h3", {}, `Layer ${layer}`));
      for (let m = 0; m < rounds; m++) {
        const place = `${i}.${layer}.${m}`;
        shades.push([`attention ${place}`, `${of}attention, layer ${layer}, round ${m}`]);
        if (m) shades.push([`gate ${place}`, `${of}gate, layer ${layer}, round ${m}`]);
        group.append(roundRow(place, layer, m));
      }
      parts.push(group);
    });
    const guesses = make("ol", { className: "guesses" });
    rows.set(`${i}`, { guesses, heading: make("h2", {}, side.name) });
    $("sides").append(make("section", { ariaLabel: side.name }, rows.get(`${i}`).heading, guesses, ...parts));
  });
  $("shade").append(...shades.map(([value, textContent]) => make("option", { value, textContent })));
};
const roundRow = (place, layer, m) => {
  const map = make("div"), facts = make("span", { className: "facts" }), row = make("div", { className: `round ${m ? "later" : "first"}` });
  const name = make("span", { className: "name" }, `round ${m}`);
  row.append(name, map, facts);
  const parts = { row, map, facts };
  if (m) {
    const named = `layer ${layer}, round ${m}`;
    parts.on = make("input", { type: "checkbox", checked: true, ariaLabel: `${named}: on` });
    parts.factor = make("input", { type: "range", min: 0, max: 2, step: 0.05, value: 1, ariaLabel: `${named}: factor of the gate` });
    parts.told = make("span", { className: "number" }, "× 1");
    name.prepend(parts.on);
    row.append(make("span", { className: "control" }, parts.factor, parts.told));
    const set = factor => {
      if (factor === 1) delete state.patches[place];
      else state.patches[place] = factor;
      look();
    };
    parts.on.addEventListener("change", () => set(parts.on.checked ? 1 : 0));
    parts.factor.addEventListener("input", () => set(Number(parts.factor.value)));
  }
  rows.set(place, parts);
  return row;
};

/* What changes. */
const showEdits = () => {
  for (const [place, parts] of rows) {
    if (!parts.factor) continue;
    const factor = state.patches[place] ?? 1;
    parts.on.checked = factor !== 0;
    if (Number(parts.factor.value) !== factor) parts.factor.value = factor;
    parts.told.textContent = factor ? `× ${factor}` : "off";
    parts.row.classList.toggle("off", factor === 0);
  }
  $("trained").disabled = !Object.keys(state.patches).length;
  $("back").disabled = $("keep").disabled = !state.added.length;
};
const rowOf = round => {
  if (!round.attention) return null;
  if (state.head !== "mean" && round.attention[state.head]) return round.attention[state.head];
  return round.attention[0].map((_, s) => round.attention.reduce((sum, head) => sum + head[s], 0) / round.attention.length);
};
const show = () => {
  showEdits();
  const t = view.position, { tokens } = view;
  $("shade").value = state.shade;
  if ($("shade").selectedIndex < 0) $("shade").value = state.shade = "surprise 0";
  const next = tokens[t + 1];
  $("said").textContent = `After ${quoted(tokens[t])}, token ${t} of ${tokens.length}` + (next === undefined ? ":" : `, where the text goes on with ${quoted(next)}:`);
  view.sides.forEach((side, i) => {
    const { guesses, heading } = rows.get(`${i}`);
    const { followed } = side;
    heading.textContent = about.sides[i].name + (next === undefined ? "" : `: ${quoted(next)} has ${percent(followed.probability)}`);
    guesses.replaceChildren(...side.guesses.map(guess => guessRow(guess)));
    side.layers.forEach((rounds, layer) => rounds.forEach(round => showRound(`${i}.${layer}.${round.round}`, round, followed)));
  });
  showTokens();
  showSteps();
};
const showLayer = ({ side, layer, rounds }) => {
  view.sides[side].layers[layer] = rounds;
  showHeads(Math.max(...rounds.map(round => round.attention?.length ?? 0)));
  rounds.forEach(round => showRound(`${side}.${layer}.${round.round}`, round, view.sides[side].followed));
  if (state.shade.includes(` ${side}.${layer}.`)) showTokens();
};
const showHeads = heads => {
  for (let h = $("head").options.length - 1; h < heads; h++) $("head").append(make("option", { value: h, textContent: h }));
  $("head").value = state.head;
};
const guessRow = guess => {
  const token = make("button", { type: "button", title: "add this token" }, visible(guess.token));
  token.setAttribute("aria-label", `add ${visible(guess.token)}`);
  token.addEventListener("click", () => add(guess.id, null));
  const bar = make("progress", { max: 1, value: guess.probability, ariaLabel: `probability of ${visible(guess.token)}` });
  const moved = guess.was === undefined ? "" : `${guess.probability >= guess.was ? "▲" : "▼"} was ${percent(guess.was)}`;
  const way = guess.was === undefined ? "" : guess.probability >= guess.was ? "up" : "down";
  return make("li", {}, token, bar, make("span", { className: "number" }, percent(guess.probability)), make("span", { className: `moved ${way}` }, moved));
};
const showRound = (place, round, followed) => {
  const parts = rows.get(place), weights = rowOf(round), t = view.position;
  if (round.factor === 0) {
    parts.map.replaceChildren();
    parts.facts.textContent = "switched off";
    return;
  }
  const most = weights ? mostAttended(weights, view.tokens) : "";
  parts.map.replaceChildren(weights ? strip(weights, view.tokens.length, `looks most at ${most}`) : make("span", { className: "soft" }, "no attention map"));
  const facts = weights ? [`looks at ${most}`] : [];
  if (round.gate) {
    const ofHead = state.head !== "mean" && round.gate_by_head?.[state.head] !== undefined;
    facts.push(ofHead ? `gate of head ${state.head} ${round.gate_by_head[state.head].toFixed(3)}` : `gate ${round.gate[t].toFixed(3)}`);
  }
  facts.push(`${round.gate ? "residual" : "input"} norm ${round.residual[t].toFixed(2)}, adds ${round.added.toFixed(2)}`);
  const lines = [facts.join(" · ")];
  if (round.lens) {
    const { before, after, followed_before, followed_after, divergence } = round.lens;
    const same = before[0].id === after[0].id;
    lines.push(`prediction here ${same ? "stays" : `${quoted(before[0].token)} →`} ${quoted(after[0].token)}, with `
      + `${quoted(followed.token)} at ${percent(followed_before)} → ${percent(followed_after)}, moved by ${divergence.toFixed(2)} nats`);
  }
  parts.facts.replaceChildren(...lines.map(line => make("span", {}, line)));
};
const shades = () => {
  const [kind, place] = state.shade.split(" "), n = view.tokens.length;
  const [i, layer, m] = (place ?? "").split(".").map(Number);
  const side = view.sides[i];
  if (kind === "surprise" && side) return [0, ...side.surprise].map(loss => Math.min(1, loss / 8));
  const round = side?.layers[layer]?.[m];
  if (kind === "gate" && round?.gate) return round.gate.map(g => Math.min(1, Math.abs(g)));
  const row = kind === "attention" && round ? rowOf(round) : null;
  if (row) return row.map(w => w / Math.max(...row, 1e-9));
  return Array(n).fill(0);
};
const showTokens = () => {
  const hadFocus = $("tokens").contains(document.activeElement), values = shades(), typed = view.tokens.length - state.added.length;
  const buttons = view.tokens.map((token, s) => {
    const button = make("button", { type: "button", tabIndex: s === view.position ? 0 : -1, className: s < typed ? "" : "added" }, token.replace(/\n/g, "⏎") || "∅");
    button.setAttribute("aria-label", `token ${s}: ${visible(token)}`);
    if (s === view.position) button.setAttribute("aria-current", "true");
    button.style.backgroundColor = `rgba(var(--heat), ${(0.45 * (values[s] ?? 0)).toFixed(3)})`;
    button.addEventListener("click", () => choose(s));
    return button;
  });
  $("tokens").replaceChildren(...buttons.flatMap((button, s) => view.tokens[s].includes("\n") ? [button, "\n"] : [button]));
  if (hadFocus) buttons[view.position].focus({ preventScroll: true });
};
const showSteps = () => {
  const typed = view.tokens.length - state.added.length;
  $("steps-section").hidden = !state.added.length;
  $("steps").replaceChildren(...state.added.map((id, k) => {
    const step = steps[k], token = view.tokens[typed + k];
    const item = make("li", {}, make("span", { className: "mono chosen" }, visible(token)));
    if (!step) { item.append(make("span", { className: "soft" }, " taken by hand or from a link")); return item; }
    item.append(` ${percent(step.chosen.probability)}; instead: `);
    for (const guess of step.alternatives) if (guess.id !== id) {
      const button = make("button", { type: "button" }, visible(guess.token));
      button.setAttribute("aria-label", `take ${visible(guess.token)} instead, ${percent(guess.probability)}`);
      button.addEventListener("click", () => {
        state.added = [...state.added.slice(0, k), guess.id];
        steps = [...steps.slice(0, k), { ...step, chosen: guess }];
        state.position = null;
        look();
      });
      item.append(button, ` ${percent(guess.probability)} `);
    }
    return item;
  }));
};

/* What a reader does. */
const choose = t => {
  state.position = Math.max(0, Math.min(view.tokens.length - 1, t));
  look();
};
const add = (id, step) => {
  state.added.push(id);
  steps.push(step);
  state.position = null;
  return look();
};
const oneStep = async () => {
  const temperature = Math.max(0, Math.min(2, Number($("temperature").value) || 0));
  const step = await ask("step", { by: Number($("by").value) || 0, temperature, seed: state.added.length });
  if (!step) return false;
  await add(step.chosen.id, step);
  return true;
};
const write = async count => {
  writing = true;
  $("stop").disabled = false;
  for (let k = 0; k < count && writing; k++) if (!await oneStep()) break;
  writing = false;
  $("stop").disabled = true;
};
const restore = () => {
  $("text").value = state.text;
  look();
};
$("text").addEventListener("input", () => {
  writing = false;
  Object.assign(state, { text: $("text").value, added: [], position: null });
  steps = [];
  look();
});
$("next").addEventListener("click", oneStep);
$("write").addEventListener("click", () => write(WRITTEN));
$("stop").addEventListener("click", () => { writing = false; });
$("back").addEventListener("click", () => { state.added.pop(); steps.pop(); state.position = null; look(); });
$("keep").addEventListener("click", () => {
  if (!view) return;
  const kept = view.tokens.slice(view.tokens.length - state.added.length).join("");
  Object.assign(state, { text: state.text + kept, added: [], position: null });
  steps = [];
  restore();
});
$("trained").addEventListener("click", () => { state.patches = {}; look(); });
$("shade").addEventListener("change", () => { state.shade = $("shade").value; remember(); if (view) showTokens(); });
$("head").addEventListener("change", () => { state.head = $("head").value; remember(); if (view) show(); });
$("link").addEventListener("click", () => {
  $("link-line").hidden = false;
  $("link-field").value = `${location.origin}/${written()}`;
  $("link-field").select();
  navigator.clipboard?.writeText($("link-field").value).then(() => { $("status").textContent = "copied"; }, () => {});
});
$("link-field").addEventListener("keydown", event => {
  const at = $("link-field").value.indexOf("#");
  if (event.key !== "Enter" || at < 0) return;
  readAddress($("link-field").value.slice(at));
  restore();
});
$("save").addEventListener("click", () => {
  if (!view) return;
  const drawing = picture(about, view, rowOf, about.sides.map(side => side.name).join(" beside "));
  const address = URL.createObjectURL(new Blob([new XMLSerializer().serializeToString(drawing)], { type: "image/svg+xml" }));
  make("a", { href: address, download: "rounds.svg" }).click();
  setTimeout(() => URL.revokeObjectURL(address), 1000);
});
const moves = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: 10, ArrowUp: -10, Home: -Infinity, End: Infinity };
$("tokens").addEventListener("keydown", event => {
  if (!(event.key in moves) || !view) return;
  event.preventDefault();
  choose(view.position + moves[event.key]);
});
addEventListener("hashchange", () => { readAddress(location.hash); restore(); });

readAddress(location.hash);
try {
  about = await (await fetch("about")).json();
  build();
  restore();
} catch {
  trouble("The server has stopped. Start it again and open the address it prints.");
}
