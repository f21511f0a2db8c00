// Marks, in a waterfall, the row that is pointed at or has the focus, and what it is tied to: a waiter's winners, a
// winner's waiters. The arrow keys go from row to row.
"use strict";
for (const figure of document.querySelectorAll(".waterfall")) {
  const rows = [...figure.querySelectorAll(".row")];
  const detail = figure.querySelector(".detail");
  const waits = (row) => row.dataset.waits.split(" ").filter(Boolean);
  let focused = null;

  const mark = (row) => {
    figure.classList.toggle("marked", row !== null);
    for (const other of rows) {
      other.classList.toggle("current", other === row);
      other.classList.toggle("tied", row !== null && other !== row &&
        (waits(row).includes(other.dataset.worker) || waits(other).includes(row.dataset.worker)));
    }
    detail.textContent = row ? row.getAttribute("aria-label") : detail.dataset.hint;
  };

  rows.forEach((row, i) => {
    row.addEventListener("pointerenter", () => mark(row));
    row.addEventListener("pointerleave", () => mark(focused));
    row.addEventListener("focus", () => {
      for (const other of rows) other.tabIndex = other === row ? 0 : -1;
      mark(focused = row);
    });
    row.addEventListener("blur", () => mark(focused = null));
    row.addEventListener("keydown", (event) => {
      const to = { ArrowDown: i + 1, ArrowUp: i - 1, Home: 0, End: rows.length - 1 }[event.key];
      if (event.key === "Escape") row.blur();
      if (rows[to] === undefined) return;
      event.preventDefault();
      rows[to].focus();
    });
  });
}
