"""Tables of what live_matrix.py wrote: python tables.py FOLDER RUNS.jsonl... [--replay LAKEBED] [--quote PAGE.md]

Merges the files: of a run that was made again the last whole record counts. Writes runs.txt, runs.csv, memory.csv,
batches.csv and tables.md into FOLDER. --replay: recordings beside the files are replayed under their own policy on the
simulated device, and FOLDER/replay.txt compares reserved peaks. --quote: what PAGE.md has between the lines
<!-- tables.md --> and <!-- end of tables.md --> becomes tables.md.
"""

import argparse
import csv
import io
import os
import statistics
import subprocess

import live_matrix
from live_matrix import rest

GIB = 2**30
SHOWN = ["pytorch", "pytorch:expandable", "pytorch:async", "bfc", "expandable", "async", "gmlake", "aliasheap"]
CALLED = {"pytorch": "PyTorch", "pytorch:expandable": "expandable segments", "pytorch:async": "cudaMallocAsync",
          "pytorch:uncached": "PyTorch, caching off"}
NOTES = [
    "command: results/regenerate.sh torch: harness/torch/bench/plan.py, live_matrix.py and tables.py",
    "losses are compared in runs whose operations give the same bits again (torch.use_deterministic_algorithms), fused attention "
    "among them; fsdp: plain attention; throughput, largest batch, uncached: PyTorch's usual operations",
    "own ms: inside the plugin in a step, the median; driver: of it in driver calls; device used: nvidia-smi's view, contexts included",
    "equal losses: steps whose loss has the same bits as under PyTorch's allocator; items: tokens or pixels; host-bound steps "
    "scatter by 30 % and more",
]


def key_of(record):
    return record.get("allocator"), record.get("name"), record.get("rank")


def merged(records):
    """Whole records, the last of each run; then what is missing."""
    records = [record for record in records if "provenance" not in record]
    whole = {key_of(record): record for record in records if live_matrix.is_whole(record)}
    runs = {key[:2] for key in whole}
    missing = {key_of(record): record for record in records if key_of(record)[:2] not in runs}
    return list(whole.values()) + list(missing.values())


def header_of(records):
    told = [record["provenance"] for record in records if "provenance" in record]
    values = lambda name: "; ".join(dict.fromkeys(entry[name] for entry in told))
    return [f"{name}: {values(name)}" for name in ("device", "driver", "date", "plugin") if told] + NOTES


def equal_to(base, record):
    if record["allocator"] == "pytorch" or base is None or len(base) != len(record["losses"]):
        return ""
    return sum(a == b for a, b in zip(base, record["losses"]))


def place(allocator):
    return SHOWN.index(allocator) if allocator in SHOWN else len(SHOWN)


def row_of(record, base):
    step = statistics.median(rest(record["step_ms"]))
    own, driver = record.get("allocator_ms"), record.get("allocator_driver_ms")
    timed = not record.get("beside")
    measured = timed and own and not record["allocator"].startswith("pytorch")
    known = record["allocator"] != "pytorch:uncached"
    active = record.get("active_peak", record.get("allocated_peak"))
    calls = record.get("driver_calls", {})
    counts = rest(record["counts"]) if "counts" in record else []
    return {
        "run": record["name"] + (f": rank {record['rank']}" if "rank" in record else ""),
        "allocator": record["allocator"],
        "batch": record.get("batch", ""),
        "sequence": record.get("sequence", ""),
        "steps": len(record["losses"]),
        "active_peak_bytes": active if known else "",
        "reserved_peak_bytes": record["reserved_peak"] if known else "",
        "utilisation": round(active / record["reserved_peak"], 4) if known else "",
        "device_used_peak_bytes": record.get("device_used_peak", "") if timed else "",
        "step_ms": round(step, 2) if timed else "",
        "first_step_ms": round(record["step_ms"][0], 1) if timed else "",
        "items_per_s": round(sum(counts) / (sum(rest(record["step_ms"])) / 1e3)) if counts and timed else "",
        "allocator_ms_per_step": round(statistics.median(rest(own)), 3) if measured else "",
        "of_it_driver_ms": round(statistics.median(rest(driver)), 3) if measured else "",
        "first_step_allocator_ms": round(own[0], 3) if measured else "",
        "driver_calls": sum(call["count"] for call in calls.values()) if measured else "",
        "losses_equal_to_pytorch": equal_to(base, record) if record.get("deterministic") or "rank" in record else "",
        "last_loss": record["losses"][-1],
    }


