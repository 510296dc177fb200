// One head: its scores, eigenvalues, partners and skip-trigrams, and its tables around a token that is typed.
import { element, svg, token, fixed, signed, grid } from "./dom.js";
import { headChooser, firstHead } from "./heads.js";

// `source`: {index(), head(name), find(text), token(head, id, distance)}, all async.
// `choice`: {head, token: typed text, distance: Δ of rotary heads}.
export async function headPage(root, source, choice = {}, changed = () => {}) {
  const index = await source.index();
  if (!index.heads.length) return root.replaceChildren(element("p", { class: "quiet" }, "The model has no heads."));
  const state = { head: firstHead(index.heads), token: "", distance: 1, ...choice };
  const rotary = new Set(index.heads.filter((head) => head.rotary).map((head) => head.name));
  const told = () => {
    const { distance, ...rest } = state;
    changed(rotary.has(state.head) ? { ...rest, distance } : rest);
  };
  const about = element("div", { class: "about" });
  const tables = tokenPart(source, state, index, rotary, told);
  const chooser = headChooser(index.heads, async (name) => {
    state.head = name;
    const found = await source.head(name);
    if (state.head !== name) return;
    about.replaceChildren(...aboutHead(found, (other) => chooser.choose(other)));
    tables.show();
    told();
  });
  root.replaceChildren(chooser.root, about, tables.root);
  chooser.choose(state.head);
  await tables.start();
}

function aboutHead(head, go) {
  const known = Object.entries(head.scores).filter(([, value]) => value !== null);
  const circuits = ["OV", "QK"].filter((name) => head.eigenvalues.some(([, , circuit]) => circuit === name));
  const parts = [
    element("div", { class: "part" }, element("h4", {}, "Scores"), grid(["", ""], known.map(([name, value]) => [name, fixed(value, 3)]))),
    ...circuits.map((name) => eigenvaluePlot(head, name)),
    ...partnerParts(head.partners, go),
  ];
  if (head.trigrams.length) parts.push(trigramPart(head.trigrams));
  return [
    element("h3", {}, head.name, head.roles.length ? element("small", {}, ` ${head.roles.join(", ")}`) : ""),
    ...(head.said ? [element("p", { class: "odd" }, head.said)] : []),
    element("div", { class: "parts" }, ...parts),
  ];
}

function partnerParts(partners, go) {
  const titles = { reads_from: "Reads from", writes_to: "Is read by" };
  return Object.entries(titles).filter(([key]) => partners[key].length).map(([key, title]) => {
    const rows = partners[key].map((pair) => {
      const link = element("button", { type: "button", class: "link" }, pair.head);
      link.addEventListener("click", () => go(pair.head));
      return [link, pair.kind, signed(pair.effect, 3), fixed(pair.z, 1)];
    });
    const note = element("p", { class: "quiet" }, "effect: score less what chance gives; below 0 it avoids");
    return element("div", { class: "part" }, element("h4", {}, title), grid(["head", "by", "effect", "z"], rows), note);
  });
}

function trigramPart(trigrams) {
  const words = ({ source, destination, out }) =>
    element("span", { class: "trigram" }, "[", token(source), "] … [", token(destination), "] → [", token(out), "]");
  const rows = trigrams.map((one) => [words(one), fixed(one.qk, 1), fixed(one.ov, 2)]);
  return element("div", { class: "part wide" }, element("h4", {}, "Strongest skip-trigrams"),
    grid(["[source] … [destination] → [out]", "QK", "OV, nats"], rows));
}

// The complex plane: directions true, distances square roots of moduli over the largest.
function eigenvaluePlot(head, circuit) {
  const values = head.eigenvalues.filter(([, , name]) => name === circuit);
  const most = Math.max(...values.map(([re, im]) => Math.hypot(re, im))) || 1;
  const place = (re, im) => {
    const size = Math.hypot(re, im);
    const scale = size ? (90 * Math.sqrt(size / most)) / size : 0;
    return [100 + re * scale, 100 - im * scale];
  };
  const label = `${circuit} eigenvalues of ${head.name}, ${values.length}`;
  const picture = svg("svg", { viewBox: "0 0 200 200", class: "plane", role: "img", "aria-label": label },
    svg("circle", { cx: 100, cy: 100, r: 90, class: "axis" }),
    svg("path", { d: "M5 100H195M100 5V195", class: "axis" }));
  for (const [re, im] of values) {
    const [x, y] = place(re, im);
    const shape = circuit === "OV" ? svg("circle", { cx: x, cy: y, r: 3.2 }) : svg("rect", { x: x - 3, y: y - 3, width: 6, height: 6 });
    shape.append(svg("title", {}, `${fixed(re, 3)} ${im < 0 ? "−" : "+"} ${fixed(Math.abs(im), 3)}i`));
    shape.setAttribute("class", circuit);
    picture.append(shape);
  }
  const said = circuit === "OV" ? "right: tokens raise themselves; left: they lower themselves"
    : "right: tokens look for themselves; left: they avoid themselves";
  return element("figure", { class: "part eigen" }, element("h4", {}, `Eigenvalues of ${circuit}`), picture,
    element("figcaption", {}, said));
}

