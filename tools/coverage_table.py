#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The table symbol x type x route: what the tests of every product entry show, counted.

usage: tools/coverage_table.py BUILD_DIR [--json]

Runs bin/entry_routes_test, which calls every product entry with every type that it takes by every route into cuBLAS under
the shipped shim, and prints one line a symbol with a column a type: routes by which the call was checked / routes
tested. A type that a symbol does not take is an empty cell with its reason. Exit code 0: every cell tested is right and
every empty one has a reason; 1: not so; 2: the script could not run.
"""
import collections
import json
import os
import pathlib
import re
import subprocess
import sys

import check

# Why a form of entry does not take a type; the first pattern that fits symbol and type. From the tables of types in the
# public cuBLAS documentation.
REASONS = [
    (r"^cublas[SDH]gemm(?!Ex)", r".*", "the name tells the type"),
    (r"^cublasSgemmEx", r"f64|i8|16f|tf32|fast|e4m3|e5m2", "computes in FP32, from BF16, FP16 or FP32"),
    (r"^cublasGemmGrouped", r"_f32$", "C has the type of A and B"),
    (r"^cublasGemmGrouped", r"f16_16f|i8|fast", "no such row in its table"),
    (r"^cublasGemm", r"e4m3|e5m2", "FP8 is cublasLtMatmul's alone"),
]
# What a route that is stated to go around the shim is.
GOES_AROUND = {"deepbind_plugin": "RTLD_DEEPBIND: the library finds its own cuBLAS first", "version": "dlvsym is not hooked"}


def fail(text):
    print(f"coverage_table: {text}", file=sys.stderr)
    sys.exit(2)


def reason_of(symbol, kind):
    for symbols, kinds, reason in REASONS:
        if re.search(symbols, symbol) and re.search(kinds, kind):
            return reason
    return ""


def main():
    arguments = [a for a in sys.argv[1:] if a != "--json"]
    if len(arguments) != 1:
        fail("usage: tools/coverage_table.py BUILD_DIR [--json]")
    build = pathlib.Path(arguments[0]).resolve()
    program = build / "bin/entry_routes_test"
    if not program.exists():
        fail(f"{program} is not built")
    environment = dict(os.environ, LD_LIBRARY_PATH=str(build / "lib/hostcuda"))
    result = subprocess.run([program], capture_output=True, text=True, env=environment)
    cells = re.findall(r"^cell (\w+)@(\w+) (\w+) (\w+)$", result.stdout, re.M)
    if not cells:
        fail(f"{program} printed no cell (exit code {result.returncode})")
    symbols = sorted({symbol for symbol in check.table_of_entries(check.ROOT)} & {cell[0] for cell in cells})
    kinds = list(dict.fromkeys(cell[1] for cell in cells))
    routes = list(dict.fromkeys(cell[2] for cell in cells))
    counts = collections.Counter()
    seen = collections.defaultdict(collections.Counter)
    for symbol, kind, _, outcome in cells:
        counts[outcome] += 1
        seen[symbol, kind][outcome] += 1
    empty, wrong = {}, []
    for symbol in symbols:
        for kind in kinds:
            if seen[symbol, kind]:
                continue
            empty[symbol, kind] = reason_of(symbol, kind)
            if not empty[symbol, kind]:
                wrong.append(f"{symbol} x {kind} is empty without a reason")
    if len(symbols) != 33:
        wrong.append(f"{len(symbols)} of 33 product entries in the table")
    if counts["not_checked"]:
        wrong.append(f"{counts['not_checked']} cells were not checked")
    if result.returncode:
        wrong.append(f"{program.name} failed with exit code {result.returncode}")
    figures = {
        "symbols": len(symbols), "types": len(kinds), "routes": len(routes), "cells": len(cells),
        "checked": counts["checked"], "go_around_as_stated": counts["goes_around"], "not_checked": counts["not_checked"],
        "pairs_with_a_reason": sum(1 for reason in empty.values() if reason), "wrong": wrong,
    }
    if "--json" in sys.argv:
        print(json.dumps(figures, indent=1))
        return 1 if wrong else 0
    width = max(len(symbol) for symbol in symbols)
    print(" " * width, *(f"{kind:>13}" for kind in kinds))
    for symbol in symbols:
        row = []
        for kind in kinds:
            outcomes = seen[symbol, kind]
            row.append(f"{outcomes['checked']}/{sum(outcomes.values())}" if outcomes else "-")
        print(f"{symbol:<{width}}", *(f"{cell:>13}" for cell in row))
    print()
    print(f"routes: {', '.join(routes)}")
    for route, why in GOES_AROUND.items():
        print(f"  {route} goes around the shim, stated and tested: {why}")
    for reason in dict.fromkeys(empty.values()):
        pairs = sum(1 for value in empty.values() if value == reason)
        print(f"  - {pairs} pairs of symbol and type: {reason or 'NO REASON'}")
    for line in wrong:
        print(f"coverage_table: {line}")
    print("{cells} cells of {symbols} symbols, {types} types, {routes} routes: {checked} checked, {go_around_as_stated} go around "
          "as stated, {not_checked} not checked; {pairs_with_a_reason} pairs empty with a reason, {0} wrong"
          .format(len(wrong), **{k: v for k, v in figures.items() if k != "wrong"}))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
