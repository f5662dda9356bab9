"""Tables of what live_matrix.py wrote: python tables.py HEADER FOLDER RUNS.jsonl...

Writes runs.txt, runs.csv, memory.csv and batches.csv into FOLDER; every file begins with the lines of the file HEADER.
"""

import csv
import json
import os
import statistics
import sys

GIB = 2**30


def read(paths):
    return [json.loads(line) for path in paths for line in open(path)]


def rest(values):
    """Without the first two steps, in which everything is new."""
    return values[2:] or values


def equal_to(base, record):
    if record["allocator"] == "pytorch" or base is None:
        return ""
    if len(base) != len(record["losses"]):
        return ""
    return sum(a == b for a, b in zip(base, record["losses"]))


def rows_of(records):
    bases = {}
    for record in records:
        if record.get("allocator") == "pytorch" and "losses" in record:
            bases[record["name"], record.get("rank")] = record["losses"]
    rows = []
    for record in records:
        if "losses" not in record:
            continue
        step = statistics.median(rest(record["step_ms"]))
        own, driver = record.get("allocator_ms"), record.get("allocator_driver_ms")
        measured = own and not record["allocator"].startswith("pytorch")
        uncached = record["allocator"] == "pytorch:uncached"
        active = record.get("active_peak", record.get("allocated_peak"))
        calls = record.get("driver_calls", {})
        counts = rest(record["counts"]) if "counts" in record else []
        rows.append({
            "run": record["name"] + (f": rank {record['rank']}" if "rank" in record else ""),
            "allocator": record["allocator"],
            "batch": record.get("batch", ""),
            "sequence": record.get("sequence", ""),
            "steps": len(record["losses"]),
            "active_peak_bytes": "" if uncached else active,
            "reserved_peak_bytes": "" if uncached else record["reserved_peak"],
            "utilisation": "" if uncached else round(active / record["reserved_peak"], 4),
            "device_used_peak_bytes": record.get("device_used_peak", ""),
            "step_ms": round(step, 2),
            "first_step_ms": round(record["step_ms"][0], 1),
            "items_per_s": round(sum(counts) / (sum(rest(record["step_ms"])) / 1e3)) if counts else "",
            "allocator_ms_per_step": round(statistics.median(rest(own)), 3) if measured else "",
            "of_it_driver_ms": round(statistics.median(rest(driver)), 3) if measured else "",
            "first_step_allocator_ms": round(own[0], 3) if measured else "",
            "driver_calls": sum(call["count"] for call in calls.values()) if measured else "",
            "losses_equal_to_pytorch": equal_to(bases.get((record["name"], record.get("rank"))), record),
            "last_loss": record["losses"][-1],
        })
    order = list(dict.fromkeys(row["run"] for row in rows))
    return sorted(rows, key=lambda row: order.index(row["run"]))


