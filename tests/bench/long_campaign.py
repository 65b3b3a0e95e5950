#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Runs clean_campaign in pieces over a folder until so many lines were tested, and adds the pieces up.

usage: tests/bench/long_campaign.py FOLDER [--build DIR] [--lines N] [--jobs N] [--summary FILE] [--sum-only]

Each piece is a run of its own seeds with its JSON in FOLDER; one that is there is not run again, so an interrupted run
goes on where it stopped. Only pieces of one binary are added up. Exit code 0: as many lines as asked, nothing accused,
at most one probe in 10,000 looked at.
"""
import argparse
import concurrent.futures
import hashlib
import json
import os
import pathlib
import subprocess
import sys

PIECE_LINES = 1_000_000
SEEDS_OF_PIECE = 1_000_000  # far more products than a piece has
LOOKS_ALLOWED = 1e-4


def piece(folder, binary, libraries, number):
    path = folder / f"{number}.json"
    if path.exists():
        return path
    unfinished = path.with_suffix(".part")
    command = [str(binary), "--lines", str(PIECE_LINES), "--seed", str(number * SEEDS_OF_PIECE), "--json", str(unfinished)]
    with open(path.with_suffix(".txt"), "w", encoding="utf-8") as out:
        run = subprocess.run(command, stdout=out, stderr=subprocess.STDOUT, check=False,
                             env={**os.environ, "LD_LIBRARY_PATH": str(libraries)})
    if run.returncode not in (0, 1) or not unfinished.exists():
        raise RuntimeError(f"piece {number}: exit code {run.returncode}, see {path.with_suffix('.txt')}")
    unfinished.rename(path)
    return path


def added_up(paths):
    total = {"products": 0, "probes": 0, "lines": 0, "cells": 0, "looks": 0, "named": 0, "worst": 0.0}
    looked_at = {}
    for path in paths:
        document = json.loads(path.read_text())
        for key, value in document["all"].items():
            total[key] = max(total[key], value) if key == "worst" else total[key] + value
        for table in ("orders", "kinds"):
            for name, row in document[table].items():
                if row["looks"] or row["named"]:
                    looked_at[name] = looked_at.get(name, 0) + row["looks"]
    return total, looked_at


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--build", type=pathlib.Path, default=pathlib.Path("build/cpu"))
    parser.add_argument("--lines", type=float, default=1e8)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--summary", type=pathlib.Path)
    parser.add_argument("--sum-only", action="store_true", help="add up the pieces that are there")
    options = parser.parse_args()
    binary = options.build / "bin/clean_campaign"
    libraries = (options.build / "lib/hostcuda").resolve()
    if not binary.exists():
        print(f"long_campaign: {binary}: no such program; build the preset cpu, or give --build", file=sys.stderr)
        return 2
    options.folder.mkdir(parents=True, exist_ok=True)
    known = options.folder / "binary.sha256"
    digest = hashlib.sha256(binary.read_bytes()).hexdigest()
    if known.exists() and known.read_text().strip() != digest:
        print(f"long_campaign: {options.folder} has pieces of another binary: give a folder of its own", file=sys.stderr)
        return 2
    known.write_text(digest + "\n")
    if not options.sum_only:
        pieces = int(-(-options.lines // PIECE_LINES))
        with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
            runs = [pool.submit(piece, options.folder, binary, libraries, n) for n in range(1, pieces + 1)]
            for run in concurrent.futures.as_completed(runs):
                print(run.result(), flush=True)
    paths = sorted(options.folder.glob("*.json"), key=lambda path: int(path.stem))
    total, looked_at = added_up(paths)
    share = total["looks"] / max(total["probes"], 1)
    summary = {"pieces": len(paths), "binary": digest, **total, "looks_of_probes": share, "looked_at": looked_at}
    print(json.dumps(summary, indent=1))
    if options.summary:
        options.summary.write_text(json.dumps(summary, indent=1) + "\n")
    return 0 if total["named"] == 0 and total["lines"] >= options.lines and share <= LOOKS_ALLOWED else 1


if __name__ == "__main__":
    sys.exit(main())
