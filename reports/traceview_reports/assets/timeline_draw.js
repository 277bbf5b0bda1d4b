// Painting. Many events a pixel: exact shares of every column, written as pixels. Few: rectangles with names.
let GUTTER = 236;
const AXIS = 24, BAND = 18, TOP = AXIS + BAND;
const VARS = ["compute", "comm", "straggler", "pipeline", "staging", "other", "idle", "uncovered"];
const D = { canvas: null, ctx: null, map: null, mapCtx: null, w: 0, h: 0, dpr: 1, colors: null, image: null, wanted: false, ms: 0 };

const plot = () => D.w - GUTTER;
const xOf = (t) => GUTTER + ((t - S.view[0]) / viewWidth()) * plot();
const tOf = (x) => S.view[0] + ((x - GUTTER) / plot()) * viewWidth();

function readColors() {
  const style = getComputedStyle(document.documentElement), probe = document.createElement("canvas").getContext("2d");
  const css = (name, otherwise) => {
    probe.fillStyle = "#000";
    probe.fillStyle = style.getPropertyValue(name).trim() || otherwise;
    return probe.fillStyle;
  };
  const ui = { bg: css("--bg", "#fff"), panel: css("--panel", "#f5f6f8"), line: css("--line", "#d9dce2"), text: css("--text", "#15191f"), dim: css("--dim", "#545b66"), focus: css("--focus", "#1c5aa0") };
  const fill = VARS.map((v) => css(`--g-${v}`, "#888")), ink = VARS.map((v) => css(`--g-${v}-ink`, "#fff"));
  fill.push(css("--tl-op", "#b9c6d8"), css("--tl-host", "#7d8ea6"), fill[C.comm], css("--tl-soft", "#b4b9c2"));
  ink.push(css("--tl-op-ink", "#10151c"), css("--tl-host-ink", "#10151c"), ui.text, css("--tl-soft-ink", "#10151c"));
  const rgb = (c) => [1, 3, 5].map((k) => parseInt(c.slice(k, k + 2), 16));
  const word = ([r, g, b]) => (255 << 24) | (b << 16) | (g << 8) | r;
  const mix = (a, b, f) => a.map((v, k) => Math.round(v * f + b[k] * (1 - f)));
  const bg = rgb(ui.bg), hatched = new Set([C.straggler, C.pipeline, C.unresolved]);
  D.colors = {
    ui, fill, ink, bg: word(bg),
    solid: fill.map((c) => word(rgb(c))),
    hatch: fill.map((c, k) => word(hatched.has(k) ? mix(rgb(c), bg, 0.45) : rgb(c))),
    pattern: fill.map((c, k) => (hatched.has(k) ? hatchPattern(c, mix(rgb(c), bg, 0.45)) : c)),
    stripe: hatchPattern(ui.line, bg),
  };
}

function hatchPattern(front, back) {
  const tile = document.createElement("canvas"), size = 6;
  tile.width = tile.height = size;
  const g = tile.getContext("2d");
  g.fillStyle = `rgb(${back})`;
  g.fillRect(0, 0, size, size);
  g.fillStyle = front;
  for (let y = 0; y < size; y++) for (let x = 0; x < size; x++) if ((x + y) % size < size / 2) g.fillRect(x, y, 1, 1);
  return D.ctx.createPattern(tile, "repeat");
}

function redraw() {
  if (D.wanted) return;
  D.wanted = true;
  requestAnimationFrame(() => {
    D.wanted = false;
    paint();
  });
}

function paint() {
  if (!S.meta || D.w < GUTTER + 40) return;
  const began = performance.now(), g = D.ctx, ui = D.colors.ui;
  g.setTransform(D.dpr, 0, 0, D.dpr, 0, 0);
  g.fillStyle = ui.bg;
  g.fillRect(0, 0, D.w, D.h);
  g.font = "11px system-ui, sans-serif";
  g.textBaseline = "middle";
  const visible = visibleRows();
  for (const row of visible) paintRow(row);
  paintSteps(visible);
  paintArrows(visible);
  paintMeasure();
  paintGutter(visible);
  paintAxis();
  paintThumb();
  paintMap();
  D.ms = performance.now() - began;
}

