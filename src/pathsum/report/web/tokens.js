// A text of tokens: chosen by pointer and keys, shaded where it is seen. Long texts wait in chunks out of sight.
import { element, token } from "./dom.js";

const CHUNK = 64;

// Returns {root, shade(at, shades), listen(select, show, chosen)}; `held` are the positions that can be chosen, if not all.
export function tokenText(strings, held = null) {
  const root = element("div", { class: "tokens", tabIndex: 0, role: "listbox", "aria-label": "Tokens of the text" });
  const id = `token-${Math.random().toString(36).slice(2)}`;
  const spans = strings.map((text, at) => {
    const span = token(text);
    span.id = `${id}-${at}`;
    span.dataset.at = at;
    span.setAttribute("role", "option");
    if (held && !held.includes(at)) span.setAttribute("aria-disabled", "true");
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
  if (show) {
    root.addEventListener("pointerover", (event) => place(event) !== null && soon(place(event)));
    root.addEventListener("pointerleave", () => soon(chosen()));
  }
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
