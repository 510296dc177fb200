// What every view builds with. A view puts nothing a model or a reader wrote into the page but as text.

export const element = (tag, attributes = {}, ...children) => {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "class") made.className = value;
    else if (name in made && typeof value !== "string") made[name] = value;
    else made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
};

export const svg = (tag, attributes = {}, ...children) => {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
};

// A token: isolated from the text around it, its leading space faint.
export const token = (text) => {
  const made = element("bdi", { class: "token" });
  if (text.startsWith("·") && text.length > 1) made.append(element("span", { class: "space", "aria-hidden": "true" }, "·"), text.slice(1));
  else made.append(text);
  return made;
};

export const fixed = (value, digits = 2) => {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  const text = value.toFixed(digits);
  return Number(text) === 0 ? (0).toFixed(digits) : text.replace("-", "−");
};

export const signed = (value, digits = 2) => {
  const text = fixed(value, digits);
  return text === "–" || text.startsWith("−") ? text : `+${text}`;
};

// Base64 to a typed array, once; our numbers are little-endian, as is every machine that has a browser.
export const decode = (text, Kind) => new Kind(Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0)).buffer);

// A byte within ± 127 as a number within ± scale: roots were taken, so that small numbers keep their first digits.
export const unsqueezed = (byte, scale) => Math.sign(byte) * scale * (byte / 127) ** 2;

export const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

export const onThemeChange = (draw) => {
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  addEventListener("beforeprint", draw);
};

// A row of radio buttons; `choose` is called with the value.
export const choices = (legend, name, values, chosen, choose) => {
  const set = element("fieldset", { class: "choices" }, element("legend", {}, legend));
  for (const [value, label] of values) {
    const input = element("input", { type: "radio", name, value, checked: value === chosen });
    input.addEventListener("change", () => choose(value));
    set.append(element("label", {}, input, label));
  }
  return set;
};

// `items` in a table of two columns or more: what is a number stands right.
export const grid = (titles, rows) => {
  const head = element("tr", {}, ...titles.map((title) => element("th", { scope: "col" }, title)));
  const lines = rows.map((row) =>
    element("tr", {}, ...row.map((cell) =>
      element("td", typeof cell === "string" && /^[+−–]?[\d,.]*%?$/.test(cell) ? { class: "number" } : {}, cell))));
  return element("table", {}, element("thead", {}, head), element("tbody", {}, ...lines));
};

// What is seen is made first; the rest while nothing else is to be done, so that nothing moves later and printing finds all.
export const inTurn = (roots, make) => {
  const seen = new IntersectionObserver(
    (entries) => entries.filter((entry) => entry.isIntersecting).forEach(({ target }) => (seen.unobserve(target), make(target))),
    { rootMargin: "400px" },
  );
  roots.forEach((root) => seen.observe(root));
  const idle = window.requestIdleCallback || ((work) => setTimeout(work, 50));
  const waiting = [...roots];
  const next = () => {
    const root = waiting.shift();
    if (root) Promise.resolve(make(root)).then(() => idle(next));
  };
  idle(next);
};
