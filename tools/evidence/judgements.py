# SPDX-License-Identifier: MIT
"""Judgements: from the output of a row's command to its figure and the conditions that must hold."""

import dataclasses
import importlib.util
import json
import pathlib
import re


class Unreadable(Exception):
    """The output is not what the judgement knows how to read."""


@dataclasses.dataclass
class Output:
    code: int
    out: str
    both: str  # out and standard error, in order
    seconds: float
    scratch: pathlib.Path


@dataclasses.dataclass
class Judgement:
    figure: str
    conditions: dict  # text -> bool

    def broken(self):
        return [text for text, held in self.conditions.items() if not held]


def read_json(text):
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise Unreadable(f"no JSON: {error}") from error


def demo(seeds):
    """A mutation may run one seed alone: its share of the 2,000 faults is asked for."""

    def judge(output):
        got = read_json(output.out)
        clean, faults, seen = got["clean"], got["faults"], got["coverage"]["clean"]
        noise = got["order_noise"]
        guarded, unguarded = got["guarded"]["max_similarity_error"], got["unguarded"]["max_similarity_error"]
        return Judgement(
            f"{faults['injected']} injected, {faults['found']} found, {faults['repaired']} repaired, "
            f"{faults['missed_above_bound']} missed above bound, {faults['below_floor']} below; "
            f"{clean['accusations']} accusations in {clean['checked']} of {seen['seen']} calls; error unguarded "
            f"{unguarded:.4g}, guarded {guarded:.4g}, order noise {noise:.4g}",
            {
                "at least 200 faults a seed injected": faults["injected"] >= 200 * got["seeds"],
                "seeds as asked, or one": got["seeds"] in (1, seeds),
                "every clean call checked": 0 < seen["seen"] == clean["checked"] == seen["checked"]
                and seen["unverified"] == 0
                and not seen["lower_bound"],
                "no accusation": clean["accusations"] == 0,
                "no fault record without a fault": faults["unmatched_records"] == 0,
                "none missed above the bound": faults["missed_above_bound"] == 0,
                "above the bound: all repaired": 0 < faults["above_bound"] <= faults["repaired"],
                "below the floor at most 1%, all listed": faults["below_floor"] <= 0.01 * faults["injected"]
                and len(faults["below_floor_entries"]) == faults["below_floor"],
                "guarded error <= 2 order_noise": 0 < noise and guarded <= 2 * noise,
                "unguarded error >= 10 order_noise": unguarded >= 10 * noise,
            },
        )

    return judge


def ctest_summary(text):
    found = re.findall(r"^(\d+)% tests passed, (\d+) tests failed out of (\d+)", text, re.M)
    if not found:
        raise Unreadable("no summary of ctest")
    return int(found[-1][1]), int(found[-1][2])


def random_calls(calls):
    """Of the test program itself: a long run is beyond the time that ctest gives a test."""

    def judge(output):
        passed = re.search(r"^\[  PASSED  \] (\d+) tests?\.", output.out, re.M)
        ran = re.search(r"^\[==========\] (\d+) tests? from .* ran\.", output.out, re.M)
        if not ran:
            raise Unreadable("no summary of GoogleTest")
        modes = re.findall(r"^(\w+): (\d+) calls, (\d+) checked, (\d+) looked at, (\d+) refused", output.out, re.M)
        return Judgement(
            "; ".join(f"{mode[0]}: {mode[1]} calls, {mode[2]} checked, {mode[3]} looked at" for mode in modes),
            {
                "all passed": bool(passed) and passed[1] == ran[1] and output.code == 0,
                "every mode, as many calls as asked": {mode[0] for mode in modes} == {"detect", "observe", "repair"}
                and all(int(mode[1]) == calls for mode in modes),
                "none refused by the library": all(int(mode[4]) == 0 for mode in modes),
                "more than half checked": all(2 * int(mode[2]) > calls for mode in modes),
            },
        )

    return judge


def tests(expected):
    def judge(output):
        failed, total = ctest_summary(output.out)
        return Judgement(
            f"{total - failed} of {total} tests passed, {expected} listed",
            {
                "as many tests ran as are listed, and some": total == expected > 0,
                "none skipped": not re.search(r"\*\*\*(Skipped|Not Run)", output.out),
                "all passed": failed == 0,
            },
        )

    return judge


