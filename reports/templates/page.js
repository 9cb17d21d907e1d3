// What the page does by itself: says what scrolls, sorts tables and opens the section that a link leads to.
"use strict";
// What is wider than its place says that it scrolls.
const places = new ResizeObserver((seen) => {
  for (const { target } of seen) {
    const place = target.closest(".wide");
    place.classList.toggle("cut", place.scrollWidth > place.clientWidth + 1);
  }
});
document.querySelectorAll(".wide, .wide > *").forEach((part) => places.observe(part));
// A link to a trial opens its section.
for (const link of document.querySelectorAll('a[href^="#trial-"]')) {
  link.addEventListener("click", () => { document.querySelector(link.hash).open = true; });
}
// Sorting: a click (or Enter) on a heading sorts its table by that column; what is missing stays last.
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells];
  const key = (row, i) => row.cells[i].dataset.sort ?? row.cells[i].textContent.trim();
  const compare = (a, b) => {
    if (a === "" || b === "") return (a === "") - (b === "");
    const x = Number(a), y = Number(b);
    return Number.isNaN(x) || Number.isNaN(y) ? a.localeCompare(b, "en", { numeric: true }) : x - y;
  };
  const sort = (head, i) => {
    const down = head.getAttribute("aria-sort") === "ascending";
    heads.forEach((h) => h.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const rows = [...table.tBodies[0].rows].map((row) => [key(row, i), row]);
    rows.sort(([a], [b]) => (down && a !== "" && b !== "" ? compare(b, a) : compare(a, b)));
    table.tBodies[0].append(...rows.map(([, row]) => row));
  };
  heads.forEach((head, i) => {
    head.tabIndex = 0;
    head.addEventListener("click", () => sort(head, i));
    head.addEventListener("keydown", (e) => { if (e.key === "Enter") sort(head, i); });
  });
}
