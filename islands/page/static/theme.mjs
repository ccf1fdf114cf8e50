// The theme: that of the system, light or dark; and its colours for what is drawn on a canvas.

const THEMES = ["system", "light", "dark"];
const PLACE = "islands.theme"; // `early.js` reads it before the first paint
const listeners = [];
const colours = new Map();
const probe = document.createElement("span");
probe.hidden = true;
document.documentElement.append(probe);

export function startTheme(button) {
    const root = document.documentElement;
    let theme = root.dataset.theme ?? "system";
    const apply = () => {
        if (theme === "system") delete root.dataset.theme;
        else root.dataset.theme = theme;
        button.textContent = `Theme: ${theme}`;
        colours.clear();
        for (const listener of listeners) listener();
    };
    button.addEventListener("click", () => {
        theme = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
        try {
            localStorage.setItem(PLACE, theme);
        } catch {
            // a file, or a browser that keeps nothing: the choice holds until the page is closed
        }
        apply();
    });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", apply);
    apply();
}

export function onTheme(listener) {
    listeners.push(listener);
}

// A colour of the style sheet in the theme of now, as a canvas takes it; a share of 1 is opaque.
export function colour(name, share = 1) {
    const key = `${name} ${share}`;
    if (!colours.has(key)) {
        const percent = `${100 * share}%`;
        probe.style.color = `color-mix(in srgb, var(--${name}) ${percent}, transparent)`;
        colours.set(key, getComputedStyle(probe).color);
    }
    return colours.get(key);
}
