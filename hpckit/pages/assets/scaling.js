// Draws a study's pictures over its sizes: one cursor for all, a legend of values that switches lines.
(() => {
  "use strict";
  const { data, $, make, colour, number } = hpckit;
  const HEIGHT = 230;
  const COLOURS = ["--c0", "--c1", "--c2", "--c3"];
  const plots = [];
  const sync = uPlot.sync("sizes");

  const strokeOf = (row, at) => {
    if (row.kind === "measured") return "--c0";
    if (row.kind === "law") return "--c1";
    return row.kind === "other" ? "--dim" : COLOURS[at];
  };
  const dashOf = (kind) => ({ law: [7, 4], other: [2, 4] })[kind];
  const within = (chart, u) => {
    const points = chart.x, left = points[0], right = points[points.length - 1];
    return left === right ? [left / 2, right * 2] : [left / 1.15, right * 1.15];
  };

  function legendOf(place, chart, plot) {
    const values = chart.series.map(() => make("span", { class: "value" }));
    chart.series.forEach((row, at) => {
      const mark = make("span", { class: `swatch ${row.kind}`, "aria-hidden": "true" }, "\u25CF ");
      mark.dataset.stroke = strokeOf(row, at);
      const button = make("button", { type: "button", "aria-pressed": "true" }, mark, row.label, values[at]);
      button.addEventListener("click", () => {
        const shown = !plot.series[at + 1].show;
        plot.setSeries(at + 1, { show: shown });
        button.setAttribute("aria-pressed", String(shown));
      });
      place.append(button);
    });
    return (idx) => chart.series.forEach((row, at) => {
      const value = idx == null ? null : row.values[idx];
      values[at].textContent = value == null ? "" : ` ${number(value)} ${chart.unit}`;
    });
  }

  function draw(place) {
    const chart = data.charts[place.dataset.chart];
    const axis = hpckit.axisStyle();
    const series = chart.series.map((row, at) => ({
      label: row.label, stroke: () => colour(strokeOf(row, at)), dash: dashOf(row.kind),
      width: row.kind === "other" ? 1 : 2, spanGaps: true,
      points: { show: row.kind === "measured" || row.kind === "part", size: 7, fill: () => colour(strokeOf(row, at)) },
    }));
    const columns = [chart.x, ...chart.series.map((row) => row.values)];
    const bands = [];
    if (chart.low) {
      const edge = { stroke: null, width: 0, points: { show: false }, spanGaps: true };
      series.push({ ...edge }, { ...edge });
      columns.push(chart.low, chart.high);
      bands.push({ series: [series.length, series.length - 1], fill: () => `${colour("--c0")}33` });
    }
    let say = () => {};
    const plot = new uPlot({
      width: Math.max(place.clientWidth, 160), height: HEIGHT, legend: { show: false },
      cursor: { sync: { key: "sizes" }, drag: { x: false, y: false }, points: { show: false } },
      scales: {
        x: { time: false, distr: 3, log: 2, range: (u) => within(chart, u) },
        y: { range: (u, low, high) => [0, high > 0 ? high * 1.08 : 1] },
      },
      axes: [
        { ...axis, size: 24, label: data.unit, labelSize: 16, labelFont: axis.font, filter: null,
          splits: () => chart.ticks, values: (u, splits) => splits.map(String) },
        { ...axis, size: 52 },
      ],
      series: [{}, ...series], bands,
      hooks: { setCursor: [(u) => say(u.cursor.idx)] },
    }, columns, place);
    say = legendOf(place.parentNode.querySelector(".legend"), chart, plot);
    sync.sub(plot);
    plots.push([place, plot]);
    place.dataset.drawn = "";
  }

  const repaint = () => {
    for (const mark of $(".swatch")) mark.style.color = colour(mark.dataset.stroke);
    for (const [, plot] of plots) plot.redraw(false);
  };
  for (const place of $(".plot")) draw(place);
  repaint();
  const fit = () => {
    for (const [place, plot] of plots) plot.setSize({ width: Math.max(place.clientWidth, 160), height: HEIGHT });
  };
  hpckit.followView(fit, repaint);
  document.documentElement.dataset.ready = String(plots.length);
})();
