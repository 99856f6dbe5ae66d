// Runs before the page is drawn, so that it is drawn once: a chosen theme wins over the system's.
(() => {
  const chosen = localStorage.getItem("pennon.theme");
  if (chosen === "dark" || chosen === "light") document.documentElement.dataset.theme = chosen;
})();
