// Runs before the first paint: the theme that was chosen once, so that no other one flashes up.

try {
    const theme = localStorage.getItem("islands.theme");
    if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
} catch {
    // a file, or a browser that keeps nothing: the system's theme
}
