// What stands around the rows: gutter, axis, arrows, measure, scroll thumb, minimap.
function tickSize() {
  const rough = viewWidth() / (plot() / 110), power = 10 ** Math.floor(Math.log10(rough));
  return [1, 2, 5, 10].map((k) => k * power).find((v) => v >= rough) || power * 10;
}

// ns as text with just the digits that tell ticks apart.
function tickText(ns, tick) {
  const size = Math.max(Math.abs(ns), tick), [scale, unit] = size >= 1e9 ? [1e9, "s"] : size >= 1e6 ? [1e6, "ms"] : size >= 1e3 ? [1e3, "µs"] : [1, "ns"];
  const digits = Math.max(0, Math.min(9, Math.ceil(-Math.log10(tick / scale) - 1e-9)));
  return `${(ns / scale).toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits })} ${unit}`;
}

function timeText(ns) {
  const a = Math.abs(ns), [scale, unit] = a >= 1e9 ? [1e9, "s"] : a >= 1e6 ? [1e6, "ms"] : a >= 1e3 ? [1e3, "µs"] : [1, "ns"], v = ns / scale;
  const digits = unit === "ns" || a / scale >= 100 ? 0 : a / scale >= 10 ? 1 : 2;
  return `${v.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits })} ${unit}`;
}

function paintAxis() {
  const g = D.ctx, ui = D.colors.ui, tick = tickSize(), step = stepAt(S.view[0] + viewWidth() / 2);
  const inside = step && viewWidth() < (step.t1 - step.t0) * 1.05, zero = inside ? step.t0 : 0;
  g.fillStyle = ui.bg;
  g.fillRect(0, 0, D.w, TOP);
  g.fillStyle = ui.dim;
  g.textAlign = "center";
  for (let k = Math.ceil((S.view[0] - zero) / tick); k * tick + zero < S.view[1]; k++) {
    const x = xOf(k * tick + zero);
    if (x < GUTTER + 24 || x > D.w - 20) continue;
    g.fillText((inside && k > 0 ? "+" : "") + tickText(k * tick, tick), x, AXIS / 2);
    g.fillRect(Math.round(x), AXIS - 4, 1, 4);
  }
  g.textAlign = "left";
  clipText(inside ? `time in step ${step.step}` : "time since the record began", 8, AXIS / 2, GUTTER - 12, ui.dim);
  paintBand();
  g.fillStyle = ui.line;
  g.fillRect(0, TOP - 1, D.w, 1);
}

function paintBand() {
  const g = D.ctx, ui = D.colors.ui;
  let free = GUTTER;
  g.textAlign = "left";
  g.fillStyle = ui.dim;
  g.fillText("step", 8, AXIS + BAND / 2);
  for (const s of S.meta.steps.list) {
    const x = Math.max(GUTTER, xOf(s.t0)), end = Math.min(D.w, xOf(s.t1));
    if (end <= GUTTER || x >= D.w) continue;
    g.fillStyle = ui.panel;
    g.fillRect(x + 0.5, AXIS, Math.max(0.5, end - x - 1), BAND - 2);
    if (S.step === s.step) {
      g.fillStyle = ui.focus;
      g.fillRect(x, TOP - 4, Math.max(1, end - x), 3);
    }
    const words = s.excluded ? `${s.step} not used` : `${s.step}`;
    if (x < free || end - x < 18) continue;
    const shown = g.measureText(words).width + 8 < end - x ? words : `${s.step}`;
    if (g.measureText(shown).width + 6 > end - x) continue;
    g.fillStyle = s.excluded ? ui.dim : ui.text;
    g.fillText(shown, x + 5, AXIS + BAND / 2 - 0.5);
    free = x + g.measureText(shown).width + 12;
  }
}

