// The page: shows the folded state of one run, and of several beside each other.

import { Chart, legend } from "./charts.mjs";
import {
    byId,
    check,
    choice,
    element,
    setData,
    setText,
    syncChildren,
    syncTable,
} from "./elements.mjs";
import { hiddenTime, hiddenTold, lastRound, openRound, overlapOf, timeOf } from "./exchanges.mjs";
import {
    NONE,
    age,
    bytes,
    clock,
    count,
    duration,
    moment,
    number,
    percent,
    plural,
    whole,
} from "./format.mjs";
import { Lanes } from "./lanes.mjs";
import { learnerColumns } from "./learners.mjs";
import { PLACES, attention, placeIn, uptime, why } from "./questions.mjs";

const SPANS = [
    ["all", "all"],
    ["3600", "1 h"],
    ["600", "10 min"],
    ["60", "1 min"],
];
const AXES = [
    ["tokens", "by tokens"],
    ["time", "by time"],
];
const EVENTS_SHOWN = 250;
const MATRIX_LEARNERS = 24;
const FRAGMENTS_SHOWN = 240;
const CURVES = 6;
const CROWD = 64;
const LEVELS = { ill: "problem", warn: "notice", well: "good", plain: "" };
const GROUPS = {
    "": "notable",
    all: "all",
    members: "members",
    rounds: "rounds",
    fates: "fates",
    run: "the run",
    other: "other",
};

export class View {
    constructor() {
        this.span = "all";
        this.axis = "tokens";
        this.logs = { x: false, y: false };
        this.missing = false;
        this.chosen = null;
        this.state = null;
        this.lanes = new Lanes(byId("lanes"), byId("lanes-legend"), byId("lanes-readout"));
        this.loss = new Chart(byId("loss"), byId("loss-readout"));
        this.evaluation = new Chart(byId("evaluation"), byId("evaluation-readout"));
        this.traffic = new Chart(byId("traffic"), byId("traffic-readout"));
        this.exchange = new Chart(byId("exchange"), byId("exchange-readout"));
        this.compared = new Chart(byId("compared-loss"), byId("compared-readout"));
        this.shown = { events: null, settings: null, matrix: null };
        this.controls();
    }

    controls() {
        const again = () => this.render();
        choice(byId("spans"), SPANS, this.span, (span) => {
            this.span = span;
            again();
        });
        choice(byId("axes"), AXES, this.axis, (axis) => {
            this.axis = axis;
            again();
        });
        for (const [name, text] of [
            ["x", "log across"],
            ["y", "log up"],
        ]) {
            check(byId("axes"), text, false, (checked) => {
                this.logs[name] = checked;
                again();
            });
        }
        check(byId("round-choices"), "only rounds that somebody missed", false, (checked) => {
            this.missing = checked;
            this.shown.matrix = null;
            again();
        });
        const group = byId("group");
        for (const [value, text] of Object.entries(GROUPS)) {
            group.append(element("option", { value, textContent: text }));
        }
        for (const id of ["search", "group", "problems"]) {
            byId(id).addEventListener("input", () => {
                this.shown.events = null;
                again();
            });
        }
        for (const place of Object.values(PLACES)) {
            const sign = element("b", { textContent: place.sign === " " ? "□" : place.sign });
            byId("matrix-legend").append(element("span", {}, sign, place.told));
        }
        byId("matrix").addEventListener("keydown", (event) => this.onArrow(event));
    }

    // Shows a state as it is at a time; `from` is where another run was shown before.
    show(state, now_s, others = []) {
        if (state !== this.state)
            Object.assign(this.shown, { events: null, settings: null, matrix: null });
        Object.assign(this, { state, now_s, others });
        this.render();
    }

    render() {
        const { state, now_s } = this;
        if (!state) return;
        setData(byId("main"), "crowd", String(state.learners.size > CROWD));
        this.renderHead(state);
        this.renderAttention(state, now_s);
        this.renderFigures(state, now_s);
        this.renderLanes(state, now_s);
        this.renderLoss(state);
        this.renderLearners(state, now_s);
        this.renderFragments(state, now_s);
        this.renderMatrix(state);
        this.renderTraffic(state);
        this.renderEvents(state);
        this.renderSettings(state);
        if (this.others.length > 1) this.renderComparison();
    }

