// What moves the view: keys, pointer, toolbar, the address, and the other sections of the page.
let quiet = false; // while following another section, do not answer it

function setView(a, b) {
  const from = S.meta.from, to = S.meta.to, room = (to - from) * 0.02 || 1, most = to - from + 2 * room;
  let w = Math.min(Math.max(b - a, 20), most);
  let start = Math.min(Math.max((a + b - w) / 2, from - room), to + room - w);
  S.view = [start, start + w];
  changed();
}

let later = 0;
function changed() {
  redraw();
  clearTimeout(later);
  later = setTimeout(settle, 180);
}

// After the view came to rest: say it, table it, put it into the address.
function settle() {
  $("status").textContent = `View: ${whenText(S.view[0])}, ${timeText(viewWidth())} wide.`;
  fillTable();
  if (!S.touched) return;
  const parts = [`t=${Math.round(S.view[0])}-${Math.round(S.view[1])}`];
  if (S.rank !== undefined) parts.push(`rank=${S.rank}`);
  if (S.step !== null) parts.push(`step=${S.step}`);
  if (S.selected && S.selected.id >= 0) parts.push(`sel=${Math.round(S.chunks.get(S.selected.rank).ts[S.selected.id])}`);
  history.replaceState(null, "", `#${parts.join("&")}`);
}

const zoom = (factor, x) => {
  const t = tOf(x ?? GUTTER + plot() / 2);
  setView(t + (S.view[0] - t) * factor, t + (S.view[1] - t) * factor);
};
const pan = (share) => setView(S.view[0] + viewWidth() * share, S.view[1] + viewWidth() * share);
const scrollBy = (dy) => {
  S.scroll += dy;
  redraw();
};

function reveal(rank) {
  const row = S.rows.find((r) => r.rank === rank && !r.lane && !r.note);
  if (row && (row.y < S.scroll || row.y + 120 > S.scroll + D.h - TOP)) S.scroll = row.y - 4;
  redraw();
}

function tell(rank, step, t0, t1) {
  if (quiet) return;
  const detail = { step: step ?? null, rank: rank ?? null, t0: Math.round(t0), t1: Math.round(t1), source: "timeline" };
  document.dispatchEvent(new CustomEvent("tv:select", { detail }));
}

function select(rank, id, move) {
  const chunk = S.chunks.get(rank), ts = chunk.ts[id], du = chunk.du[id];
  S.selected = { rank, id };
  S.rank = rank;
  S.touched = true;
  const step = stepAt(ts);
  if (step) S.step = step.step;
  if (move) {
    S.open.add(rank);
    layoutRows();
    if (ts < S.view[0] || ts + du > S.view[1] || du / viewWidth() < 0.002) setView(ts - du * 8 - 500, ts + du * 9 + 500);
    const row = rowOfEvent(rank, id);
    if (!row) reveal(rank);
    else if (row.y < S.scroll || row.y + row.h > S.scroll + D.h - TOP) S.scroll = row.y - 60;
  }
  showDetail();
  tell(rank, step && step.step, ts, ts + du);
  changed();
}

function goStep(number) {
  const step = S.meta.steps.list.find((s) => s.step === number);
  if (!step) return;
  S.step = number;
  S.touched = true;
  const slack = (step.t1 - step.t0) * 0.01;
  setView(step.t0 - slack, step.t1 + slack);
  tell(S.rank, number, step.t0, step.t1);
}

function nextStep(by) {
  const list = S.meta.steps.list, now = list.findIndex((s) => s.step === (S.step ?? stepAt(tOf(GUTTER + plot() / 2))?.step));
  const to = list[Math.max(0, Math.min(list.length - 1, now + by))];
  if (to) goStep(to.step);
}

function nextHit(by) {
  if (!S.hits || !S.hits.found.length) return;
  const n = S.hits.found.length;
  S.hitAt = (S.hitAt + by + n + (S.hitAt < 0 && by < 0 ? 1 : 0)) % n;
  select(...S.hits.found[S.hitAt], true);
  sayHits();
}

