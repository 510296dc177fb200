// Attention on text: where the chosen head looks from a token (background) and who looks at it (underline).
import { element, token, fixed, signed, decode, unsqueezed, choices } from "./dom.js";
import { headChooser, firstHead } from "./heads.js";
import { tokenText } from "./tokens.js";

const ATTENTION_MODES = [
  ["pattern", "pattern"],
  ["weighted", "value-weighted"],
  ["effect", "effect on the next token's logit"],
];

// `source`: {index(), head(name)}, both async. `choice`: {head, token, mode}; `changed` is called with a new one.
export async function attention(root, source, choice = {}, changed = () => {}) {
  const index = await source.index();
  if (!index.heads.length) return root.replaceChildren(element("p", { class: "quiet" }, "The model has no heads."));
  const state = { head: firstHead(index.heads), mode: "pattern", token: index.tokens.length - 1, ...choice };
  const text = tokenText(index.tokens);
  const said = element("div", { class: "said", "aria-live": "polite" });
  const scale = element("p", { class: "quiet legend" });
  let current = null;

  const show = (at) => {
    if (!current) return;
    const shades = shadesOf(current, state.mode, at);
    text.shade(at, shades);
    said.replaceChildren(...wordsOf(index, current, state, at, shades));
    scale.textContent = legendOf(current.name, state.mode, shades.full);
  };
  const select = (at) => {
    state.token = at;
    show(at);
    changed({ ...state });
  };
  const chooser = headChooser(index.heads, async (name) => {
    state.head = name;
    const found = await source.head(name);
    if (state.head !== name) return;
    current = decodedHead(found, index.tokens.length);
    show(state.token);
    changed({ ...state });
  });
  const modes = choices("Shown", `${root.id || "attention"}-mode`, ATTENTION_MODES, state.mode, (mode) => {
    state.mode = mode;
    show(state.token);
    changed({ ...state });
  });
  text.listen(select, show, () => state.token);
  root.replaceChildren(chooser.root, modes, scale, text.root, said);
  chooser.choose(state.head);
}

function decodedHead(found, n) {
  const pattern = decode(found.pattern, Uint8Array);
  const largest = found.value_norm.reduce((a, b) => Math.max(a, b), 0) || 1;
  const effect = decode(found.effect, Int8Array);
  const at = (i, j) => (i * (i + 1)) / 2 + j;
  const values = {
    pattern: (i, j) => pattern[at(i, j)] / 255,
    weighted: (i, j) => ((pattern[at(i, j)] / 255) * found.value_norm[j]) / largest,
    effect: (i, j) => unsqueezed(effect[at(i, j)], found.effect_scale),
  };
  return { name: found.name, n, values };
}

// One row and one column: what is looked at from `at`, and what looks at it.
function shadesOf(head, mode, at) {
  const value = head.values[mode];
  const looks = new Float32Array(head.n);
  const seen = new Float32Array(head.n);
  for (let j = 0; j <= at; j++) looks[j] = value(at, j);
  for (let i = at; i < head.n; i++) seen[i] = value(i, at);
  return { looks, seen, full: mode === "pattern" ? 1 : fullShade(looks, seen) };
}

function fullShade(looks, seen) {
  let full = 0;
  for (let at = 0; at < looks.length; at++) full = Math.max(full, Math.abs(looks[at]), Math.abs(seen[at]));
  return full;
}

function legendOf(name, mode, full) {
  const unit = { pattern: "attention 1", weighted: `${fixed(full)} (attention × ‖value‖ over its largest)`,
    effect: `${fixed(full)} nats; striped lowers` }[mode];
  return `Shaded: where ${name} looks from the token. Underlined: what looks at it. Full shade is ${unit}.`;
}

// Places of the five largest, either way.
function largest(values) {
  const best = [];
  for (let at = 0; at < values.length; at++) {
    const size = Math.abs(values[at]);
    if (!size || (best.length === 5 && size <= Math.abs(values[best[4]]))) continue;
    const place = best.findIndex((other) => Math.abs(values[other]) < size);
    best.splice(place < 0 ? best.length : place, 0, at);
    best.length = Math.min(best.length, 5);
  }
  return best;
}

function wordsOf(index, head, state, at, { looks, seen }) {
  const say = state.mode === "effect" ? signed : fixed;
  const list = (values) => largest(values).map((place) =>
    element("li", {}, token(index.tokens[place]), ` ${place} `, element("b", {}, say(values[place]))));
  const next = state.mode === "effect" ? [" (effect on ", token(index.next[at]), ")"] : [];
  const from = Math.max(at, state.token), to = Math.min(at, state.token);
  const pair = from === to ? [] : element("p", {}, "from ", token(index.tokens[from]), ` ${from} to `,
    token(index.tokens[to]), ` ${to} (one of them chosen): `, element("b", {}, say(head.values[state.mode](from, to))));
  return [
    element("p", {}, element("b", {}, head.name), " at ", token(index.tokens[at]), `, position ${at}`, ...next),
    element("div", { class: "two" },
      element("div", {}, element("h4", { class: "looks" }, "looks at"), element("ol", {}, ...list(looks))),
      element("div", {}, element("h4", { class: "seen" }, "is looked at by"), element("ol", {}, ...list(seen)))),
    pair,
  ].flat();
}
