// One prediction as the sum of its paths: bars by order, source and last head, and the strongest paths, drawn.
import { element, svg, token, fixed, signed, grid } from "./dom.js";
import { tokenText } from "./tokens.js";

const DRAWN = 12;
const ROW = 30;
const COLUMN = 180;

// `source`: {index(), at(position)}, both async. `choice`: {at}; `changed` is called with a new one.
export async function pathView(root, source, choice = {}, changed = () => {}) {
  const index = await source.index();
  const last = index.held ? index.held[index.held.length - 1] : index.tokens.length - 1;
  const state = { at: last, ...choice };
  const text = tokenText(index.tokens, index.held);
  const about = element("div", { class: "about", "aria-live": "polite" });
  const show = async (at) => {
    state.at = at;
    const held = !index.held || index.held.includes(at);
    const found = held ? await source.at(at) : null;
    if (state.at !== at) return;
    text.shade(at, found ? shadesOfPaths(found, index.tokens.length) : null);
    about.replaceChildren(...(found ? aboutPrediction(found) : [element("p", { class: "quiet" }, "This prediction is not in the page.")]));
    changed({ ...state });
  };
  text.listen(show, null, () => state.at);
  root.replaceChildren(text.root, about);
  await show(state.at);
}

function shadesOfPaths(found, n) {
  const full = Math.max(...found.positions.map(Math.abs)) || 1;
  const looks = Float32Array.from({ length: n }, (_, at) => found.positions[at] ?? 0);
  return { looks, seen: new Float32Array(n), full };
}

function aboutPrediction(found) {
  const total = found.orders.reduce((sum, row) => sum + row.paths, 0);
  const versus = found.versus === null ? ["less the mean of all logits"] : ["less that of ", token(found.versus)];
  const capped = found.capped ? ", before the soft-cap" : "";
  const least = found.paths.length ? Math.abs(found.paths[found.paths.length - 1].value) : 0;
  const sure = found.certified
    ? `Certified: no other path adds more than the last that is listed (${fixed(least, 3)}).`
    : `Not certified: a path that is not listed might add up to ${fixed(found.bound, 3)}.`;
  const listed = found.paths.reduce((sum, row) => sum + row.value, 0);
  const orders = found.orders.map((row) => [`${row.order} ${row.order === 1 ? "head" : "heads"}`, row.value]);
  const sources = found.sources.flatMap((row) => [[`${row.name}, direct`, row.direct], [`${row.name}, through heads`, row.through_heads]]);
  return [
    element("p", { class: "prediction" }, "After ", token(found.token), ` (position ${found.at}), the logit of `, token(found.target), ", ",
      ...versus, `${capped}: `, element("b", {}, `${signed(found.value)} nats`),
      ` = the sum of ${countPaths(total)} path${total === 1 ? "" : "s"}, to ${found.error.toExponential(0)} of the largest logit.`),
    element("div", { class: "parts" },
      bars("By number of heads", orders.filter(([, value], at) => Math.abs(value) >= 0.005 || at < 2)),
      bars("By source", sources.filter(([, value]) => value).sort(([, a], [, b]) => Math.abs(b) - Math.abs(a)).slice(0, 12)),
      bars("By last head", found.heads.slice(0, 12).map((row) => [row.name, row.value]))),
    element("h4", {}, "Strongest paths"),
    element("div", { class: "drawing", tabIndex: 0, role: "group", "aria-label": "Strongest paths, drawn" }, drawing(found)),
    element("p", { class: "quiet" }, `${found.paths.length} paths listed: ${signed(listed)}; all others together ${signed(found.rest)}. ${sure}`),
    element("div", { class: "scroll" }, grid(["path", "adds, nats", "share", "most of it from", ""], found.paths.map((row) =>
      [row.name, signed(row.value, 3), row.share === null ? "–" : `${fixed(100 * row.share, 0)}%`,
        element("span", {}, token(row.from_token), ` ${row.from_position}`), signed(row.from_value, 3)]))),
  ];
}

const countPaths = (count) => (count < 1e9 ? count.toLocaleString("en") : count.toExponential(0));

