// Words about events: the tooltip, the detail pane, the table. Text enters the page by textContent only.
const $ = (name) => document.getElementById(`tv-tl-${name}`);

function node(tag, text, className) {
  const e = document.createElement(tag);
  if (text !== undefined) e.textContent = text;
  if (className) e.className = className;
  return e;
}

const LEAF_WORDS = {
  idle_data: "idle: waits for data", idle_sync: "idle: host sync", idle_host: "idle: host busy", idle_launch: "idle: launch",
  idle_unknown: "idle: cause unknown", uncovered: "not recorded", gpu_opaque: "graph (opaque)",
};
function phaseWords(phase) {
  const [leaf, ...tags] = phase.split(":");
  return (LEAF_WORDS[leaf] || leaf.replaceAll("_", " ").replace(".", ", ")) + (tags.length ? ` (${tags.join(", ").replaceAll("_", " ")})` : "");
}
const fullNs = (ns) => `${Math.round(ns).toLocaleString("en")} ns`;
const bytesText = (b) => {
  const [scale, unit] = [[1e9, "GB"], [1e6, "MB"], [1e3, "kB"], [1, "B"]].find(([s]) => b >= s) || [1, "B"];
  return `${(b / scale).toLocaleString("en", { maximumFractionDigits: unit === "B" ? 0 : 2 })} ${unit}`;
};

function whenText(t) {
  const step = stepAt(t);
  return step ? `step ${step.step} + ${timeText(t - step.t0)}` : `${timeText(t)} after the record began`;
}

function rankWords(rank) {
  const { host } = rankInfo(rank);
  return `${rank}${host ? ` on ${host}` : ", host not recorded"}`;
}

function absolute(t) {
  return (BigInt(S.meta.origin) + BigInt(Math.round(t))).toString();
}

// Everything known of an event: [label, value] rows.
function facts(rank, id) {
  const chunk = S.chunks.get(rank), meta = S.meta, ts = chunk.ts[id], du = chunk.du[id];
  const lane = chunk.lanes.find((l) => id >= l.s && id < l.s + l.n), out = [];
  const add = (k, v) => v !== null && v !== undefined && v !== "" && out.push([k, v]);
  add("rank", rankWords(rank));
  add("when", whenText(ts));
  add("duration", `${timeText(du)} (${fullNs(du)})`);
  add("start, ns on the common clock", absolute(ts));
  if (lane.key === "pieces") return out;
  if (id >= chunk.nGpu) {
    add("thread", lane.key.slice(5));
    add("kind", meta.host[chunk.kind[id]]);
    return out;
  }
  if (id < chunk.nComm) collectiveFacts(chunk, id, add);
  else add("class", meta.gpu[chunk.kind[id]].replaceAll("_", " "));
  if (!lane.key.endsWith("(host)")) {
    add("stream", String(chunk.head.streams[peek(chunk, "stream", id)]));
    const corr = summed(chunk, "corr")[id], delay = peek(chunk, "delay", id), op = peek(chunk, "op", id);
    if (corr >= 0) add("correlation", String(corr));
    if (delay) add("launch to start", timeText(unzigzag(delay - 1)));
    if (op) add("launched by", meta.names[op - 1]);
  }
  const bytes = peek(chunk, "bytes", id);
  if (bytes) add("size", bytesText(bytes) + (du && id >= chunk.nComm ? `, ${(bytes / du).toLocaleString("en", { maximumFractionDigits: 2 })} GB/s` : ""));
  return out;
}

function collectiveFacts(chunk, id, add) {
  const wait = chunk.wait[id], rest = chunk.du[id] - wait, late = peek(chunk, "late", id) - 1, fact = peek(chunk, "fact", id), seq = summed(chunk, "seq")[id];
  const whose = chunk.phase[id] & 2 ? "pipeline wait" : "straggler wait";
  add("waiting", wait ? `${timeText(wait)} (${whose}${late >= 0 ? `, for rank ${late}` : ""})` : "none");
  add(chunk.phase[id] & 1 ? "transfer or waiting, unresolved" : "transfer", timeText(rest));
  if (fact) {
    const [group, desc, members, size, dtype, src, dst, source, coalesced] = S.meta.facts[fact - 1];
    add("group", [group, desc && desc !== group ? `(${desc})` : ""].filter(Boolean).join(" "));
    add("members", members ? `${members}${size ? ` (${size} ranks)` : ""}` : size ? `${size} ranks` : "");
    add("element type", dtype);
    if (src !== null) add("source", `rank ${src}`);
    if (dst !== null) add("destination", `rank ${dst}`);
    if (coalesced > 1) add("operations in one", String(coalesced));
    add("facts from", source && source.replaceAll("_", " "));
  }
  if (seq >= 0) add("sequence", String(seq));
}

function titleOf(rank, id) {
  const chunk = S.chunks.get(rank), lane = chunk.lanes.find((l) => id >= l.s && id < l.s + l.n);
  return lane.key === "pieces" ? phaseWords(S.meta.phases[chunk.kind[id]]) : S.meta.names[chunk.name[id]];
}