function sayHits() {
  $("walk").hidden = !S.hits || !S.hits.found.length;
  const text = $("search").value;
  if (!text) $("hits").textContent = "";
  else if (!S.hits) $("hits").textContent = "searching…";
  else {
    const n = S.hits.found.length, part = S.meta.embedded < S.meta.candidates ? " in the embedded detail" : "";
    $("hits").textContent = n ? `${S.hitAt >= 0 ? `${(S.hitAt + 1).toLocaleString("en")} of ` : ""}${n.toLocaleString("en")} events, ${timeText(S.hits.total)}${part}` : `none${part}`;
  }
}

let typed = 0;
async function runSearch() {
  const mine = ++typed;
  S.hits = null;
  sayHits();
  await search($("search").value.trim(), (k, n) => mine === typed && ($("hits").textContent = `searching… ${k} of ${n} ranks`));
  if (mine !== typed) return;
  sayHits();
  redraw();
}

// The next or previous event of the selected one's lane; without one, the first in the view.
function stepEvent(by) {
  const { selected } = S, row = (selected && selected.id >= 0 && rowOfEvent(selected.rank, selected.id)) || S.rows.find((r) => r.lane && r.rank === (S.rank ?? r.rank));
  if (!row || !row.lane.n) return;
  const lane = row.lane, at = selected && selected.id >= 0 ? laneIndex(lane, selected.id) : -1;
  const k = at < 0 ? lowerBound(lane.ts, S.view[0] + viewWidth() * 0.012, 0, lane.n - 1) : Math.max(0, Math.min(lane.n - 1, at + by));
  select(row.rank, eventId(lane, k), true);
}

// The nearest event of the lane above or below.
function stepLane(by) {
  const { selected } = S, from = selected && selected.id >= 0 && rowOfEvent(selected.rank, selected.id);
  if (!from) return stepEvent(1);
  const lanes = S.rows.filter((r) => r.lane && r.lane.n), to = lanes[lanes.indexOf(from) + by];
  if (!to) return;
  const t = S.chunks.get(selected.rank).ts[selected.id], i = lowerBound(to.lane.ts, t, 0, to.lane.n - 1);
  select(to.rank, eventId(to.lane, i > 0 && t - to.lane.ts[i - 1] < Math.abs(to.lane.ts[i] - t) ? i - 1 : i), true);
}

function focusSelected() {
  if (!S.selected || S.selected.id < 0) return;
  const chunk = S.chunks.get(S.selected.rank), ts = chunk.ts[S.selected.id], du = Math.max(chunk.du[S.selected.id], 10);
  setView(ts - du, ts + du * 2);
}

function measureSelected() {
  if (S.measure) S.measure = null;
  else if (S.selected && S.selected.id >= 0) {
    const chunk = S.chunks.get(S.selected.rank);
    S.measure = [chunk.ts[S.selected.id], chunk.ts[S.selected.id] + chunk.du[S.selected.id]];
    S.measureRank = S.selected.rank;
  } else S.measure = [...S.view];
  showDetail();
  redraw();
}

function toggleRank(rank) {
  if (!rankInfo(rank)) return;
  if (!S.open.delete(rank)) S.open.add(rank);
  S.rank = rank;
  layoutRows();
  redraw();
}

async function openRank(rank) {
  S.rank = rank;
  S.open.add(rank);
  await loadRank(rank);
  layoutRows();
  redraw();
}

function escape() {
  if (!$("help").hidden) $("help").hidden = true;
  else if (S.measure) S.measure = null;
  else if ($("search").value) {
    $("search").value = "";
    runSearch();
  } else S.selected = null;
  showDetail();
  redraw();
}

