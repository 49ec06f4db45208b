// Draws a small picture for each job of a page of several, when it comes into view.
(() => {
  "use strict";
  const { data, $, byId, colour } = hpckit;
  const HEIGHT = 90;
  const STEPS = [1, 5, 10, 30, 60, 300, 600, 1200, 1800, 3600, 7200, 14400, 21600, 43200, 86400, 172800, 432000, 864000];
  const plots = new Map();

  const span = (seconds) => {
    if (seconds >= 2 * 86400) return `${+(seconds / 86400).toPrecision(3)} d`;
    if (seconds >= 2 * 3600) return `${+(seconds / 3600).toPrecision(3)} h`;
    return seconds >= 120 ? `${+(seconds / 60).toPrecision(3)} min` : `${seconds} s`;
  };

  function draw(place) {
    const job = data.jobs[Number(place.dataset.job)];
    if (plots.has(place) || !job.times.length) return;
    const axis = { ...hpckit.axisStyle(), font: "11px system-ui, sans-serif" };
    const edge = { stroke: null, width: 0, points: { show: false } };
    const options = {
      width: Math.max(place.clientWidth, 120), height: HEIGHT, legend: { show: false },
      cursor: { show: false }, select: { show: false }, padding: [6, 8, 0, 0],
      scales: {
        x: { time: false },
        y: { range: (u, low, high) => [0, job.top ?? (high > 0 ? high * 1.05 : 1)] },
      },
      axes: [
        { ...axis, size: 22, space: 70, incrs: STEPS, values: (u, splits) => splits.map(span) },
        { ...axis, size: 36, space: 26 },
      ],
      series: [
        {}, { stroke: () => colour("--c0"), width: 1.5, points: { show: job.times.length < 4 } }, { ...edge }, { ...edge },
      ],
      bands: [{ series: [3, 2], fill: () => `${colour("--c0")}33` }],
    };
    plots.set(place, new uPlot(options, [job.times, job.mean, job.low, job.high], place));
    place.dataset.drawn = "";
  }

  // The pictures stand in the order of the table, without those that are filtered out.
  const table = byId("table-jobs"), places = byId("small");
  const pictures = new Map($("figure", places).map((figure) => [figure.dataset.of, figure]));
  function arrange() {
    for (const row of table.tBodies[0].rows) {
      const figure = pictures.get(row.dataset.of);
      figure.hidden = row.hidden;
      places.append(figure);
    }
  }
  table.addEventListener("arranged", arrange);
  arrange();

  const seen = new IntersectionObserver((entries) => {
    for (const entry of entries) if (entry.isIntersecting) draw(entry.target);
  }, { rootMargin: "200px" });
  for (const place of $(".plot", places)) seen.observe(place);

  const repaint = () => { for (const plot of plots.values()) plot.redraw(false); };
  const fit = () => {
    for (const [place, plot] of plots) plot.setSize({ width: Math.max(place.clientWidth, 120), height: HEIGHT });
  };
  const drawAll = () => { for (const place of $(".plot", places)) draw(place); };
  hpckit.followView(fit, repaint, { onPaper: drawAll });
  document.documentElement.dataset.ready = String(data.jobs.length);
})();
