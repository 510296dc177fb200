// The page starts here: figures and tables at once, views when they come into sight or nothing else is to be done, each with its embedded data.

const unpacked = new Map();

// Gzipped JSON in base64, unpacked once, when it is wanted.
const unpack = (id) => {
  if (!unpacked.has(id)) {
    const bytes = Uint8Array.from(atob(document.getElementById(id).textContent), (letter) => letter.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    unpacked.set(id, new Response(stream).json());
  }
  return unpacked.get(id);
};

const attentionSource = {
  index: async () => (await unpack("data-attention")).index,
  head: async (name) => (await unpack("data-attention")).heads[name],
};

// Tables around tokens: places among the page's strings, in three bytes, and values in one, for each token and head.
const headSource = {
  index: async () => (await unpack("data-head")).index,
  head: async (name) => (await unpack("data-head")).heads[name],
  find: async (typed) => {
    const { strings, held } = await unpack("data-head");
    const wanted = typed.replaceAll(" ", "·").toLowerCase();
    const begins = (text) => text.replace(/^·/, "").startsWith(wanted.replace(/^·/, ""));
    const matches = held.map((place, at) => [at, strings[place]]).filter(([, text]) => text.toLowerCase().includes(wanted));
    const order = ([a, first], [b, second]) =>
      begins(second.toLowerCase()) - begins(first.toLowerCase()) || first.length - second.length || a - b;
    return (wanted ? matches.sort(order) : matches).slice(0, 12);
  },
  token: async (name, token) => {
    const { strings, held, tables } = await unpack("data-head");
    const table = tables[name];
    if (!table) return null;
    const part = (packed) => {
      packed.bytes ??= packed.places.map((bytes) => decode(bytes, Uint8Array));
      packed.sizes ??= decode(packed.values, Int8Array);
      return Array.from({ length: packed.width }, (_, k) => {
        const at = k * held.length + token;
        const place = packed.bytes.reduce((sum, bytes, byte) => sum + bytes[at] * 256 ** byte, 0);
        return [strings[place], unsqueezed(packed.sizes[at], packed.scale)];
      });
    };
    return Object.fromEntries(["outs", "destinations", "sources"].map((key) => [key, table[key] && part(table[key])]));
  },
};

const pathSource = {
  index: async () => (await unpack("data-paths")).index,
  at: async (position) => (await unpack("data-paths")).at[position],
};

const VIEWS = {
  attention: (root) => attention(root, attentionSource),
  head: (root) => headPage(root, headSource),
  paths: (root) => pathView(root, pathSource),
};

const startView = async (root) => {
  if (root.dataset.started) return;
  root.dataset.started = "yes";
  try {
    await VIEWS[root.dataset.view](root);
  } catch (error) {
    root.textContent = `This view could not be drawn: ${error.message}`;
  }
};

figures(document);
tables(document);
inTurn([...document.querySelectorAll("[data-view]")], startView);
