// What is shown: ranks, their lanes, rows on the canvas, the search.
const RANK_H = 22, LANE_H = 16, MANY_RANKS = 16, HOST_DEPTH = 8;

const S = {
  meta: null, bins: null, binSums: new Map(), chunks: new Map(), loading: new Map(),
  view: [0, 1], scroll: 0, rows: [], height: 0,
  open: new Set(), show: { host: false, idle: true, streams: false, arrows: true }, sort: "rank", order: [],
  selected: null, hover: null, measure: null, hits: null, hitAt: -1, step: null,
};

const rankInfo = (rank) => S.meta.byRank.get(rank);
const viewWidth = () => S.view[1] - S.view[0];

function startModel(meta, bins) {
  S.meta = meta;
  S.bins = bins;
  meta.byRank = new Map(meta.ranks.map((r, k) => [r.rank, Object.assign(r, { k })]));
  meta.byHead = new Map(meta.chunks.map((h) => [h.rank, h]));
  meta.from = Math.min(0, ...meta.chunks.flatMap((h) => h.lanes.map((l) => l[4])));
  meta.to = meta.span;
  meta.short = meta.names.map(shortName);
  S.view = stepsView();
  S.show.host = meta.ranks.length <= 2;
  if (meta.ranks.length <= MANY_RANKS) meta.ranks.forEach((r) => S.open.add(r.rank));
  sortRanks("rank");
}

