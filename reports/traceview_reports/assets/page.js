(() => {
  "use strict";
  const root = document.documentElement;
  const $ = (selector, from = document) => from.querySelector(selector);
  const $$ = (selector, from = document) => [...from.querySelectorAll(selector)];

  /* Theme */
  $("#theme").addEventListener("click", () => {
    root.dataset.theme = root.dataset.theme === "dark" ? "light" : "dark";
    try { localStorage.setItem("traceview-theme", root.dataset.theme); } catch { /* not kept */ }
  });

  /* Definitions: the title shows on hover, this shows the same on keyboard focus. */
  const tip = $("#tip");
  document.addEventListener("focusin", (event) => {
    const from = event.target.closest?.(".def[title]");
    tip.hidden = !from || !from.matches(":focus-visible");
    if (tip.hidden) return;
    tip.textContent = from.title;
    const box = from.getBoundingClientRect();
    tip.style.left = `${Math.max(8, Math.min(box.left, innerWidth - 360)) + scrollX}px`;
    tip.style.top = `${box.bottom + scrollY + 6}px`;
  });
  document.addEventListener("focusout", () => { tip.hidden = true; });
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") tip.hidden = true; });

  /* Copy the ticket; where the clipboard is closed, select the text instead. */
  for (const button of $$("[data-copy]")) {
    button.addEventListener("click", async () => {
      const source = document.getElementById(button.dataset.copy);
      try {
        await navigator.clipboard.writeText(source.textContent);
        $("#copied").textContent = " copied";
      } catch {
        getSelection().selectAllChildren(source);
        $("#copied").textContent = " selected: press Ctrl+C";
      }
    });
  }

  /* Sort a table by the head that is pressed. */
  const value = (row, column) => {
    const cell = row.cells[column];
    const text = cell.dataset.v ?? cell.textContent.replaceAll(",", "");
    return text === "" || text === "-" ? null : Number.isNaN(Number(text)) ? text : Number(text);
  };
  const compare = (a, b, sign) => {
    if (a === null || b === null) return (a === null) - (b === null);
    return sign * (typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b)));
  };
  for (const head of $$("thead th").filter((h) => h.firstElementChild?.matches(".def"))) {
    head.firstElementChild.addEventListener("click", () => {
      const table = head.closest("table");
      const down = head.getAttribute("aria-sort") !== "descending";
      for (const other of $$("th[aria-sort]", table)) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const rows = [...table.tBodies[0].rows].map((row) => [value(row, head.cellIndex), row]);
      rows.sort(([a], [b]) => compare(a, b, down ? -1 : 1));
      table.tBodies[0].append(...rows.map(([, row]) => row));
    });
  }
  for (const input of $$("[data-filter]")) {
    const rows = [...document.getElementById(input.dataset.filter).tBodies[0].rows];
    input.addEventListener("input", () => {
      const words = input.value.toLowerCase().split(/\s+/);
      for (const row of rows) {
        const text = row.textContent.toLowerCase();
        row.hidden = !words.every((word) => text.includes(word));
      }
    });
  }

  /* One selection for all sections: the hash says it, tv:select tells it. */
  const parse = () => {
    const found = new URLSearchParams(location.hash.slice(1));
    const number = (key) => (/^\d+$/.test(found.get(key) ?? "") ? Number(found.get(key)) : undefined);
    const window = /^(-?\d+)-(-?\d+)$/.exec(found.get("t") ?? "");
    const detail = { rank: number("rank"), step: number("step") };
    if (window) [detail.t0, detail.t1] = [Number(window[1]), Number(window[2])];
    return Object.values(detail).some((v) => v !== undefined) ? detail : null;
  };
  const chip = $("#sel");
  const show = ({ rank, step } = {}) => {
    const wanted = (row) =>
      (row.dataset.rank !== undefined || row.dataset.step !== undefined) &&
      [["rank", rank], ["step", step]].every(([k, v]) => v === undefined || row.dataset[k] === undefined || +row.dataset[k] === v) &&
      [["rank", rank], ["step", step]].some(([k, v]) => v !== undefined && row.dataset[k] !== undefined);
    for (const row of $$("tr[data-rank], tr[data-step]")) row.classList.toggle("sel", wanted(row));
    const words = [rank === undefined ? "" : `rank ${rank}`, step === undefined ? "" : `step ${step}`].filter(Boolean);
    chip.hidden = !words.length;
    chip.firstElementChild.textContent = `selected: ${words.join(", ")}`;
  };
  document.addEventListener("tv:select", (event) => show(event.detail ?? {}));
  const follow = () => {
    const detail = parse();
    if (!detail) return;
    document.dispatchEvent(new CustomEvent("tv:select", { detail: { ...detail, source: "hash" } }));
    if ($("#timeline canvas")) $("#timeline").scrollIntoView({ block: "start" });
  };
  const unfold = () => {
    const target = document.getElementById(location.hash.slice(1));
    for (let d = target && ($("details", target) ?? target.closest("details")); d; d = d.parentElement.closest("details")) d.open = true;
  };
  addEventListener("hashchange", () => { follow(); unfold(); });
  chip.lastElementChild.addEventListener("click", () => {
    history.replaceState(null, "", location.pathname + location.search);
    document.dispatchEvent(new CustomEvent("tv:select", { detail: {} }));
  });

  /* Paper is light, also what is painted on canvas, and shows the ticket. */
  let theme = null;
  const paper = (on) => {
    if (on && theme === null) {
      theme = root.dataset.theme;
      root.dataset.theme = "light";
      for (const d of $$("details.ticket")) d.open = true;
    } else if (!on && theme !== null) {
      root.dataset.theme = theme;
      theme = null;
    }
  };
  matchMedia("print").addEventListener("change", (event) => paper(event.matches));
  addEventListener("beforeprint", () => paper(true));
  addEventListener("afterprint", () => paper(false));

  /* When every script of the page listens. */
  document.addEventListener("DOMContentLoaded", () => {
    follow();
    unfold();
    document.body.dataset.ready = "1";
  });
})();
