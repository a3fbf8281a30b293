"use strict";
// Sorts, filters and switches the table of labels, which is complete but static without it.
(function () {
  const table = document.getElementById("label-table");
  if (!table) return;
  const body = table.tBodies[0];
  const rows = Array.from(body.rows);
  const data = JSON.parse(document.getElementById("label-data").textContent);
  const find = document.getElementById("label-find");
  const group = document.getElementById("label-group");
  const measure = document.getElementById("label-measure");
  const shown = document.getElementById("label-shown");
  const number = new Map(rows.map((row, k) => [row, k]));
  const folded = new Map(rows.map((row) => [row, row.cells[0].textContent.toLowerCase()]));
  const fixed = 4;

  function valueOf(row, column) {
    if (column < 2) return row.cells[column].textContent;
    if (column < fixed) return Number(row.cells[column].textContent);
    return data[measure.value][number.get(row)][column - fixed];
  }

  function compare(a, b) {
    if (a === null || b === null) return (a === null) - (b === null);
    return typeof a === "string" ? a.localeCompare(b) : a - b;
  }

  function sort(column, down) {
    const keys = new Map(rows.map((row) => [row, valueOf(row, column)]));
    rows.sort((a, b) => {
      const x = keys.get(a), y = keys.get(b);
      const order = compare(x, y);
      // Labels that a run does not know stay at the end.
      return (x === null || y === null || !down ? order : -order) || number.get(a) - number.get(b);
    });
    body.append(...rows);
    table.querySelectorAll("thead th").forEach((head, k) => {
      if (k === column) head.setAttribute("aria-sort", down ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    });
  }

  function filter() {
    const text = find.value.trim().toLowerCase();
    let count = 0;
    for (const row of rows) {
      const fits = folded.get(row).includes(text) &&
        (!group.value || row.cells[1].textContent === group.value);
      row.hidden = !fits;
      count += fits;
    }
    shown.textContent = count + " of " + rows.length + " labels";
  }

  function show() {
    const whole = measure.value === "predicted";
    for (const row of rows) {
      data[measure.value][number.get(row)].forEach((value, k) => {
        const cell = row.cells[fixed + k];
        cell.textContent = value === null ? "–" : whole ? String(value) : (100 * value).toFixed(1);
        cell.style.setProperty("--v", value === null || whole ? 0 : value);
      });
    }
    const sorted = table.querySelector("thead th[aria-sort]");
    if (sorted && sorted.cellIndex >= fixed) {
      sort(sorted.cellIndex, sorted.getAttribute("aria-sort") === "descending");
    }
  }

  table.querySelectorAll("thead button").forEach((button) => {
    button.addEventListener("click", () => {
      const column = Number(button.dataset.column);
      const now = button.parentElement.getAttribute("aria-sort");
      // The first click sorts names in ascending order, numbers in descending order.
      sort(column, now ? now === "ascending" : column >= 2);
    });
  });
  find.addEventListener("input", filter);
  group.addEventListener("change", filter);
  measure.addEventListener("change", show);
  document.getElementById("label-controls").hidden = false;
  filter();
  show(); // browsers may restore an earlier choice on reload
})();
