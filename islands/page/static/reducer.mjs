// The state of a run, folded from the entries of its tape: no DOM, no clock, no network.
//
// `reduce(state, entry)` takes one entry after the other, in the order of their times, and changes
// the state that it is given; the same entries give the same state, whether they come from a run
// that goes on or from a report. An entry is a line of the tape (docs/tape.md) with `t` in place of
// `at_s`: seconds of wall time. Entries whose kind begins with `page.` are not of the tape: they
// carry the run's settings and the figures that the program itself has counted.
//
// Everything that grows with a run is bounded, so that a page may stay open for weeks.

export const KEPT = {
    rounds: 400,
    merges: 4000,
    marks: 1000,
    log: 2000,
    segments: 400,
    rates: 900,
    points: 1500,
    curves: 24,
};

// What is kept of each learner in each round and merge, so that a crowd's take no more memory.
const PARTS = 100_000;
const LEAST = 100;

const bound = (state, most) =>
    Math.max(LEAST, Math.min(most, Math.floor(PARTS / Math.max(1, state.learners.size))));

export const STATES = ["starting", "compiling", "stepping", "waiting", "healing", "away"];
export const OVER = "over"; // the lane of a learner that left because the run was over

// The lane of each phase, status and state.
const PHASES = {
    joining: "starting",
    compiling: "compiling",
    healing: "healing",
    stepping: "stepping",
    waiting: "waiting",
    starved: "waiting",
    paused: "waiting",
    finished: "waiting",
    live: "stepping",
    diverged: "stepping",
    suspect: "away",
    stalled: "away",
    evicted: "away",
    left: "away",
    unheard: "away",
    away: "away",
    starting: "starting",
};

const TICKET = /^(.*)\/([^/@]*)@(\d+):(\d+)$/;

export function begin() {
    return {
        run: null,
        figures: null,
        curves: null,
        first_s: null,
        now_s: null,
        epoch: 1,
        paused: false,
        closing: "",
        finished: "",
        finished_s: null,
        stopped: false,
        learners: new Map(),
        fragments: new Map(),
        rounds: new Map(),
        merges: [],
        marks: [],
        log: [],
        rates: [],
        warnings: new Map(),
        roundsSeen: false,
    };
}

export function reduce(state, entry) {
    if (!entry || typeof entry.kind !== "string") return state;
    if (typeof entry.t === "number" && Number.isFinite(entry.t)) {
        if (state.first_s === null || entry.t < state.first_s) state.first_s = entry.t;
        if (state.now_s === null || entry.t > state.now_s) state.now_s = entry.t;
    }
    try {
        if (Object.hasOwn(HANDLERS, entry.kind)) HANDLERS[entry.kind](state, entry);
        const told = sentence(state, entry);
        const about = { t: entry.t, group: groupOf(entry.kind), actor: entry.actor };
        if (told) keep(state.log, { ...about, ...told }, KEPT.log);
    } catch {
        // an entry of a damaged tape lacks a field, or has another type of it
    }
    return state;
}

export function laneOf(phase) {
    return PHASES[phase];
}

export function parseTicket(text) {
    const found = TICKET.exec(text ?? "");
    if (!found) return null;
    return {
        name: found[1],
        incarnation: found[2],
        epoch: Number(found[3]),
        round: Number(found[4]),
    };
}

export function roundKey(epoch, number) {
    return `${epoch}:${number}`;
}

// --- what each kind of entry changes ----------------------------------------------------------