    // --- the top ----------------------------------------------------------------------------------

    renderHead(state) {
        const run = state.run;
        if (!run) return;
        setText(byId("name"), run.name);
        const parts = [
            run.model,
            plural(run.fragments.length, "fragment"),
            run.preset,
            `folder ${run.folder}`,
        ];
        if (state.first_s !== null) parts.push(`since ${moment(state.first_s)}`);
        if (run.whole === false) parts.push("only the newest part of its tape is shown");
        setText(byId("about"), parts.filter(Boolean).join(" · "));
        document.title = `${run.name} – Islands`;
    }

    renderAttention(state, now_s) {
        const [first, ...rest] = attention(state, now_s);
        setText(byId("headline"), first.text);
        setData(byId("headline"), "level", first.level);
        syncChildren(
            byId("further"),
            rest.slice(0, 6),
            () => element("li"),
            (item, told) => {
                setText(item, told.text);
                setData(item, "level", told.level);
            },
        );
    }

    renderFigures(state, now_s) {
        byId("figures").hidden = !state.figures; // of a history alone nothing was counted
        const figures = state.figures ?? {};
        const settings = state.run?.settings;
        const [metric, value] = Object.entries(figures.evaluation ?? {})[0] ?? ["evaluation", null];
        const up = uptime(state);
        const elapsed_s = figures.final
            ? figures.elapsed_s
            : state.first_s === null
              ? null
              : now_s - state.first_s;
        const left =
            typeof figures.left_s === "number"
                ? `${duration(figures.left_s)} left`
                : (figures.phase ?? "");
        const missed = figures.participation;
        const lately =
            typeof figures.participation_lately === "number"
                ? `, ${percent(figures.participation_lately)} in the last minute`
                : "";
        const tiles = [
            [
                "Tokens processed",
                whole(figures.tokens),
                settings?.budget_tokens
                    ? `of ${whole(settings.budget_tokens)}`
                    : "no budget of tokens",
            ],
            [
                "Tokens a second",
                count(figures.tokens_per_s),
                figures.final ? "mean while it trained" : "all learners, now",
            ],
            ["Training loss", number(figures.loss), `learning rate ${number(figures.rate, 4)}`],
            [
                metric.replaceAll("_", " "),
                number(value),
                value === null
                    ? "not evaluated yet"
                    : `at ${count(figures.evaluated_tokens)} tokens`,
            ],
            [
                "Merged in time",
                percent(figures.yield),
                `of the tokens; ${percent(figures.merged_at_all)} at all`,
            ],
            ["Goodput", percent(figures.goodput), "of the learners’ time was steps"],
            ["Uptime", up === null ? NONE : percent(up), "somebody stepped"],
            [
                "Merges",
                whole(figures.merges),
                typeof missed === "number"
                    ? `${percent(missed)} took part${lately}`
                    : plural(figures.evictions ?? 0, "eviction"),
            ],
            [
                "Traffic",
                `${bytes((figures.bytes_up ?? 0) + (figures.bytes_down ?? 0))}`,
                `${bytes(figures.bytes_up)} up, ${bytes(figures.bytes_down)} down`,
            ],
            ["Time", duration(elapsed_s), left],
        ];
        syncChildren(
            byId("figures"),
            tiles,
            () => element("div", {}, element("dt"), element("dd"), element("dd")),
            (tile, texts) => texts.forEach((text, index) => setText(tile.children[index], text)),
        );
        const share = figures.share;
        byId("budget").hidden = typeof share !== "number";
        if (typeof share === "number") {
            byId("progress").value = share;
            setText(byId("budget-told"), `${percent(share)} of the budget`);
        }
    }

    // --- time -------------------------------------------------------------------------------------

