"use strict";
(() => {
  const read = (id) => JSON.parse(document.getElementById(id).textContent);
  const figures = [...document.querySelectorAll("figure[data-spec]")];

  const draw = async (figure) => {
    if (figure.dataset.drawn) return;
    figure.dataset.drawn = "yes";
    const target = figure.querySelector(".chart");
    const options = { config: read("chart-theme"), renderer: "svg", actions: false, mode: "vega-lite" };
    try {
      await vegaEmbed(target, read(figure.dataset.spec), options);
      figure.querySelector(".save").hidden = false;
    } catch (error) {
      target.textContent = `This figure could not be drawn: ${error.message}`;
    }
  };

  // What is seen first is drawn first; the rest follows while nothing else is to be done, so that printing finds all.
  const seen = new IntersectionObserver(
    (entries) => entries.filter((entry) => entry.isIntersecting).forEach((entry) => draw(entry.target)),
    { rootMargin: "400px" },
  );
  figures.forEach((figure) => seen.observe(figure));
  const idle = window.requestIdleCallback || ((work) => setTimeout(work, 50));
  const drawNext = () => {
    const next = figures.find((figure) => !figure.dataset.drawn);
    if (next) draw(next).then(() => idle(drawNext));
  };
  idle(drawNext);

  // A saved picture has the page's colours as they are now, not the variables they come from.
  const saved = (figure) => {
    const svg = figure.querySelector(".chart svg").cloneNode(true);
    svg.setAttribute("xmlns", "http://www.w3.org/2000/svg");
    const colours = getComputedStyle(document.documentElement);
    const text = new XMLSerializer().serializeToString(svg);
    return text.replace(/var\((--[a-z]+)\)/g, (_, name) => colours.getPropertyValue(name).trim());
  };
  figures.forEach((figure) =>
    figure.querySelector(".save").addEventListener("click", () => {
      const link = document.createElement("a");
      link.href = URL.createObjectURL(new Blob([saved(figure)], { type: "image/svg+xml" }));
      link.download = `${figure.id}.svg`;
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 1000);
    }),
  );

  const key = (row, index) => {
    const cell = row.cells[index];
    return cell.dataset.sort === undefined ? cell.textContent : Number(cell.dataset.sort);
  };
  const compare = (a, b) => {
    const undefinedLast = (a === "–") - (b === "–");
    if (undefinedLast) return { last: undefinedLast };
    const natural = new Intl.Collator(undefined, { numeric: true }).compare;
    return { order: typeof a === "number" && typeof b === "number" ? a - b : natural(String(a), String(b)) };
  };
  const sort = (table, index, ascending) => {
    const rows = [...table.tBodies[0].rows].map((row) => [key(row, index), row]);
    rows.sort(([a], [b]) => {
      const { last, order } = compare(a, b);
      return last || (ascending ? order : -order);
    });
    table.tBodies[0].append(...rows.map(([, row]) => row));
  };
  document.querySelectorAll("table.sortable").forEach((table) =>
    [...table.tHead.rows[0].cells].forEach((head, index) =>
      head.querySelector("button").addEventListener("click", () => {
        // Numbers are wanted largest first, names from A on.
        const numeric = table.tBodies[0].rows[0].cells[index].classList.contains("number");
        const before = head.getAttribute("aria-sort");
        const ascending = before ? before === "descending" : !numeric;
        [...head.parentNode.cells].forEach((other) => other.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", ascending ? "ascending" : "descending");
        sort(table, index, ascending);
      }),
    ),
  );
})();