def all_tests(output):
    failed, total = ctest_summary(output.both)
    return Judgement(
        f"{total - failed} of {total} tests passed",
        {
            "some tests ran": total > 0,
            "none skipped": not re.search(r"\*\*\*(Skipped|Not Run)|did not run", output.both),
            "all passed": failed == 0,
            "check.py: all rules held": "check.py: all rules held" in output.both,
        },
    )


def demo_table(output):
    lines = [line for line in output.both.splitlines() if line.strip()]
    totals = re.search(r"^ +all +(\d+) +(\d+) +(\d+) +(\d+) +(\d+) +(\d+)", output.both, re.M)
    if not totals:
        raise Unreadable("no table of the demo")
    injected, above, found, repaired, missed, _ = map(int, totals.groups())
    # The verdict is one sentence, broken to the width of a terminal.
    starts = [i for i, line in enumerate(lines) if line.startswith(("PASSED", "NOT PASSED"))]
    verdict = " ".join(line.strip() for line in lines[starts[-1] :]) if starts else lines[-1]
    return Judgement(
        f"{injected} injected, {found} found, {repaired} repaired, {missed} missed; ends: {verdict!r}",
        {
            "ends with the demo's verdict": bool(starts) and len(lines) - starts[-1] <= 3,
            "passed": verdict.startswith("PASSED"),
            "all faults above the bound repaired": 0 < above <= repaired and missed == 0,
            "says that the device is simulated": "simulated device" in output.both,
        },
    )


def table_of_entries(tree):
    spec = importlib.util.spec_from_file_location("check", tree / "tools/check.py")
    check = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(check)
    return check.table_of_entries(tree)


def needed(output):
    needed = set(re.findall(r"\(NEEDED\).*\[(.+?)\]", output.out))
    if not needed:
        raise Unreadable("no NEEDED")
    return Judgement(
        " ".join(sorted(needed)),
        {
            "only libc, ld-linux": needed
            <= {"libc.so.6", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}
        },
    )


def exports(tree):
    def judge(output):
        names = {line.split()[-1] for line in output.out.splitlines() if line.split()}
        want = table_of_entries(tree)
        if not names:
            raise Unreadable("nm lists no name")
        return Judgement(
            f"{len(names)} exported, {len(names & want)} of the {len(want)} of the table",
            {"exactly the table, unversioned": names == want and len(want) > 10},
        )

    return judge


def bindings(tree):
    pattern = re.compile(r"binding file (\S+) \[0\] to (\S+) \[0\]: normal symbol `(\w+)'")

    def judge(output):
        entries = table_of_entries(tree)
        ours, past, real_past = {}, set(), 0
        for source, target, symbol in pattern.findall(output.out):
            library = pathlib.Path(source).name
            if "libcublas" not in library and "libcusolver" not in library:
                continue
            if "sdcguard" in pathlib.Path(target).name or "mutant" in pathlib.Path(target).name:
                ours.setdefault(library, set()).add(symbol)
            elif "libcublas" in target:
                real_past += 1
                if symbol in entries:
                    past.add(symbol)
        if real_past == 0:
            raise Unreadable("no binding among the real libraries")
        blas, solver = ours.get("libcublas.so.13", set()), ours.get("libcusolver.so.12", set())
        return Judgement(
            f"{len(blas) + len(solver)} symbols bound to the shim: {len(blas)} of cublas, {len(solver)} of cusolver; "
            f"{len(past)} of the table past it",
            {
                "libcublas's own cublasLtMatmul bound to the shim": "cublasLtMatmul" in blas,
                "libcusolver's GEMMs bound to the shim": {
                    "cublasGemmEx",
                    "cublasSgemm_v2",
                    "cublasSgemm_v2_64",
                    "cublasCreate_v2",
                }
                <= solver,
                "no name of the table bound past the shim": not past,
            },
        )

    return judge