const HANDLERS = {
    "page.run": (state, entry) => {
        state.run = entry;
    },
    "page.curves": (state, entry) => {
        state.curves = entry;
    },
    "page.figures": onFigures,
    "page.state": (state, entry) => enterPhase(learnerOf(state, entry.name), entry.t, entry.state),

    started: (state, entry) => {
        if (entry.actor === "syncer" || entry.resumed !== undefined) state.epoch = entry.epoch;
        if (entry.actor === "supervisor") Object.assign(state, { closing: "", finished: "" });
        if (entry.epoch > 1) mark(state, entry, "start", `${entry.actor} started again`);
    },
    admitted: (state, entry) => {
        if (entry.role !== "learner") return;
        const learner = learnerOf(state, entry.name);
        learner.incarnation = entry.incarnation;
        learner.admissions += 1;
        Object.assign(learner, { status: "live", gone: "", phase: "joining", leftOut: "" });
        enter(learner, entry.t, "starting");
    },
    recognised: (state, entry) => {
        if (!state.learners.has(entry.name)) return;
        Object.assign(learnerOf(state, entry.name), { status: "live", gone: "" });
    },
    status: (state, entry) => {
        const learner = state.learners.get(entry.name);
        if (!learner || learner.status === entry.status) return;
        learner.status = entry.status;
        learner.statusSince_s = entry.t;
        if (state.finished) return;
        const away = entry.status !== "live";
        enterPhase(learner, entry.t, away ? "away" : learner.phase);
        if (entry.status === "suspect") mark(state, entry, "suspect", `${entry.name} is not heard`);
        if (entry.status === "stalled")
            mark(state, entry, "suspect", `${entry.name} takes no step`);
    },
    evicted: (state, entry) => onGone(state, entry, "evicted"),
    left: (state, entry) => onGone(state, entry, "left"),
    retired: (state, entry) => {
        const learner = state.learners.get(entry.name);
        if (learner && learner.incarnation === entry.incarnation && !learner.gone)
            onGone(state, entry, "evicted");
    },
    killed: (state, entry) => mark(state, entry, "fault", `${entry.name} was killed`),
    process_killed: (state, entry) => mark(state, entry, "fault", `${entry.name} was killed`),
    process_ended: (state, entry) => {
        const why = entry.error || entry.reason;
        if (why && !state.finished) mark(state, entry, "fault", `${entry.name} ended: ${why}`);
        const learner = state.learners.get(entry.name);
        if (learner) enter(learner, entry.t, state.finished ? OVER : "away");
    },
    gave_up: (state, entry) => {
        const learner = state.learners.get(entry.name);
        if (learner) learner.gaveUp = entry.reason || "it ended too often";
    },
    fault: (state, entry) => {
        for (const name of entry.names)
            mark(state, { ...entry, name }, "fault", `${entry.fault}: ${name}`);
    },
    healed: (state, entry) => mark(state, entry, "start", "all faults have stopped"),
    wrong_report: (state, entry) => mark(state, entry, "fault", `${entry.name}: ${entry.reason}`),
    diverged: (state, entry) => mark(state, entry, "fault", `${entry.name}: its loss is no number`),
    paused: (state, entry) => {
        state.paused = true;
        mark(state, entry, "start", "the run is paused");
    },
    resumed: (state, entry) => {
        state.paused = false;
        mark(state, entry, "start", "the run goes on");
    },
    extended: (state, entry) => {
        Object.assign(state, { closing: "", finished: "" });
        mark(state, entry, "extended", "the budget was extended");
    },
    moments_kept: (state, entry) => {
        if (!entry.error) mark(state, entry, "checkpoint", `${entry.actor} saved its optimizer`);
    },
    seeded: (state, entry) => mark(state, entry, "checkpoint", "version 0 of all fragments"),
    closing: (state, entry) => {
        state.closing = entry.reason;
    },
    finished: (state, entry) => {
        state.finished = entry.reason;
        state.finished_s = entry.t;
    },

    progress: (state, entry) => {
        const learner = state.learners.get(entry.actor);
        if (!learner) return;
        learner.ownTape = true;
        learner.phase = entry.phase;
        if (!learner.gone) enterPhase(learner, entry.t, entry.phase);
    },
    adapted: (state, entry) => {
        Object.assign(learnerOf(state, entry.name), { sends: entry.precision, exchange: entry });
    },

    opened: (state, entry) => {
        state.roundsSeen = true;
        const round = roundOf(state, entry);
        Object.assign(round, {
            opened_s: entry.t,
            asked: entry.asked,
            leftOut: entry.left_out ?? {},
        });
        fragmentOf(state, entry.fragment).open = round.key;
    },
    asked: (state, entry) => {
        const ticket = parseTicket(entry.ticket);
        const round = ticket && roundOfTicket(state, ticket);
        if (round) round.askedLater.add(ticket.name);
    },
    declined: (state, entry) => {
        const ticket = parseTicket(entry.ticket);
        const round = ticket && roundOfTicket(state, ticket);
        if (round) round.excuses[ticket.name] = entry.reason;
    },
    left_out: (state, entry) => {
        learnerOf(state, entry.name).leftOut = entry.reason;
    },
    asked_again: (state, entry) => {
        learnerOf(state, entry.name).leftOut = "";
    },
    arrived: (state, entry) => {
        const ticket = parseTicket(entry.ticket);
        const round = ticket && roundOfTicket(state, ticket);
        if (round) round.arrivals.set(ticket.name, { t: entry.t, tokens: entry.tokens });
    },
    closed: (state, entry) => {
        const round = roundOf(state, entry);
        Object.assign(round, {
            closed_s: entry.t,
            arrived: entry.arrived,
            excuses: entry.excused ?? {},
            waiting: entry.waiting,
            staleness: entry.staleness,
        });
        shut(state, round);
    },
    abandoned: (state, entry) => {
        const round = roundOf(state, entry);
        Object.assign(round, {
            abandoned: entry.reason,
            closed_s: entry.t,
            arrived: entry.arrived,
        });
        Object.assign(round, { excuses: entry.excused ?? {}, waiting: entry.waiting });
        shut(state, round);
    },
    merged: onMerged,
    committed: (state, entry) => {
        const fragment = fragmentOf(state, entry.fragment);
        Object.assign(fragment, { version: entry.version, since_s: entry.t });
        const round = state.rounds.get(fragment.merging);
        if (round && round.version === entry.version) round.committed_s = entry.t;
        state.warnings.delete("nothing");
    },
    fate: (state, entry) => {
        const ticket = parseTicket(entry.ticket);
        if (!ticket) return;
        const learner = learnerOf(state, ticket.name);
        const reason = entry.reason ?? "";
        const key = reason ? `${entry.fate}: ${reason}` : entry.fate;
        const counted = learner.fates.get(key) ?? { fate: entry.fate, reason, count: 0, tokens: 0 };
        counted.count += 1;
        counted.tokens += entry.tokens;
        if (learner.fates.size < 64 || learner.fates.has(key)) learner.fates.set(key, counted);
        const round = roundOfTicket(state, ticket);
        if (round)
            round.fates.set(ticket.name, {
                fate: entry.fate,
                reason,
                tokens: entry.tokens,
                t: entry.t,
            });
    },

    nothing_merged: (state, entry) => warn(state, entry, "nothing"),
    data_ended: (state, entry) => warn(state, entry, "data", entry.passes > 0),
    disk: (state, entry) => warn(state, entry, "disk"),
};