function visibleRows() {
  S.scroll = Math.max(0, Math.min(S.scroll, S.height - (D.h - TOP)));
  return S.rows.filter((r) => r.y + r.h > S.scroll && r.y < S.scroll + D.h - TOP);
}

const top = (row) => TOP + row.y - S.scroll;

function paintRow(row) {
  if (!row.lane && !row.note) return paintStack(row);
  if (row.lane) {
    const lane = row.lane, i = Math.max(0, lowerBound(lane.ts, S.view[0], 0, lane.n) - 1), j = lowerBound(lane.ts, S.view[1], i, lane.n);
    if (j - i > plot() * 0.4) paintColumns(row, lane, i, j);
    else paintRectangles(row, lane, i, j);
    if (row.lane.depth || row.lane.key.startsWith("host.")) return;
  } else if (row.note === "loading") loadRank(row.rank).then(redraw);
  paintMissing(row);
}

// Stripes over the times of a rank whose events are not in the page.
function paintMissing(row) {
  if (row.note === "loading") return label(row, GUTTER + 6, "decoding…");
  const head = S.meta.byHead.get(row.rank), g = D.ctx, y = top(row);
  let t = Math.max(S.view[0], 0);
  const stop = Math.min(S.view[1], S.meta.span);
  for (const [a, b] of [...(head ? head.spans : []), [stop, stop]]) {
    const until = Math.min(a, stop);
    if (until > t) {
      const x = xOf(t), w = xOf(until) - x;
      g.fillStyle = D.colors.stripe;
      g.fillRect(x, y, w, row.h);
      const step = stepAt((Math.max(t, S.view[0]) + until) / 2), words = `detail not embedded; re-run with --focus rank=${row.rank}${step ? `,step=${step.step}` : ""}`;
      if (w > 330 && (row.note || row === S.rows.find((r) => r.rank === row.rank && r.lane))) {
        const width = g.measureText(words).width + 12;
        g.fillStyle = D.colors.ui.bg;
        g.fillRect(x + 6, y + 1, width, row.h - 2);
        label(row, x + 12, words);
      }
    }
    t = Math.max(t, b);
  }
}

function label(row, x, words) {
  D.ctx.fillStyle = D.colors.ui.dim;
  D.ctx.textAlign = "left";
  D.ctx.fillText(words, x, top(row) + row.h / 2);
}

// Shares of layers, stacked from the bottom, one device pixel a column.
function paintShares(row, shares, cats, columns) {
  const g = D.ctx, h = Math.max(1, Math.round((row.h - 2) * D.dpr)), y0 = Math.round((top(row) + 1) * D.dpr);
  if (!D.image || D.image.width !== columns || D.image.height !== h) {
    D.image = g.createImageData(columns, h);
    D.words = new Uint32Array(D.image.data.buffer);
  }
  const words = D.words, { bg, solid, hatch } = D.colors;
  words.fill(bg);
  const at = new Float64Array(columns);
  for (let k = 0; k < cats.length; k++) {
    const share = shares[k], a = solid[cats[k]], b = hatch[cats[k]];
    for (let x = 0; x < columns; x++) {
      const v = share[x];
      if (v <= 0.002) continue;
      const from = at[x], to = Math.min(h, from + v * h);
      at[x] = to;
      let p = Math.round(from), q = Math.round(to);
      if (q === p && from === 0) q = p + 1; // something is never nothing
      for (let y = p; y < q; y++) words[(h - 1 - y) * columns + x] = (x + y) % 6 < 3 ? a : b;
    }
  }
  g.putImageData(D.image, Math.round(GUTTER * D.dpr), y0);
}

const columnCount = () => Math.round(plot() * D.dpr);

