// Text to columns. The writer is html/timeline_pack.py and html/timeline_chunk.py; keep the column lists equal.
const EVENT = [["gap", 6], ["dur", 6], ["name", 3], ["kind", 1]];
const GPU = [["stream", 2], ["corr", 6], ["delay", 6], ["op", 3], ["bytes", 6]];
const COMM = [["wait", 6], ["phase", 1], ["late", 3], ["inst", 5], ["seq", 6], ["fact", 3]];

// Category of a stretch of time: what it is drawn as. 0-7 are the groups of the budget, in their order.
const C = { compute: 0, comm: 1, straggler: 2, pipeline: 3, staging: 4, other: 5, idle: 6, uncovered: 7, op: 8, host: 9, unresolved: 10, idleSoft: 11 };
const CATEGORIES = 12;

async function inflate(id) {
  const element = document.getElementById(id);
  if (!element) return null;
  const text = element.textContent;
  let bytes;
  if (Uint8Array.fromBase64) bytes = Uint8Array.fromBase64(text);
  else {
    const raw = atob(text);
    bytes = new Uint8Array(raw.length);
    for (let i = 0; i < raw.length; i++) bytes[i] = raw.charCodeAt(i);
  }
  element.remove();
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

// Where every column of a chunk lies: name -> [offset, rows, planes].
function layout(n) {
  const found = {};
  let at = 0;
  [EVENT, GPU, COMM].forEach((columns, k) => {
    for (const [name, planes] of columns) {
      found[name] = [at, n[k], planes];
      at += n[k] * planes;
    }
  });
  return found;
}

function column(chunk, name, into) {
  const [at, n, planes] = chunk.where[name], bytes = chunk.bytes, out = into || new Float64Array(n);
  for (let p = 0, scale = 1; p < planes; p++, scale *= 256) {
    const base = at + p * n;
    for (let i = 0; i < n; i++) out[i] += bytes[base + i] * scale;
  }
  return out;
}

// One value, without decoding its column.
function peek(chunk, name, i) {
  const [at, n, planes] = chunk.where[name];
  if (i >= n) return 0;
  let value = 0;
  for (let p = planes - 1; p >= 0; p--) value = value * 256 + chunk.bytes[at + p * n + i];
  return value;
}

const unzigzag = (v) => (v % 2 ? -(v + 1) / 2 : v / 2);

// A column of differences, whole: cached, it is only read on request.
function summed(chunk, name) {
  if (!chunk.sums[name]) {
    const out = column(chunk, name);
    for (let i = 0, v = 0; i < out.length; i++) out[i] = v += unzigzag(out[i]);
    chunk.sums[name] = out;
  }
  return chunk.sums[name];
}

const GPU_CATEGORY = { compute: C.compute, gpu_opaque: C.compute, comm: C.unresolved, pcie_h2d: C.staging, pcie_d2h: C.staging };
const HOST_CATEGORY = { op: C.op, annotation: C.op, python: C.op };

function decodeChunk(bytes, head, meta) {
  const [n, nGpu, nComm] = head.n;
  const chunk = { bytes, head, nGpu, nComm, where: layout(head.n), sums: {}, lanes: [], byInstance: null };
  const gap = column(chunk, "gap"), du = column(chunk, "dur");
  chunk.du = du;
  chunk.ts = gap; // becomes the start below
  chunk.name = column(chunk, "name", new Uint32Array(n));
  chunk.kind = bytes.subarray(chunk.where.kind[0], chunk.where.kind[0] + n);
  chunk.wait = column(chunk, "wait");
  chunk.phase = bytes.subarray(chunk.where.phase[0], chunk.where.phase[0] + nComm);
  chunk.cat = new Uint8Array(n);
  chunk.catWait = new Uint8Array(nComm);
  const gpuCat = meta.gpu.map((c) => GPU_CATEGORY[c] ?? C.other), hostCat = meta.host.map((c) => HOST_CATEGORY[c] ?? C.host);
  let s = 0;
  for (const [key, label, depth, count, base] of head.lanes) {
    const e = s + count;
    for (let i = s, t = base; i < e; i++) {
      t += gap[i];
      gap[i] = t;
      t += du[i];
    }
    for (let i = s; i < e; i++) chunk.cat[i] = category(chunk, key, i, gpuCat, hostCat, meta);
    chunk.lanes.push(makeLane(chunk, key, label, depth, s, e));
    s = e;
  }
  return chunk;
}

function category(chunk, key, i, gpuCat, hostCat, meta) {
  const kind = chunk.kind[i];
  if (key.startsWith("comm.")) {
    chunk.catWait[i] = chunk.phase[i] & 2 ? C.pipeline : C.straggler;
    return chunk.phase[i] & 1 ? C.unresolved : C.comm;
  }
  if (key === "pieces") return meta.phaseGroup[kind];
  return key.startsWith("host.") ? hostCat[kind] : gpuCat[kind];
}

// A lane: events that do not overlap, in time order, with a prefix sum of time for each category in it.
function makeLane(chunk, key, label, depth, s, e) {
  const comm = e <= chunk.nComm;
  return finishLane({
    chunk, key, label, depth, n: e - s, s, ids: null,
    ts: chunk.ts.subarray(s, e), du: chunk.du.subarray(s, e), cat: chunk.cat.subarray(s, e),
    wait: comm ? chunk.wait.subarray(s, e) : null, catWait: comm ? chunk.catWait.subarray(s, e) : null,
  });
}

// The same of scattered events (raw streams, idle causes): ids in time order.
function gatherLane(chunk, key, label, ids, cats = chunk.cat) {
  const take = (from, kind) => kind.from(ids, (i) => (i < from.length ? from[i] : 0));
  const comm = ids.some((i) => i < chunk.nComm);
  return finishLane({
    chunk, key, label, depth: 0, n: ids.length, s: 0, ids,
    ts: take(chunk.ts, Float64Array), du: take(chunk.du, Float64Array), cat: take(cats, Uint8Array),
    wait: comm ? take(chunk.wait, Float64Array) : null, catWait: comm ? take(chunk.catWait, Uint8Array) : null,
  });
}

function finishLane(lane) {
  const { n, du, cat, wait, catWait } = lane, present = new Uint8Array(CATEGORIES);
  for (let i = 0; i < n; i++) {
    present[cat[i]] = 1;
    if (wait && wait[i] > 0) present[catWait[i]] = 1;
  }
  lane.layers = [];
  for (let c = 0; c < CATEGORIES; c++) {
    if (!present[c]) continue;
    const sum = new Float64Array(n + 1);
    for (let i = 0, v = 0; i < n; i++) {
      const w = wait ? wait[i] : 0;
      if (cat[i] === c) v += du[i] - w;
      if (w > 0 && catWait[i] === c) v += w;
      sum[i + 1] = v;
    }
    lane.layers.push({ c, sum });
  }
  return lane;
}

// First index whose start is not before t.
function lowerBound(a, t, s, e) {
  while (s < e) {
    const m = (s + e) >> 1;
    if (a[m] < t) s = m + 1;
    else e = m;
  }
  return s;
}

// Time of one layer before t, exact; i = lowerBound(lane.ts, t).
function layerBefore(lane, layer, i, t) {
  if (i === 0) return 0;
  const j = i - 1, into = Math.min(lane.du[j], t - lane.ts[j]), w = lane.wait ? Math.min(lane.wait[j], into) : 0;
  let v = layer.sum[j];
  if (lane.cat[j] === layer.c) v += into - w;
  if (w > 0 && lane.catWait[j] === layer.c) v += w;
  return v;
}

const eventId = (lane, k) => (lane.ids ? lane.ids[k] : lane.s + k);
