/* Drawings: the strip of an attention row, and a whole view as one SVG file. Texts are set as text, never as markup. */
const SVG = "http://www.w3.org/2000/svg";

/* A token as a reader can see it: spaces at its start or all of it, ends of lines, and characters without a shape. */
const spaces = run => run.length > 3 ? `␣×${run.length}` : "␣".repeat(run.length);
export const visible = text => text
  .replace(text.trim() ? /^ +/ : / +/g, spaces).replace(/\n/g, "⏎").replace(/\t/g, "⇥")
  .replace(/[\u0000-\u001f\u007f-\u00a0\u00ad\u200b-\u200f\u2028-\u202f]/g, c => `U+${c.charCodeAt(0).toString(16).padStart(4, "0")}`) || "∅";
export const quoted = text => `“${visible(text)}”`;
export const percent = p => `${(100 * p).toFixed(p < 0.0995 ? 1 : 0)}\u00a0%`;

export const drawn = (tag, attributes, ...children) => {
  const element = document.createElementNS(SVG, tag);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
};

export const mostAttended = (weights, tokens) => weights.map((w, s) => [w, s]).sort((a, b) => b[0] - a[0]).slice(0, 3)
  .map(([w, s]) => `${quoted(tokens[s])} ${percent(w)}`).join(", ");

/* Bars of one attention row, scaled to its largest; ``n`` is the number of tokens in the text. */
export const bars = (weights, n, height, colour) => {
  const top = Math.max(...weights, 1e-9);
  return weights.map((w, s) => drawn("rect", {
    x: s + 0.05, y: (height * (1 - w / top)).toFixed(2), width: 0.9, height: (height * w / top).toFixed(2), fill: colour,
  }));
};

export const strip = (weights, n, label) => drawn("svg", {
  viewBox: `0 0 ${n} 24`, preserveAspectRatio: "none", role: "img", "aria-label": label,
}, ...bars(weights, n, 24, "currentColor"));

/* The whole view as a file of its own: text, guesses, and what every round looked at. */
export const picture = (about, view, rowOf, heading) => {
  const width = 1000, left = 130, wide = width - left - 110, parts = [];
  let y = 28;
  const write = (text, x = 12, options = {}) => parts.push(drawn("text", { x, y, ...options }, text));
  write(heading, 12, { "font-size": 16, "font-weight": 700 });
  const line = view.tokens.map(visible);
  for (let start = 0; start < line.length; start += 14) {
    y += 18;
    write(line.slice(start, start + 14).join(" "), 12, { "font-family": "ui-monospace, monospace" });
  }
  y += 20;
  write(`Chosen: ${quoted(view.tokens[view.position])} (token ${view.position})`);
  view.sides.forEach((side, i) => {
    y += 28;
    write(about.sides[i].name, 12, { "font-size": 14, "font-weight": 700 });
    for (const guess of side.guesses) {
      y += 17;
      write(visible(guess.token), 12, { "font-family": "ui-monospace, monospace" });
      parts.push(drawn("rect", { x: left, y: y - 9, width: (wide / 2 * guess.probability).toFixed(1), height: 9, fill: "#1f6fb4" }));
      write(percent(guess.probability) + (guess.was === undefined ? "" : ` (was ${percent(guess.was)})`), left + wide / 2 + 10);
    }
    side.layers.forEach((rounds, layer) => rounds.forEach(round => {
      y += 30;
      const row = rowOf(round);
      write(`layer ${layer}, round ${round.round}${round.factor === 0 ? ", off" : round.factor === 1 ? "" : ` × ${round.factor}`}`);
      if (row) parts.push(drawn("g", { transform: `translate(${left} ${y - 14}) scale(${wide / view.tokens.length} 1)` },
        ...bars(row, view.tokens.length, 18, round.round ? "#b4530f" : "#666d7a")));
      if (round.gate) write(`gate ${round.gate[view.position].toFixed(3)}`, width - 90);
    }));
  });
  return drawn("svg", {
    xmlns: SVG, viewBox: `0 0 ${width} ${y + 20}`, width, height: y + 20, "font-family": "system-ui, sans-serif", "font-size": 12,
  }, drawn("rect", { width: "100%", height: "100%", fill: "#ffffff" }), ...parts);
};