    renderLanes(state, now_s) {
        if (state.first_s === null) return;
        const to_s = state.finished
            ? Math.max(state.finished_s ?? 0, state.now_s)
            : Math.max(now_s, state.now_s);
        const from_s =
            this.span === "all" ? state.first_s : Math.max(state.first_s, to_s - Number(this.span));
        const merges = new Map();
        for (const merge of state.merges) {
            for (const name of merge.participants) {
                if (!merges.has(name)) merges.set(name, []);
                merges.get(name).push(merge.t);
            }
        }
        const learners = inOrder(
            [...state.learners.values()].filter((learner) => learner.segments.length),
        );
        const rows = learners.map((learner) => ({
            name: learner.name,
            segments: learner.segments,
            merges: merges.get(learner.name) ?? [],
            to_s: learner.gone ? undefined : to_s,
        }));
        const known = new Set(learners.map((learner) => learner.name));
        const marks = state.marks.map((mark) => ({ ...mark, ofRun: !known.has(mark.name) }));
        const all = {
            name: "the run",
            ofRun: true,
            segments: [],
            merges: state.merges.map((merge) => merge.t),
        };
        this.lanes.show([all, ...rows], marks, from_s, to_s, state.first_s);
    }

    renderLoss(state) {
        byId("loss").closest("section").hidden = !state.curves && state.finished !== "";
        const curves = state.curves ?? { loss: [], pace: [], learners: {}, evaluations: {} };
        const byTime = this.axis === "time";
        const begun_s = state.first_s ?? 0;
        const place = byTime
            ? (tokens) => timeOf(curves.pace, tokens) - begun_s
            : (tokens) => tokens;
        const x = { log: this.logs.x, value: byTime ? duration : (value) => count(value) };
        const y = { log: this.logs.y, value: number };
        const names = inOrder(Object.keys(curves.learners).map((name) => ({ name })));
        const learners = names.slice(0, CURVES - 1).map(({ name }, index) => ({
            label: name,
            colour: `curve-${index + 1}`,
            width: 1,
            faint: true,
            points: curves.learners[name].map((point) => [
                byTime ? point[0] - begun_s : point[1],
                point[2],
            ]),
        }));
        const points = curves.loss.map(([tokens, loss]) => [place(tokens), loss]);
        const mean = { label: "mean of the learners", colour: "curve-0", width: 2.5, points };
        const across = byTime ? "time" : "tokens";
        this.loss.show({
            series: [...learners, mean],
            x,
            y,
            summary: told("Training loss", points, across),
        });
        const keys = names.length > 1 ? [mean, ...learners] : [mean];
        legend(byId("loss-legend"), keys, names.length - learners.length);
        const figures = Object.entries(curves.evaluations);
        const series = figures.slice(0, 3).map(([label, found], index) => ({
            label: label.replaceAll("_", " "),
            colour: `curve-${index}`,
            points: found.map(([tokens, value]) => [place(tokens), value]),
        }));
        setText(
            byId("evaluation-name"),
            series.length
                ? `Evaluation: ${series.map((one) => one.label).join(", ")}`
                : "Evaluation",
        );
        const summary =
            series.map((one) => told(one.label, one.points, across)).join("; ") ||
            "No evaluation yet";
        this.evaluation.show({ series, x, y, summary, empty: "Nothing has been evaluated yet." });
    }

    // --- learners and fragments -------------------------------------------------------------------

    renderLearners(state, now_s) {
        const timing = state.run?.settings.timing;
        const limits = timing
            ? [timing.suspect_s * timing.patience, timing.evict_s * timing.patience]
            : null;
        const all = inOrder([...state.learners.values()]);
        const recent = [...state.rounds.values()].filter((round) => round.participants).slice(-100);
        syncTable(
            byId("learners"),
            learnerColumns(state, now_s, limits, recent),
            all.slice(0, 128),
        );
        const more = (state.figures?.more ?? 0) + Math.max(0, all.length - 128);
        setText(byId("learners-more"), more ? `and ${more} more` : "");
    }

