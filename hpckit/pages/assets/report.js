// Draws the pictures of a report: bars over classes or weeks; what is under the cursor is said below.
(() => {
  "use strict";
  const { data, $, colour, number } = hpckit;
  const HEIGHT = 210;
  const COLOURS = ["--c5", "--c0", "--c1"];
  const plots = [];

  const strokeOf = (chart, at) => (chart.rows.length === 1 ? "--c0" : COLOURS[at]);
  const reading = (chart, at) =>
    `${chart.names[at]}: ` +
    chart.rows.map((row) => {
      const value = row.values[at];
      const name = chart.rows.length > 1 ? `${row.label} ` : "";
      return value === null ? `${name}unknown` : `${name}${number(value)} ${chart.unit}`;
    }).join(", ");

  // The first row is the whole; the others are parts of it, and stand before it, side by side.
  const bars = (row) => uPlot.paths.bars(
    row === 0 ? { size: [0.84, 84], align: 0 } : { size: [0.34, 34], align: row === 1 ? -1 : 1, gap: 2 },
  );

  function draw(place) {
    const chart = data.charts[place.dataset.chart];
    const output = place.parentNode.querySelector("output");
    const places = chart.names.map((_, at) => at);
    const every = (width) => Math.ceil(chart.names.length / Math.max(Math.floor((width - 52) / 80), 1));
    const axis = hpckit.axisStyle();
    const plot = new uPlot({
      width: Math.max(place.clientWidth, 160), height: HEIGHT, legend: { show: false }, padding: [8, 8, 0, 0],
      cursor: { drag: { x: false, y: false }, points: { show: false }, y: false },
      scales: {
        x: { time: false, range: () => [-0.6, chart.names.length - 0.4] },
        y: { range: (u, low, high) => [0, chart.top ?? (high > 0 ? high * 1.06 : 1)] },
      },
      axes: [
        { ...axis, size: 26, grid: { show: false }, splits: () => places,
          values: (u, splits) => splits.map((at) => (at % every(u.width) ? "" : chart.names[at])) },
        { ...axis, size: 52 },
      ],
      series: [{}, ...chart.rows.map((row, at) => ({
        label: row.label, stroke: () => colour(strokeOf(chart, at)), fill: () => colour(strokeOf(chart, at)),
        width: 0, points: { show: false }, paths: bars(at),
      }))],
      hooks: {
        setCursor: [(u) => {
          const at = u.cursor.idx;
          output.textContent = at == null || u.cursor.left < 0 ? "" : reading(chart, at);
        }],
      },
    }, [places, ...chart.rows.map((row) => row.values)], place);
    plots.push([place, plot]);
    describe(place, chart, plot);
  }

  function describe(place, chart, plot) {
    const words = `${chart.title}. Arrow keys read each bar; the table below has all of them.`;
    for (const [name, value] of Object.entries({
      tabindex: "0", role: "application", "aria-roledescription": "picture", "aria-label": words,
    })) place.setAttribute(name, value);
    place.addEventListener("keydown", (event) => {
      const last = chart.names.length - 1, now = plot.cursor.idx ?? -1;
      const to = { ArrowLeft: now - 1, ArrowRight: now + 1, Home: 0, End: last }[event.key];
      if (to === undefined || event.ctrlKey || event.altKey || event.metaKey) return;
      event.preventDefault();
      const at = Math.min(Math.max(to, 0), last);
      plot.setCursor({ left: plot.valToPos(at, "x"), top: HEIGHT / 3 }, true);
    });
    if (chart.rows.length === 1) return;
    const legend = hpckit.make("div", { class: "legend" });
    chart.rows.forEach((row, at) => {
      const mark = hpckit.make("span", { class: `bar row${at}`, "aria-hidden": "true" });
      legend.append(hpckit.make("span", {}, mark, ` ${row.label}`));
    });
    place.after(legend);
  }

  for (const place of $(".plot")) draw(place);
  const repaint = () => { for (const [, plot] of plots) plot.redraw(false); };
  const fit = () => {
    for (const [place, plot] of plots) plot.setSize({ width: Math.max(place.clientWidth, 160), height: HEIGHT });
  };
  hpckit.followView(fit, repaint);
  document.documentElement.dataset.ready = String(plots.length);
})();