// A kernel's name without return type, arguments, templates and namespaces; other names as they are.
function shortName(name) {
  if (!/^void |[<(]/.test(name) || name.startsWith("Mem")) return name;
  const plain = name.replace(/^void /, "").replaceAll("(anonymous namespace)::", ""), end = plain.search(/[<(]/);
  return (end < 0 ? plain : plain.slice(0, end)).split("::").pop() || name;
}

// The steps with a little room: what lies outside (warm-up, shutdown) may be long.
function stepsView() {
  const list = S.meta.steps.list;
  if (!list.length) return [0, S.meta.span];
  const from = list[0].t0, to = Math.max(...list.map((s) => s.t1)), room = (to - from) * 0.01;
  return [Math.max(0, from - room), Math.min(S.meta.span, to + room)];
}

function sortRanks(how) {
  const by = {
    rank: (a, b) => a.rank - b.rank,
    node: (a, b) => a.host.localeCompare(b.host, "en", { numeric: true }) || a.rank - b.rank,
    straggler: (a, b) => b.late - a.late || a.rank - b.rank,
  };
  S.sort = how;
  S.order = [...S.meta.ranks].sort(by[how]).map((r) => r.rank);
  layoutRows();
}

// Decode a rank once; callers that only draw do not wait for it.
function loadRank(rank) {
  if (S.loading.has(rank) || !S.meta.byHead.has(rank)) return S.loading.get(rank) || Promise.resolve(null);
  const head = S.meta.byHead.get(rank);
  const job = inflate(`tv-tl-${rank}`).then((bytes) => {
    const chunk = decodeChunk(bytes, head, S.meta);
    S.chunks.set(rank, chunk);
    for (const lane of chunk.lanes) if (lane.n) S.meta.to = Math.max(S.meta.to, lane.ts[lane.n - 1] + lane.du[lane.n - 1]);
    if (S.open.has(rank)) layoutRows();
    return chunk;
  });
  S.loading.set(rank, job);
  return job;
}

async function loadAll(progress = () => {}) {
  for (const [k, head] of S.meta.chunks.entries()) {
    if (!S.chunks.has(head.rank)) progress(k, S.meta.chunks.length);
    await loadRank(head.rank);
  }
}

const LANE_ORDER = ["compute", "comm.", "copies", "other", "stream.", "idle", "host."];
const laneOrder = (key) => LANE_ORDER.findIndex((k) => key.startsWith(k));

// Lanes that a rank shows now: by meaning, or raw streams.
function lanesOf(chunk) {
  let lanes = chunk.lanes.filter((l) => l.key !== "pieces" && !l.key.startsWith("host."));
  if (S.show.streams) lanes = chunk.streamLanes ||= streamLanes(chunk);
  if (S.show.idle) lanes = lanes.concat((chunk.idleLanes ||= idleLanes(chunk)));
  if (S.show.host) lanes = lanes.concat(chunk.lanes.filter((l) => l.key.startsWith("host.") && l.depth < HOST_DEPTH));
  return lanes.map((l, k) => [laneOrder(l.key), k, l]).sort((a, b) => a[0] - b[0] || a[1] - b[1]).map((x) => x[2]);
}

function idleLanes(chunk) {
  const pieces = chunk.lanes.find((l) => l.key === "pieces");
  if (!pieces) return [];
  const ids = [], soft = S.meta.phases.map((p) => p === "idle_launch" || p.startsWith("idle_unknown")), cats = chunk.cat.slice();
  for (let i = pieces.s; i < pieces.s + pieces.n; i++) {
    if (chunk.cat[i] < C.idle) continue;
    ids.push(i);
    if (soft[chunk.kind[i]]) cats[i] = C.idleSoft;
  }
  return ids.length ? [gatherLane(chunk, "idle", "idle causes", ids, cats)] : [];
}

// Records of one stream may overlap (graphs, broken stamps): first fit into as many lanes as needed.
function streamLanes(chunk) {
  const byStream = chunk.head.streams.map(() => []);
  for (let i = 0; i < chunk.nGpu; i++) byStream[peek(chunk, "stream", i)].push(i);
  return byStream.flatMap((ids, k) => {
    ids.sort((a, b) => chunk.ts[a] - chunk.ts[b]);
    const lanes = [], ends = [];
    for (const i of ids) {
      let d = 0;
      while (d < ends.length && ends[d] > chunk.ts[i]) d++;
      (lanes[d] ||= []).push(i);
      ends[d] = chunk.ts[i] + chunk.du[i];
    }
    return lanes.map((list, d) => Object.assign(gatherLane(chunk, `stream.${k}`, `stream ${chunk.head.streams[k]}`, list), { depth: d }));
  });
}

function layoutRows() {
  const rows = [];
  let y = 0;
  const add = (row, h) => {
    rows.push(Object.assign(row, { y, h }));
    y += h;
  };
  for (const rank of S.order) {
    add({ rank, lane: null }, RANK_H);
    if (!S.open.has(rank)) continue;
    const chunk = S.chunks.get(rank);
    if (!chunk) add({ rank, lane: null, note: S.meta.byHead.has(rank) ? "loading" : "missing" }, LANE_H);
    else for (const lane of lanesOf(chunk)) add({ rank, lane }, LANE_H);
  }
  S.rows = rows;
  if ($("expand")) $("expand").textContent = S.open.size ? "Close all" : "Open all";
  S.height = y;
  if (D.canvas) D.canvas.style.height = `${Math.max(240, TOP + y + 10)}px`; // the style sheet caps it
}

function rowOfEvent(rank, id) {
  return S.rows.find((r) => r.rank === rank && r.lane && laneIndex(r.lane, id) >= 0);
}

function laneIndex(lane, id) {
  if (!lane.ids) return id >= lane.s && id < lane.s + lane.n ? id - lane.s : -1;
  let i = lowerBound(lane.ts, lane.chunk.ts[id], 0, lane.n);
  while (i < lane.n && lane.ts[i] === lane.chunk.ts[id]) {
    if (lane.ids[i] === id) return i;
    i++;
  }
  return -1;
}

// Prefix sums of a rank's bins, made when first drawn: (groups, bins + 1).
function binSums(rank) {
  let sums = S.binSums.get(rank);
  if (!sums) {
    const B = S.meta.bins, G = S.meta.groups.length, at = rankInfo(rank).k * G * B;
    sums = Array.from({ length: G }, (_, g) => {
      const out = new Uint32Array(B + 1);
      for (let b = 0; b < B; b++) out[b + 1] = out[b] + S.bins[at + g * B + b];
      return out;
    });
    S.binSums.set(rank, sums);
  }
  return sums;
}

function binBefore(sum, t) {
  const B = S.meta.bins, x = Math.min(B, Math.max(0, (t / S.meta.span) * B)), b = Math.floor(x);
  return sum[b] + (b < B ? (x - b) * (sum[b + 1] - sum[b]) : 0);
}

const embedded = (head, t0, t1) => !!head && head.spans.some(([a, b]) => a <= t0 && t1 <= b);

// Share of [t0, t1) in each group of the budget: exact where pieces are embedded, else from the bins.
function groupShares(rank, t0, t1) {
  const chunk = S.chunks.get(rank), pieces = chunk && chunk.lanes.find((l) => l.key === "pieces"), out = new Float64Array(8);
  if (pieces && embedded(chunk.head, t0, t1)) {
    const i = lowerBound(pieces.ts, t0, 0, pieces.n), j = lowerBound(pieces.ts, t1, i, pieces.n);
    for (const layer of pieces.layers) out[layer.c] = (layerBefore(pieces, layer, j, t1) - layerBefore(pieces, layer, i, t0)) / (t1 - t0);
    return { shares: out, exact: true };
  }
  binSums(rank).forEach((sum, g) => (out[g] = ((binBefore(sum, t1) - binBefore(sum, t0)) / 255) * (S.meta.span / S.meta.bins / (t1 - t0))));
  return { shares: out, exact: false };
}

function stepAt(t) {
  const steps = S.meta.steps, k = lowerBound(steps.starts, t + 1, 0, steps.starts.length) - 1;
  return k >= 0 && t < steps.list[k].t1 ? steps.list[k] : null;
}

// The event of a rank that took part in the same instance.
function partner(chunk, id, rank) {
  const other = S.chunks.get(rank), instance = summed(chunk, "inst")[id];
  if (!other || instance < 0) return -1;
  if (!other.byInstance) {
    const list = summed(other, "inst");
    other.byInstance = new Map();
    for (let i = 0; i < other.nComm; i++) other.byInstance.set(list[i], i);
  }
  return other.byInstance.get(instance) ?? -1;
}

async function search(text, progress) {
  S.hits = null;
  S.hitAt = -1;
  if (!text) return;
  await loadAll(progress);
  const want = text.toLowerCase(), match = Uint8Array.from(S.meta.names, (n) => (n.toLowerCase().includes(want) ? 1 : 0));
  const found = [];
  let total = 0;
  for (const rank of S.order) {
    const chunk = S.chunks.get(rank);
    if (!chunk) continue;
    const last = chunk.lanes.reduce((n, l) => (l.key === "pieces" ? n : Math.max(n, l.s + l.n)), 0), mine = [];
    for (let i = 0; i < last; i++) if (match[chunk.name[i]]) {
      mine.push(i);
      total += chunk.du[i];
    }
    mine.sort((a, b) => chunk.ts[a] - chunk.ts[b]);
    for (const i of mine) found.push([rank, i]);
  }
  S.hits = { match, found, total };
}

// Whether a lane holds a hit between two positions: prefix counts, made once per search.
function hitsBetween(lane, i, j) {
  if (lane.hitsOf !== S.hits) {
    lane.hitsOf = S.hits;
    lane.hitSum = new Uint32Array(lane.n + 1);
    const never = lane.key === "idle" || lane.key === "pieces";
    for (let k = 0; k < lane.n; k++) lane.hitSum[k + 1] = lane.hitSum[k] + (never ? 0 : S.hits.match[lane.chunk.name[eventId(lane, k)]]);
  }
  return lane.hitSum[j] - lane.hitSum[i];
}