// Shares of a lane in every column, by its prefix sums.
function laneShares(lane, columns, i, j) {
  const dt = viewWidth() / columns, out = lane.layers.map(() => new Float32Array(columns)), before = new Float64Array(lane.layers.length);
  let at = lowerBound(lane.ts, S.view[0], i, j);
  lane.layers.forEach((layer, k) => (before[k] = layerBefore(lane, layer, at, S.view[0])));
  for (let x = 0; x < columns; x++) {
    const t = S.view[0] + (x + 1) * dt;
    at = lowerBound(lane.ts, t, at, j);
    for (let k = 0; k < out.length; k++) {
      const v = layerBefore(lane, lane.layers[k], at, t);
      out[k][x] = (v - before[k]) / dt;
      before[k] = v;
    }
  }
  return out;
}

function paintColumns(row, lane, i, j) {
  const columns = columnCount();
  paintShares(row, laneShares(lane, columns, i, j), lane.layers.map((l) => l.c), columns);
  if (!S.hits) return;
  const g = D.ctx, y = top(row), dt = viewWidth() / plot();
  g.fillStyle = D.colors.ui.bg;
  g.globalAlpha = 0.7;
  g.fillRect(GUTTER, y, plot(), row.h);
  g.globalAlpha = 1;
  g.fillStyle = D.colors.ui.text;
  for (let x = 0, a = i; x < plot(); x++) {
    const b = lowerBound(lane.ts, S.view[0] + (x + 1) * dt, a, j);
    if (b > a && hitsBetween(lane, a, b)) g.fillRect(GUTTER + x, y + 2, 1.5, row.h - 4);
    a = b;
  }
}

// The row of a rank: what its time went to, exact where pieces are embedded, else from bins.
function paintStack(row) {
  const columns = columnCount(), dt = viewWidth() / columns, shares = Array.from({ length: 8 }, () => new Float32Array(columns));
  const sums = binSums(row.rank), scale = S.meta.span / S.meta.bins / dt / 255;
  sums.forEach((sum, c) => {
    let before = binBefore(sum, S.view[0]);
    for (let x = 0; x < columns; x++) {
      const v = binBefore(sum, S.view[0] + (x + 1) * dt);
      shares[c][x] = (v - before) * scale;
      before = v;
    }
  });
  const chunk = S.chunks.get(row.rank), pieces = chunk && chunk.lanes.find((l) => l.key === "pieces");
  if (!chunk && S.meta.span / S.meta.bins > 3 * dt * D.dpr && nearView(S.meta.byHead.get(row.rank))) loadRank(row.rank).then(redraw);
  if (pieces) {
    const i = Math.max(0, lowerBound(pieces.ts, S.view[0], 0, pieces.n) - 1), j = lowerBound(pieces.ts, S.view[1], i, pieces.n);
    const exact = laneShares(pieces, columns, i, j);
    for (const [a, b] of chunk.head.spans) {
      const from = Math.max(0, Math.ceil((a - S.view[0]) / dt)), to = Math.min(columns, Math.floor((b - S.view[0]) / dt));
      for (let c = 0; c < 8; c++) {
        const k = pieces.layers.findIndex((l) => l.c === c);
        for (let x = from; x < to; x++) shares[c][x] = k < 0 ? 0 : exact[k][x];
      }
    }
  }
  paintShares(row, shares, [0, 1, 2, 3, 4, 5, 6, 7], columns);
}

// Whether some of the view is embedded: then bins that have become visible are replaced by the exact pieces.
const nearView = (head) => !!head && head.spans.some(([a, b]) => a < S.view[1] && b > S.view[0]);

