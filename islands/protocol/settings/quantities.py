"""Amounts in readable units."""

BINARY = ("B", "KiB", "MiB", "GiB", "TiB")
DECIMAL = ("B/s", "kB/s", "MB/s", "GB/s", "TB/s")
WHOLE = 100  # from here on, three significant digits need no decimal point


def size(count: float) -> str:
    """Format a number of bytes in binary units, as memory and files are counted."""
    return _scaled(count, 1024, BINARY)


def rate(count: float) -> str:
    """Format bytes per second in decimal units, as networks and disks are counted."""
    return _scaled(count, 1000, DECIMAL)


def _scaled(count: float, base: int, units: tuple[str, ...]) -> str:
    place = 0
    while count >= base and place + 1 < len(units):
        count /= base
        place += 1
    return (
        f"{count:.0f} {units[place]}"
        if count >= WHOLE or not place
        else f"{count:.3g} {units[place]}"
    )