def write_csv(path, header, rows):
    with open(path, "w", newline="") as file:
        file.writelines(f"# {line}\n" for line in header)
        writer = csv.DictWriter(file, rows[0].keys(), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def gib(value):
    return f"{value / GIB:.2f}" if value != "" else "-"


def run_table(rows):
    lines = []
    for run in dict.fromkeys(row["run"] for row in rows):
        mine = [row for row in rows if row["run"] == run]
        lines += ["", f"{run}: {mine[0]['steps']} steps" + (f", batch {mine[0]['batch']}, length {mine[0]['sequence']}"
                                                             if mine[0]["batch"] != "" else "")]
        lines.append(f"  {'allocator':20s}{'active GiB':>11s}{'reserved GiB':>13s}{'utilisation':>12s}{'device used':>12s}"
                     f"{'step ms':>9s}{'first':>8s}{'items/s':>10s}{'own ms':>8s}{'driver':>8s}{'equal losses':>13s}")
        for row in mine:
            show = lambda name: str(row[name]) if row[name] != "" else "-"
            lines.append(f"  {row['allocator']:20s}{gib(row['active_peak_bytes']):>11s}{gib(row['reserved_peak_bytes']):>13s}"
                         f"{show('utilisation'):>12s}{gib(row['device_used_peak_bytes']):>12s}{row['step_ms']:9.1f}"
                         f"{row['first_step_ms']:8.0f}{show('items_per_s'):>10s}{show('allocator_ms_per_step'):>8s}"
                         f"{show('of_it_driver_ms'):>8s}{show('losses_equal_to_pytorch'):>13s}")
    return lines


def turn_table(records):
    lines = []
    for record in records:
        if "times" not in record:
            continue
        lines += ["", f"throughput: {record['model']} {record['strategy']}, batch {record['batch']}, length "
                  f"{record['sequence']}; all resident, {record['steps_a_turn']} steps a turn, first turn left out",
                  f"  {'allocator':20s}{'median ms':>10s}{'tokens/s':>10s}{'steps':>7s}{'first step':>11s}{'own ms':>8s}"]
        for allocator, turns in record["times"].items():
            steps = [ms for turn in turns[1:] for ms in turn]
            if not steps:
                lines.append(f"  {allocator:20s} {record['failures'].get(allocator, '')[-200:]}")
                continue
            median = statistics.median(steps)
            own = statistics.median(record["allocator_ms_a_step"][allocator])
            tokens = record["batch"] * record["sequence"] / median * 1e3
            shown = "-" if allocator.startswith("pytorch") else f"{own:.2f}"
            lines.append(f"  {allocator:20s}{median:10.2f}{tokens:10.0f}{len(steps):7d}{turns[0][0]:11.0f}{shown:>8s}")
    return lines


def batch_rows(records):
    return [{"allocator": record["allocator"], "limit_bytes": record["limit_bytes"], "batch": int(batch), "trains": tried["ok"],
             "active_peak_bytes": tried["active_peak"], "reserved_peak_bytes": tried["reserved_peak"],
             "seconds": tried["seconds"]}
            for record in records if "tried" in record
            for batch, tried in sorted(record["tried"].items(), key=lambda item: int(item[0]))]


def batch_table(records):
    lines = []
    for record in records:
        if "tried" not in record:
            continue
        if not lines:
            lines += ["", f"largest batch: {record['model']} {record['strategy']} in {gib(record['limit_bytes'])} GiB, "
                      f"lengths {record['lengths']}"]
        best = record["tried"][str(record["largest_batch"])]
        lines.append(f"  {record['allocator']:20s}{record['largest_batch']:5d}   reserved {gib(best['reserved_peak'])} GiB, "
                     f"active {gib(best['active_peak'])} GiB")
    return lines


def memory_rows(records):
    return [{"run": record["name"], "allocator": record["allocator"], "step": number + 1, "active_bytes": step[0],
             "active_peak_bytes": step[1], "reserved_bytes": step[2], "reserved_peak_bytes": step[3]}
            for record in records if "memory_by_step" in record and record["allocator"] != "pytorch:uncached"
            for number, step in enumerate(record["memory_by_step"])]


def main():
    header_path, folder, *paths = sys.argv[1:]
    header = open(header_path).read().splitlines()
    records = read(paths)
    rows = rows_of(records)
    write_csv(os.path.join(folder, "runs.csv"), header, rows)
    write_csv(os.path.join(folder, "memory.csv"), header, memory_rows(records))
    batches = batch_rows(records)
    if batches:
        write_csv(os.path.join(folder, "batches.csv"), header, batches)
    text = [f"# {line}" for line in header] + run_table(rows) + turn_table(records) + batch_table(records)
    left = [f"  {record.get('allocator', record.get('job'))}: {record.get('name', '')}: {record['left_out']}"
            for record in records if "left_out" in record]
    if left:
        text += ["", "left out:"] + left
    with open(os.path.join(folder, "runs.txt"), "w") as file:
        file.write("\n".join(text) + "\n")


if __name__ == "__main__":
    main()