function paintRectangles(row, lane, i, j) {
  const g = D.ctx, y = top(row) + 1, h = row.h - 2, { pattern, ui } = D.colors, chunk = lane.chunk;
  let last = -1;
  for (let k = i; k < j; k++) {
    const x0 = Math.max(GUTTER, xOf(lane.ts[k])), x1 = Math.min(D.w, xOf(lane.ts[k] + lane.du[k]));
    if (x1 < GUTTER) continue;
    const w = Math.max(x1 - x0, 1), id = eventId(lane, k);
    if (x0 + w < last + 0.4) continue;
    last = x0 + w;
    const miss = S.hits && (lane.key === "idle" || !S.hits.match[chunk.name[id]]);
    g.globalAlpha = (miss ? 0.22 : 1) * Math.min(1, Math.max(0.45, x1 - x0)); // less than a pixel is paler, not wider
    const width = w - (w > 3 ? 1 : 0);
    let xw = x0;
    if (lane.wait && lane.wait[k] > 0) {
      xw = Math.min(x0 + width, Math.max(x0, xOf(lane.ts[k] + lane.wait[k])));
      g.fillStyle = pattern[lane.catWait[k]];
      g.fillRect(x0, y, xw - x0, h);
    }
    g.fillStyle = pattern[lane.cat[k]];
    if (x0 + width > xw) g.fillRect(xw, y, x0 + width - xw, h);
    if (width > 34 && !miss) paintName(lane, k, id, x0, xw, x0 + width, y, h);
    g.globalAlpha = 1;
    if (S.selected && S.selected.rank === row.rank && S.selected.id === id) {
      g.strokeStyle = ui.text;
      g.lineWidth = 2;
      g.strokeRect(x0 + 1, y + 1, Math.max(width - 2, 1), h - 2);
    }
  }
}

// The name in the longer part of the event; on a wait it says so, on a plate that keeps it readable over the hatch.
function paintName(lane, k, id, x0, xw, x1, y, h) {
  const g = D.ctx, inWait = xw - x0 > x1 - xw, from = inWait ? x0 : xw, to = inWait ? xw : x1;
  const words = (inWait ? `${waitWords(lane.chunk, id)} · ` : "") + nameOf(lane, k, id, S.meta.short), fit = Math.floor((to - from - 8) / 6.2), cat = inWait ? lane.catWait[k] : lane.cat[k];
  if (fit < 3) return;
  const shown = fit < words.length ? `${words.slice(0, fit - 1)}…` : words;
  if (inWait || cat === C.unresolved) {
    g.fillStyle = D.colors.ui.bg;
    g.globalAlpha = 0.82;
    g.fillRect(from + 2, y + 1, Math.min(to - from - 4, g.measureText(shown).width + 6), h - 2);
    g.globalAlpha = 1;
    g.fillStyle = D.colors.ui.text;
  } else g.fillStyle = D.colors.ink[cat];
  g.textAlign = "left";
  g.save();
  g.beginPath();
  g.rect(from, y, to - from - 1, h);
  g.clip();
  g.fillText(shown, from + 4, y + h / 2 + 0.5);
  g.restore();
}

function waitWords(chunk, id) {
  const late = peek(chunk, "late", id) - 1;
  return late >= 0 ? `waits for rank ${late}` : "waits";
}

function nameOf(lane, k, id, names = S.meta.names) {
  if (lane.key === "idle" || lane.key === "pieces") return phaseWords(S.meta.phases[lane.chunk.kind[id]]);
  return names[lane.chunk.name[id]];
}

function paintSteps(visible) {
  const g = D.ctx, steps = S.meta.steps.list;
  g.fillStyle = D.colors.ui.text;
  for (const step of steps) {
    const x = xOf(step.t0), end = xOf(step.t1);
    if (x >= GUTTER && x <= D.w) {
      g.globalAlpha = 0.35;
      g.fillRect(Math.round(x), TOP, 1, D.h);
    }
    if (step.excluded && end > GUTTER && x < D.w) {
      g.globalAlpha = 0.06;
      g.fillRect(Math.max(x, GUTTER), TOP, Math.min(end, D.w) - Math.max(x, GUTTER), D.h);
    }
  }
  g.globalAlpha = 1;
  g.fillStyle = D.colors.ui.line;
  for (const row of visible) if (!row.lane && !row.note) g.fillRect(0, top(row), D.w, 1);
}
