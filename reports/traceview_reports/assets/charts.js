/* Charts: BokehJS is unpacked when the first chart comes near the view, once. */
(() => {
  "use strict";
  const places = [...document.querySelectorAll("[data-chart]")];
  const packed = document.getElementById("bokeh-gz");
  if (!packed || !places.length) return;
  const read = (id) => JSON.parse(document.getElementById(id).textContent);
  const names = read("chart-colours"); /* light colour -> variable */
  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const say = (place, text) => { place.replaceChildren(Object.assign(document.createElement("p"), { className: "wait", textContent: text })); };

  const bytes = (text) => {
    if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
    const raw = atob(text);
    const out = new Uint8Array(raw.length);
    for (let i = 0; i < raw.length; i++) out[i] = raw.charCodeAt(i);
    return out;
  };
  let loading;
  const bokeh = () => (loading ??= (async () => {
    const stream = new Blob([bytes(packed.textContent)]).stream().pipeThrough(new DecompressionStream("gzip"));
    const script = document.createElement("script");
    script.textContent = await new Response(stream).text();
    document.head.append(script);
    if (!window.Bokeh) throw new Error("BokehJS did not start");
    return window.Bokeh;
  })());

  /* Theme: Bokeh paints on canvas, so its models get the colours of the stylesheet. */
  const channel = (hex) => [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));
  const mix = (a, b, t) => `#${a.map((v, i) => Math.round(v + (b[i] - v) * t).toString(16).padStart(2, "0")).join("")}`;
  const ramp = (key) => {
    const [low, middle, high] = [css("--panel"), css(`--g-${key}`), css("--text")].map(channel);
    return Array.from({ length: 256 }, (_, i) => (i < 192 ? mix(low, middle, i / 191) : mix(middle, high, (i - 191) / 300)));
  };
  const first = new WeakMap();
  const value = (spec) => (spec && typeof spec === "object" && "value" in spec ? spec.value : spec);
  const recolour = (model, key) => {
    if (!first.has(model)) first.set(model, {});
    const was = (first.get(model)[key] ??= value(model[key]));
    return names[was] ? css(names[was]) : was;
  };
  const paint = (figure, key) => {
    const [text, dim, line, back] = ["--text", "--dim", "--line", "--bg"].map(css);
    for (const m of figure.references()) {
      const kind = m.type ?? "";
      if (/Axis$/.test(kind)) m.setv({ major_label_text_color: dim, axis_label_text_color: dim, major_tick_line_color: line });
      else if (kind === "Grid") m.setv({ grid_line_color: line });
      else if (kind === "ColorBar") m.setv({ background_fill_color: null, bar_line_color: null, title_text_color: dim, major_label_text_color: dim, major_tick_line_color: line });
      else if (kind === "Legend") m.setv({ background_fill_color: back, background_fill_alpha: 0.85, label_text_color: text, border_line_color: line });
      else if (kind === "Label") m.setv({ text_color: dim });
      else if (kind === "Span") m.setv({ line_color: dim });
      else if (kind === "LinearColorMapper" && key) m.setv({ palette: ramp(key), nan_color: css("--bg") });
      else if (kind === "ColumnDataSource" && m.data.color) {
        if (!first.has(m)) first.set(m, { color: [...m.data.color] });
        m.data = { ...m.data, color: first.get(m).color.map((c) => (names[c] ? css(names[c]) : c)) };
      } else if (/^(Scatter|Line|Quad)$/.test(kind)) {
        for (const p of ["fill_color", "line_color", "hatch_color"]) if (typeof value(m[p]) === "string") m[p] = { value: recolour(m, p) };
      }
    }
  };
  const drawn = [];
  /* Axes of steps and ranks carry a hidden line: a click reads it, a selection shows it. */
  const markers = (figure) => [...figure.references()].filter((m) => m.type === "Span" && m.name?.startsWith("select-"))
    .map((line) => [line.name.slice(7), line, line.dimension === "height" ? "x" : "y"]);
  const click = (figure) => (event) => {
    const found = markers(figure).map(([key, , axis]) => [key, Math.round(event[axis])]);
    if (found.length) location.hash = new URLSearchParams(found).toString();
  };
  let selected = {};
  const mark = (figure) => {
    for (const [key, line] of markers(figure)) {
      const at = selected[key];
      line.setv({ visible: Number.isFinite(at), location: at ?? 0, line_color: css("--text") });
    }
  };
  document.addEventListener("tv:select", (event) => {
    selected = event.detail ?? {};
    for (const [figure] of drawn) mark(figure);
  });
  const draw = async (place) => {
    try {
      const { embed } = await bokeh();
      const { item, ramp: key } = read(`chart-${place.dataset.chart}`);
      place.replaceChildren();
      const view = await embed.embed_item(item, place);
      const figure = view.model ?? view.roots[0].model;
      paint(figure, key);
      mark(figure);
      figure.on_event("tap", click(figure));
      drawn.push([figure, key]);
      place.dataset.done = "1";
    } catch (error) {
      say(place, `This chart could not be drawn (${error.message}); the tables hold its numbers.`);
    }
  };
  if (!window.DecompressionStream) {
    for (const place of places) say(place, "This browser cannot unpack the charts; the tables hold their numbers.");
    return;
  }
  const near = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      if (!entry.isIntersecting) continue;
      near.unobserve(entry.target);
      draw(entry.target);
    }
  }, { rootMargin: "300px" });
  for (const place of places) { say(place, "drawing ..."); near.observe(place); }
  new MutationObserver(() => { for (const [figure, key] of drawn) { paint(figure, key); mark(figure); } })
    .observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });
  addEventListener("beforeprint", () => { for (const place of places) if (!place.dataset.done) draw(place); });
})();
