"""Figures and tables of bench/side-by-side."""
import statistics

from measure import QUIET_CORES

# Bytes that a loader stores for an image of W3: a float for each value.
BYTES_STORED = 32 * 32 * 3 * 4


def spread(values):
    """Returns (largest − smallest) ÷ median, or None for a single value."""
    return (max(values) - min(values)) / statistics.median(values) if len(values) > 1 else None


def figures(rows):
    """Adds to each row the figures of its runs: medians, spread, peaks, the ratios of our rows to it, and its scaling.

    A row is {"name", "cores", "is_ours", "runs"}; all rows have the same number of runs, and run i belongs to round i.
    A ratio is the median of the ratios within each round, so a machine that is slow for a while does not change it.
    `scaling` is the ratio to the same contender on the fewest cores, or None if there is no other row of it."""
    fewest = min((row["cores"] for row in rows), default=None)
    alone = {row["name"]: row for row in rows if row["cores"] == fewest}
    for row in rows:
        rates = [run["median"] for run in row["runs"]]
        row["images_per_s"], row["spread"] = statistics.median(rates), spread(rates)
        row["images_per_cpu_s"] = statistics.median(run["per_cpu_s"] for run in row["runs"])
        for name in ("rss_mb", "anonymous_mb"):
            row[f"peak_{name}"] = max((run[name] for run in row["runs"] if run[name] is not None), default=None)
        row["other_cores"] = statistics.median(run["other_cores"] for run in row["runs"])
        ours = [other for other in rows if other["is_ours"] and other["cores"] == row["cores"]]
        row["ratios"] = {our["name"]: ratio(our, row) for our in ours}
        row["scaling"] = ratio(row, alone[row["name"]]) if row["cores"] != fewest and row["name"] in alone else None
    return sorted(rows, key=lambda row: -row["images_per_s"])


def ratio(one, other):
    """Returns the median over the rounds of one row's rate ÷ the other's."""
    return statistics.median(a["median"] / b["median"] for a, b in zip(one["runs"], other["runs"]))


def figure(value):
    """Formats a figure (98.7, 412, 1230, 130000), or a dash if it is not known."""
    if value is None:
        return "–"
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}"


def table(work, what, rows, cores):
    """Returns the lines of one workload's table for a number of cores."""
    ours = list(rows[0]["ratios"]) if rows else []
    scales = any(row["scaling"] is not None for row in rows)
    head = [work, "images/s", "spread", *(f"{name} ÷" for name in ours), "images/CPU-s", "RSS MB", "own MB"]
    if scales:
        head.append("scaling")
    lines = [head]
    for row in rows:
        lines.append([
            row["name"], figure(row["images_per_s"]), "–" if row["spread"] is None else f"{row['spread']:.0%}",
            *(f"{row['ratios'][name]:.2f}" for name in ours), figure(row["images_per_cpu_s"]),
            figure(row["peak_rss_mb"]), figure(row["peak_anonymous_mb"])])
        if scales:
            lines[-1].append("–" if row["scaling"] is None else f"{row['scaling']:.2f}")
    widths = [max(len(line[at]) for line in lines) for at in range(len(head))]
    text = [f"{work}: {what}; {cores} core{'s' if cores > 1 else ''}"]
    for line in lines:
        first, *rest = (cell.ljust(width) if at == 0 else cell.rjust(width)
                        for at, (cell, width) in enumerate(zip(line, widths)))
        text.append("  ".join([first, *rest]))
    return text


def remarks(outcome):
    """Returns lines with machine, versions and warnings."""
    machine = outcome["machine"]
    text = [
        f"machine   {machine['processor']}, {machine['kernel']}, governor {machine['governor'] or 'not visible'}",
        f"cores     {', '.join(map(str, machine['used_cores']))} of {machine['online_cores']}",
        f"rounds    {outcome['rounds']}, each contender once in a round; medians over them",
        f"version   {outcome['version']}"]
    notes = {}
    for work, rows in outcome["works"].items():
        for row in rows:
            works = notes.setdefault((row["name"], row["runs"][-1].get("note", "")), [])
            works += [work] if work not in works else []
    text += [f"  {name}, {', '.join(works)}: {note}" for (name, note), works in notes.items()]
    text += stores(outcome)
    text += [f"WARNING: {warning}" for warning in outcome["warnings"] + disturbances(outcome)]
    text += [f"left out: {line}" for line in outcome["left_out"]]
    return text


def stores(outcome):
    """Compares our loader with the bandwidth of stores, in the workload in which it does little else: the f32 values of
    W3."""
    rates, lines = outcome["store_bytes_per_s"], []
    for row in outcome["works"].get("W3", []):
        # If a round lacks a measurement, there is nothing to compare with.
        if row["is_ours"] and len(rates[row["cores"]]) == len(row["runs"]):
            shares = [run["median"] * BYTES_STORED / rate for run, rate in zip(row["runs"], rates[row["cores"]])]
            stored, by_memset = row["images_per_s"] * BYTES_STORED, statistics.median(rates[row["cores"]])
            lines.append(f"stores    {row['name']}, W3, {row['cores']} of the cores: {stored / 1e9:.1f} GB/s, "
                         f"{statistics.median(shares):.0%} of the {by_memset / 1e9:.1f} GB/s that memset stores")
    return lines


def disturbances(outcome):
    """Warns about rows during which the machine did other work."""
    rows = [row for rows in outcome["works"].values() for row in rows]
    disturbed = [row for row in rows if row["other_cores"] > QUIET_CORES]
    if not disturbed:
        return []
    most = max(row["other_cores"] for row in disturbed)
    return [f"the machine was not quiet: up to {most:.2f} of its cores did other work during "
            f"{len(disturbed)} of {len(rows)} rows; images/CPU-s suffers least from that"]
