"""Numbers with intervals in JSON and in Markdown: `key` and `key`_interval {low, high} belong together."""

import json


def figure(key, value, interval):
    return {key: value, f"{key}_interval": {"low": interval[0], "high": interval[1]}}


def ranged(record, key, form="×{:.2f}"):
    """Returns "×1.19 (×1.16 to ×1.22)"; "-" if the record lacks the number."""
    if key not in record:
        return "-"
    return "{} ({} to {})".format(*map(form.format, (record[key], *record[f"{key}_interval"].values())))


def to_json(record):
    """Returns JSON. Infinite ends of intervals, which come from too few noisy runs, become null."""
    return json.dumps(record, indent=1).replace(": Infinity", ": null").replace(": -Infinity", ": null")


def table(head, rows):
    """Returns an aligned Markdown table."""
    rows = [head, *[[str(cell) for cell in row] for row in rows]]
    widths = [max(3, *map(len, column)) for column in zip(*rows)]
    rows.insert(1, ["-" * width for width in widths])
    return "\n".join(f"| {' | '.join(map(str.ljust, row, widths))} |" for row in rows)