// Bars to either side of a middle; what lowers is striped.
function bars(title, rows) {
  const full = Math.max(...rows.map(([, value]) => Math.abs(value)), 1e-9);
  const lines = rows.map(([name, value]) => {
    const bar = element("span", { class: value < 0 ? "bar less" : "bar" });
    bar.style.setProperty("--size", (Math.abs(value) / full).toFixed(3));
    return element("li", {}, element("span", {}, name), element("span", { class: "track" }, bar), element("span", { class: "number" }, signed(value)));
  });
  return element("div", { class: "part bars" }, element("h4", {}, title), element("ul", {}, ...lines));
}

// Sources at the left, heads by layer, the prediction at the right; a path is a line, as wide as it is strong.
function drawing(found) {
  const paths = found.paths.slice(0, DRAWN).map((row) => ({ row, stops: stopsOf(row, found) }));
  const layers = [...new Set(paths.flatMap(({ row }) => headsOf(row).map(layerOf)))].sort((a, b) => a - b);
  const columns = new Map([["source", 0], ...layers.map((layer, at) => [layer, at + 1]), ["logit", layers.length + 1]]);
  const nodes = new Map();
  const rows = new Map();
  for (const { stops } of paths) {
    for (const stop of stops.filter(({ key }) => !nodes.has(key))) {
      const column = columns.get(stop.column);
      rows.set(column, (rows.get(column) ?? 0) + 1);
      nodes.set(stop.key, { ...stop, column, row: rows.get(column) - 1 });
    }
  }
  const tallest = Math.max(...rows.values(), 1);
  const place = ({ column, row }) => [70 + column * COLUMN, 24 + ROW * (row + (tallest - rows.get(column)) / 2)];
  const [width, height] = [140 + (columns.size - 1) * COLUMN, 30 + ROW * tallest];
  const full = Math.max(...paths.map(({ row }) => Math.abs(row.value)), 1e-9);
  const picture = svg("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": "Paths from tokens through heads to the logit" });
  for (const { row, stops } of [...paths].reverse()) picture.append(line(stops.map(({ key }) => place(nodes.get(key))), row, full));
  for (const node of nodes.values()) picture.append(nodeLabel(node, place(node)));
  return picture;
}

const headsOf = (row) => row.name.split(" → ").slice(1);
const layerOf = (head) => Number(head.slice(1, head.indexOf("H")));

function stopsOf(row, found) {
  const [source] = row.name.split(" → ");
  const named = source === "embed" ? row.from_token : `${source} ${row.from_token}`;
  return [
    { key: `source ${source} ${row.from_position}`, column: "source", text: named, more: ` ${row.from_position}` },
    ...headsOf(row).map((head) => ({ key: head, column: layerOf(head), text: head, more: "" })),
    { key: "logit", column: "logit", text: found.target, more: "" },
  ];
}

function line(points, row, full) {
  const curve = points.slice(1).map(([x, y], at) => {
    const [x0, y0] = points[at];
    return `C${(x0 + x) / 2} ${y0} ${(x0 + x) / 2} ${y} ${x} ${y}`;
  });
  const made = svg("path", { d: `M${points[0].join(" ")}${curve.join("")}`, class: row.value < 0 ? "path less" : "path",
    "stroke-width": (1 + (7 * Math.abs(row.value)) / full).toFixed(2) });
  made.append(svg("title", {}, `${row.name} from ${row.from_token} ${row.from_position}: ${signed(row.value, 3)} nats`));
  return made;
}

function nodeLabel({ text, more }, [x, y]) {
  const short = [...text].length > 14 ? `${[...text].slice(0, 13).join("")}…` : text;
  const label = svg("text", { x, y: y + 4, "text-anchor": "middle" }, svg("tspan", { class: "token" }, short), more);
  const size = 8 * ([...short].length + more.length) + 10;
  return svg("g", { class: "node" }, svg("rect", { x: x - size / 2, y: y - 11, width: size, height: 22, rx: 3 }), label, svg("title", {}, text));
}