const KEYS = {
  w: () => zoom(0.7, S.mouse), "+": () => zoom(0.7, S.mouse), "=": () => zoom(0.7, S.mouse), s: () => zoom(1 / 0.7, S.mouse), "-": () => zoom(1 / 0.7, S.mouse),
  a: () => pan(-0.15), ArrowLeft: () => pan(-0.15), d: () => pan(0.15), ArrowRight: () => pan(0.15),
  ArrowDown: () => scrollBy(66), ArrowUp: () => scrollBy(-66), PageDown: () => scrollBy(D.h - TOP - 40), PageUp: () => scrollBy(TOP + 40 - D.h),
  0: () => setView(0, S.meta.span), Home: () => setView(0, S.meta.span), f: focusSelected, n: () => nextHit(1), p: () => nextHit(-1),
  "/": () => $("search").focus(), g: () => $("goto").focus(), "[": () => nextStep(-1), "]": () => nextStep(1), m: measureSelected,
  ".": () => stepEvent(1), ",": () => stepEvent(-1), ">": () => stepLane(1), "<": () => stepLane(-1),
  "?": () => ($("help").hidden = !$("help").hidden), Escape: escape,
  Enter: () => toggleRank(S.rank ?? S.order[0]), e: () => toggleRank(S.rank ?? S.order[0]),
};

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const act = KEYS[event.key];
  if (!act) return;
  event.preventDefault();
  S.touched = true;
  act();
}

// What is under the pointer: a row, and the event there (-1 = none).
function hitAt(x, y) {
  if (y < TOP) return null;
  const row = S.rows.find((r) => y - TOP + S.scroll >= r.y && y - TOP + S.scroll < r.y + r.h);
  if (!row) return null;
  if (!row.lane || x < GUTTER) return { row, id: -1 };
  const lane = row.lane, t = tOf(x), slack = (3 / plot()) * viewWidth(), i = lowerBound(lane.ts, t, 0, lane.n);
  if (i > 0 && t <= lane.ts[i - 1] + lane.du[i - 1]) return { row, id: eventId(lane, i - 1) };
  const before = i > 0 ? t - lane.ts[i - 1] - lane.du[i - 1] : Infinity, after = i < lane.n ? lane.ts[i] - t : Infinity;
  if (Math.min(before, after) > slack) return { row, id: -1 };
  return { row, id: eventId(lane, before < after ? i - 1 : i) };
}

function onClick(x, y) {
  const hit = hitAt(x, y);
  if (y < TOP) {
    const step = x >= GUTTER && stepAt(tOf(x));
    if (step && y > AXIS) goStep(step.step);
    return;
  }
  if (!hit) return;
  S.touched = true;
  if (hit.id >= 0) return select(hit.row.rank, hit.id, false);
  if (x < GUTTER && !hit.row.lane) return toggleRank(hit.row.rank);
  S.rank = hit.row.rank;
  S.selected = null;
  showDetail();
  const step = stepAt(tOf(x));
  if (step) S.step = step.step;
  if (step) tell(S.rank, step.step, step.t0, step.t1);
  changed();
}

