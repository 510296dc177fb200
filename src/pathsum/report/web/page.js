// The page starts here: figures and tables at once, views when they come into sight, each with its embedded data.

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

const VIEWS = {
  attention: (root) => attention(root, attentionSource),
};

const startView = (root) =>
  VIEWS[root.dataset.view](root).catch((error) => {
    root.textContent = `This view could not be drawn: ${error.message}`;
  });

const startViews = (roots) => {
  const seen = new IntersectionObserver(
    (entries) =>
      entries.filter((entry) => entry.isIntersecting).forEach(({ target }) => {
        seen.unobserve(target);
        startView(target);
      }),
    { rootMargin: "600px" },
  );
  roots.forEach((root) => seen.observe(root));
};

figures(document);
tables(document);
startViews(document.querySelectorAll("[data-view]"));
