"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const $ = (id) => document.getElementById(id);
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const paper = window.matchMedia("print");
  const LIGHT = { ink: "#1c2127", soft: "#5a6470", line: "#d7dce2", most: "#1b5fa8", band: "rgba(27,95,168,.18)",
    every: "#176b43", broken: "#a3231b", asked: "#5a6470", measured: "#b06a00" };
  const DARK = { ink: "#e7eaee", soft: "#a3adb8", line: "#38414b", most: "#7db8f5", band: "rgba(125,184,245,.22)",
    every: "#74d3a2", broken: "#ff9d94", asked: "#a3adb8", measured: "#f0b45a" };
  // on paper everything is light, whatever the screen is
  let printing = paper.matches;
  const colours = () => (dark.matches && !printing ? DARK : LIGHT);
  // the library reads a few tags in texts; names must not become any
  const clean = (text) => String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
  const digits = (value) => String(Number(value.toPrecision(4)));
  const short = (text) => (text.length > 40 ? text.slice(0, 39) + "\u2026" : text);
  const name = (row) => clean(short(data.labels[row]));
  const CONFIG = { displayModeBar: false, responsive: true };

  function layout(x, y, more) {
    const c = colours();
    const axis = (title) => ({ title: { text: title, font: { size: 12 } }, gridcolor: c.line, zerolinecolor: c.line,
      linecolor: c.line, automargin: true });
    return Object.assign({
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font: { color: c.ink, size: 12 },
      margin: { l: 52, r: 12, t: 8, b: 40 }, showlegend: true, hovermode: "closest",
      legend: { orientation: "h", yref: "container", y: 0, yanchor: "bottom", x: 0, traceorder: "normal",
        font: { size: 11 } },
      xaxis: axis(x), yaxis: axis(y),
    }, more || {}, printing ? { width: 640, height: 320 } : { autosize: true });
  }

  function draw(id, traces, made) {
    const place = $(id);
    if (place) Plotly.react(place, traces, made, CONFIG);
    return place;
  }

  // one explanation

  let chosen = 0;
  const LINES = [
    ["tested", "asked about", "asked", "dot"], ["worst", "proved for every shift", "every", "solid"],
    ["sampled", data.most, "most", "dash"], ["broken", "a failing shift is known", "broken", "dashdot"],
  ];

  function curve(row) {
    const all = data.curves;
    if (!all || row >= all.estimate.length) return;
    const c = colours(), x = all.deltas;
    const text = x.map((d, j) => `delta ${d}: ${digits(all.estimate[row][j])}<br>band ${all.lower[row][j]} to ${all.upper[row][j]}`);
    const edge = { x, mode: "lines", line: { width: 0 }, hoverinfo: "skip" };
    const traces = [
      { ...edge, y: all.lower[row], showlegend: false },
      { ...edge, y: all.upper[row], fill: "tonexty", fillcolor: c.band, name: `band, confidence ${all.confidence}` },
      { x, y: all.estimate[row], mode: "lines+markers", name: "estimated share", line: { color: c.most }, marker: { size: 5 },
        text, hoverinfo: "text" },
    ];
    // where all shares are high, a look from 0 would hide how they fall
    const least = Math.min(...all.lower[row]), bottom = least < 0.6 ? 0 : Math.floor(least * 20 - 0.5) / 20;
    const marks = LINES.map(([key, label, colour, dash]) => [data.marks[row][key], label, colour, dash]);
    marks.push([data.measured, "measured shift", "measured", "longdash"]);
    for (const [mark, label, colour, dash] of marks) {
      if (mark === null) continue;
      traces.push({ x: [mark.at, mark.at], y: [bottom, 1], mode: "lines", name: `${label}: ${mark.text}`,
        line: { color: c[colour], dash, width: 2 }, hoverinfo: "name" });
    }
    const made = layout("delta: size of the shifts", bottom ? `share kept (axis from ${bottom})` : "share that keeps the class");
    made.yaxis.range = [bottom, 1 + 0.04 * (1 - bottom)];
    made.xaxis.rangemode = "tozero";
    draw("plot-curve", traces, made);
  }

  function histogram(row) {
    const all = data.histograms;
    if (!all || row >= all.counts.length) return;
    const c = colours(), width = all.widths[row], start = all.starts[row], counts = all.counts[row];
    const middle = counts.map((_, j) => start + (j + 0.5) * width);
    const part = (side, label, colour) => {
      const which = middle.map((m, j) => j).filter((j) => middle[j] >= 0 === side && counts[j]);
      return { type: "bar", name: label, x: which.map((j) => middle[j]), y: which.map((j) => counts[j]),
        width: which.map(() => width), marker: { color: colour, line: { width: 0 } } };
    };
    const traces = [part(true, "keep the class", c.every), part(false, "do not", c.broken)].filter((t) => t.x.length);
    const own = data.margins[row], top = Math.max(1, ...counts);
    if (own !== null) {
      traces.push({ x: [own, own], y: [0, top], mode: "lines", name: `the model itself: ${digits(own)}`,
        line: { color: c.ink, dash: "dot", width: 2 }, hoverinfo: "name" });
    }
    const made = layout("margin towards the promised class", "shifted models", { bargap: 0, barmode: "overlay" });
    made.shapes = [{ type: "line", x0: 0, x1: 0, yref: "paper", y0: 0, y1: 1, line: { color: c.soft, width: 1 } }];
    made.yaxis.rangemode = "tozero";
    draw("plot-histogram", traces, made);
    const unfit = all.unfit[row] ? ` ${all.unfit[row]} margins are no finite numbers and not drawn.` : "";
    const which = all.listed ? "listed models" : `models drawn at delta = ${all.deltas[row]}`;
    $("histogram-note").textContent = `${all.failures[row]} of ${all.draws} ${which} do not keep the class.${unfit}`;
  }

  // all of them

  const at = (row, key) => (data.marks[row][key] === null ? 0 : data.marks[row][key].at);
  const reach = (row) => Math.max(at(row, "sampled"), at(row, "worst"));
  let sorted = [];

  function radii() {
    if (!data.radii) return;
    const c = colours(), order = data.labels.map((_, i) => i).sort((a, b) => reach(a) - reach(b) || a - b);
    sorted = order;
    const series = [
      ["broken", "a failing shift is known", c.broken, "triangle-down-open"],
      ["worst", "proved for every shift", c.every, "square"], ["sampled", data.most, c.most, "circle"],
    ];
    const traces = [];
    for (const [key, label, colour, symbol] of series) {
      const places = order.map((_, i) => i).filter((i) => data.marks[order[i]][key] !== null);
      if (!places.length) continue;
      traces.push({ mode: "markers", name: label, x: places.map((i) => i + 1), y: places.map((i) => data.marks[order[i]][key].at),
        text: places.map((i) => `row ${name(order[i])}: ${data.marks[order[i]][key].text}`), hoverinfo: "text+name",
        marker: { color: colour, symbol, size: order.length > 200 ? 5 : 8 } });
    }
    if (data.measured !== null) {
      traces.push({ mode: "lines", x: [0.5, order.length + 0.5], y: [data.measured.at, data.measured.at],
        name: `measured shift: ${data.measured.text}`, line: { color: c.measured, dash: "longdash", width: 2 }, hoverinfo: "name" });
    }
    const made = layout("explanations, sorted", "delta");
    made.yaxis.rangemode = "tozero";
    const place = draw("plot-radii", traces, made);
    if (place.on && !place.listens) {
      place.listens = true;
      place.on("plotly_click", (event) => { const at = event.points[0].x - 1; if (Number.isInteger(at)) choose(sorted[at]); });
    }
  }

  // after retraining

  function margins() {
    if (!data.after) return;
    const c = colours();
    const kinds = [
      ["HELD", "kept", c.every, "circle"], ["BROKEN_INSIDE", "broken inside", c.broken, "x"],
      ["BROKEN_OUTSIDE", "broken outside", c.broken, "diamond"], ["BROKEN", "broken", c.broken, "x"],
      ["NOT_PROMISED", "nothing was promised", c.soft, "circle-open"], ["", "explanations", c.most, "circle"],
    ];
    const traces = [];
    for (const [key, label, colour, symbol] of kinds) {
      const rows = data.outcomes.map((_, i) => i).filter((i) => data.outcomes[i] === key && data.after[i] !== null && data.margins[i] !== null);
      if (!rows.length) continue;
      traces.push({ mode: "markers", name: label, x: rows.map((i) => data.margins[i]), y: rows.map((i) => data.after[i]),
        text: rows.map((i) => `row ${name(i)}: ${digits(data.margins[i])} \u2192 ${digits(data.after[i])}`), hoverinfo: "text+name",
        marker: { color: colour, symbol, size: rows.length > 200 ? 5 : 9 } });
    }
    const ends = traces.flatMap((t) => t.x.concat(t.y)).concat([0]);
    const low = Math.min(...ends), high = Math.max(...ends);
    const made = layout("margin on the certified model", "margin on the later model");
    made.shapes = [
      { type: "line", x0: low, y0: low, x1: high, y1: high, line: { color: c.soft, width: 1, dash: "dot" } },
      { type: "line", xref: "paper", x0: 0, x1: 1, y0: 0, y1: 0, line: { color: c.ink, width: 1.5 } },
    ];
    draw("plot-margins", traces, made);
  }

  function layers() {
    if (!data.layers) return;
    const c = colours(), parts = data.layers.slice().reverse();
    const traces = [{ type: "bar", orientation: "h", name: "moved by", x: parts.map((p) => p.distance), y: parts.map((p) => clean(short(p.name))),
      text: parts.map((p) => p.text), textposition: "auto", hoverinfo: "x+y",
      marker: { color: c.measured } }];
    const asked = [...new Set(data.marks.map((mark) => mark.tested && mark.tested.at))];
    const made = layout("distance", "");
    made.showlegend = false;
    made.xaxis.rangemode = "tozero";
    if (data.measured !== null && data.order === "inf" && asked.length === 1 && asked[0] !== null) {
      traces.push({ mode: "lines", x: [asked[0], asked[0]], y: [traces[0].y[0], traces[0].y[parts.length - 1]],
        name: `asked about: delta = ${data.marks[0].tested.text}`, line: { color: c.asked, dash: "dot", width: 2 } });
      made.showlegend = true;
    }
    draw("plot-layers", traces, made);
  }

  const drawAll = () => { curve(chosen); histogram(chosen); radii(); margins(); layers(); };

  // the table

  const body = document.querySelector("#rows tbody");
  const lines = Array.from(body.rows);
  const texts = lines.map((line) => line.textContent.toLowerCase());

  function choose(row, move) {
    const line = lines[row];
    if (!line) return;
    for (const other of lines) other.removeAttribute("aria-selected");
    line.setAttribute("aria-selected", "true");
    chosen = row;
    $("chosen").textContent = `row ${data.labels[row]}`;
    $("said").replaceChildren(...Array.from(line.querySelectorAll(".told p"), (said) => {
      const sentence = document.createElement("p");
      sentence.textContent = said.textContent;
      return sentence;
    }));
    const drawn = (part) => !part || row < part.length;
    const has = drawn(data.curves && data.curves.estimate) && drawn(data.histograms && data.histograms.counts);
    $("drawn").hidden = !has;
    curve(row);
    histogram(row);
    if (move) $("one").scrollIntoView({ block: "nearest", behavior: "auto" });
  }

  function filter() {
    const words = $("search").value.toLowerCase().split(/\s+/).filter(Boolean);
    const verdict = $("verdict").value, outcome = $("outcome") ? $("outcome").value : "";
    let shown = 0;
    lines.forEach((line, i) => {
      const fits = words.every((word) => texts[i].includes(word)) && (!verdict || line.dataset.verdict === verdict)
        && (!outcome || line.dataset.outcome === outcome);
      line.hidden = !fits;
      shown += fits ? 1 : 0;
    });
    $("shown").textContent = `${shown} of ${lines.length} shown`;
  }

  function sort(key, turn) {
    const head = document.querySelector(`#rows [data-sort=${key}]`).closest("th");
    const up = !turn || head.getAttribute("aria-sort") !== "ascending";
    for (const other of document.querySelectorAll("#rows thead th")) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", up ? "ascending" : "descending");
    $("sort").value = key;
    const numeric = ["number", "worst", "sampled"].includes(key);
    const value = (line) => (numeric ? Number(line.dataset[key]) : line.dataset[key]);
    const compare = (a, b) => (numeric ? value(a) - value(b) : value(a).localeCompare(value(b)));
    const order = lines.slice().sort((a, b) => (up ? 1 : -1) * compare(a, b) || a.dataset.number - b.dataset.number);
    body.append(...order);
  }

  body.addEventListener("click", (event) => {
    const line = event.target.closest("tr");
    if (line) choose(Number(line.dataset.number), true);
  });
  body.addEventListener("keydown", (event) => {
    if ((event.key === "Enter" || event.key === " ") && event.target.matches("tr")) {
      event.preventDefault();
      choose(Number(event.target.dataset.number), true);
    }
  });
  for (const id of ["search", "verdict", "outcome"]) if ($(id)) $(id).addEventListener("input", filter);
  for (const button of document.querySelectorAll("#rows thead button")) button.addEventListener("click", () => sort(button.dataset.sort, true));
  $("sort").addEventListener("input", () => sort($("sort").value, false));
  const step = (by) => {
    const visible = Array.from(body.rows).filter((line) => !line.hidden);
    const at = visible.indexOf(lines[chosen]);
    const next = visible[at < 0 ? 0 : (at + by + visible.length) % visible.length];
    if (next) choose(Number(next.dataset.number));
  };
  $("previous").addEventListener("click", () => step(-1));
  $("next").addEventListener("click", () => step(1));

  const repaint = (now) => { printing = now; drawAll(); };
  dark.addEventListener("change", () => repaint(paper.matches));
  paper.addEventListener("change", (event) => repaint(event.matches));
  window.addEventListener("beforeprint", () => repaint(true));
  window.addEventListener("afterprint", () => repaint(false));
  drawAll();
  choose(0);
})();
