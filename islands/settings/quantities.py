"""Amounts as people read them: bytes, rates, times and numbers."""

BINARY = ("B", "KiB", "MiB", "GiB", "TiB")
DECIMAL = ("B/s", "kB/s", "MB/s", "GB/s", "TB/s")
LONG_S = 100.0
WHOLE = 100  # from here on, three significant digits need no decimal point


def size(count: float) -> str:
    """Format a number of bytes in binary units, as memory and files are counted."""
    return _scaled(count, 1024, BINARY)


def rate(count: float) -> str:
    """Format bytes per second in decimal units, as networks and disks are counted."""
    return _scaled(count, 1000, DECIMAL)


def duration(seconds: float) -> str:
    """Format a time as people write it: 85 ms, 12.3 s, 5:03, 2:05:03, 3 d 2:05."""
    if seconds < 1:
        return f"{1000 * seconds:.0f} ms"
    if seconds < LONG_S:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days} d {hours}:{minutes:02}"
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def count(number: float) -> str:
    """Format a number so that it fits a column: 1,234, then 56.7 k, 8.9 M, …."""
    if number < 100_000:  # noqa: PLR2004  five digits are read at a glance
        return f"{number:,.0f}"
    for unit in ("k", "M", "G"):
        number /= 1000
        if number < 1000:  # noqa: PLR2004  the next unit begins there
            return f"{number:.1f} {unit}"
    return f"{number / 1000:.1f} T"


def data_size(size_bytes: float) -> str:
    """Format bytes that were sent in decimal units, as networks are counted."""
    return rate(size_bytes).removesuffix("/s")


def _scaled(count: float, base: int, units: tuple[str, ...]) -> str:
    power = 0
    while count >= base and power + 1 < len(units):
        count /= base
        power += 1
    digits = ".0f" if count >= WHOLE or not power else ".3g"
    return f"{count:{digits}} {units[power]}"
