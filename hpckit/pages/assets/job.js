// Draws the pictures of a job's page with uPlot: one axis of time, one cursor, one zoom.
(() => {
  "use strict";
  const { data, $, byId, make, colour, onCluster, clock, number } = hpckit;

  // ---- pictures -----------------------------------------------------------------------------

  const HEIGHT = 160, MOST_IN_LEGEND = 16, COLOURS = 8, FEW = 8;
  const DASHES = [[], [8, 4], [2, 3], [10, 3, 2, 3]];
  const view = { min: data.range[0], max: data.range[1] };
  const hidden = new Set();
  let chosen = null;  // the advice whose devices and time are marked
  let following = false;  // while one picture's zoom is given to the others
  const charts = [];

  const colourOf = (at) => colour(`--c${at % COLOURS}`);
  const dashOf = (look) => DASHES[Math.floor(look / COLOURS) % DASHES.length];
  const isPale = (device) => chosen !== null && chosen.devices.length > 0
    && !chosen.devices.some((other) => concerns(device, other));

  // A node's line is chosen with its GPUs, and a GPU's with its node.
  const concerns = (device, other) => device === other || !device || !other
    || device.startsWith(`${other}/`) || other.startsWith(`${device}/`);

  function build(spec) {
    const place = document.querySelector(`.plot[data-chart="${CSS.escape(spec.id)}"]`);
    const series = [{}], rows = [data.moments[spec.moments]], bands = [];
    const chart = { spec, place, means: [], parts: [] };
    // A script logs some figures at some steps only: its lines have no gaps but between attempts.
    const breaks = spec.moments === "training" ? new Set(data.breaks) : null;
    const values = (row) => breaks ? row.map((value, at) => value ?? (breaks.has(at) ? null : undefined)) : row;
    const many = spec.lines.length > MOST_IN_LEGEND;  // dashes of so many are only noise
    spec.lines.forEach((line, at) => {
      const common = { points: { show: showsPoints(line), filter: alone } };
      const own = [series.length];
      chart.means.push(series.length);
      series.push({
        ...common, label: line.label, width: many ? 0.75 : 1.5, stroke: () => colourOf(line.look),
        dash: many ? [] : line.replaced ? DASHES[2] : dashOf(line.look),
      });
      rows.push(values(line.mean));
      if (line.low) {
        const edge = { points: { show: false }, width: 0, stroke: null };
        own.push(series.length, series.length + 1);
        bands.push({ series: [series.length + 1, series.length], fill: () => bandOf(chart, line) });
        series.push({ ...edge, label: `${line.label} lowest` }, { ...edge, label: `${line.label} highest` });
        rows.push(values(line.low), values(line.high));
      }
      chart.parts.push(own);
    });
    chart.rows = rows;
    chart.plot = new uPlot(options(chart, series, bands), rows, place);
    describe(chart);
    legend(chart);
    return chart;
  }

  const showsPoints = (line) => (u, at, first, last) => last - first < 60;

  // A value between two gaps has no line to be seen by.
  function alone(u, number_, show) {
    if (show) return null;
    const row = u.data[number_], found = [];
    let before = null, last = null;  // the value before, unless a gap is between; where one stands alone
    row.forEach((value, at) => {
      if (value === undefined) return;
      if (value !== null && before === null) last = at;
      else if (value !== null) last = null;
      else if (last !== null) { found.push(last); last = null; }
      before = value;
    });
    if (last !== null) found.push(last);
    return found;
  }

  const bandOf = (chart, line) => {
    if (isPale(line.device)) return "transparent";
    const few = chart.spec.lines.length - hidden.size <= FEW || chosen !== null;
    return few ? `${colourOf(line.look)}33` : "transparent";
  };

  const highest = (spec) => (u, low, high) => {
    if (spec.top !== null) return [0, spec.top];
    if (high == null) return [0, 1];
    const least = Math.min(low, 0);
    return [least, high > least ? high + (high - least) * 0.05 : least + 1];
  };

  function options(chart, series, bands) {
    const axis = { ...hpckit.axisStyle(), ticks: { stroke: () => colour("--grid"), width: 1 } };
    return {
      width: Math.max(chart.place.clientWidth, 200), height: HEIGHT, series, bands,
      tzDate: onCluster, legend: { show: false }, padding: [12, 28, 0, 0],
      scales: {
        x: { time: true, range: (u, min, max) => [min, max] },
        y: { range: highest(chart.spec) },
      },
      axes: [
        { ...axis, space: 70, values: TIMES, incrs: STEPS },
        { ...axis, size: 54, space: 28, values: (u, splits) => splits.map(shortNumber) },
      ],
      cursor: {
        sync: { key: "page", scales: ["x", null] }, drag: { x: true, y: false, dist: 4 }, focus: { prox: -1 },
        points: { size: 6 }, bind: { dblclick: () => () => zoomTo(...data.range) },
      },
      hooks: {
        drawClear: [(u) => marks(u, chart)],
        setCursor: [(u) => told(u, chart)],
        setScale: [(u, key) => { if (key === "x") follow(u); }],
      },
    };
  }

  // Clocks here have no parts of seconds.
  const STEPS = [
    1, 5, 10, 15, 30, 60, 300, 600, 900, 1800, 3600, 7200, 10800, 14400, 21600, 43200,
    86400, 172800, 259200, 432000, 864000, 1728000,
  ];
  const TIMES = [
    [86400, "{MMM} {D}", null, null, null, null, null, null, 1],
    [3600, "{HH}:{mm}", "\n{MMM} {D}", null, "\n{MMM} {D}", null, null, null, 1],
    [60, "{HH}:{mm}", "\n{MMM} {D}", null, "\n{MMM} {D}", null, null, null, 1],
    [1, "{HH}:{mm}:{ss}", "\n{MMM} {D}", null, "\n{MMM} {D}", null, null, null, 1],
    [0.001, "{HH}:{mm}:{ss}", "\n{MMM} {D}", null, "\n{MMM} {D}", null, null, null, 1],
  ];
  const shortNumber = (value) => {
    if (value == null) return "";
    const size = Math.abs(value);
    if (size >= 1e6) return `${+(value / 1e6).toPrecision(3)}M`;
    if (size >= 1e4) return `${+(value / 1e3).toPrecision(3)}k`;
    return String(+value.toPrecision(6));
  };

  // What stands behind the lines: time between attempts, and what an advice speaks of.
  function marks(u, chart) {
    const { ctx, bbox } = u;
    const x = (epoch) => Math.min(Math.max(u.valToPos(epoch, "x", true), bbox.left), bbox.left + bbox.width);
    const fill = (start, end, style) => {
      const left = x(start), right = x(end);
      if (right > left) { ctx.fillStyle = style; ctx.fillRect(left, bbox.top, Math.max(right - left, 2), bbox.height); }
    };
    ctx.save();
    data.attempts.forEach((attempt, at) => {
      if (attempt.start == null || data.attempts.length < 2) return;
      const before = data.attempts[at - 1], next = data.attempts[at + 1];
      if (before?.end != null) fill(before.end, attempt.start, colour("--between"));
      if (before) line(u, x(attempt.start));
      name(u, x(attempt.start), next?.start == null ? bbox.left + bbox.width + 24 * devicePixelRatio : x(next.start), attempt);
    });
    const stretches = stretchesIn(chart);
    for (const { start, end } of stretches) fill(start, end, colour("--mark"));
    chart.place.dataset.marked = stretches.map(({ start, end }) => `${start}-${end}`).join(" ");
    ctx.restore();
  }

  function line(u, left) {
    const { ctx, bbox } = u;
    if (left <= bbox.left || left >= bbox.left + bbox.width) return;
    ctx.strokeStyle = colour("--dim");
    ctx.lineWidth = devicePixelRatio;
    ctx.setLineDash([4 * devicePixelRatio, 3 * devicePixelRatio]);
    ctx.beginPath();
    ctx.moveTo(left, bbox.top);
    ctx.lineTo(left, bbox.top + bbox.height);
    ctx.stroke();
  }

  // An attempt's number and how it ended, as far as there is room before the next one's.
  function name(u, left, right, { word, restart, state }) {
    const { ctx, bbox } = u;
    if (left >= bbox.left + bbox.width) return;
    ctx.fillStyle = colour("--dim");
    ctx.font = `${11 * devicePixelRatio}px system-ui, sans-serif`;
    ctx.textAlign = "left";
    ctx.textBaseline = "bottom";
    const words = [...(state ? [`${word} ${restart}: ${state}`] : []), `${word} ${restart}`, String(restart)];
    const text = words.find((one) => ctx.measureText(one).width + 6 * devicePixelRatio <= right - left);
    if (text) ctx.fillText(text, left + 3 * devicePixelRatio, bbox.top);
  }

  function stretchesIn(chart) {
    if (chosen === null) return [];
    const near = (device) => chart.spec.lines.some((row) => concerns(row.device, device));
    if (chosen.devices.length && !chosen.devices.some(near)) return [];
    if (!chosen.stretches.length) return [{ start: data.range[0], end: data.range[1] }];
    const found = chosen.stretches.filter((part) => near(part.device));
    const seen = new Map(found.map((part) => [`${part.start} ${part.end}`, part]));
    return joined([...seen.values()]);
  }

  // Stretches that overlap are one: their colours would add up.
  function joined(parts) {
    const found = [];
    for (const part of parts.sort((one, other) => one.start - other.start)) {
      const last = found[found.length - 1];
      if (last && part.start <= last.end) last.end = Math.max(last.end, part.end);
      else found.push({ start: part.start, end: part.end });
    }
    return found;
  }

  // ---- the cursor and the values at it ------------------------------------------------------

  function told(u, chart) {
    const at = u.cursor.idx;
    chart.place.dataset.at = at == null ? "" : at;
    const moment = at == null ? null : chart.rows[0][at];
    if (moment != null) byId("moment").textContent = clock(moment);
    chart.values.forEach((element, number) => {
      element.textContent = at == null ? "" : valueAt(chart, number, at);
    });
  }

  function valueAt(chart, number_, at) {
    const line = chart.spec.lines[number_], mean = line.mean[at];
    if (mean == null) return "–";
    const unit = chart.spec.unit ? ` ${chart.spec.unit}` : "";
    const band = line.low && line.low[at] !== line.high[at]
      ? ` (${number(line.low[at])}–${number(line.high[at])})` : "";
    return `${number(mean)}${unit}${band}`;
  }

  function legend(chart) {
    const place = chart.place.nextElementSibling;
    chart.values = [];
    chart.buttons = [];
    place.replaceChildren();
    chart.spec.lines.forEach((row, at) => {
      const value = make("span", { class: "value" });
      chart.values.push(value);
      const button = make("button", { type: "button", "aria-pressed": "true" },
        sample(row, chart.spec.lines.length > MOST_IN_LEGEND), make("span", {}, row.label), value);
      button.addEventListener("click", () => toggle(row.device));
      chart.buttons.push(button);
      if (at < MOST_IN_LEGEND) place.append(button);
    });
    const more = chart.spec.lines.length - MOST_IN_LEGEND;
    if (more > 0) place.append(make("span", { class: "more" }, `and ${more} more, in the table`));
  }

  function sample({ look, replaced }, many) {
    const space = "http://www.w3.org/2000/svg";
    const svg = document.createElementNS(space, "svg");
    const path = document.createElementNS(space, "path");
    svg.setAttribute("width", "22");
    svg.setAttribute("height", "8");
    svg.setAttribute("aria-hidden", "true");
    path.setAttribute("d", "M0 4H22");
    path.setAttribute("stroke-width", "2.5");
    path.setAttribute("stroke", `var(--c${look % COLOURS})`);
    path.setAttribute("stroke-dasharray", many ? "" : (replaced ? DASHES[2] : dashOf(look)).join(" "));
    svg.append(path);
    return svg;
  }

  function toggle(device) {
    if (!hidden.delete(device)) hidden.add(device);
    for (const chart of charts) {
      chart.spec.lines.forEach((row, at) => {
        if (row.device !== device) return;
        const show = !hidden.has(device);
        for (const part of chart.parts[at]) chart.plot.setSeries(part, { show }, false);
        chart.buttons[at].setAttribute("aria-pressed", String(show));
      });
    }
  }

  // ---- zoom, for all pictures together ------------------------------------------------------

  function follow(u) {
    if (following) return;
    const { min, max } = u.scales.x;
    if (min !== view.min || max !== view.max) zoomTo(min, max);
  }

  function zoomTo(min, max) {
    const [first, last] = data.range;
    const least = Math.min(4 * data.width_s, last - first);
    const width = Math.min(Math.max(max - min, least), last - first);
    const start = Math.min(Math.max((min + max - width) / 2, first), last - width);
    view.min = start;
    view.max = start + width;
    following = true;
    for (const chart of charts) {
      chart.plot.setScale("x", { min: view.min, max: view.max });
      Object.assign(chart.place.dataset, { min: view.min, max: view.max });
    }
    // uPlot tells of a new scale a moment later.
    queueMicrotask(() => queueMicrotask(() => { following = false; }));
  }

  function zoomBy(factor, around = (view.min + view.max) / 2) {
    zoomTo(around - (around - view.min) * factor, around + (view.max - around) * factor);
  }

  // ---- the keyboard -------------------------------------------------------------------------

  function describe(chart) {
    const kinds = chart.spec.lines.length === 1 ? "1 line" : `${chart.spec.lines.length} lines`;
    const words = `${chart.spec.title}${chart.spec.unit ? `, ${chart.spec.unit}` : ""}, over time: ${kinds}. The table follows.`;
    for (const [name, value] of Object.entries({
      tabindex: "0", role: "application", "aria-roledescription": "picture", "aria-label": words, "aria-describedby": "help",
    })) chart.place.setAttribute(name, value);
    chart.place.addEventListener("keydown", (event) => pressed(event, chart));
  }

  function pressed(event, chart) {
    if (event.ctrlKey || event.altKey || event.metaKey) return;
    const step = event.shiftKey ? 10 : 1;
    const act = {
      ArrowLeft: () => move(chart, -step), ArrowRight: () => move(chart, step),
      Home: () => move(chart, -Infinity), End: () => move(chart, Infinity),
      "+": () => zoomBy(0.5, momentOf(chart)), "=": () => zoomBy(0.5, momentOf(chart)),
      "-": () => zoomBy(2, momentOf(chart)), 0: () => zoomTo(...data.range), Escape: () => zoomTo(...data.range),
    }[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  }

  const momentOf = (chart) => chart.rows[0][chart.plot.cursor.idx] ?? undefined;

  function move(chart, by) {
    const moments = chart.rows[0];
    let first = moments.findIndex((moment) => moment >= view.min);
    let last = moments.findLastIndex((moment) => moment <= view.max);
    if (first < 0 || last < first) return;
    const now = chart.plot.cursor.idx ?? (by > 0 ? first - 1 : last + 1);
    const at = Math.min(Math.max(now + by, first), last);
    for (const other of charts) {
      const left = other.plot.valToPos(moments[at], "x");
      other.plot.setCursor({ left, top: HEIGHT / 3 }, true, false);
    }
    const values = chart.spec.lines.slice(0, MOST_IN_LEGEND).map((row, line) => `${row.label} ${valueAt(chart, line, at)}`);
    byId("spoken").textContent = `${clock(moments[at])}: ${values.join(", ")}`;
  }

  // ---- advice -------------------------------------------------------------------------------

  function choose(number_) {
    const again = number_ !== null && chosen === data.advice[number_];
    chosen = number_ === null || again ? null : data.advice[number_];
    for (const button of $("button[data-advice]")) {
      const on = chosen !== null && data.advice[Number(button.dataset.advice)] === chosen;
      button.setAttribute("aria-pressed", String(on));
    }
    for (const chart of charts) {
      chart.spec.lines.forEach((row, at) => {
        for (const part of chart.parts[at]) chart.plot.series[part].alpha = isPale(row.device) ? 0.12 : 1;
      });
      chart.place.dataset.pale = chart.spec.lines.filter((row) => isPale(row.device)).length;
      chart.plot.redraw(false);
    }
    if (chosen !== null) byId("pictures").scrollIntoView({ block: "start" });
  }

  for (const button of $("button[data-advice]"))
    button.addEventListener("click", () => choose(Number(button.dataset.advice)));
  const tools = {
    in: () => zoomBy(0.5), out: () => zoomBy(2), all: () => zoomTo(...data.range), none: () => choose(null),
  };
  for (const button of $("button[data-tool]"))
    button.addEventListener("click", () => tools[button.dataset.tool]());

  // ---- size, colours, print -----------------------------------------------------------------

  const fit = (width) => {
    for (const chart of charts) chart.plot.setSize({ width: Math.max(width ?? chart.place.clientWidth, 200), height: HEIGHT });
  };
  const repaint = () => { for (const chart of charts) chart.plot.redraw(false); };

  for (const spec of data.charts) charts.push(build(spec));
  zoomTo(...data.range);
  hpckit.followView(fit, repaint, { onPaper: () => fit(700), afterwards: fit });
  document.documentElement.dataset.ready = String(charts.length);
})();
