// Choosing a head: a small picture of each by layer, one tab stop, arrow keys move the choice.
import { element, decode, colour, onThemeChange } from "./dom.js";

// `heads`: [{name, note, thumbnail, size}]. Returns {root, choose(name)}; `chosen` is called with the name.
export function headChooser(heads, chosen) {
  const root = element("div", { class: "heads", role: "radiogroup", "aria-label": "Head" });
  const buttons = new Map();
  for (const [layer, some] of byLayer(heads)) {
    const row = element("div", { class: "layer-heads" });
    for (const head of some) {
      const button = headButton(head);
      button.addEventListener("click", () => choose(head.name));
      buttons.set(head.name, button);
      row.append(button);
    }
    root.append(element("div", { class: "layer" }, element("span", { class: "layer-name" }, `L${layer}`), row));
  }
  const names = [...buttons.keys()];
  const choose = (name) => {
    for (const [other, button] of buttons) {
      button.setAttribute("aria-checked", String(other === name));
      button.tabIndex = other === name ? 0 : -1;
    }
    const { offsetTop, offsetHeight } = buttons.get(name);
    if (offsetTop < root.scrollTop || offsetTop + offsetHeight > root.scrollTop + root.clientHeight) root.scrollTop = offsetTop - 40;
    chosen(name);
  };
  const steps = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };
  root.addEventListener("keydown", (event) => {
    const at = names.findIndex((name) => buttons.get(name) === document.activeElement);
    const next = { Home: 0, End: names.length - 1 }[event.key]
      ?? (event.key in steps ? (at + steps[event.key] + names.length) % names.length : null);
    if (at < 0 || next === null) return;
    event.preventDefault();
    buttons.get(names[next]).focus();
    choose(names[next]);
  });
  const draw = () => heads.forEach((head) => paint(buttons.get(head.name).querySelector("canvas"), head));
  draw();
  onThemeChange(draw);
  return { root, choose };
}

function byLayer(heads) {
  const layers = new Map();
  for (const head of heads) {
    const layer = head.name.slice(1, head.name.indexOf("H"));
    layers.set(layer, [...(layers.get(layer) || []), head]);
  }
  return layers;
}

function headButton(head) {
  const picture = head.thumbnail ? [element("canvas", { width: head.size, height: head.size, "aria-hidden": "true" })] : [];
  const name = element("span", {}, head.name.slice(head.name.indexOf("H")));
  const label = head.note ? `${head.name}, ${head.note}` : head.name;
  const note = head.note ? [element("small", {}, head.note)] : [];
  return element("button", { type: "button", class: "head", role: "radio", "aria-label": label, title: label },
    ...picture, name, ...note);
}

function paint(canvas, head) {
  if (!canvas) return;
  const context = canvas.getContext("2d");
  const values = decode(head.thumbnail, Uint8Array);
  context.fillStyle = colour("--blue");
  context.fillRect(0, 0, 1, 1);
  const [red, green, blue] = context.getImageData(0, 0, 1, 1).data;
  const image = context.createImageData(head.size, head.size);
  values.forEach((value, at) => image.data.set([red, green, blue, value], 4 * at));
  context.putImageData(image, 0, 0);
}

// The first to look at: an induction head where there is one.
export const firstHead = (heads) => (heads.find((head) => head.note.includes("induction")) || heads[0]).name;
