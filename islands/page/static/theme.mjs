// The theme: that of the system, light or dark; and its colours for what is drawn on a canvas.

const THEMES = ["system", "light", "dark"];
const PLACE = "islands.theme";
const listeners = [];

export function startTheme(button) {
    let theme = remembered();
    const apply = () => {
        if (theme === "system") delete document.documentElement.dataset.theme;
        else document.documentElement.dataset.theme = theme;
        button.textContent = `Theme: ${theme}`;
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

function remembered() {
    try {
        const found = localStorage.getItem(PLACE);
        return THEMES.includes(found) ? found : "system";
    } catch {
        return "system";
    }
}

export function onTheme(listener) {
    listeners.push(listener);
}

export function colour(name) {
    return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}