def overhead(output):
    got = read_json(output.out)
    if "over_bare_ns" in got:  # one part alone, of --child: what it measured stands for the call that is not sampled
        got = {
            "unsampled_ns_over_bare": got["over_bare_ns"]["median"],
            "unsampled_ns_over_bare_interval": [got["over_bare_ns"]["low"], got["over_bare_ns"]["high"]],
            "bare_ns": got["bare_ns"]["median"],
            "sampled_us_over_bare": 0,
            "sampled_launches": got["launches"],
            "sampled_other_driver_calls": got["other_driver_calls"],
            "banned_driver_calls": got["banned_driver_calls"],
            "sampled_in_place_launches": 0,
            "unsampled": got,
        }
    low, high = got["unsampled_ns_over_bare_interval"]
    return Judgement(
        f"not sampled: {got['unsampled_ns_over_bare']:.1f} ns ({low:.1f} to {high:.1f}), bare {got['bare_ns']:.1f}; "
        f"sampled: {got['sampled_us_over_bare']:.2f} us, {got['sampled_launches']:.2f} launches, "
        f"{got['sampled_other_driver_calls']:.2f} other driver calls, banned {got['banned_driver_calls'] or 'none'}",
        {
            "a million pairs": got["unsampled"]["pairs"] >= 1_000_000,
            "not sampled: at most 30 ns": got["unsampled_ns_over_bare"] <= 30,
            "not sampled: no driver call": got["unsampled"]["launches"] + got["unsampled"]["other_driver_calls"]
            < 0.001,
            "sampled: 1 to 6 launches": 1 <= got["sampled_launches"] <= 6 and got["sampled_in_place_launches"] <= 6,
            "sampled: at most 12 other driver calls": got["sampled_other_driver_calls"] <= 12,
            "no banned call": not got["banned_driver_calls"],
        },
    )


def clean_campaign(lines):
    def judge(output):
        got = read_json((output.scratch / "campaign.json").read_text())
        all_of_it = got["all"]
        tail = got.get("tail", {"fits": [], "thresholds": []})
        table = ", ".join(
            f"{row['cells']:.0f} cells {row['tail']:.1f} ({row['in_force']:.1f} in force)" for row in tail["thresholds"]
        )
        return Judgement(
            f"{all_of_it['lines']} lines of {all_of_it['probes']} probes of {all_of_it['products']} products: "
            f"{all_of_it['looks']} looks, {all_of_it['named']} accused; T of this tail: {table}",
            {
                "as many lines as asked": all_of_it["lines"] >= lines,
                "every kind and order": len(got["kinds"]) >= 20 and len(got["orders"]) >= 30,
                "nothing is accused": all_of_it["named"] == 0,
                "at most 1e-4 are looked at": all_of_it["looks"] <= 1e-4 * all_of_it["probes"],
                "the tail has three limits": len(tail["fits"]) == 3,
            },
        )

    return judge


def calibrate(output):
    got = read_json(output.out)[0] if output.out.strip() else {"fits": []}
    fits = got["fits"]
    kept = (output.scratch / "noise.toml", output.scratch / "tail.svg")
    return Judgement(
        f"{got['gpu']}, {got['type']}, order {got['order']}: {got['products']} products, {got['cells']} cells, "
        f"{got['looks']} looks; threshold {got['threshold']:.1f} sigma at {got['rate']:.0e} of {got['tests']:.0f} cells, "
        f"{got['decades']:.1f} decades beyond the data; dispersion {got['dispersion']:.1f}; "
        f"xi {', '.join(format(fit['xi'], '.3f') for fit in fits)}"
        if fits
        else "no profile",
        {
            "a profile": len(fits) == 3 and "[[profile]]" in kept[0].read_text(),
            "a picture": kept[1].exists() and "</svg>" in kept[1].read_text(),
            "5,000 exceedances, one in a thousand": bool(fits) and 5000 <= got["kept"] <= 1.001e-3 * got["cells"],
            "xi is held at 0": bool(fits) and min(fit["xi"] for fit in fits) >= 0,
            "the threshold is the largest upper limit": bool(fits)
            and got["threshold"] == max(fit["upper"] for fit in fits),
            "says that it is simulated": got.get("simulated") is True,
        },
    )


def detection_floor(output):
    rows = read_json((output.scratch / "floor.json").read_text())["floors"]
    blocks = [row for row in rows if row.get("blocks")]
    lines = [row for row in rows if row.get("plan")]
    stated = [row for row in lines if (row["n1"], row["n2"], row["n3"]) == (1024, 4096, 1024)]
    blocked = [row["floor"] for row in stated if row["order"] == "rounded16"]
    chained = [row["floor"] for row in stated if row["type"] == "f32"]
    if len(blocked) != 1 or len(chained) != 1 or len(blocks) != 2:
        raise Unreadable("not the rows of detection_floor")
    return Judgement(
        f"1024x4096x1024: {blocked[0]:.1e} rms in rounded blocks, {chained[0]:.1e} in one chain of FP32 FMAs; "
        + ", ".join(f"{row['type']} as delivered {row['floor']:.3f}" for row in blocks)
        + f"; planted beyond the floor and seen: {sum(row['seen'] for row in lines)} of "
        f"{sum(row['planted'] for row in lines)}",
        {
            "rounded blocks at most 1e-4": blocked[0] <= 1e-4,
            "FP32 operands at most 1e-4": chained[0] <= 1e-4,
            "16 bits within 1.3 of the figures": all(row["floor"] <= 1.3 * row["stated"] for row in blocks),
            "what is beyond is seen": all(row["seen"] + 4 >= row["planted"] > 0 for row in lines),
        },
    )