function paintGutter(visible) {
  const g = D.ctx, ui = D.colors.ui;
  g.fillStyle = ui.bg;
  g.fillRect(0, TOP, GUTTER - 1, D.h);
  g.textAlign = "left";
  for (const row of visible) {
    const y = top(row) + row.h / 2;
    if (row.lane) {
      if (row.lane.depth === 0) clipText(`${row.lane.label}`, 26, y, GUTTER - 32, ui.dim);
    } else if (row.note) clipText(row.note === "missing" ? "no detail" : "", 26, y, GUTTER - 32, ui.dim);
    else {
      const info = rankInfo(row.rank);
      g.fillStyle = ui.line;
      g.fillRect(0, top(row), GUTTER, 1);
      g.fillStyle = ui.dim;
      g.fillText(S.open.has(row.rank) ? "▾" : "▸", 8, y);
      g.font = "600 11px system-ui, sans-serif";
      clipText(`rank ${row.rank}`, 22, y, 70, ui.text);
      g.font = "11px system-ui, sans-serif";
      const late = info.late > 0 && GUTTER > 200 ? `costs others ${timeText(info.late)}` : "", space = g.measureText(late).width;
      clipText(info.host, 82, y, GUTTER - 92 - (late ? space + 8 : 0), ui.dim);
      if (late) {
        g.fillStyle = D.colors.fill[C.straggler];
        g.fillRect(GUTTER - 14 - space, y - 6, 3, 12);
        clipText(late, GUTTER - 8 - space, y, space + 4, ui.text);
      }
    }
  }
  g.fillStyle = ui.line;
  g.fillRect(GUTTER - 1, 0, 1, D.h);
}

function clipText(words, x, y, width, color) {
  if (width < 8) return;
  const g = D.ctx;
  g.fillStyle = color;
  let shown = words;
  if (g.measureText(shown).width > width) {
    const keep = Math.max(1, Math.floor((words.length * width) / g.measureText(words).width) - 1);
    shown = `${words.slice(0, keep)}…`;
  }
  g.fillText(shown, x, y);
}

// From a waiting event to the kernel it waited for: the selected one always, the visible wide ones too.
function paintArrows(visible) {
  const wanted = [];
  if (S.selected && S.selected.id >= 0) wanted.push([S.selected.rank, S.selected.id]);
  if (S.show.arrows) {
    for (const { rank, lane } of visible) {
      if (!lane || !lane.wait || wanted.length > 40) continue;
      const i = Math.max(0, lowerBound(lane.ts, S.view[0], 0, lane.n) - 1), j = lowerBound(lane.ts, S.view[1], i, lane.n);
      if (j - i > plot() * 0.4) continue;
      for (let k = i; k < j && wanted.length <= 40; k++) if ((lane.wait[k] / viewWidth()) * plot() > 60) wanted.push([rank, eventId(lane, k)]);
    }
  }
  const g = D.ctx;
  g.save();
  g.beginPath();
  g.rect(GUTTER, TOP, plot(), D.h);
  g.clip();
  for (const [rank, id] of wanted) paintArrow(rank, id, S.selected && S.selected.rank === rank && S.selected.id === id);
  g.restore();
}

function paintArrow(rank, id, strong) {
  const chunk = S.chunks.get(rank);
  if (!chunk || id >= chunk.nComm || !chunk.wait[id]) return;
  const late = peek(chunk, "late", id) - 1, to = late >= 0 ? partner(chunk, id, late) : -1;
  const from = rowOfEvent(rank, id), target = to >= 0 ? rowOfEvent(late, to) : null;
  if (!from || !target || from === target) return;
  const g = D.ctx, x0 = xOf(chunk.ts[id] + chunk.wait[id]), y0 = top(from) + from.h / 2, x1 = xOf(S.chunks.get(late).ts[to]), y1 = top(target) + target.h / 2;
  g.strokeStyle = g.fillStyle = strong ? D.colors.ui.text : D.colors.fill[chunk.catWait[id]];
  g.lineWidth = strong ? 2 : 1;
  g.globalAlpha = strong ? 1 : 0.8;
  const bend = Math.min(40, Math.abs(y1 - y0) / 2 + 10), dir = Math.sign(y1 - y0) || 1;
  g.beginPath();
  g.moveTo(x0, y0);
  g.bezierCurveTo(x0 + bend, y0 + dir * bend * 0.5, x1 - bend, y1 - dir * bend * 0.5, x1 - 2, y1);
  g.stroke();
  g.beginPath();
  g.moveTo(x1, y1);
  g.lineTo(x1 - 8, y1 - 4);
  g.lineTo(x1 - 8, y1 + 4);
  g.fill();
  g.globalAlpha = 1;
}

