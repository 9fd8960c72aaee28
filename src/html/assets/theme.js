// The light and the dark theme: what the user chose last, or else what the system wishes.
function startTheme(redraw) {
  let kept = null;
  try { kept = localStorage.getItem("gpushim-theme"); } catch { /* A page of its own may keep nothing. */ }
  const set = (theme) => {
    document.documentElement.dataset.theme = theme;
    $("theme").textContent = theme === "dark" ? "Light" : "Dark";
    readColours();
    redraw();
  };
  const wish = matchMedia("(prefers-color-scheme: dark)");
  set(kept || (wish.matches ? "dark" : "light"));
  wish.addEventListener("change", () => set(wish.matches ? "dark" : "light"));
  $("theme").onclick = () => {
    const theme = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
    set(theme);
    try { localStorage.setItem("gpushim-theme", theme); } catch { /* As above. */ }
  };
}