def rows_of(records):
    records = [record for record in records if "losses" in record]
    bases = {(record["name"], record.get("rank")): record["losses"] for record in records if record["allocator"] == "pytorch"}
    rows = [row_of(record, bases.get((record["name"], record.get("rank")))) for record in records]
    order = list(dict.fromkeys(row["run"] for row in rows))
    return sorted(rows, key=lambda row: (order.index(row["run"]), place(row["allocator"])))


def write_csv(path, header, rows):
    text = io.StringIO()
    text.writelines(f"# {line}\n" for line in header)
    writer = csv.DictWriter(text, rows[0].keys(), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_text(path, text.getvalue())


def write_text(path, text):
    with open(path, "w") as file:
        file.write(text)


def gib(value):
    return f"{value / GIB:.2f}" if value != "" else "-"


def shown(value, digits=None):
    if value == "":
        return "-"
    return f"{value:.{digits}f}" if digits is not None else str(value)


def run_table(rows):
    lines = []
    for run in dict.fromkeys(row["run"] for row in rows):
        mine = [row for row in rows if row["run"] == run]
        shape = f", batch {mine[0]['batch']}, length {mine[0]['sequence']}" if mine[0]["batch"] != "" else ""
        lines += ["", f"{run}: {mine[0]['steps']} steps{shape}"]
        lines.append(f"  {'allocator':20s}{'active GiB':>11s}{'reserved GiB':>13s}{'utilisation':>12s}{'device used':>12s}"
                     f"{'step ms':>9s}{'first':>8s}{'items/s':>10s}{'own ms':>8s}{'driver':>8s}{'equal losses':>13s}")
        for row in mine:
            lines.append(f"  {row['allocator']:20s}{gib(row['active_peak_bytes']):>11s}{gib(row['reserved_peak_bytes']):>13s}"
                         f"{shown(row['utilisation']):>12s}{gib(row['device_used_peak_bytes']):>12s}{shown(row['step_ms'], 1):>9s}"
                         f"{shown(row['first_step_ms'], 0):>8s}{shown(row['items_per_s']):>10s}"
                         f"{shown(row['allocator_ms_per_step']):>8s}{shown(row['of_it_driver_ms']):>8s}"
                         f"{shown(row['losses_equal_to_pytorch']):>13s}")
    return lines


def turn_rows(record):
    """Without the first turn."""
    medians = {}
    for allocator, turns in record["times"].items():
        steps = [ms for turn in turns[1:] for ms in turn]
        if steps:
            medians[allocator] = (statistics.median(steps), len(steps), turns[0][0],
                                  statistics.median(record["allocator_ms_a_step"][allocator]))
    return medians


def turn_table(records):
    lines = []
    for record in records:
        if "times" not in record:
            continue
        lines += ["", f"throughput: {record['model']} {record['strategy']}, batch {record['batch']}, length "
                  f"{record['sequence']}; all resident, {record['steps_a_turn']} steps a turn, first turn left out",
                  f"  {'allocator':20s}{'median ms':>10s}{'tokens/s':>10s}{'steps':>7s}{'first step':>11s}{'own ms':>8s}"]
        medians = turn_rows(record)
        for allocator in record["times"]:
            if allocator not in medians:
                lines.append(f"  {allocator:20s} {record['failures'].get(allocator, '')[-200:]}")
                continue
            median, count, first, own = medians[allocator]
            tokens = record["batch"] * record["sequence"] / median * 1e3
            own = "-" if allocator.startswith("pytorch") else f"{own:.2f}"
            lines.append(f"  {allocator:20s}{median:10.2f}{tokens:10.0f}{count:7d}{first:11.0f}{own:>8s}")
    return lines


def batch_records(records):
    return sorted((record for record in records if "tried" in record), key=lambda record: place(record["allocator"]))


def batch_rows(records):
    return [{"allocator": record["allocator"], "limit_bytes": record["limit_bytes"], "batch": int(batch), "trains": tried["ok"],
             "active_peak_bytes": tried["active_peak"], "reserved_peak_bytes": tried["reserved_peak"],
             "seconds": "" if record.get("beside") else tried["seconds"]}
            for record in batch_records(records)
            for batch, tried in sorted(record["tried"].items(), key=lambda item: int(item[0]))]


def best_of(record):
    return record["tried"].get(str(record["largest_batch"]), {"reserved_peak": "", "active_peak": ""})


def batch_table(records):
    lines = []
    for record in batch_records(records):
        if not lines:
            lines += ["", f"largest batch: {record['model']} {record['strategy']} in {gib(record['limit_bytes'])} GiB, "
                      f"lengths {record['lengths']}"]
        best = best_of(record)
        lines.append(f"  {record['allocator']:20s}{record['largest_batch']:5d}   reserved {gib(best['reserved_peak'])} GiB, "
                     f"active {gib(best['active_peak'])} GiB")
    if lines:
        lines.append("  cudaMallocAsync's limit bounds what is allocated, not what its pool holds")
    return lines


def check_table(records):
    lines = [f"  {record['allocator']:20s}{record['checks'] - len(record['failed']):4d} passed{len(record['failed']):4d} failed "
             f"{'; '.join(f'{name}: {why}' for name, why in record['failed'].items())}".rstrip()
             for record in records if "checks" in record]
    return ["", "allocation_checks.py"] + lines if lines else []


def left_table(records):
    told = lambda record: record.get("left_out") or record.get("error", "").strip().splitlines()[-1:] or \
        record.get("out_of_memory_error", "")
    lines = [f"  {record.get('allocator', '')}: {record.get('name', '')}: {told(record)}" for record in records
             if not live_matrix.is_whole(record) and told(record)]
    return ["", "not there:"] + lines if lines else []


def memory_rows(records):
    return [{"run": record["name"], "allocator": record["allocator"], "step": number + 1, "active_bytes": step[0],
             "active_peak_bytes": step[1], "reserved_bytes": step[2], "reserved_peak_bytes": step[3]}
            for record in records if "memory_by_step" in record and record["allocator"] != "pytorch:uncached"
            for number, step in enumerate(record["memory_by_step"])]


def markdown(heading, lines):
    return ["| " + " | ".join(heading) + " |", "|" + "---|" * len(heading)] + ["| " + " | ".join(line) + " |" for line in lines]


def called(allocator):
    return CALLED.get(allocator, f"`{allocator}`")


def cell_table(rows, allocators, cell):
    """A row a run, a column an allocator; and the rows of each run by allocator."""
    lines = []
    for run in dict.fromkeys(row["run"] for row in rows):
        mine = {row["allocator"]: row for row in rows if row["run"] == run}
        if any(allocator in mine for allocator in allocators):
            lines.append([run] + [cell(mine[allocator]) if allocator in mine else "" for allocator in allocators])
    return markdown(["run"] + [called(allocator) for allocator in allocators], lines)


def quotable(records, rows):
    """What docs/pytorch.md quotes."""
    trained = [row for row in rows if "recorded" not in row["run"] and "uncached" not in row["run"]]
    lines = ["Peaks of reserved memory in GiB:", ""]
    lines += cell_table(trained, SHOWN, lambda row: gib(row["reserved_peak_bytes"]))
    lines += ["", "Utilisation, the active peak through the reserved one:", ""]
    lines += cell_table(trained, SHOWN, lambda row: shown(row["utilisation"], 3))
    compared = [row for row in trained if row["losses_equal_to_pytorch"] != ""]
    whole = sum(row["losses_equal_to_pytorch"] == row["steps"] for row in compared)
    lines += ["", f"Losses with the same bits as under PyTorch's allocator at each step: {whole} of {len(compared)} runs."]
    for row in compared:
        if row["losses_equal_to_pytorch"] != row["steps"]:
            lines.append(f"Not {row['run']} under {called(row['allocator'])}: {row['losses_equal_to_pytorch']} of {row['steps']}.")
    lines += ["", "The allocator's own time in a step, in ms, with the driver's share of it:", ""]
    ours = [name for name in SHOWN if not name.startswith("pytorch")]
    lines += cell_table([row for row in trained if row["allocator_ms_per_step"] != ""], ours,
                        lambda row: f"{row['allocator_ms_per_step']:.1f} ({row['of_it_driver_ms']:.1f})")
    lines += ["", "Median step in ms (host-bound runs scatter by 30 % and more):", ""]
    lines += cell_table([row for row in trained if row["step_ms"] != ""], SHOWN, lambda row: f"{row['step_ms']:.0f}")
    return lines + quotable_turns(records) + quotable_batches(records) + quotable_uncached(rows)


def quotable_turns(records):
    lines = []
    for record in records:
        medians = turn_rows(record) if "times" in record else {}
        if not medians:
            continue
        base = medians.get("pytorch", (None,))[0]
        lines += ["", f"Throughput where the GPU is the bottleneck (batch {record['batch']}, length {record['sequence']}, all resident, "
                  f"{record['steps_a_turn']} steps a turn):", ""]
        lines += markdown(["allocator", "median step, ms", "to PyTorch", "tokens/s", "steps", "first step, ms"],
                          [[called(allocator), f"{median:.2f}", f"{median / base:.4f}" if base else "",
                            f"{record['batch'] * record['sequence'] / median * 1e3:.0f}", str(count), f"{first:.0f}"]
                           for allocator, (median, count, first, _) in medians.items()])
    return lines


def quotable_batches(records):
    mine = batch_records(records)
    if not mine:
        return []
    return ["", f"The largest batch of {mine[0]['model']} {mine[0]['strategy']} in {gib(mine[0]['limit_bytes'])} GiB:", ""] + markdown(
        ["allocator", "batch", "reserved, GiB"],
        [[called(record["allocator"]), str(record["largest_batch"]), gib(best_of(record)["reserved_peak"])] for record in mine])


def quotable_uncached(rows):
    mine = [row for row in rows if "uncached" in row["run"]]
    base = next((row["step_ms"] for row in mine if row["allocator"] == "pytorch"), None)
    if not mine or not base:
        return []
    return ["", "Without caching:", ""] + markdown(
        ["allocator", "median step, ms", "to PyTorch"],
        [[called(row["allocator"]), f"{row['step_ms']:.0f}", f"{row['step_ms'] / base:.2f}"] for row in mine])


def quote(page, text):
    """Replaces what the page has between its two marks."""
    begin, end = "<!-- tables.md -->\n", "<!-- end of tables.md -->"
    with open(page) as file:
        before, _, rest_of_page = file.read().partition(begin)
    _, mark, after = rest_of_page.partition(end)
    if not mark:
        raise SystemExit(f"{page}: has no lines {begin.strip()} and {end}")
    write_text(page, before + begin + "\n" + text + "\n" + end + after)


def replayed(lakebed, recording, policy):
    """The reserved peak of a recording on the simulated device."""
    done = subprocess.run([lakebed, "replay", recording, "--policy", policy, "--driver", "sim", "--no-host-timing", "--quiet",
                           "--csv", "/dev/stdout"], capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    begin = next(number for number, line in enumerate(lines) if line.startswith("trace,policy,"))
    return int(next(csv.DictReader(lines[begin:]))["reserved_peak_bytes"])


def replay_table(lakebed, records, folders):
    lines = ["reserved peaks of the live run and of the replay of its own recording on the simulated device, in bytes",
             f"{'recording':40s}{'live':>14s}{'replay':>14s}{'difference':>12s}"]
    for record in records:
        if not record.get("recording"):
            continue
        paths = [os.path.join(folder, record["recording"]) for folder in folders]
        path = next(filter(os.path.exists, paths), None)
        if path:
            live, peak = record["reserved_peak"], replayed(lakebed, path, record["allocator"])
            lines.append(f"{record['recording']:40s}{live:14d}{peak:14d}{peak / live - 1:12.2%}")
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("folder", metavar="FOLDER")
    parser.add_argument("runs", nargs="+", metavar="RUNS.jsonl")
    parser.add_argument("--replay", metavar="LAKEBED")
    parser.add_argument("--quote", metavar="PAGE.md")
    options = parser.parse_args()
    records = live_matrix.read(options.runs)
    header = header_of(records)
    records = merged(records)
    rows = rows_of(records)
    named = lambda name: os.path.join(options.folder, name)
    commented = lambda lines: "\n".join([f"# {line}" for line in header] + lines) + "\n"
    for name, table in (("runs.csv", rows), ("memory.csv", memory_rows(records)), ("batches.csv", batch_rows(records))):
        if table:
            write_csv(named(name), header, table)
    write_text(named("runs.txt"), commented(run_table(rows) + turn_table(records) + batch_table(records) + check_table(records) +
                                            left_table(records)))
    text = "\n".join(quotable(records, rows)) + "\n"
    write_text(named("tables.md"), text)
    if options.quote:
        quote(options.quote, text)
    if options.replay:
        folders = [os.path.dirname(os.path.abspath(path)) for path in options.runs]
        write_text(named("replay.txt"), commented(replay_table(options.replay, records, folders)))


if __name__ == "__main__":
    main()