function paintMeasure() {
  if (!S.measure) return;
  const [a, b] = [...S.measure].sort((p, q) => p - q), g = D.ctx, x = Math.max(GUTTER, xOf(a)), end = Math.min(D.w, xOf(b));
  if (end < GUTTER || x > D.w) return;
  g.fillStyle = D.colors.ui.bg;
  g.globalAlpha = 0.55;
  g.fillRect(GUTTER, TOP, x - GUTTER, D.h);
  g.fillRect(end, TOP, D.w - end, D.h);
  g.globalAlpha = 1;
  g.fillStyle = D.colors.ui.text;
  g.fillRect(x - 1, TOP, 2, D.h);
  g.fillRect(end - 1, TOP, 2, D.h);
  const words = timeText(b - a), w = g.measureText(words).width + 10, at = Math.min(Math.max(GUTTER, (x + end - w) / 2), D.w - w);
  g.fillRect(at, TOP + 2, w, 16);
  g.fillStyle = D.colors.ui.bg;
  g.textAlign = "left";
  g.fillText(words, at + 5, TOP + 10);
}

function paintThumb() {
  const room = D.h - TOP;
  if (S.height <= room) return;
  const g = D.ctx, h = Math.max(24, (room / S.height) * room);
  g.fillStyle = D.colors.ui.dim;
  g.globalAlpha = 0.5;
  g.fillRect(D.w - 5, TOP + (S.scroll / (S.height - room)) * (room - h), 4, h);
  g.globalAlpha = 1;
}

// The whole run: mean of all ranks, painted once per size and theme, and the view as a frame on it.
function paintMap() {
  const g = D.mapCtx, w = D.map.clientWidth, h = D.map.clientHeight, p = w - GUTTER, ui = D.colors.ui;
  if (!D.mapImage || D.mapImage.width !== Math.round(w * D.dpr)) makeMapImage(w, h);
  g.setTransform(1, 0, 0, 1, 0, 0);
  g.drawImage(D.mapImage, 0, 0);
  g.setTransform(D.dpr, 0, 0, D.dpr, 0, 0);
  const x0 = GUTTER + (Math.max(0, S.view[0]) / S.meta.span) * p, x1 = Math.max(x0 + 2, GUTTER + (Math.min(S.meta.span, S.view[1]) / S.meta.span) * p);
  g.fillStyle = ui.bg;
  g.globalAlpha = 0.6;
  g.fillRect(GUTTER, 0, x0 - GUTTER, h);
  g.fillRect(x1, 0, w - x1, h);
  g.globalAlpha = 1;
  g.strokeStyle = ui.text;
  g.lineWidth = 1.5;
  g.strokeRect(x0 + 0.5, 1, x1 - x0 - 1, h - 2);
}

function makeMapImage(w, h) {
  const image = (D.mapImage = document.createElement("canvas")), g = image.getContext("2d"), B = S.meta.bins, ranks = S.meta.ranks.length;
  image.width = Math.round(w * D.dpr);
  image.height = Math.round(h * D.dpr);
  g.scale(D.dpr, D.dpr);
  g.fillStyle = D.colors.ui.bg;
  g.fillRect(0, 0, w, h);
  const mean = (S.meanBins ||= meanBins(ranks, B)), p = w - GUTTER, n = Math.min(B, Math.round(p));
  for (let x = 0; x < n; x++) {
    let y = h - 2;
    const from = Math.floor((x / n) * B), to = Math.max(from + 1, Math.floor(((x + 1) / n) * B));
    for (let c = 0; c < 8; c++) {
      let v = 0;
      for (let b = from; b < to; b++) v += mean[c * B + b];
      const tall = (v / (to - from)) * (h - 4);
      g.fillStyle = D.colors.fill[c];
      g.fillRect(GUTTER + (x * p) / n, y - tall, p / n + 0.5, tall);
      y -= tall;
    }
  }
  g.fillStyle = D.colors.ui.text;
  for (const s of S.meta.steps.list) if (S.meta.steps.list.length < 400) g.fillRect(Math.round(GUTTER + (s.t0 / S.meta.span) * p), h - 6, 1, 6);
  g.fillStyle = D.colors.ui.dim;
  g.font = "11px system-ui, sans-serif";
  g.textBaseline = "middle";
  g.fillText(ranks > 1 ? (GUTTER > 200 ? `all ${ranks} ranks, mean` : "mean") : "whole run", 8, h / 2);
}

function meanBins(ranks, B) {
  const out = new Float64Array(8 * B), size = 8 * B, bins = S.bins;
  for (let r = 0; r < ranks; r++) for (let k = 0, at = r * size; k < size; k++) out[k] += bins[at + k];
  return out.map((v) => v / ranks / 255);
}