def fault_campaign(output):
    exponents, any_bit = read_json((output.scratch / "faults.json").read_text())["parts"]

    def share(part):
        return part["right"] / part["counted"] if part["counted"] else 0.0

    types = ", ".join(
        f"{name} {pair['right'] / pair['counted']:.4f}"
        for name, pair in exponents["groups"].items()
        if name in ("bf16", "f16", "f32", "tf32", "e4m3", "gauss")
    )
    return Judgement(
        f"bits 20 to 30: {exponents['right']} of {exponents['counted']} delivered right, {share(exponents):.4f} ({types}); "
        f"any bit above the entry bound: {any_bit['right']} of {any_bit['counted']}, {share(any_bit):.4f}; "
        f"clean entries named: {exponents['accused'] + any_bit['accused']}",
        {
            "bits 20 to 30: at least 0.9995": share(exponents) >= exponents["least"],
            "any bit: at least 0.99": share(any_bit) >= any_bit["least"],
            "no clean entry is named": exponents["accused"] + any_bit["accused"] == 0,
            "every miss is explained": all(
                part["right"] + part["below_look"] + part["hidden"] == part["counted"] > 0
                for part in (exponents, any_bit)
            ),
        },
    )


def wide_faults(output):
    got = read_json((output.scratch / "wide.json").read_text())
    rows = got["rows"]
    shapes = {(row["n1"], row["n2"], row["n3"]) for row in rows}
    patterns = {row["pattern"] for row in rows}
    worst = min(rows, key=lambda row: row["caught"])
    return Judgement(
        f"{got['caught']} of {got['trials']} caught over {len(shapes)} shapes and {', '.join(sorted(patterns))}; "
        f"fewest {worst['caught']} of {worst['trials']} ({worst['pattern']}, {worst['size']:g} rms)",
        {
            "three shapes and five patterns": len(shapes) == 3 and len(patterns) == 5,
            "forty trials of each": all(row["trials"] == 40 for row in rows),
            "all are caught": all(row["caught"] == row["trials"] for row in rows),
        },
    )


def symbol_audit(output):
    match = re.search(r"^symbol_audit: (\d+) libraries, (\d+) symbols in the table, (\d+) wrong$", output.out, re.M)
    if not match:
        raise Unreadable("no closing line of symbol_audit")
    libraries, symbols, wrong = map(int, match.groups())
    return Judgement(
        f"{symbols} symbols of the table against {libraries} libraries, {wrong} wrong",
        {"cuBLAS and cuBLASLt of three majors": libraries >= 6, "nothing wrong": wrong == 0 and output.code == 0},
    )


def coverage_table(output):
    match = re.search(
        r"^(\d+) cells of (\d+) symbols, (\d+) types, (\d+) routes: (\d+) checked, (\d+) go around as stated, (\d+) not "
        r"checked; (\d+) pairs empty with a reason, (\d+) wrong$",
        output.out,
        re.M,
    )
    if not match:
        raise Unreadable("no closing line of coverage_table")
    cells, symbols, types, routes, checked, around, unchecked, reasons, wrong = map(int, match.groups())
    return Judgement(
        match.group(0),
        {
            "33 symbols, by 15 routes or more": symbols == 33 and routes >= 15 and types >= 10,
            "every cell is checked, or stated to go around": checked + around == cells > 1000 and unchecked == 0,
            "no empty cell without a reason": wrong == 0 and reasons > 0,
            "exit code 0": output.code == 0,
        },
    )


def exec_cost(output):
    got = read_json(output.out)
    added = got["added_us"]
    return Judgement(
        f"{added['median']:.0f} us over none ({added['low']:.0f} to {added['high']:.0f}) in {got['pairs']} pairs; bare "
        f"{got['bare_us']['median']:.0f} us",
        {"a thousand pairs": got["pairs"] >= 1000, "at most 300 us": added["median"] <= 300},
    )


