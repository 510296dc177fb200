// Starts what stands on a page, whenever htmx has put one there; and keeps addresses short.
import { attention } from "./attention.js";
import { headPage } from "./head.js";
import { figures } from "./figures.js";
import { pathView } from "./paths.js";
import { tables } from "./tables.js";

const asked = async (path, query) => {
  const answer = await fetch(`${path}?${new URLSearchParams(query)}`);
  const found = await answer.json();
  if (!answer.ok) throw Object.assign(new Error(found.detail), { status: answer.status });
  return found;
};

// Paths of a larger model are found by a job: the page of that token starts it and shows how far it is.
const pathsAt = async (query, at) => {
  try {
    return await asked("/api/paths", { ...query, at });
  } catch (error) {
    if (error.status !== 409) throw error;
    keep({ at });
    htmx.ajax("GET", location.href, { target: "body", swap: "innerHTML show:none" });
    return new Promise(() => {});
  }
};

// What is chosen within a view stands in the address, too; a link shows the same.
const keep = (state) => {
  const url = new URL(location.href);
  for (const [name, value] of Object.entries(state)) url.searchParams.set(name, value);
  history.replaceState(history.state, "", url);
};

// Of that, what this model has: beside another one it may have fewer heads, and other tokens.
const chosen = (index) => {
  const query = new URLSearchParams(location.search);
  const found = {};
  if (index.heads.some((head) => head.name === query.get("head"))) found.head = query.get("head");
  if (query.get("mode")) found.mode = query.get("mode");
  const token = query.get("token") || "";
  if (/^\d+$/.test(token) && Number(token) < index.tokens.length) found.token = Number(token);
  return found;
};

const VIEWS = {
  attention: async (root, { model, prompt }) => {
    const index = await asked("/api/attention", { model, prompt });
    const head = (name) => asked("/api/attention/head", { model, prompt, head: name });
    return attention(root, { index: async () => index, head }, chosen(index), keep);
  },
  paths: async (root, { model, prompt, at, target, against }) => {
    const query = { model, prompt, target, against };
    const first = await asked("/api/paths", { ...query, at });
    return pathView(root, {
      index: async () => ({ tokens: first.tokens, held: null }),
      at: async (place) => (place === first.at ? first : pathsAt(query, place)),
    }, { at: first.at }, ({ at }) => keep({ at }));
  },
  head: async (root, { model }) => {
    const index = await asked("/api/heads", { model });
    const query = new URLSearchParams(location.search);
    const token = query.get("token") || "", distance = Number(query.get("distance") || 1);
    return headPage(root, {
      index: async () => index,
      head: (head) => asked("/api/head", { model, head }),
      find: async (text) => (await asked("/api/tokens", { model, text })).map(({ id, text }) => [id, text]),
      token: (head, token, delta) => asked("/api/head/token", { model, head, token, ...(delta === null ? {} : { delta }) }),
    }, { ...chosen({ heads: index.heads, tokens: [] }), token, distance }, keep);
  },
};

const startView = (root) => {
  const waiting = document.createElement("p");
  waiting.className = "quiet";
  waiting.textContent = "Running the model …";
  root.replaceChildren(waiting);
  return VIEWS[root.dataset.view](root, root.dataset).catch((error) => {
    const said = document.createElement("p");
    said.className = "notice";
    said.setAttribute("role", "alert");
    said.textContent = error.message;
    root.replaceChildren(said);
  });
};

// Vega is large: it is loaded by the first page that has a figure. Its expressions are interpreted, never compiled, so
// that no page needs the right to make code.
let vega = null;
const withVega = () => {
  vega ??= new Promise((resolve, reject) => {
    const script = document.createElement("script");
    script.src = "/static/vega.js";
    script.type = "module";
    script.onload = () => {
      const embed = window.vegaEmbed;
      window.vegaEmbed = (target, spec, options) => embed(target, spec, { ...options, ast: true });
      resolve();
    };
    script.onerror = () => reject(new Error("figures need /static/vega.js, which could not be loaded"));
    document.head.append(script);
  });
  return vega;
};

const startPage = (root) => {
  root.querySelectorAll("[data-view]").forEach(startView);
  tables(root);
  if (root.querySelector("figure[data-spec]")) withVega().then(() => figures(root));
  root.querySelectorAll("[data-submit]").forEach((choice) =>
    choice.addEventListener("change", () => choice.form.requestSubmit()));
};

startPage(document);
document.addEventListener("htmx:load", ({ detail }) => {
  if (detail.elt !== document.body) startPage(detail.elt);
});
document.addEventListener("htmx:configRequest", ({ detail }) => {
  for (const [name, value] of [...detail.formData.entries()]) if (value === "") detail.formData.delete(name);
});
