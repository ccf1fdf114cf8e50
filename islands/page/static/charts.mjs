// Curves, which uPlot draws: rebuilt when their form changes, else only given new points.

import { element, setText, syncChildren } from "./elements.mjs";
import { short } from "./format.mjs";
import { colour, onTheme } from "./theme.mjs";

const HEIGHT = 230;

export class Chart {
    // `readout` is an element that tells the values under the pointer; `summary` describes the
    // curves for those who do not see them.
    constructor(host, readout) {
        this.host = host;
        this.readout = readout;
        this.form = "";
        this.plot = null;
        this.asked = null;
        host.setAttribute("role", "img");
        new ResizeObserver(() => this.resize()).observe(host);
        onTheme(() => {
            this.form = "";
            if (this.asked) this.show(this.asked);
        });
    }

    // asked: {series: [{label, colour, width, faint, points, value}], x, y, summary, empty}; points
    // are [x, y] pairs in the order of x, and x and y are {value(number) -> text, log}.
    show(asked) {
        this.asked = asked;
        const series = asked.series.filter((one) => one.points.length > 0);
        this.host.setAttribute("aria-label", asked.summary);
        if (!series.length || this.host.clientWidth === 0) {
            this.clear(asked.empty ?? "Nothing to draw yet.");
            return;
        }
        const data = joined(series, asked.x.log);
        const names = series.map(
            (one) => `${one.label} ${one.colour} ${one.width ?? 2} ${one.dash ?? ""}`,
        );
        const form = JSON.stringify([names, asked.x.log, asked.y.log]);
        if (this.plot && form === this.form) {
            this.plot.setData(data);
            return;
        }
        this.clear("");
        this.form = form;
        this.plot = new uPlot(options(asked, series, this), data, this.host);
    }

    clear(text) {
        this.plot?.destroy();
        this.plot = null;
        this.form = "";
        this.host.replaceChildren();
        if (!text) return;
        const told = document.createElement("p");
        told.className = "empty";
        told.textContent = text;
        this.host.append(told);
    }

    resize() {
        if (this.plot) this.plot.setSize({ width: this.host.clientWidth, height: HEIGHT });
        else if (this.asked) this.show(this.asked);
    }
}

// uPlot wants one list of x for all series, and a gap where a series has no point there.
function joined(series, logarithmic) {
    const tables = series.map((one) => {
        const points = logarithmic ? one.points.filter((point) => point[0] > 0) : one.points;
        return [points.map((point) => point[0]), points.map((point) => point[1])];
    });
    return uPlot.join(tables);
}

function options(asked, series, chart) {
    const axis = (scale, size) => ({
        stroke: colour("muted"),
        grid: { stroke: colour("line"), width: 1 },
        ticks: { show: false },
        font: "12px system-ui, sans-serif",
        size,
        space: scale === asked.x ? 80 : 34,
        values: (_, splits, __, ___, step) =>
            splits.map((split) => (split === null ? "" : short(split, scale.value, step))),
    });
    return {
        width: chart.host.clientWidth,
        height: HEIGHT,
        legend: { show: false },
        cursor: { y: false, points: { size: 6 } },
        scales: {
            x: { time: false, distr: asked.x.log ? 3 : 1 },
            y: { distr: asked.y.log ? 3 : 1, range: asked.y.range },
        },
        axes: [axis(asked.x, 30), axis(asked.y, 62)],
        series: [
            {},
            ...series.map((one) => ({
                label: one.label,
                stroke: colour(one.colour, one.faint ? 0.6 : 1),
                width: one.width ?? 2,
                dash: one.dash,
                spanGaps: true,
                points: { show: one.points.length < 3 },
            })),
        ],
        hooks: { setCursor: [(plot) => tell(plot, asked, series, chart.readout)] },
    };
}

function tell(plot, asked, series, readout) {
    const index = plot.cursor.idx;
    if (index === null || index === undefined || plot.cursor.left < 0) {
        readout.textContent = "";
        return;
    }
    const x = plot.data[0][index];
    const told = series.map((one, place) => {
        const value = newest(plot.data[place + 1], index);
        return value === null ? null : `${one.label} ${(one.value ?? asked.y.value)(value)}`;
    });
    readout.textContent = `at ${asked.x.value(x)}: ${told.filter(Boolean).slice(0, 6).join(", ")}`;
}

function newest(values, index) {
    for (let place = index; place >= 0; place -= 1) {
        if (values[place] !== null && values[place] !== undefined) return values[place];
    }
    return null;
}

export function legend(host, series, more = 0) {
    const texts = series.map((one) => ({
        text: one.label,
        colour: one.colour,
        dash: Boolean(one.dash),
    }));
    if (more > 0) texts.push({ text: `and ${more} more`, colour: "muted", dash: false });
    syncChildren(
        host,
        texts,
        () => element("span", {}, sample(), element("span")),
        (item, { text, colour, dash }) => {
            const line = item.firstChild.firstChild;
            line.style.stroke = `var(--${colour})`;
            line.setAttribute("stroke-dasharray", dash ? "6 4" : "none");
            setText(item.lastChild, text);
        },
    );
}

function sample() {
    const space = "http://www.w3.org/2000/svg";
    const picture = document.createElementNS(space, "svg");
    const line = document.createElementNS(space, "line");
    for (const [name, value] of Object.entries({ width: 22, height: 8, "aria-hidden": "true" }))
        picture.setAttribute(name, value);
    for (const [name, value] of Object.entries({
        x1: 0,
        y1: 4,
        x2: 22,
        y2: 4,
        "stroke-width": 2.5,
    }))
        line.setAttribute(name, value);
    picture.append(line);
    return picture;
}