function onFigures(state, entry) {
    const before = state.figures;
    state.figures = entry;
    if (entry.final) state.finished = entry.reason || state.finished;
    state.stopped = entry.final === true && !state.finished;
    for (const row of entry.learners ?? []) {
        const learner = learnerOf(state, row.name);
        learner.figures = row;
        // A learner of another host has no tape here: its last heartbeat tells its phase.
        if (!learner.ownTape && !entry.final) enterPhase(learner, entry.t, row.state);
    }
    if (!entry.final && state.curves) growCurves(state.curves, entry, before);
    const span_s = before === null ? 0 : entry.t - before.t;
    if (span_s <= 0 || entry.final) return;
    const up = Math.max(0, entry.bytes_up - before.bytes_up) / span_s;
    const down = Math.max(0, entry.bytes_down - before.bytes_down) / span_s;
    keep(state.rates, { t: entry.t, up, down, tokens: entry.tokens_per_s }, KEPT.rates);
}

// Curves go on with the figures; one that is too long loses every second point.
function growCurves(curves, entry, before) {
    const add = (list, point) => {
        const last = list.at(-1);
        if (last && last[0] === point[0]) return list;
        list.push(point);
        return list.length > KEPT.points ? list.filter((_, index) => index % 2 === 0) : list;
    };
    if (before && entry.tokens === before.tokens) return;
    curves.pace = add(curves.pace, [entry.t, entry.tokens]);
    if (typeof entry.loss === "number") curves.loss = add(curves.loss, [entry.tokens, entry.loss]);
    for (const row of entry.learners) {
        if (typeof row.loss !== "number" || !Object.hasOwn(curves.learners, row.name)) {
            if (typeof row.loss === "number" && Object.keys(curves.learners).length < KEPT.curves) {
                curves.learners[row.name] = [];
            } else continue;
        }
        const point = [entry.t, entry.tokens, row.loss];
        curves.learners[row.name] = add(curves.learners[row.name], point);
    }
    for (const [name, value] of Object.entries(entry.evaluation ?? {})) {
        const known = curves.evaluations[name] ?? [];
        curves.evaluations[name] = add(known, [entry.evaluated_tokens, value]);
    }
}

