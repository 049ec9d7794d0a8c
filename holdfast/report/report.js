"use strict";
for (const table of document.querySelectorAll("table[data-sortable]")) {
  const body = table.tBodies[0];
  const heads = [...table.tHead.rows[0].cells];
  const value = (row, column) => row.cells[column].dataset.value;
  const compare = (a, b) => (isNaN(a) || isNaN(b) ? a.localeCompare(b, undefined, { numeric: true }) : a - b);
  heads.forEach((head, column) => {
    head.querySelector("button").addEventListener("click", () => {
      const rising = head.getAttribute("aria-sort") !== "ascending";
      heads.forEach((other) => other.setAttribute("aria-sort", "none"));
      head.setAttribute("aria-sort", rising ? "ascending" : "descending");
      const rows = [...body.rows];
      const known = rows.filter((row) => value(row, column) !== "");
      const unknown = rows.filter((row) => value(row, column) === "");
      known.sort((a, b) => (rising ? 1 : -1) * compare(value(a, column), value(b, column)));
      body.append(...known, ...unknown);
    });
  });
}
addEventListener("beforeprint", () => {
  for (const part of document.querySelectorAll("details")) part.open = true;
});
