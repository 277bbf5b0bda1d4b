(() => {
  "use strict";
  const root = document.documentElement;
  root.classList.add("js");
  let kept = null;
  try { kept = localStorage.getItem("traceview-theme"); } catch { /* file pages may have no storage */ }
  const dark = kept ? kept === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "dark" : "light";
})();