function onGone(state, entry, how) {
    const learner = state.learners.get(entry.name);
    if (!learner) return;
    if (learner.gone && learner.incarnation === entry.incarnation) return;
    Object.assign(learner, { status: how, statusSince_s: entry.t, gone: how, why: entry.reason });
    enter(learner, entry.t, how === "left" && (state.finished || state.closing) ? OVER : "away");
    if (how === "evicted")
        mark(state, entry, "evicted", `${entry.name} was evicted: ${entry.reason}`);
}

function onMerged(state, entry) {
    const round = roundOf(state, entry);
    const { tokens, steps, weights, version, cosine } = entry;
    const participants = entry.participants.map((name) => learnerOf(state, name).name);
    Object.assign(round, {
        merged_s: entry.t,
        participants,
        tokens,
        steps,
        weights,
        version,
        cosine,
    });
    Object.assign(round, { askedCount: entry.asked, presentCount: entry.learners });
    if (round.opened_s === undefined && typeof entry.closed_s === "number") {
        // Only the merge is known here: the syncer's own tape is on another host.
        round.opened_s = entry.t - Math.max(0, entry.closed_s - entry.opened_s);
        round.closed_s = entry.t;
    }
    const fragment = fragmentOf(state, entry.fragment);
    fragment.merging = round.key;
    fragment.merges += 1;
    fragment.contributions = entry.contributions;
    if (!state.roundsSeen) Object.assign(fragment, { version, since_s: entry.t });
    shut(state, round);
    for (const name of participants) {
        const learner = learnerOf(state, name);
        learner.merged += 1;
        learner.merged_s = entry.t;
    }
    const told = { t: entry.t, fragment: entry.fragment, contributions: entry.contributions };
    keep(
        state.merges,
        { ...told, learners: entry.learners, participants },
        bound(state, KEPT.merges),
    );
}

// --- parts of the state -----------------------------------------------------------------------

export function learnerOf(state, name) {
    let learner = state.learners.get(name);
    if (learner === undefined) {
        learner = {
            name,
            incarnation: "",
            admissions: 0,
            status: "live",
            statusSince_s: null,
            phase: "joining",
            gone: "",
            why: "",
            gaveUp: "",
            ownTape: false,
            sends: "",
            merged: 0,
            merged_s: null,
            fates: new Map(),
            segments: [],
            figures: null,
        };
        state.learners.set(name, learner);
    }
    return learner;
}

function fragmentOf(state, index) {
    let fragment = state.fragments.get(index);
    if (fragment === undefined) {
        fragment = {
            index,
            version: "",
            since_s: null,
            merges: 0,
            contributions: 0,
            open: "",
            merging: "",
        };
        state.fragments.set(index, fragment);
    }
    return fragment;
}

function roundOf(state, entry) {
    const key = roundKey(state.epoch, entry.round);
    let round = state.rounds.get(key);
    if (round === undefined) {
        round = { key, epoch: state.epoch, number: entry.round, fragment: entry.fragment };
        Object.assign(round, { arrivals: new Map(), fates: new Map(), askedLater: new Set() });
        Object.assign(round, { leftOut: {}, excuses: {} });
        state.rounds.set(key, round);
        while (state.rounds.size > bound(state, KEPT.rounds))
            state.rounds.delete(state.rounds.keys().next().value);
    }
    return round;
}