# Of the driver's calls, those that a warm call may not make (DESIGN section 9).
BANNED = re.compile(
    r"Synchronize|Query|MemAlloc|MemFree|MemHostAlloc|MemGetInfo|LoadData|GetFunction|HostRegister"
    r"|^cuMemcpy(?!.*Async)|^cuMemset(?!.*Async)|Create|Destroy"
)


def driver_calls(calls, dirty):
    """Traces of one call and of `calls` calls of the same product: the difference is what warm calls did."""

    def judge(output):
        def counts(name):
            found = {}
            for line in (output.scratch / name).read_text().splitlines():
                origin, _, call, *_ = line.split("\t")
                if origin == "driver":
                    found[call] = found.get(call, 0) + 1
            return found

        one, many = counts("trace.1"), counts("trace.n")
        if not many:
            raise Unreadable("no driver call in the trace")
        warm = {
            name: (count - one.get(name, 0)) / (calls - 1) for name, count in many.items() if count > one.get(name, 0)
        }
        launches = warm.pop("cuLaunchKernel", 0)
        banned = sorted(name for name in warm if BANNED.search(name))
        faults = sum(1 for _ in open(output.scratch / "faults.n")) if (output.scratch / "faults.n").exists() else 0
        outcomes = sorted(set(record["outcome"] for record in calls_of(output.scratch / "n.jsonl")))
        checked = len(calls_of(output.scratch / "n.jsonl"))
        conditions = {
            "every call checked": checked == calls,
            "1 to 6 launches": 1 <= launches <= 6,
            "at most 12 other driver calls": sum(warm.values()) <= 12,
            "none of the banned calls": not banned,
        }
        if dirty:
            conditions["dirty: a fault in every call, all corrected"] = faults == calls and outcomes == ["corrected"]
        else:
            conditions["clean: no fault, all clean"] = faults == 0 and outcomes == ["clean"]
        return Judgement(
            f"{launches:g} launches, {sum(warm.values()):g} other driver calls a warm call, banned "
            f"{' '.join(banned) or 'none'}, outcomes {outcomes} in {checked} calls",
            conditions,
        )

    return judge


def records_of(path):
    try:
        return [json.loads(line) for line in path.read_text().splitlines()]
    except (OSError, json.JSONDecodeError) as error:
        raise Unreadable(f"{path.name}: {error}") from error


def calls_of(path):
    return [record for record in records_of(path) if record["type"] == "call"]


def repeat(output):
    def decisions(name):
        keys = ("call_id", "site", "seed", "outcome", "plan", "lines_dirty", "entries_named", "entries_repaired")
        return sorted(tuple(record[key] for key in keys) for record in calls_of(output.scratch / f"{name}.jsonl"))

    one, other = decisions("one"), decisions("other")
    bits_one, bits_other = (output.scratch / "one.d").read_bytes(), (output.scratch / "other.d").read_bytes()
    ranks = sorted(
        {record["rank"] for name in ("one", "other") for record in calls_of(output.scratch / f"{name}.jsonl")}
    )
    repaired = sum(decision[7] for decision in one)
    return Judgement(
        f"{len(one)} and {len(other)} of 60 calls checked by ranks {ranks}, {repaired} entries repaired, results of "
        f"{len(bits_one)} bytes {'equal' if bits_one == bits_other else 'DIFFER'}",
        {
            "some calls checked, not all": 5 <= len(one) < 60,
            "some entry repaired": repaired > 0,
            "same decisions": one == other,
            "same bits": len(bits_one) > 0 and bits_one == bits_other,
        },
    )


def two_ranks(output):
    judgement = repeat(output)
    ranks = {record["rank"] for name in ("one", "other") for record in calls_of(output.scratch / f"{name}.jsonl")}
    judgement.conditions["two ranks"] = len(ranks) == 2
    return judgement


def observe(output):
    compared = re.findall(r"^(same|DIFFER) (\S+) (\d+) bytes$", output.out, re.M)
    if not compared:
        raise Unreadable("nothing was compared")
    checked = sum(
        1
        for record in calls_of(output.scratch / "compared.jsonl")
        if record["outcome"] in ("clean", "corrupt", "corrected", "benign")
    )
    same = sum(1 for word, _, size in compared if word == "same" and int(size) > 0)
    return Judgement(
        f"{same} of {len(compared)} outputs bit-identical ({sum(int(size) for _, _, size in compared)} bytes), "
        f"{checked} calls checked",
        {
            "all outputs written": len(compared) == 6 and all(int(size) > 0 for _, _, size in compared),
            "calls were checked": checked > 0,
            "bit-identical": same == len(compared),
        },
    )