// The search box, what it finds, and the tables of what was chosen.
function tokenPart(source, state, index, rotary, told) {
  const input = element("input", { type: "search", class: "filter", placeholder: "Type a token", "aria-label": "Token" });
  const found = element("div", { class: "matches", role: "group", "aria-label": "Tokens found" });
  const tables = element("div", { class: "parts", "aria-live": "polite" });
  const distance = distanceField(state, index.n_ctx, () => {
    told();
    show();
  });
  const root = element("div", { class: "token-part" }, element("h3", {}, "Around a token"),
    element("p", { class: "quiet" }, "What the head does with one token of the vocabulary, by its weights alone.", index.held ? ` ${index.held}` : ""),
    input, distance, found, tables);
  let chosen = null, asked = 0, shown = 0;
  const show = async () => {
    const turned = rotary.has(state.head);
    distance.hidden = !turned;
    const turn = ++shown;
    if (!chosen) return tables.replaceChildren();
    const [id, text] = chosen, head = state.head, delta = turned ? state.distance : null;
    const now = await source.token(head, id, delta);
    if (turn === shown) tables.replaceChildren(...tokenTables(head, text, now, delta));
  };
  const choose = (match, button) => {
    chosen = match;
    found.querySelectorAll("button").forEach((other) => other.setAttribute("aria-pressed", String(other === button)));
    state.token = match[1];
    told();
    return show();
  };
  const look = async (typed) => {
    const turn = ++asked;
    const matches = await source.find(typed);
    if (turn !== asked) return;
    const buttons = matches.map((match) => {
      const button = element("button", { type: "button", "aria-pressed": "false" }, token(match[1]));
      button.addEventListener("click", () => choose(match, button));
      return button;
    });
    found.replaceChildren(...(buttons.length ? buttons : [element("span", { class: "quiet" }, "No such token here.")]));
    if (buttons.length) await choose(matches[0], buttons[0]);
    else (chosen = null), show();
  };
  input.addEventListener("input", () => look(input.value));
  return { root, show, start: () => look((input.value = state.token)) };
}

// How far back the source is, for rotary heads.
function distanceField(state, n_ctx, changed) {
  const input = element("input", { type: "number", min: "0", max: String(n_ctx - 1), step: "1", required: true, value: String(state.distance) });
  input.addEventListener("change", () => {
    if (!input.reportValidity()) return;
    state.distance = Number(input.value);
    changed();
  });
  return element("label", { class: "distance", hidden: true }, "Distance Δ ", input,
    element("small", {}, " tokens from the source to the one that looks: QK turns with it (rotary positions). At first 1, the token just before."));
}

function tokenTables(head, text, found, delta) {
  if (!found) return [element("p", { class: "quiet" }, `The tables of ${head} are not in the page.`)];
  const list = (items, digits) => grid(["token", ""], items.map(([name, value]) => [token(name), signed(value, digits)]));
  const part = (title, items, note) => element("div", { class: "part" }, title, ...(items ? [list(items, 2)] : []),
    element("p", { class: "quiet" }, items ? note : "With rotary positions this depends on the distance; by weights alone there is no table."));
  const scores = `QK, before the softmax${delta === null ? "" : `, at Δ ${delta}`}`;
  const half = Math.ceil(found.outs.length / 2);
  return [
    part(element("h4", {}, `${head}, attending to `, token(text), ", raises"), found.outs.slice(0, half), "OV, nats, if attended to fully"),
    part(element("h4", {}, "and lowers"), found.outs.slice(half).reverse(), "most negative first"),
    part(element("h4", {}, token(text), " is sought by"), found.destinations, scores),
    part(element("h4", {}, token(text), " looks for"), found.sources, scores),
  ];
}