// A tape that is not read from its beginning tells the epoch only with its tickets.
function roundOfTicket(state, ticket) {
    state.epoch = Math.max(state.epoch, ticket.epoch);
    return state.rounds.get(roundKey(ticket.epoch, ticket.round));
}

function shut(state, round) {
    const fragment = fragmentOf(state, round.fragment);
    if (fragment.open === round.key) fragment.open = "";
}

function enterPhase(learner, at_s, phase) {
    enter(learner, at_s, PHASES[phase] ?? "starting");
}

function enter(learner, at_s, lane) {
    const last = learner.segments.at(-1);
    if (last && last.lane === lane) return;
    if (last && at_s - last.from_s < 1e-3) learner.segments.pop();
    if (learner.segments.at(-1)?.lane === lane) return;
    keep(learner.segments, { from_s: at_s, lane }, KEPT.segments);
}

function mark(state, entry, shape, text) {
    keep(state.marks, { t: entry.t, shape, name: entry.name ?? entry.actor, text }, KEPT.marks);
}

function warn(state, entry, key, lasts = true) {
    if (lasts) state.warnings.set(key, entry);
    else state.warnings.delete(key);
}

// A list that is over its bound loses its oldest eighth at once, so that dropping costs little.
function keep(list, one, most) {
    list.push(one);
    if (list.length > most) list.splice(0, Math.ceil(most / 8));
}

// --- the log ----------------------------------------------------------------------------------

const GROUPS = {
    members: [
        "admitted",
        "recognised",
        "status",
        "evicted",
        "left",
        "killed",
        "gave_up",
        "process_ended",
        "retired",
        "waits",
    ],
    rounds: ["abandoned", "closed_without", "nothing_merged"],
    fates: ["fate"],
    run: [
        "started",
        "seeded",
        "extended",
        "closing",
        "finished",
        "paused",
        "resumed",
        "commanded",
        "evaluation",
        "healed",
    ],
};

const GROUP_OF = new Map(
    Object.entries(GROUPS).flatMap(([group, kinds]) => kinds.map((kind) => [kind, group])),
);

export function groupOf(kind) {
    return GROUP_OF.get(kind) ?? "other";
}

const listed = (names) =>
    Object.entries(names ?? {})
        .map(([name, why]) => `${name}: ${why}`)
        .join("; ");

