// Draws the charts anew from their tables, with the values under the pointer. Dragging selects a time.
(() => {
  const colour = (tone) => getComputedStyle(document.documentElement).getPropertyValue(`--bar-${tone}`).trim();
  const ink = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const drawn = new WeakMap();

  // The figures of a chart: times in seconds, and one list of values for each column of its table.
  function figures(figure) {
    const { from, step, steps } = figure.dataset;
    const times = Array.from({ length: +steps }, (_, n) => +from + n * +step);
    const heads = [...figure.querySelectorAll("thead th")].slice(1);
    const series = heads.map((head) => ({ name: head.textContent, tone: head.dataset.tone, line: head.dataset.line === "1", values: times.map(() => 0) }));
    for (const row of figure.querySelectorAll("tbody tr[data-t]")) {
      const place = Math.round((+row.dataset.t - +from) / +step);
      [...row.cells].slice(1).forEach((cell, n) => { series[n].values[place] = +cell.textContent; });
    }
    return { times, series };
  }

  // Columns that stand on each other: each is drawn from the ground, the highest first.
  function stacked(series) {
    let below = [];
    const columns = series.filter((s) => !s.line).map((s) => {
      below = s.values.map((value, n) => value + (below[n] || 0));
      return { ...s, shown: below };
    });
    return [...columns.reverse(), ...series.filter((s) => s.line).map((s) => ({ ...s, shown: s.values }))];
  }

  function draw(figure) {
    const plot = figure.querySelector(".plot");
    const { times, series } = figures(figure);
    const zone = window.postriderTimeZone();
    const layers = stacked(series);
    const text = (value) => (value == null ? "–" : String(value));
    const label = (date) => new Intl.DateTimeFormat("en-GB", { timeZone: zone, month: "2-digit", day: "2-digit", hour: "2-digit", minute: "2-digit" }).format(date);
    const options = {
      width: plot.clientWidth, height: 170, cursor: { drag: { x: Boolean(figure.dataset.select), y: false, setScale: false } },
      tzDate: (seconds) => (zone ? uPlot.tzDate(new Date(seconds * 1e3), zone) : new Date(seconds * 1e3)),
      legend: { live: true }, scales: { x: { time: true, range: (_, low, high) => [low - figure.dataset.step / 2, high + figure.dataset.step / 2] }, y: { range: (_, low, high) => [0, Math.max(high, 1)] } },
      axes: [
        { stroke: ink("--quiet"), grid: { show: false }, ticks: { stroke: ink("--line"), size: 4 }, size: 40, values: [[86400, "{MM}-{DD}", null, null, null, null, null, null, 1], [60, "{HH}:{mm}", "\n{MM}-{DD}", null, "\n{MM}-{DD}", null, null, null, 1]] },
        { stroke: ink("--quiet"), grid: { stroke: ink("--line"), width: 1 }, ticks: { show: false }, size: 44, space: 36, incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 2e4, 5e4, 1e5, 2e5, 5e5, 1e6, 1e7, 1e8] },
      ],
      series: [{ label: "From", value: (_, seconds) => (seconds == null ? "–" : label(new Date(seconds * 1e3))) }, ...layers.map((layer) => ({
        label: layer.name, stroke: layer.line ? colour(layer.tone) : "transparent", fill: layer.line ? undefined : colour(layer.tone), width: layer.line ? 2 : 0,
        paths: layer.line ? undefined : uPlot.paths.bars({ size: [0.82, 60] }), points: { show: false }, value: (_u, _v, _n, at) => (at == null ? "–" : text(layer.values[at])),
      }))],
      hooks: { setSelect: [(u) => select(figure, u)], setCursor: [(u) => figure.classList.toggle("pointed", u.cursor.idx != null)] },
    };
    drawn.get(figure)?.destroy();
    plot.replaceChildren();
    figure.classList.add("drawn");
    figure.classList.remove("pointed");
    drawn.set(figure, new uPlot(options, [times, ...layers.map((layer) => layer.shown)], plot));
  }

  function select(figure, u) {
    if (u.select.width < 6) return;
    const time = (left) => new Date(u.posToVal(left, "x") * 1e3).toISOString();
    const to = new URL(figure.dataset.select, location.href);
    to.searchParams.set("since", time(u.select.left));
    to.searchParams.set("until", time(u.select.left + u.select.width));
    location.assign(to);
  }

  function drawAll() { document.querySelectorAll("figure.chart[data-steps]").forEach(draw); }
  let waiting;
  addEventListener("resize", () => { clearTimeout(waiting); waiting = setTimeout(drawAll, 120); });
  addEventListener("postrider:colours", drawAll);
  addEventListener("postrider:fresh", (event) => event.detail.querySelectorAll("figure.chart[data-steps]").forEach(draw));
  addEventListener("DOMContentLoaded", drawAll);
})();
