// What all pages share: the data, small helpers, tables that sort and filter. Text is textContent.
const hpckit = (() => {
  "use strict";
  const data = JSON.parse(document.getElementById("page-data").textContent);
  const $ = (selector, within = document) => [...within.querySelectorAll(selector)];
  const byId = (id) => document.getElementById(id);
  const make = (tag, attributes = {}, ...children) => {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    made.append(...children);
    return made;
  };
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  // The clock of the cluster, whatever the reader's is.
  const onCluster = (epoch) => {
    const there = new Date((epoch + data.zone.offset_s) * 1000);
    return new Date(there.getTime() + there.getTimezoneOffset() * 60000);
  };
  const two = (number) => String(number).padStart(2, "0");
  const clock = (epoch) => {
    const at = onCluster(epoch);
    const day = `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
    return `${day} ${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())} ${data.zone.name}`;
  };
  const number = (value) => (value == null ? "–" : String(+value.toPrecision(4)));

  // ---- pictures -----------------------------------------------------------------------------

  const axisStyle = () => ({
    stroke: () => colour("--dim"), font: "12px system-ui, sans-serif",
    grid: { stroke: () => colour("--grid"), width: 1 }, ticks: { show: false },
  });
  // The window's size, its colours, and paper, which has the light ones.
  function followView(fit, repaint, { onPaper = () => {}, afterwards = () => {} } = {}) {
    addEventListener("resize", () => fit());
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", repaint);
    addEventListener("beforeprint", () => { document.documentElement.dataset.print = ""; onPaper(); repaint(); });
    addEventListener("afterprint", () => { delete document.documentElement.dataset.print; afterwards(); repaint(); });
  }

  // ---- tables -------------------------------------------------------------------------------

  const cellValue = (row, column) => {
    const cell = row.cells[column];
    const exact = cell.querySelector("data");
    if (exact) return Number(exact.value);
    const text = cell.textContent;
    return cell.querySelector(".unknown") || text === "" ? null : text;
  };
  const compare = (one, other) =>
    typeof one === "number" && typeof other === "number"
      ? one - other
      : String(one).localeCompare(String(other), "en", { numeric: true });

  function sortBy(table, column, head) {
    const upward = head.getAttribute("aria-sort") !== "ascending";
    for (const other of head.parentNode.cells) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", upward ? "ascending" : "descending");
    const body = table.tBodies[0];
    const rows = [...body.rows].map((row) => [cellValue(row, column), row]);
    rows.sort(([one], [other]) => {
      if (one === null || other === null) return (one === null) - (other === null);  // unknown last
      return (upward ? 1 : -1) * compare(one, other);
    });
    body.append(...rows.map(([, row]) => row));
    table.dispatchEvent(new CustomEvent("arranged"));
  }

  function filterBy(table, words, count) {
    const wanted = words.toLowerCase().split(/\s+/).filter(Boolean);
    const rows = [...table.tBodies[0].rows];
    for (const row of rows) {
      const text = row.textContent.toLowerCase();
      row.hidden = !wanted.every((word) => text.includes(word));
    }
    count.textContent = `${rows.filter((row) => !row.hidden).length} of ${rows.length}`;
    table.dispatchEvent(new CustomEvent("arranged"));
  }

  for (const input of $("input[data-filters]")) {
    const table = byId(input.dataset.filters), count = input.closest(".filter").querySelector("output");
    input.addEventListener("input", () => filterBy(table, input.value, count));
    filterBy(table, input.value, count);  // browsers keep what was typed before
  }

  for (const table of $("table[data-sortable]")) {
    [...table.tHead.rows[0].cells].forEach((head, column) => {
      const button = make("button", { type: "button" }, head.textContent);
      button.addEventListener("click", () => sortBy(table, column, head));
      head.replaceChildren(button);
    });
  }

  return { data, $, byId, make, colour, onCluster, clock, number, axisStyle, followView };
})();