    renderFragments(state, now_s) {
        const planned = state.run?.fragments ?? [];
        const settings = state.run?.settings;
        if (settings) {
            const quorum = { null: "all that are asked", auto: "all that answer about as fast as the others" }[
                String(settings.quorum)
            ];
            setText(
                byId("fragments-about"),
                `A round closes with ${quorum ?? plural(settings.quorum, "contribution")}, after a grace of at most ` +
                    `${percent(settings.grace_safety, 0)} of what ${overlapOf(settings)} of overlap hide.`,
            );
        }
        const shown = planned
            .slice(0, FRAGMENTS_SHOWN)
            .map((plan, index) => ({ plan, index, ...state.fragments.get(index) }));
        syncChildren(
            byId("fragments"),
            shown,
            () =>
                element(
                    "li",
                    {},
                    element("strong"),
                    element("span"),
                    element("br"),
                    element("span", { className: "muted" }),
                ),
            (item, fragment, index) => {
                const open = fragment.open ? state.rounds.get(fragment.open) : null;
                setData(item, "open", String(Boolean(open)));
                item.title = `${plural(fragment.plan.size, "element")}: ${fragment.plan.paths.join(", ")}`;
                setText(item.children[0], `${index} · version ${fragment.version || NONE}`);
                const told = fragment.since_s
                    ? `${age(now_s - fragment.since_s)} old`
                    : "not published yet";
                setText(
                    item.children[1],
                    state.finished ? plural(fragment.merges ?? 0, "merge") : told,
                );
                setText(
                    item.children[3],
                    open ? openRound(open, now_s, settings) : lastRound(state, fragment),
                );
            },
        );
    }

    // --- rounds -----------------------------------------------------------------------------------

    renderMatrix(state) {
        const matrix = byId("matrix");
        const names = inOrder([...state.learners.values()])
            .slice(0, MATRIX_LEARNERS)
            .map((learner) => learner.name);
        const columns = Math.max(
            30,
            Math.min(60, Math.floor((matrix.parentElement.clientWidth - 150) / 24)),
        );
        let rounds = [...state.rounds.values()];
        if (this.missing)
            rounds = rounds.filter((round) =>
                names.some((name) => placeIn(state, name, round) !== "merged"),
            );
        rounds = rounds.slice(-columns);
        const newest = rounds.at(-1);
        const mark = `${names.join()} ${columns} ${newest?.key} ${newest?.merged_s} ${newest?.arrivals.size} ${rounds.length}`;
        const busy = matrix.contains(document.activeElement) || matrix.matches(":hover");
        if (mark !== this.shown.matrix && !(busy && this.shown.matrix)) {
            this.shown.matrix = mark;
            this.matrixRounds = rounds.map((round) => round.key);
            this.matrixNames = names;
            this.buildMatrix(state, names, rounds);
        }
        this.renderAnswer(state);
    }

    buildMatrix(state, names, rounds) {
        const matrix = byId("matrix");
        matrix.style.gridTemplateColumns = `minmax(60px, max-content) repeat(${rounds.length}, 22px)`;
        const heads = rounds.map((round, index) => {
            const text = index % 6 === 0 ? String(round.number) : "";
            return element("span", { className: "when", textContent: text });
        });
        const children = [element("span", { className: "who" }), ...heads];
        for (const name of names) {
            children.push(element("span", { className: "who", textContent: name, title: name }));
            for (const round of rounds) {
                const place = placeIn(state, name, round);
                const label = `${name}, round ${round.number}, fragment ${round.fragment}: ${PLACES[place].told}`;
                const button = element("button", {
                    type: "button",
                    textContent: PLACES[place].sign,
                    title: label,
                    "aria-label": label,
                });
                button.dataset.place = place;
                Object.assign(button, {
                    tabIndex: -1,
                    onclick: () => this.choose(round.key, name),
                });
                button.dataset.key = `${round.key} ${name}`;
                children.push(button);
            }
        }
        matrix.replaceChildren(...children);
        this.markChosen();
    }

    choose(key, name) {
        this.chosen = { key, name };
        this.markChosen();
        this.renderAnswer(this.state);
    }

