// The reducer as tables: which entries come, and what the page knows after them.

import assert from "node:assert/strict";
import { test } from "node:test";

import { KEPT, begin, laneOf, parseTicket, reduce } from "../../islands/page/static/reducer.mjs";

const at = (t, kind, fields = {}) => ({ t, actor: "supervisor", kind, ...fields });
const admitted = (t, name, incarnation = "1.1") =>
    at(t, "admitted", { name, role: "learner", incarnation });
const progress = (t, name, phase) => ({ t, actor: name, kind: "progress", phase });

function fold(entries) {
    return entries.reduce(reduce, begin());
}

const merged = (t, round, fragment, participants, more = {}) => ({
    ...at(t, "merged", {
        round,
        fragment,
        participants,
        version: `1.${round + 1}`,
        contributions: participants.length,
    }),
    ...{
        tokens: participants.map(() => 8),
        steps: participants.map(() => 1),
        weights: participants.map(() => 1),
    },
    ...{
        asked: participants.length,
        learners: participants.length,
        opened_s: 100,
        closed_s: 101,
        actor: "syncer",
    },
    ...more,
});

const LANES = [
    ["admission", [admitted(1, "a")], ["starting"]],
    [
        "phases",
        [admitted(1, "a"), progress(2, "a", "compiling"), progress(3, "a", "stepping")],
        ["starting", "compiling", "stepping"],
    ],
    [
        "the same phase again",
        [admitted(1, "a"), progress(2, "a", "stepping"), progress(3, "a", "stepping")],
        ["starting", "stepping"],
    ],
    [
        "starved and paused wait",
        [admitted(1, "a"), progress(2, "a", "starved"), progress(3, "a", "paused")],
        ["starting", "waiting"],
    ],
    [
        "suspect, and heard again",
        [
            admitted(1, "a"),
            progress(2, "a", "stepping"),
            at(3, "status", { name: "a", status: "suspect" }),
            at(4, "status", { name: "a", status: "live" }),
        ],
        ["starting", "stepping", "away", "stepping"],
    ],
    [
        "eviction and return",
        [
            admitted(1, "a"),
            progress(2, "a", "stepping"),
            at(3, "evicted", { name: "a", incarnation: "1.1", reason: "silent" }),
            admitted(5, "a", "1.2"),
        ],
        ["starting", "stepping", "away", "starting"],
    ],
    [
        "what an evicted one says counts no more",
        [
            admitted(1, "a"),
            at(3, "evicted", { name: "a", incarnation: "1.1", reason: "silent" }),
            progress(4, "a", "stepping"),
        ],
        ["starting", "away"],
    ],
    [
        "who leaves a run that is over is not away",
        [
            admitted(1, "a"),
            at(2, "closing", { reason: "tokens" }),
            at(3, "left", { name: "a", incarnation: "1.1", reason: "over" }),
        ],
        ["starting", "over"],
    ],
];

for (const [name, entries, lanes] of LANES) {
    test(`lanes: ${name}`, () => {
        const learner = fold(entries).learners.get("a");
        assert.deepEqual(
            learner.segments.map((segment) => segment.lane),
            lanes,
        );
    });
}

test("a learner of another host has the phases of its heartbeats", () => {
    const figures = (t, state) =>
        at(t, "page.figures", { bytes_up: 0, bytes_down: 0, learners: [{ name: "b", state }] });
    const state = fold([figures(1, "compiling"), figures(2, "stepping"), figures(3, "suspect")]);
    assert.deepEqual(state.learners.get("b").segments, [
        { from_s: 1, lane: "compiling" },
        { from_s: 2, lane: "stepping" },
        { from_s: 3, lane: "away" },
    ]);
});

const ROUND = [
    at(10, "opened", {
        actor: "syncer",
        round: 0,
        fragment: 2,
        asked: ["a", "b"],
        left_out: { c: "healing" },
    }),
    at(11, "arrived", { actor: "syncer", ticket: "a/1.1@1:0", tokens: 8 }),
    at(12, "closed", {
        actor: "syncer",
        round: 0,
        fragment: 2,
        arrived: ["a"],
        excused: {},
        waiting: ["b"],
        share: 0.5,
        staleness: 0,
    }),
    at(12.5, "fate", {
        actor: "syncer",
        ticket: "a/1.1@1:0",
        fragment: 2,
        fate: "applied",
        tokens: 8,
        version: "1.1",
    }),
    merged(12.6, 0, 2, ["a"]),
    at(12.8, "committed", { actor: "syncer", fragment: 2, version: "1.1" }),
    at(13, "fate", {
        actor: "syncer",
        ticket: "b/1.2@1:0",
        fragment: 2,
        fate: "late",
        reason: "the round has closed",
        tokens: 4,
    }),
];

test("a round is open until it is closed, and then its fragment has a version", () => {
    assert.equal(fold(ROUND.slice(0, 1)).fragments.get(2).open, "1:0");
    const state = fold(ROUND);
    const fragment = state.fragments.get(2);
    assert.deepEqual(
        [fragment.open, fragment.version, fragment.since_s, fragment.merges],
        ["", "1.1", 12.8, 1],
    );
    const round = state.rounds.get("1:0");
    assert.deepEqual(
        [round.opened_s, round.closed_s, round.merged_s, round.committed_s],
        [10, 12, 12.6, 12.8],
    );
    assert.deepEqual(round.leftOut, { c: "healing" });
});

test("fates are counted by learner and reason, in contributions and tokens", () => {
    const state = fold([...ROUND, ROUND.at(-1)]);
    const late = state.learners.get("b").fates.get("late: the round has closed");
    assert.deepEqual([late.fate, late.count, late.tokens], ["late", 2, 8]);
    assert.equal(state.learners.get("a").fates.get("applied").tokens, 8);
});