function wirePointer() {
  const canvas = D.canvas;
  let drag = null;
  canvas.addEventListener("pointerdown", (e) => {
    canvas.focus({ preventScroll: true });
    canvas.setPointerCapture(e.pointerId);
    const thumb = e.offsetX > D.w - 10 && S.height > D.h - TOP;
    drag = { x: e.offsetX, y: e.offsetY, view: S.view, scroll: S.scroll, measure: e.shiftKey, thumb, moved: false };
  });
  canvas.addEventListener("pointermove", (e) => {
    S.mouse = e.offsetX > GUTTER ? e.offsetX : undefined;
    if (!drag) return showTip(e.pointerType === "touch" ? null : hitAt(e.offsetX, e.offsetY), e.offsetX, e.offsetY);
    const dx = e.offsetX - drag.x, dy = e.offsetY - drag.y;
    drag.moved ||= Math.abs(dx) + Math.abs(dy) > 3;
    if (!drag.moved) return;
    S.touched = true;
    showTip(null);
    if (drag.measure) {
      S.measure = [tOf(drag.x), tOf(e.offsetX)];
      S.measureRank = hitAt(drag.x, drag.y)?.row.rank;
      return redraw();
    }
    if (drag.thumb) S.scroll = drag.scroll + (dy / (D.h - TOP)) * S.height;
    else {
      S.scroll = drag.scroll - dy;
      const t = ((drag.x - e.offsetX) / plot()) * (drag.view[1] - drag.view[0]);
      setView(drag.view[0] + t, drag.view[1] + t);
    }
    redraw();
  });
  canvas.addEventListener("pointerup", (e) => {
    if (drag && !drag.moved) onClick(e.offsetX, e.offsetY);
    else if (drag && drag.measure) showDetail();
    drag = null;
  });
  canvas.addEventListener("pointercancel", () => (drag = null));
  canvas.addEventListener("pointerleave", () => {
    S.mouse = undefined;
    showTip(null);
  });
  canvas.addEventListener("dblclick", () => S.selected && focusSelected());
  canvas.addEventListener("wheel", onWheel, { passive: false });
  const move = (e) => {
    if (!(e.buttons & 1)) return;
    const t = ((e.offsetX - GUTTER) / (D.map.clientWidth - GUTTER)) * S.meta.span, w = Math.min(viewWidth(), S.meta.span);
    S.touched = true;
    setView(t - w / 2, t + w / 2);
  };
  D.map.addEventListener("pointerdown", move);
  D.map.addEventListener("pointermove", move);
}

// The page scrolls over a canvas that was not clicked; it zooms once it has the focus, or with Ctrl.
function onWheel(e) {
  const zooms = e.ctrlKey || e.metaKey || (document.activeElement === D.canvas && !e.shiftKey);
  if (!zooms && !e.shiftKey) return;
  e.preventDefault();
  S.touched = true;
  if (!zooms) scrollBy(e.deltaY || e.deltaX);
  else if (Math.abs(e.deltaX) > Math.abs(e.deltaY)) pan(e.deltaX / plot());
  else zoom(Math.exp(e.deltaY * 0.0015), Math.max(GUTTER, e.offsetX));
}

function wireToolbar() {
  $("search").addEventListener("input", runSearch);
  $("search").addEventListener("keydown", (e) => {
    if (e.key === "Enter") nextHit(e.shiftKey ? -1 : 1);
    else if (e.key === "Escape") {
      $("search").value = "";
      runSearch();
      D.canvas.focus();
    } else return;
    e.preventDefault();
  });
  $("goto").addEventListener("keydown", (e) => {
    if (e.key !== "Enter") return;
    goStep(Number($("goto").value));
    D.canvas.focus();
  });
  $("sort").addEventListener("change", (e) => {
    sortRanks(e.target.value);
    S.scroll = 0;
    redraw();
  });
  for (const name of ["host", "idle", "streams", "arrows"]) {
    const box = $(name);
    box.checked = S.show[name];
    box.addEventListener("change", () => {
      S.show[name] = box.checked;
      layoutRows();
      redraw();
    });
  }
  const presses = { all: KEYS[0], in: () => zoom(0.5), out: () => zoom(2), next: () => nextHit(1), prev: () => nextHit(-1), keys: KEYS["?"] };
  for (const [name, act] of Object.entries(presses)) {
    $(name).addEventListener("click", () => {
      S.touched = true;
      act();
    });
  }
  $("expand").addEventListener("click", () => {
    if (S.open.size) S.open.clear();
    else S.meta.ranks.forEach((r) => S.open.add(r.rank));
    S.scroll = 0;
    layoutRows();
    redraw();
  });
  $("table").addEventListener("toggle", fillTable);
  D.canvas.addEventListener("keydown", onKey);
  wireHelp();
}

