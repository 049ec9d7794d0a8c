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
for (const box of document.querySelectorAll("[data-search]")) {
  const scores = JSON.parse(box.dataset.search);
  const [input, output, body] = ["input", "output", "tbody"].map((name) => box.querySelector(name));
  const shown = [...body.rows];
  const percent = (share) => (100 * share).toFixed(1) + "%";
  const wilson = (right, of) => {
    const z = 1.959963984540054, middle = right + (z * z) / 2, all = of + z * z;
    const half = z * Math.sqrt((right * (of - right)) / of + (z * z) / 4);
    return [(middle - half) / all, (middle + half) / all];
  };
  const cell = (row, kind, text, value) => {
    const made = row.appendChild(document.createElement(kind));
    made.textContent = text;
    made.dataset.value = value;
  };
  const row = ([name, count, right, trained]) => {
    const made = document.createElement("tr"), ends = count ? wilson(right, count) : null;
    cell(made, "th", name, name);
    cell(made, "td", count.toLocaleString("en"), count);
    cell(made, "td", right.toLocaleString("en"), right);
    cell(made, "td", count ? percent(right / count) : "\u2013", count ? right / count : "");
    cell(made, "td", ends ? percent(ends[0]) + " to " + percent(ends[1]) : "\u2013", ends ? ends[0] : "");
    cell(made, "td", trained === null ? "\u2013" : trained.toLocaleString("en"), trained === null ? "" : trained);
    return made;
  };
  input.addEventListener("input", () => {
    const wanted = input.value.trim().toLowerCase();
    const found = wanted ? scores.filter(([name]) => name.toLowerCase().includes(wanted)) : [];
    body.replaceChildren(...(wanted ? found.slice(0, 100).map(row) : shown));
    output.textContent = wanted ? ` ${found.length} found` + (found.length > 100 ? ", 100 shown" : "") : "";
  });
}
for (const box of document.querySelectorAll("[data-find]")) {
  const rows = JSON.parse(box.dataset.find);
  const [input, output, body] = ["input", "output", "tbody"].map((name) => box.querySelector(name));
  const shown = [...body.rows];
  const row = (cells) => {
    const made = document.createElement("tr");
    cells.forEach(([text, value], place) => {
      const cell = made.appendChild(document.createElement(place ? "td" : "th"));
      cell.textContent = text;
      cell.dataset.value = value;
    });
    return made;
  };
  input.addEventListener("input", () => {
    const wanted = input.value.trim().toLowerCase();
    const found = wanted ? rows.filter(([[name]]) => name.toLowerCase().includes(wanted)) : [];
    body.replaceChildren(...(wanted ? found.slice(0, 100).map(row) : shown));
    output.textContent = wanted ? ` ${found.length} found` + (found.length > 100 ? ", 100 shown" : "") : "";
  });
}
addEventListener("beforeprint", () => {
  for (const part of document.querySelectorAll("details")) part.open = true;
});
