// Runs before the page is drawn, to avoid flicker: a selected theme takes precedence over the system's.
(() => {
  const chosen = localStorage.getItem("pennon.theme");
  if (chosen === "dark" || chosen === "light") document.documentElement.dataset.theme = chosen;
})();
