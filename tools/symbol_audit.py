#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Compares shim/entry_points.def with the symbols of every cuBLAS that can be had as a wheel (majors 11, 12 and 13).

usage: tools/symbol_audit.py [--cache DIR] [--json] [LIBRARY...]

Without LIBRARY the wheels are fetched by pip into DIR (default: .cache/wheels, about 1.5 GB) and their libcublas and
libcublasLt are read with nm. Wrong is: a symbol of the table that a library lacks although the library is new enough
for it; a product that a library exports and neither the table nor PASSED_THROUGH names. Exit code 0: nothing wrong;
1: something is, a line each; 2: the script could not run.
"""
import argparse
import json
import pathlib
import re
import subprocess
import sys
import zipfile

import check

WHEELS = ["nvidia-cublas-cu11", "nvidia-cublas-cu12", "nvidia-cublas"]

# First version (major, minor) whose library has a symbol, where that is not 11.0. cuBLAS release notes: the _64 interface
# came with 12.0; grouped products with 12.4 (FP32, FP64) and 12.5 (Ex).
SINCE = [
    (r"GroupedBatchedEx", (12, 5)),
    (r"GroupedBatched", (12, 4)),
    (r"(HSH|HSS|TST|TSS|[SDCZ])gemv(Strided)?Batched(_64)?$", (11, 6)),
    (r"_64$", (12, 0)),
]

# What looks like a product and is not intercepted, with the reason.
PASSED_THROUGH = [
    (r"^cublas[SDCZ](gemm|gemv|symm|syrk|syr2k|trmm|trsm|hemm|herk|her2k)$", "legacy interface: another signature, no handle"),
    (r"^cublasLt(Legacy|\w{3}Matmul|\w{3}_)|^cublasLt_for_cublas", "private interface of cuBLASLt"),
    (r"^cublasLt\w*Matmul(Algo|Desc|Preference)\w+|^cublasLtMatmul\w+", "descriptors, heuristics and algorithms: no product"),
    (r"^cublas[SDCZ]bdmm|^cublasXtMakeReady", "undeclared"),
    (r"^cublas\w*(Backdoor|EnvironmentMode|Logger)", "undeclared or no product"),
    (r"^cublasXt[SDCZ]spmm$", "packed matrices in host memory"),
]
PRODUCT = re.compile(r"gemm|gemv|symm|syrk|syr2k|trmm|trsm|hemm|herk|her2k|[Mm]atmul")


def fail(text):
    print(f"symbol_audit: {text}", file=sys.stderr)
    sys.exit(2)


def fetch(cache):
    """Unpacks the two libraries of each wheel; returns [(library, version)]."""
    libraries = []
    for name in WHEELS:
        folder = cache / name
        if not list(folder.glob("*.whl")):
            folder.mkdir(parents=True, exist_ok=True)
            result = subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", folder, name])
            if result.returncode:
                fail(f"pip cannot fetch {name} (exit code {result.returncode})")
        wheel = next(folder.glob("*.whl"))
        version = tuple(int(part) for part in wheel.name.split("-")[1].split(".")[:2])
        with zipfile.ZipFile(wheel) as archive:
            for member in archive.namelist():
                stem = pathlib.Path(member).name
                if re.match(r"libcublas(Lt)?\.so\.\d+$", stem):
                    target = folder / stem
                    if not target.exists():
                        target.write_bytes(archive.read(member))
                    libraries.append((target, version))
    return libraries


def exported(library):
    result = subprocess.run(["nm", "-D", "--defined-only", library], capture_output=True, text=True)
    if result.returncode:
        fail(f"nm cannot read {library}: {result.stderr.strip()}")
    return {re.sub(r"@.*", "", line.split()[2]) for line in result.stdout.splitlines() if len(line.split()) == 3 and line.split()[1] in "Tt"}


def since(symbol):
    return max([version for pattern, version in SINCE if re.search(pattern, symbol)], default=(11, 0))


def audit(library, version, table):
    """Returns what is wrong with one library and how many symbols were compared."""
    symbols = exported(library)
    is_lt = library.name.startswith("libcublasLt")
    mine = {name for name in table if name.startswith("cublasLt") == is_lt}
    wrong = []
    for name in sorted(mine - symbols):
        if version >= since(name):
            wrong.append(f"{library.name} {version[0]}.{version[1]} lacks {name}, which the table has")
    for name in sorted(mine & symbols):
        if version < since(name):
            wrong.append(f"{library.name} {version[0]}.{version[1]} has {name} already: SINCE is wrong")
    for name in sorted(symbols - table):
        if PRODUCT.search(name) and not any(re.search(pattern, name) for pattern, _ in PASSED_THROUGH):
            wrong.append(f"{library.name} {version[0]}.{version[1]} exports {name}: neither in the table nor passed through")
    return wrong, len(mine & symbols)


def main():
    parser = argparse.ArgumentParser(add_help=True, description=__doc__.splitlines()[0])
    parser.add_argument("--cache", type=pathlib.Path, default=check.ROOT / ".cache/wheels")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("library", nargs="*", type=pathlib.Path)
    arguments = parser.parse_args()
    table = check.table_of_entries(check.ROOT) - {"dlsym"}
    if arguments.library:
        libraries = []
        for library in arguments.library:
            match = re.search(r"\.so\.(\d+)(?:\.(\d+))?", library.resolve().name)
            if not match:
                fail(f"{library}: no version in the name (expected libcublas.so.MAJOR.MINOR...)")
            libraries.append((library.resolve(), (int(match.group(1)), int(match.group(2) or 99))))
    else:
        libraries = fetch(arguments.cache)
    wrong, rows = [], []
    for library, version in libraries:
        found, compared = audit(library, version, table)
        wrong += found
        rows.append({"library": library.name, "version": ".".join(map(str, version)), "symbols_compared": compared,
                     "wrong": len(found)})
    if arguments.json:
        print(json.dumps({"table": len(table), "libraries": rows, "wrong": wrong}, indent=1))
    else:
        for row in rows:
            print("{library:<24} {version:<8} {symbols_compared:>4} symbols compared, {wrong} wrong".format(**row))
        for line in wrong:
            print(f"symbol_audit: {line}")
        print(f"symbol_audit: {len(rows)} libraries, {len(table)} symbols in the table, {len(wrong)} wrong")
    return 1 if wrong or not rows else 0


if __name__ == "__main__":
    sys.exit(main())