    markChosen() {
        const buttons = [...byId("matrix").querySelectorAll("button")];
        const wanted = this.chosen ? `${this.chosen.key} ${this.chosen.name}` : "";
        for (const button of buttons) {
            const chosen = button.dataset.key === wanted;
            button.setAttribute("aria-pressed", String(chosen));
            button.tabIndex = chosen ? 0 : -1;
        }
        if (buttons.length && !buttons.some((button) => button.tabIndex === 0))
            buttons.at(-1).tabIndex = 0;
    }

    renderAnswer(state) {
        const round = this.chosen && state.rounds.get(this.chosen.key);
        if (this.chosen && !round)
            setText(byId("answer"), "That round is too long ago to be kept here.");
        if (round) setText(byId("answer"), why(state, this.chosen.name, round));
        if (!this.chosen) setText(byId("answer"), "Choose a cell to read what the tape says.");
    }

    onArrow(event) {
        const moves = {
            ArrowLeft: [0, -1],
            ArrowRight: [0, 1],
            ArrowUp: [-1, 0],
            ArrowDown: [1, 0],
        };
        const move = moves[event.key];
        const buttons = [...byId("matrix").querySelectorAll("button")];
        const place = buttons.indexOf(document.activeElement);
        if (!move || place < 0) return;
        event.preventDefault();
        const columns = this.matrixRounds.length;
        const row = Math.floor(place / columns) + move[0];
        const column = (place % columns) + move[1];
        if (row < 0 || row >= this.matrixNames.length || column < 0 || column >= columns) return;
        const next = buttons[row * columns + column];
        next.focus();
        next.click();
    }

    // --- bandwidth --------------------------------------------------------------------------------

    renderTraffic(state) {
        const begun_s = state.first_s ?? 0;
        const x = { log: false, value: duration };
        const rate = (name) => state.rates.map((one) => [one.t - begun_s, one[name]]);
        const series = [
            { label: "from the learners", colour: "curve-0", points: rate("up") },
            { label: "to the learners", colour: "curve-1", points: rate("down"), dash: [6, 4] },
        ];
        const summary = told("Bytes per second from the learners", series[0].points, "time");
        const total = state.figures;
        const span_s = total ? Math.max(1e-9, total.elapsed_s) : 1;
        const whole = total
            ? `Over the whole run ${bytes(total.bytes_up / span_s)}/s from the learners and ${bytes(total.bytes_down / span_s)}/s to them.`
            : "";
        this.traffic.show({
            series,
            x,
            y: { log: false, value: (value) => `${bytes(value)}/s` },
            summary,
            empty: whole || "No traffic yet.",
        });
        legend(byId("traffic-legend"), state.rates.length ? series : []);
        this.renderExchange(state, begun_s, x);
    }

    renderExchange(state, begun_s, x) {
        const rounds = [...state.rounds.values()].filter(
            (round) => round.merged_s && round.opened_s,
        );
        const took = (round) => (round.committed_s ?? round.merged_s) - round.opened_s;
        const points = rounds.map((round) => [round.opened_s - begun_s, took(round)]);
        const hidden_s = hiddenTime(state);
        const line =
            hidden_s === null || points.length < 2
                ? []
                : [
                      [points[0][0], hidden_s],
                      [points.at(-1)[0], hidden_s],
                  ];
        const series = [
            { label: "a round", colour: "curve-0", width: 1.5, points },
            { label: "what the overlap hides", colour: "curve-1", points: line, dash: [6, 4] },
        ];
        const value = (seconds) => duration(seconds);
        this.exchange.show({
            series,
            x,
            y: { log: false, value },
            summary: told("Time of a round", points, "time"),
        });
        legend(
            byId("exchange-legend"),
            series.filter((one) => one.points.length),
        );
        setText(byId("hidden-told"), hiddenTold(state, points, hidden_s));
    }

    // --- events and settings ----------------------------------------------------------------------