function showDetail() {
  const box = $("detail");
  box.replaceChildren();
  if (S.measure) box.append(measureDetail());
  if (!S.selected || S.selected.id < 0) {
    if (!S.measure) box.append(node("p", "Click an event for its detail, or press ? for the keys.", "tl-hint"));
    return;
  }
  const { rank, id } = S.selected, list = node("dl");
  box.append(node("h3", titleOf(rank, id)), list);
  for (const [k, v] of facts(rank, id)) {
    const pair = node("div");
    pair.append(node("dt", k), node("dd", v));
    list.append(pair);
  }
  const chunk = S.chunks.get(rank), late = id < chunk.nComm ? peek(chunk, "late", id) - 1 : -1;
  if (late >= 0 && rankInfo(late)) {
    const go = node("button", `Go to rank ${late}`);
    go.type = "button";
    go.addEventListener("click", () => goToLate(rank, id, late));
    box.append(go);
  }
}

async function goToLate(rank, id, late) {
  S.open.add(late);
  await loadRank(late);
  layoutRows();
  const to = S.chunks.has(late) ? partner(S.chunks.get(rank), id, late) : -1;
  if (to >= 0) select(late, to, true);
  else reveal(late);
  redraw();
}

function measureDetail() {
  const [a, b] = [...S.measure].sort((p, q) => p - q), rank = S.measureRank ?? S.order[0], list = node("dl");
  const box = node("div");
  box.append(node("h3", `Measured: ${timeText(b - a)} (${fullNs(b - a)})`), list);
  const add = (k, v) => {
    const pair = node("div");
    pair.append(node("dt", k), node("dd", v));
    list.append(pair);
  };
  add("from", whenText(a));
  if (!rankInfo(rank)) return box;
  const { shares, exact } = groupShares(rank, a, b);
  add(`rank ${rank}`, exact ? "exact" : "from bins of the run");
  S.meta.groups.forEach((name, g) => shares[g] > 0.0005 && add(name, `${(shares[g] * 100).toFixed(1)} %, ${timeText(shares[g] * (b - a))}`));
  return box;
}

function showTip(hit, x, y) {
  const tip = $("tip");
  tip.hidden = !hit;
  if (!hit) return;
  tip.replaceChildren();
  const { row, id } = hit, line = (k, v) => {
    const p = node("div");
    p.append(node("b", k), node("span", v));
    tip.append(p);
  };
  if (id >= 0) {
    tip.append(node("strong", titleOf(row.rank, id)));
    const chunk = row.lane.chunk;
    line("duration", timeText(chunk.du[id]));
    if (id < chunk.nComm && chunk.wait[id]) line("of it waiting", timeText(chunk.wait[id]) + (peek(chunk, "late", id) ? ` for rank ${peek(chunk, "late", id) - 1}` : ""));
    line("when", whenText(chunk.ts[id]));
  } else if (row.lane) {
    tip.append(node("strong", `rank ${row.rank}, ${row.lane.label}`));
    const shares = laneShares(row.lane, 1, 0, row.lane.n);
    line("busy in view", `${(shares.reduce((s, v) => s + v[0], 0) * 100).toFixed(1)} %`);
  } else {
    tip.append(node("strong", `rank ${rankWords(row.rank)}`));
    const dt = viewWidth() / plot(), t = tOf(x), { shares } = groupShares(row.rank, Math.max(0, t - dt * 2), t + dt * 2);
    if (rankInfo(row.rank).late > 0) line("costs others", `${timeText(rankInfo(row.rank).late)} a step, summed over ranks`);
    S.meta.groups.forEach((name, g) => shares[g] > 0.005 && line(name, `${(shares[g] * 100).toFixed(1)} %`));
  }
  tip.style.left = `${Math.min(x + 14, Math.max(0, D.w - tip.offsetWidth - 8))}px`;
  tip.style.top = `${y + 18 + tip.offsetHeight > D.h ? Math.max(0, y - tip.offsetHeight - 10) : y + 18}px`;
}

// The longest events of the view as a table: the same information without the canvas.
const TABLE_ROWS = 20;
function fillTable() {
  const details = $("table");
  if (!details.open) return;
  const best = [];
  for (const row of S.rows) {
    if (!row.lane || row.lane.key === "idle") continue;
    const lane = row.lane, i = Math.max(0, lowerBound(lane.ts, S.view[0], 0, lane.n) - 1), j = lowerBound(lane.ts, S.view[1], i, lane.n);
    for (let k = i; k < j; k++) {
      const du = lane.du[k];
      if ((best.length === TABLE_ROWS && du <= best[TABLE_ROWS - 1].du) || lane.ts[k] + du < S.view[0]) continue;
      best.push({ rank: row.rank, lane, k, du });
      best.sort((a, b) => b.du - a.du);
      best.length = Math.min(best.length, TABLE_ROWS);
    }
  }
  const body = $("rows");
  body.replaceChildren();
  for (const { rank, lane, k, du } of best) {
    const tr = node("tr"), id = eventId(lane, k), pick = node("button", nameOf(lane, k, id)), cell = node("td");
    pick.type = "button";
    pick.addEventListener("click", () => select(rank, id, true));
    cell.append(pick);
    tr.append(cell, node("td", String(rank)), node("td", lane.label), node("td", whenText(lane.ts[k])), node("td", timeText(du)), node("td", lane.wait && lane.wait[k] ? timeText(lane.wait[k]) : "–"));
    body.append(tr);
  }
  $("none").hidden = best.length > 0;
}