def vectors(expected_files):
    def judge(output):
        matched = [tuple(map(int, pair)) for pair in re.findall(r"^matched (\d+) of (\d+)$", output.out, re.M)]
        if not matched:
            raise Unreadable("no vectors were held against a model")
        good, total = sum(pair[0] for pair in matched), sum(pair[1] for pair in matched)
        return Judgement(
            f"matched {good} of {total} in {len(matched)} files",
            {
                "every file read": len(matched) == expected_files and total >= 50 * expected_files,
                "all matched": good == total,
            },
        )

    return judge


def speed(output):
    got = read_json(output.out)
    h100 = [size["h100_of_sgemm"] for size in got["sizes"]]
    rounded = [size["rounded16_of_sgemm"] for size in got["sizes"]]
    return Judgement(
        f"of OpenBLAS sgemm ({got['openblas_kernel']}), sizes {[size['size'] for size in got['sizes']]}: "
        f"h100 {h100}, rounded16 {rounded}",
        {
            "h100 at least 0.15": len(h100) > 0 and min(h100) >= 0.15,
            "rounded16 at least 0.8": len(rounded) > 0 and min(rounded) >= 0.8,
        },
    )


def check(output):
    seen = re.search(r"check.py: (\d+) of (\d+) rules see their planted breach", output.out)
    breaches = len(re.findall(r"^check.py: \S+:", output.out, re.M))
    if not seen and not breaches:
        raise Unreadable("no word of check.py")
    return Judgement(
        f"{breaches} breaches; {seen.group(0)[10:] if seen else 'self-test not reached'}",
        {
            "all rules held": "check.py: all rules held" in output.out and breaches == 0,
            "every rule sees its planted breach": bool(seen) and 0 < int(seen.group(1)) == int(seen.group(2)),
        },
    )


def fresh_root(output):
    """The quick start and then the tests, "evidence: tests" between them."""
    if "evidence: tests" not in output.both:
        missing = re.findall(r"(\S+): command not found", output.both)
        if not missing:
            raise Unreadable("neither the tests nor a missing command")
        return Judgement(f"no {missing[0]}", {"what it needs is set up": False})
    # Standard error comes first in `both`: the table is on standard output, before the mark.
    before, after = output.out.split("evidence: tests", 1)
    demo, tests = demo_table(dataclasses.replace(output, both=before)), all_tests(
        dataclasses.replace(output, both=after)
    )
    conditions = {"what it needs is set up": True, "nvcc hidden": "setup: no nvcc on PATH" in output.both}
    conditions.update({f"demo: {text}": held for text, held in demo.conditions.items()})
    conditions.update({f"tests: {text}": held for text, held in tests.conditions.items()})
    return Judgement(f"{demo.figure}; {tests.figure}", conditions)


def gpu_dry_run(output):
    report = read_json((output.scratch / "gpu/gpu_check.json").read_text())
    of = {
        status: [step["name"] for step in report["steps"] if step["status"] == status]
        for status in ("passed", "not run", "failed", "timed out")
    }
    return Judgement(
        "; ".join(f"{status}: {' '.join(names)}" for status, names in of.items() if names),
        {
            "the build, the stage tests, the encoder, the probe, the check passed": set(of["passed"])
            >= {"build", "stage", "encoder", "probe", "check"},
            "PyTorch is marked as not run": len(of["not run"]) > 0 and all("torch" in name for name in of["not run"]),
            "none failed": not of["failed"] and not of["timed out"],
        },
    )


def interposition(output):
    verdicts = re.findall(r"^\w+ +(caught|sound|BROKEN|SURVIVED)\b", output.out, re.M)
    if not verdicts:
        raise Unreadable("no mutant ran")
    return Judgement(
        f"{verdicts.count('caught')} of {len(verdicts) - 1} mutants caught",
        {
            "the sound sources pass": verdicts.count("sound") == 1,
            "more than ten mutants": len(verdicts) > 11,
            "every mutant caught": verdicts.count("caught") == len(verdicts) - 1,
        },
    )