// The list of keys opens from anywhere but a text field, and goes away with Esc or a click beside it.
function wireHelp() {
  document.addEventListener("keydown", (e) => {
    if (e.defaultPrevented || e.target.matches?.("input, select, textarea")) return;
    if (e.key === "Escape" && !$("help").hidden) $("help").hidden = true;
    else if (e.key === "?") KEYS["?"]();
    else return;
    e.preventDefault();
  });
  document.addEventListener("pointerdown", (e) => {
    if (!$("help").contains(e.target) && !$("keys").contains(e.target)) $("help").hidden = true;
  });
}

// #t=start-end&rank=23&step=41&sel=start, ns since the record began.
async function followAddress() {
  const found = new URLSearchParams(location.hash.slice(1)), t = /^(-?\d+)-(-?\d+)$/.exec(found.get("t") || "");
  const number = (key) => (/^\d+$/.test(found.get(key) || "") ? Number(found.get(key)) : null);
  if (!t && number("rank") === null && number("step") === null) return;
  await follow({ step: number("step"), rank: number("rank"), t0: t ? Number(t[1]) : null, t1: t ? Number(t[2]) : null });
  const at = /^-?\d+$/.test(found.get("sel") || "") ? Number(found.get("sel")) : null, chunk = S.chunks.get(number("rank"));
  if (at === null || !chunk) return;
  const id = chunk.ts.findIndex((v, i) => v === at && chunk.lanes[chunk.lanes.length - 1].s > i);
  if (id >= 0) quietly(() => select(number("rank"), id, true));
}

function quietly(act) {
  quiet = true;
  act();
  quiet = false;
}

async function follow({ step, rank, t0, t1 }) {
  if (rank !== null && rank !== undefined && rankInfo(rank)) {
    await openRank(rank);
    reveal(rank);
  }
  quietly(() => {
    if (step !== null && step !== undefined) goStep(step);
    if (Number.isFinite(t0) && Number.isFinite(t1) && t0 !== null && t1 > t0) setView(t0 - (t1 - t0) * 0.02, t1 + (t1 - t0) * 0.02);
  });
  S.touched = true;
  redraw();
}

function resize() {
  D.dpr = window.devicePixelRatio || 1;
  for (const c of [D.canvas, D.map]) {
    c.width = Math.round(c.clientWidth * D.dpr);
    c.height = Math.round(c.clientHeight * D.dpr);
  }
  D.w = D.canvas.clientWidth;
  D.h = D.canvas.clientHeight;
  GUTTER = D.w < 720 ? 104 : 236;
  D.mapImage = null;
  redraw();
}

function theme() {
  readColors();
  D.mapImage = null;
  redraw();
}

async function start() {
  const root = $("root");
  if (!root || !document.getElementById("tv-tl-meta")) return;
  if (typeof DecompressionStream === "undefined") {
    $("old").hidden = false;
    return;
  }
  D.canvas = $("canvas");
  D.map = $("map");
  D.ctx = D.canvas.getContext("2d", { alpha: false });
  D.mapCtx = D.map.getContext("2d", { alpha: false });
  const meta = JSON.parse(new TextDecoder().decode(await inflate("tv-tl-meta")));
  startModel(meta, await inflate("tv-tl-bins"));
  meta.steps.starts = Float64Array.from(meta.steps.list, (s) => s.t0);
  readColors();
  wireToolbar();
  wirePointer();
  new ResizeObserver(resize).observe(D.canvas);
  new MutationObserver(theme).observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", theme);
  document.addEventListener("tv:select", (e) => e.detail && !["timeline", "hash"].includes(e.detail.source) && follow(e.detail));
  addEventListener("hashchange", followAddress);
  resize();
  root.traceview = { state: S, draw: D, setView, paint, loadAll, hitAt, xOf, laneShares, openRank, click: onClick };
  showDetail();
  await followAddress();
  paint();
  settle();
  performance.mark("traceview-timeline-ready");
  document.body.dataset.readyTimeline = "1";
}

if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", start);
else start();