    renderEvents(state) {
        const words = byId("search").value.trim().toLowerCase();
        const group = byId("group").value;
        const problems = byId("problems").checked;
        const mark = `${state.log.length} ${state.log.at(-1)?.t} ${words} ${group} ${problems}`;
        if (mark === this.shown.events) return;
        this.shown.events = mark;
        const found = state.log.filter(
            (one) =>
                (group === "all" || (group ? one.group === group : one.group !== "fates")) &&
                (!problems || one.level === "ill" || one.level === "warn") &&
                (!words || one.text.toLowerCase().includes(words)),
        );
        const newest = found.slice(-EVENTS_SHOWN).reverse();
        syncChildren(
            byId("events"),
            newest,
            () =>
                element(
                    "li",
                    {},
                    element("time"),
                    element("span", { className: "level" }),
                    element("span"),
                ),
            (item, one) => {
                setText(item.children[0], clock(one.t));
                item.children[0].dateTime = new Date(one.t * 1000).toISOString();
                setText(item.children[1], LEVELS[one.level] ?? "");
                setData(item, "level", one.level);
                setText(item.children[2], one.text);
            },
        );
        const left = found.length - newest.length;
        setText(
            byId("events-more"),
            left > 0
                ? `and ${plural(left, "earlier event")}; search finds them`
                : plural(found.length, "event"),
        );
    }

    renderSettings(state) {
        if (!state.run || this.shown.settings === state.run) return;
        this.shown.settings = state.run;
        const rows = [["task", state.run.task], ...flat(state.run.settings)];
        syncTable(
            byId("settings"),
            [
                { title: "setting", head: true, value: ([name]) => name },
                { title: "value", value: ([, value]) => String(value ?? "none") },
            ],
            rows,
        );
    }

    // --- several runs -----------------------------------------------------------------------------

    renderComparison() {
        byId("comparison").hidden = false;
        const states = this.others;
        const metric =
            states.map((state) => Object.keys(state.figures?.evaluation ?? {})[0]).find(Boolean) ??
            "evaluation";
        const figure = (title, value) => ({
            title,
            right: true,
            value: (state) => value(state.figures ?? {}),
        });
        syncTable(
            byId("compared"),
            [
                { title: "run", head: true, value: labelOf },
                figure("tokens", (figures) => whole(figures.tokens)),
                figure("time", (figures) => duration(figures.elapsed_s)),
                figure("tokens/s", (figures) => count(figures.tokens_per_s)),
                figure("loss", (figures) => number(figures.loss)),
                figure(metric.replaceAll("_", " "), (figures) =>
                    number(figures.evaluation?.[metric]),
                ),
                figure("merged in time", (figures) => percent(figures.yield)),
                figure("goodput", (figures) => percent(figures.goodput)),
                figure("merges", (figures) => whole(figures.merges)),
                figure("evictions", (figures) => whole(figures.evictions)),
                figure("traffic", (figures) =>
                    bytes((figures.bytes_up ?? 0) + (figures.bytes_down ?? 0)),
                ),
            ],
            states,
        );
        const series = states.slice(0, CURVES).map((state, index) => ({
            label: labelOf(state),
            colour: `curve-${index}`,
            dash: index % 2 ? [7, 4] : undefined,
            points: state.curves?.loss ?? [],
        }));
        const summary = series
            .map((one) => told(`Loss of ${one.label}`, one.points, "tokens"))
            .join("; ");
        const y = { log: this.logs.y, value: number };
        this.compared.show({ series, x: { log: this.logs.x, value: count }, y, summary });
        legend(byId("compared-legend"), series);
    }
}

export function labelOf(state) {
    return state.run?.folder ?? "a run";
}

// --- parts ------------------------------------------------------------------------------------

function told(what, points, across) {
    if (!points.length) return `${what}: nothing yet`;
    const [first, last] = [points[0], points.at(-1)];
    return `${what} over ${across}: from ${number(first[1])} to ${number(last[1])}`;
}

function inOrder(things) {
    const compare = new Intl.Collator("en", { numeric: true }).compare;
    return things.sort((one, other) => compare(one.name, other.name));
}

function flat(values, prefix = "") {
    return Object.entries(values).flatMap(([name, value]) =>
        value !== null && typeof value === "object" && !Array.isArray(value)
            ? flat(value, `${prefix}${name}.`)
            : [[`${prefix}${name}`, Array.isArray(value) ? value.join(", ") : value]],
    );
}