const TOLD = {
    admitted: (e) => ["well", `${e.name} was admitted as ${e.role}, incarnation ${e.incarnation}`],
    recognised: (e) => ["well", `${e.name} is known from before, incarnation ${e.incarnation}`],
    evicted: (e) => ["ill", `${e.name} was evicted: ${e.reason}`],
    left: (e) => ["plain", `${e.name} left: ${e.reason}`],
    left_out: (e) => ["ill", `${e.name} was not asked in ${e.rounds} rounds: ${e.reason}`],
    asked_again: (e) => ["well", `${e.name} is asked again, after ${e.rounds} rounds`],
    retired: (e) => [
        "plain",
        `the syncer ended incarnation ${e.incarnation} of ${e.name}: ${e.reason}`,
    ],
    killed: (e) => ["ill", `${e.name} was killed${e.reason ? `: ${e.reason}` : ""}`],
    process_killed: (e) => ["ill", `${e.name} was killed${e.silent ? ", without a word" : ""}`],
    gave_up: (e) => ["ill", `${e.name} is not started again: ${e.reason}`],
    wrong_report: (e) => ["ill", `what ${e.name} says is wrong: ${e.reason}`],
    diverged: (e) => ["ill", `${e.name} begins again: its loss is not a finite number`],
    commanded: (e) => {
        const who = e.by === "operator" ? e.by : `operator ${e.by}`;
        return ["plain", `${who}: ${e.verb} ${e.target}: ${e.told}`];
    },
    stood_still: (e) => ["warn", `${e.actor} stood still for ${e.gap_s.toFixed(1)} s`],
    paused: () => ["warn", "the run is paused"],
    resumed: () => ["well", "the run goes on"],
    started: (e) => [
        "plain",
        `${e.actor} started${e.resumed ? ", from its journal" : ""}, epoch ${e.epoch}`,
    ],
    seeded: (e) => [
        "well",
        e.name
            ? `${e.name} gave the initial parameters`
            : "the initial parameters came from a file",
    ],
    taken_back: (e) => ["ill", `the journal is lost: the run goes on from what ${e.name} has`],
    seed_late: (e) => ["warn", `${e.name} did not send the initial parameters in time`],
    extended: (e) => [
        "well",
        `the budget was extended, from ${e.before} to ${e.budget_tokens} tokens`,
    ],
    closing: (e) => ["plain", `the run is ending: ${why(e.reason)}`],
    finished: (e) => ["plain", `the run is over: ${why(e.reason)}`],
    abandoned: (e) => [
        "warn",
        `round ${e.round} on fragment ${e.fragment} was given up: ${e.reason}`,
    ],
    nothing_merged: (e) => [
        "ill",
        `nothing was merged for ${e.for_s.toFixed(0)} s: ${listed(e.because)}`,
    ],
    data_ended: (e) =>
        e.passes
            ? ["ill", `the data has ended: none of ${e.shards} shards has a batch`]
            : ["well", "there is data again"],
    waits_for: (e) => ["warn", `the run waits for ${listed(e.because)}`],
    adapted: (e) => ["plain", `${e.name} sends ${e.precision}: ${e.reason}`],
    moments_taken: (e) => ["plain", `${e.actor} took its optimizer's moments from ${e.from}`],
    moments_fresh: (e) => ["plain", `${e.actor} begins with fresh moments: ${e.reason}`],
    moments_reset: (e) => ["warn", `${e.actor} discarded its optimizer's moments`],
    refused: (e) => ["warn", `${e.name} was refused: ${e.reason}`],
    failed: (e) => ["ill", `${e.actor} failed: ${e.error}`],
    disk: (e) => ["ill", `${e.actor} waits for its disk: ${e.error}`],
    damaged: (e) => ["ill", `damaged or missing: ${e.files.join(", ")}`],
    evaluation_failed: (e) => ["ill", `an evaluation failed: ${e.error}`],
    fault: (e) => ["ill", `fault: ${e.fault} ${e.names.join(", ")}`],
    healed: () => ["well", "all faults have stopped"],
    entries_lost: (e) => ["warn", `${e.entries} entries of ${e.actor} were lost`],
};

const STATUS = {
    live: ["well", "is heard again"],
    suspect: ["warn", "is not heard"],
    stalled: ["warn", "takes no step"],
};

function why(reason) {
    return { tokens: "its budget of tokens is spent", time: "its time is over" }[reason] ?? reason;
}

function sentence(state, entry) {
    if (entry.kind === "status") {
        const [level, words] = STATUS[entry.status] ?? [];
        if (!level || entry.actor === "syncer") return null;
        return { level: state.finished ? "plain" : level, text: `${entry.name} ${words}` };
    }
    if (entry.kind === "process_ended") {
        const reason = entry.error || entry.reason;
        const level = state.finished ? "plain" : "ill";
        return reason ? { level, text: `the process of ${entry.name} ended: ${reason}` } : null;
    }
    if (entry.kind === "fate") {
        if (entry.fate === "applied") return null;
        const name = parseTicket(entry.ticket)?.name ?? entry.ticket;
        const what = `${entry.tokens.toLocaleString("en")} tokens of ${name}, fragment ${entry.fragment}`;
        return {
            level: entry.fate === "late" ? "plain" : "warn",
            text: `${entry.fate}: ${what}${entry.reason ? ` (${entry.reason})` : ""}`,
        };
    }
    if (!Object.hasOwn(TOLD, entry.kind)) return null;
    const [level, text] = TOLD[entry.kind](entry);
    return { level, text };
}
