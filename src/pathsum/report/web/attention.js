// Attention on text: where the chosen head looks from a token (background) and who looks at it (underline).
import { element, token, fixed, signed, decode, choices } from "./dom.js";
import { headChooser, firstHead } from "./heads.js";

const ATTENTION_MODES = [
  ["pattern", "pattern"],
  ["weighted", "value-weighted"],
  ["effect", "effect on the next token's logit"],
];
const CHUNK = 64;

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
    text.shade(at, current ? shadesOf(current, state.mode, at) : null);
    said.replaceChildren(...(current ? wordsOf(index, current, state, at) : []));
    scale.textContent = current ? legendOf(current, state.mode, at) : "";
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
    effect: (i, j) => (effect[at(i, j)] * found.effect_scale) / 127,
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

function legendOf(head, mode, at) {
  const { full } = shadesOf(head, mode, at);
  const unit = { pattern: "attention 1", weighted: `${fixed(full, 3)} (attention × ‖value‖ over its largest)`,
    effect: `${fixed(full, 3)} nats; striped lowers` }[mode];
  return `Shaded: where ${head.name} looks from the token. Underlined: what looks at it. Full shade is ${unit}.`;
}

function wordsOf(index, head, state, at) {
  const { looks, seen } = shadesOf(head, state.mode, at);
  const say = state.mode === "effect" ? signed : fixed;
  const best = (values) => [...values.keys()].filter((place) => values[place])
    .sort((a, b) => Math.abs(values[b]) - Math.abs(values[a])).slice(0, 5);
  const list = (values) => best(values).map((place) =>
    element("li", {}, token(index.tokens[place]), ` ${place} `, element("b", {}, say(values[place], 3))));
  const next = state.mode === "effect" ? [" (effect on ", token(index.next[at]), ")"] : [];
  const from = Math.max(at, state.token), to = Math.min(at, state.token);
  const pair = from === to ? [] : element("p", {}, "from ", token(index.tokens[from]), ` ${from} to `,
    token(index.tokens[to]), ` ${to} (one of them chosen): `, element("b", {}, say(head.values[state.mode](from, to), 3)));
  return [
    element("p", {}, element("b", {}, head.name), " at ", token(index.tokens[at]), `, position ${at}`, ...next),
    element("div", { class: "two" },
      element("div", {}, element("h4", { class: "looks" }, "looks at"), element("ol", {}, ...list(looks))),
      element("div", {}, element("h4", { class: "seen" }, "is looked at by"), element("ol", {}, ...list(seen)))),
    pair,
  ].flat();
}

// The text in chunks: those that are seen have elements for their tokens' shades, others wait.
function tokenText(strings) {
  const root = element("div", { class: "tokens", tabIndex: 0, role: "listbox", "aria-label": "Tokens of the text" });
  const id = `token-${Math.random().toString(36).slice(2)}`;
  const spans = strings.map((text, at) => {
    const span = token(text);
    span.id = `${id}-${at}`;
    span.dataset.at = at;
    span.setAttribute("role", "option");
    return span;
  });
  const chunks = [];
  for (let start = 0; start < spans.length; start += CHUNK) {
    const chunk = element("span", { class: "chunk", role: "presentation" });
    for (const span of spans.slice(start, start + CHUNK)) {
      chunk.append(span);
      if (span.textContent.endsWith("⏎")) chunk.append(element("br"));
    }
    chunk.dataset.start = start;
    chunks.push(chunk);
  }
  root.append(...chunks);
  const visible = new Set();
  let shades = null, shaded = -1;
  const paint = (chunk) => {
    const start = Number(chunk.dataset.start);
    for (let at = start; at < Math.min(start + CHUNK, spans.length); at++) {
      shadeToken(spans[at], shades ? shades.looks[at] / shades.full : 0, shades ? shades.seen[at] / shades.full : 0);
    }
  };
  const watch = new IntersectionObserver((entries) => {
    for (const { target, isIntersecting } of entries) {
      if (isIntersecting) visible.add(target), paint(target);
      else visible.delete(target);
    }
  }, { rootMargin: "100px" });
  chunks.forEach((chunk) => watch.observe(chunk));
  const shade = (at, found) => {
    spans[shaded]?.setAttribute("aria-selected", "false");
    spans[at].setAttribute("aria-selected", "true");
    root.setAttribute("aria-activedescendant", spans[at].id);
    shades = found;
    shaded = at;
    visible.forEach(paint);
  };
  const listen = (select, show, chosen) => listenToTokens(root, spans, select, show, chosen);
  return { root, shade, listen };
}

function shadeToken(span, looks, seen) {
  const key = `${looks.toFixed(3)} ${seen.toFixed(3)}`;
  if (span.dataset.shade === key) return;
  span.dataset.shade = key;
  span.style.setProperty("--looks", Math.abs(looks).toFixed(3));
  span.style.setProperty("--seen", Math.abs(seen).toFixed(3));
  span.classList.toggle("less", looks < 0);
  span.classList.toggle("seen-less", seen < 0);
}

function listenToTokens(root, spans, select, show, chosen) {
  const place = (event) => {
    const found = event.target.closest("[data-at]");
    return found ? Number(found.dataset.at) : null;
  };
  let waiting = null;
  const soon = (at) => {
    if (waiting === null) requestAnimationFrame(() => (show(waiting), (waiting = null)));
    waiting = at;
  };
  root.addEventListener("pointerover", (event) => place(event) !== null && soon(place(event)));
  root.addEventListener("pointerleave", () => soon(chosen()));
  root.addEventListener("click", (event) => place(event) !== null && select(place(event)));
  root.addEventListener("keydown", (event) => {
    const at = chosen(), last = spans.length - 1;
    const next = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: last,
      ArrowUp: lineFrom(spans, at, -1), ArrowDown: lineFrom(spans, at, 1) }[event.key];
    if (next === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    select(Math.max(0, Math.min(last, next)));
    spans[chosen()].scrollIntoView({ block: "nearest" });
  });
}

// The token above or below.
function lineFrom(spans, at, step) {
  const { offsetTop: top, offsetLeft: left } = spans[at];
  let best = at, line = null;
  for (let k = at + step; k >= 0 && k < spans.length; k += step) {
    if (spans[k].offsetTop === top) continue;
    line ??= spans[k].offsetTop;
    if (spans[k].offsetTop !== line) break;
    if (best === at || Math.abs(spans[k].offsetLeft - left) < Math.abs(spans[best].offsetLeft - left)) best = k;
  }
  return best;
}