test("where the syncer's tape is elsewhere, a merge tells its round", () => {
    const state = fold([merged(20, 7, 1, ["a", "b"])]);
    const round = state.rounds.get("1:7");
    assert.deepEqual([round.opened_s, round.closed_s, round.participants], [19, 20, ["a", "b"]]);
    assert.equal(state.fragments.get(1).version, "1.8");
});

test("rounds of two epochs with one number are two", () => {
    const again = { ...ROUND[0], t: 30 };
    const state = fold([
        ...ROUND,
        at(29, "started", { actor: "syncer", epoch: 2, resumed: true }),
        again,
    ]);
    assert.deepEqual([...state.rounds.keys()], ["1:0", "2:0"]);
});

const MARKS = [
    [
        [admitted(1, "a"), at(2, "evicted", { name: "a", incarnation: "1.1", reason: "silent" })],
        "evicted",
    ],
    [[at(1, "killed", { name: "a", reason: "" })], "fault"],
    [[at(1, "extended", { budget_tokens: 2, before: 1, ended: "" })], "extended"],
    [[at(1, "seeded", { actor: "syncer", name: "a", version: "1.0" })], "checkpoint"],
    [[at(1, "started", { epoch: 2 })], "start"],
    [[admitted(0, "a"), at(1, "status", { name: "a", status: "suspect" })], "suspect"],
];

for (const [entries, shape] of MARKS) {
    test(`marks: ${shape}`, () => {
        assert.equal(fold(entries).marks.at(-1).shape, shape);
    });
}

test("an eviction that supervisor and syncer both tell is marked once", () => {
    const told = { name: "a", incarnation: "1.1", reason: "silent" };
    const state = fold([
        admitted(1, "a"),
        at(2, "evicted", told),
        at(2.1, "retired", { ...told, actor: "syncer" }),
    ]);
    assert.equal(state.marks.filter((mark) => mark.shape === "evicted").length, 1);
});

test("an end that was meant is no fault", () => {
    const ended = at(3, "process_ended", { actor: "hub", name: "a", error: "exit code unknown" });
    assert.equal(fold([at(2, "finished", { reason: "tokens" }), ended]).marks.length, 0);
    assert.equal(fold([ended]).marks.length, 1);
});

test("traffic is what was moved between two reports of the figures", () => {
    const figures = (t, up) =>
        at(t, "page.figures", { bytes_up: up, bytes_down: 2 * up, tokens_per_s: 5, learners: [] });
    assert.deepEqual(fold([figures(0, 0), figures(2, 100), figures(3, 100)]).rates, [
        { t: 2, up: 50, down: 100, tokens: 5 },
        { t: 3, up: 0, down: 0, tokens: 5 },
    ]);
});

const DAMAGED = [
    null,
    7,
    "text",
    {},
    { kind: 5 },
    { kind: "__proto__" },
    { kind: "constructor", t: 1 },
    at(1, "merged"),
    at(1, "fate", { ticket: 5 }),
    at(1, "closed", { round: {} }),
];

test("entries that are damaged or unknown change nothing that matters", () => {
    const state = fold([...ROUND, ...DAMAGED, at(99, "a_new_kind", { name: "x" })]);
    assert.equal(state.fragments.get(2).version, "1.1");
    assert.equal(state.now_s, 99);
});

test("a week of entries leaves a state that is no larger", () => {
    const state = begin();
    for (let index = 0; index < 20_000; index += 1) {
        const [t, name] = [index, `learner-${index % 3}`];
        reduce(
            state,
            at(t, "opened", {
                actor: "syncer",
                round: index,
                fragment: index % 6,
                asked: [name],
                left_out: {},
            }),
        );
        reduce(state, merged(t, index, index % 6, [name]));
        reduce(state, progress(t, name, index % 2 ? "waiting" : "stepping"));
        reduce(state, at(t, "killed", { name, reason: "x" }));
    }
    const sizes = [state.rounds.size, state.merges.length, state.marks.length, state.log.length];
    const most = [KEPT.rounds, KEPT.merges, KEPT.marks, KEPT.log];
    sizes.forEach((size, index) => assert.ok(size <= most[index], `${size} of ${most[index]}`));
    for (const learner of state.learners.values())
        assert.ok(learner.segments.length <= KEPT.segments);
});

test("a crowd's rounds and merges take no more memory than those of a few", () => {
    const state = begin();
    const names = Array.from({ length: 1000 }, (_, index) => `learner-${index}`);
    for (let index = 0; index < 150; index += 1) {
        const opened = { actor: "syncer", round: index, fragment: 0, asked: names, left_out: {} };
        reduce(state, at(index, "opened", opened));
        reduce(state, merged(index, index, 0, names));
    }
    assert.equal(state.rounds.size, 100);
    assert.ok(state.merges.length <= 100);
    assert.equal(state.rounds.get("1:149").participants.length, 1000);
});

test("the same entries give the same state", () => {
    assert.deepEqual(fold(ROUND), fold(ROUND));
});

test("a ticket is read from its end, as a name may be long", () => {
    assert.deepEqual(parseTicket("learner-0/2.13@4:77"), {
        name: "learner-0",
        incarnation: "2.13",
        epoch: 4,
        round: 77,
    });
    assert.equal(parseTicket("learner-0"), null);
});

test("every phase and status has a lane", () => {
    const known =
        "joining compiling healing stepping starved waiting paused finished live suspect stalled evicted left unheard";
    for (const phase of known.split(" ")) assert.ok(laneOf(phase), phase);
});
