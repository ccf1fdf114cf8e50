// Reads the data of the page: from the page itself where it is a report, else from its hub.

import { byId, element, setData, setText } from "./elements.mjs";
import { begin, reduce } from "./reducer.mjs";
import { startTheme } from "./theme.mjs";
import { View, labelOf } from "./view.mjs";

const PROTOCOL = "islands.page";
const SHOW_INTERVAL_MS = 500;
const RETRY_MOST_S = 15;

const reports = [...document.querySelectorAll('script[type="application/x-ndjson"]')];
startTheme(byId("theme"));
const view = new View();

function fold(state, text) {
    for (const line of text.split("\n")) {
        if (!line) continue;
        try {
            reduce(state, JSON.parse(line));
        } catch {
            // a line that is no JSON is left out
        }
    }
    return state;
}

function connection(text, level) {
    setText(byId("connection"), text);
    setData(byId("connection"), "level", level);
}

// --- a report ---------------------------------------------------------------------------------

function showReports() {
    const states = reports.map((script) => fold(begin(), script.textContent));
    connection("a report", "plain");
    const show = (index) => {
        view.show(states[index], states[index].now_s, states);
        buttons.forEach((button, each) =>
            button.setAttribute("aria-pressed", String(each === index)),
        );
    };
    const buttons = states.map((state, index) => {
        const button = element("button", { type: "button", textContent: labelOf(state) });
        button.addEventListener("click", () => show(index));
        return button;
    });
    if (states.length > 1) {
        byId("runs").hidden = false;
        byId("runs").append(...buttons);
    }
    show(0);
}

// --- a run that goes on -----------------------------------------------------------------------

function follow(key) {
    let state = begin();
    let ahead_s = 0; // by how much the hub's clock is ahead of this one
    let wait_s = 1;
    const now_s = () => Date.now() / 1000 + ahead_s;
    const dial = () => {
        const place = new URL("live", location.href);
        place.protocol = place.protocol.replace("http", "ws");
        place.hash = "";
        const socket = new WebSocket(place, key ? [PROTOCOL, key] : [PROTOCOL]);
        socket.addEventListener("open", () => {
            state = begin();
            wait_s = 1;
            connection("live", "well");
        });
        socket.addEventListener("message", (event) => {
            const before = state.figures;
            fold(state, event.data);
            if (state.figures !== before) ahead_s = state.figures.t - Date.now() / 1000;
        });
        socket.addEventListener("close", (event) => {
            connection(
                state.finished ? "the run has ended" : "connection lost",
                state.finished ? "plain" : "ill",
            );
            if (event.reason) setText(byId("connection"), event.reason);
            if (state.finished) return; // the hub is gone for good; a reload looks for another
            setTimeout(dial, 1000 * wait_s);
            wait_s = Math.min(RETRY_MOST_S, 2 * wait_s);
        });
    };
    dial();
    setInterval(() => {
        if (!document.hidden && state.run) view.show(state, state.finished ? state.now_s : now_s());
    }, SHOW_INTERVAL_MS);
}

// The key stands behind the # of the address, which no browser sends to anybody.
async function admit(secret) {
    const headers = secret ? { Authorization: `Bearer ${secret}` } : {};
    const answer = await fetch("key", { headers, cache: "no-store" });
    if (answer.ok) return answer.text();
    throw new Error(await answer.text());
}

async function start() {
    const form = byId("admission");
    try {
        follow(await admit(decodeURIComponent(location.hash.slice(1))));
    } catch {
        connection("no key", "ill");
        form.hidden = false;
        form.addEventListener("submit", async (event) => {
            event.preventDefault();
            try {
                const key = await admit(byId("secret").value);
                history.replaceState(null, "", `#${key}`);
                form.hidden = true;
                follow(key);
            } catch (error) {
                setText(byId("refusal"), error.message || "That is neither the key nor the token.");
            }
        });
    }
}

if (reports.length) showReports();
else start();
