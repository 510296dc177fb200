// Tables: sorted by a click on a column's name, filtered by what is typed above them.

const sortKey = (row, index) => {
  const cell = row.cells[index];
  return cell.dataset.sort === undefined ? cell.textContent : Number(cell.dataset.sort);
};

const natural = new Intl.Collator(undefined, { numeric: true }).compare;

const sortRows = (table, index, ascending) => {
  const rows = [...table.tBodies[0].rows].map((row) => [sortKey(row, index), row]);
  rows.sort(([a], [b]) => {
    const undefinedLast = (a === "–") - (b === "–");
    if (undefinedLast) return undefinedLast;
    const order = typeof a === "number" && typeof b === "number" ? a - b : natural(String(a), String(b));
    return ascending ? order : -order;
  });
  table.tBodies[0].append(...rows.map(([, row]) => row));
};

const sortBy = (table, head, index) => {
  // Numbers are wanted largest first, names from A on.
  const numeric = table.tBodies[0].rows[0].cells[index].classList.contains("number");
  const before = head.getAttribute("aria-sort");
  const ascending = before ? before === "descending" : !numeric;
  [...head.parentNode.cells].forEach((other) => other.removeAttribute("aria-sort"));
  head.setAttribute("aria-sort", ascending ? "ascending" : "descending");
  sortRows(table, index, ascending);
};

// Rows that have every word of what is typed; a typed space is the · that stands for one, too.
const filterRows = (table, typed, count) => {
  const words = typed.toLowerCase().split(/\s+/).filter(Boolean);
  const rows = [...table.tBodies[0].rows];
  for (const row of rows) {
    const text = row.textContent.toLowerCase();
    row.hidden = !words.every((word) => text.includes(word));
  }
  const shown = rows.filter((row) => !row.hidden).length;
  count.textContent = words.length ? `${shown} of ${rows.length} rows` : "";
};

export function tables(root) {
  root.querySelectorAll("table.sortable").forEach((table) =>
    [...table.tHead.rows[0].cells].forEach((head, index) =>
      head.querySelector("button").addEventListener("click", () => sortBy(table, head, index)),
    ),
  );
  root.querySelectorAll("input.filter").forEach((input) => {
    const table = document.getElementById(input.dataset.table);
    const label = input.parentElement;
    label.hidden = false;
    input.addEventListener("input", () => filterRows(table, input.value, label.nextElementSibling));
  });
  // Paper has no closed parts: all tables are printed, and closed again after.
  let opened = [];
  addEventListener("beforeprint", () => {
    opened = [...root.querySelectorAll("details:not([open])")];
    opened.forEach((part) => (part.open = true));
  });
  addEventListener("afterprint", () => opened.forEach((part) => (part.open = false)));
}
