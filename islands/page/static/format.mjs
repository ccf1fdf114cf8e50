// Numbers, sizes and times as people read them; a value is never shown without its unit.

export const NONE = "–";

const known = (value) => typeof value === "number" && Number.isFinite(value);

// 1,234, then 56.7 k, 8.9 M, …, as `islands.run.records.formatting.count` has it.
export function count(value) {
    if (!known(value)) return NONE;
    if (Math.abs(value) < 100_000) return Math.round(value).toLocaleString("en");
    return scaled(value, ["k", "M", "G", "T"], 1);
}

export function whole(value) {
    return known(value) ? Math.round(value).toLocaleString("en") : NONE;
}

export function bytes(value) {
    if (!known(value)) return NONE;
    if (Math.abs(value) < 1000) return `${Math.round(value)} B`;
    return scaled(value, ["kB", "MB", "GB", "TB", "PB"], 1);
}

function scaled(value, units, digits) {
    let index = -1;
    let rest = value;
    while (Math.abs(rest) >= 1000 && index < units.length - 1) {
        rest /= 1000;
        index += 1;
    }
    return `${rest.toFixed(digits)} ${units[index]}`;
}

// 85 ms, 12.3 s, 5:03, 2:05:03, 3 d 2:05, as `islands.run.records.formatting.duration` has it.
export function duration(seconds) {
    if (!known(seconds)) return NONE;
    if (seconds < 0.001 && seconds > 0) return `${Math.max(1, Math.round(seconds * 1e6))} µs`;
    if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
    if (seconds < 100) return `${seconds.toFixed(1)} s`;
    const two = (number) => String(number).padStart(2, "0");
    const minutes = Math.floor(seconds / 60);
    const hours = Math.floor(minutes / 60);
    const days = Math.floor(hours / 24);
    if (days) return `${days} d ${hours % 24}:${two(minutes % 60)}`;
    const rest = two(Math.floor(seconds) % 60);
    return hours ? `${hours}:${two(minutes % 60)}:${rest}` : `${minutes}:${rest}`;
}

// The age of something that is renewed all the time: below a second, more digits only flicker.
export function age(seconds) {
    if (!known(seconds)) return NONE;
    return seconds < 1 ? `${Math.max(0, seconds).toFixed(1)} s` : duration(seconds);
}

export function percent(share, digits = 1) {
    return known(share) ? `${(100 * share).toFixed(digits)} %` : NONE;
}

export function number(value, digits = 3) {
    if (!known(value)) return NONE;
    if (value !== 0 && (Math.abs(value) < 10 ** -digits || Math.abs(value) >= 1e6)) {
        return value.toExponential(2);
    }
    return value.toFixed(digits);
}

// A number or a count beside an axis, where zeros at the end say nothing; numbers that differ by a
// small step have the digits that tell them apart.
export function short(value, write = number, step = 1) {
    const digits = step > 0 ? Math.min(9, Math.max(3, Math.ceil(-Math.log10(step)))) : 3;
    return write(value, digits)
        .replace(/(\.\d*?)0+(?=\D|$)/, "$1")
        .replace(/\.(?=\D|$)/, "");
}

export function clock(at_s) {
    return known(at_s) ? new Date(at_s * 1000).toLocaleTimeString("en-GB") : NONE;
}

export function moment(at_s) {
    if (!known(at_s)) return NONE;
    return new Date(at_s * 1000).toISOString().slice(0, 19).replace("T", " ") + " UTC";
}

export function listed(names) {
    if (names.length < 2) return names.join("");
    return `${names.slice(0, -1).join(", ")} and ${names.at(-1)}`;
}

export function plural(amount, one, many = `${one}s`) {
    return `${whole(amount)} ${amount === 1 ? one : many}`;
}
