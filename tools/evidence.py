#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The driver of tools/evidence.sh: every claim a row; a row is a command, a judgement of its output, and mutations.

A row is green if every condition of its judgement holds and each of its mutations, run under the same judgement, breaks
the conditions that it names. A mutation whose output cannot be judged proves nothing: the row is red. A row that could
not run (no such program, test, folder, or it takes --long) is MISSING. No row can be green over zero tests, files or calls.
Commands run by bash in the root of the tree, after PREAMBLE, with B the build folder and T a scratch folder.
"""
import argparse
import dataclasses
import importlib.util
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import time

SOURCE = pathlib.Path(__file__).resolve().parent.parent
GREEN, RED, MISSING = "green", "RED", "MISSING"


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


@dataclasses.dataclass
class Mutation:
    what: str
    command: str
    breaks: str  # part of the text of the condition that must no longer hold
    slow: bool = False  # over about a minute: run with --long only


@dataclasses.dataclass
class Row:
    name: str
    claim: str
    command: str
    judge: object  # Output -> Judgement; may raise Unreadable
    mutations: list
    needs: list = dataclasses.field(default_factory=list)  # paths, $B and $T allowed
    tests: dict = dataclasses.field(default_factory=dict)  # what -> regular expression of ctest names
    missing: str = ""  # a reason known beforehand
    ends_with_zero: bool = True
    timeout: int = 3600
    no_mutation: str = ""  # why there is none to run here


# ---- judgements ---------------------------------------------------------------------------------------------------


def read_json(text):
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise Unreadable(f"no JSON: {error}") from error


def judge_demo(seeds, share_of_2000):
    def judge(output):
        demo = read_json(output.out)
        clean, faults, seen = demo["clean"], demo["faults"], demo["coverage"]["clean"]
        noise = demo["order_noise"]
        guarded, unguarded = demo["guarded"]["max_similarity_error"], demo["unguarded"]["max_similarity_error"]
        return Judgement(
            f"{faults['injected']} injected, {faults['found']} found, {faults['repaired']} repaired, "
            f"{faults['missed_above_bound']} missed above bound, {faults['below_floor']} below; "
            f"{clean['accusations']} accusations in {clean['checked']} of {seen['seen']} calls; error unguarded "
            f"{unguarded:.4g}, guarded {guarded:.4g}, order noise {noise:.4g}",
            {
                f"injected >= {share_of_2000}": faults["injected"] >= share_of_2000,
                "seeds as asked": demo["seeds"] == seeds,
                "every clean call checked": 0 < seen["seen"] == clean["checked"] == seen["checked"]
                and seen["unverified"] == 0 and not seen["lower_bound"],
                "no accusation": clean["accusations"] == 0,
                "no fault record without a fault": faults["unmatched_records"] == 0,
                "none missed above the bound": faults["missed_above_bound"] == 0,
                "above the bound: all repaired": 0 < faults["above_bound"] <= faults["repaired"],
                "below the floor at most 1%, all listed": faults["below_floor"] <= 0.01 * faults["injected"]
                and len(faults["below_floor_entries"]) == faults["below_floor"],
                "guarded error <= 2 order_noise": 0 < noise and guarded <= 2 * noise,
                "unguarded error >= 10 order_noise": unguarded >= 10 * noise,
            })
    return judge


def ctest_summary(text):
    found = re.findall(r"^(\d+)% tests passed, (\d+) tests failed out of (\d+)", text, re.M)
    if not found:
        raise Unreadable("no summary of ctest")
    return int(found[-1][1]), int(found[-1][2])


def judge_tests(expected):
    def judge(output):
        failed, total = ctest_summary(output.out)
        return Judgement(f"{total - failed} of {total} tests passed, {expected} listed", {
            "as many tests ran as are listed, and some": total == expected > 0,
            "none skipped": not re.search(r"\*\*\*(Skipped|Not Run)", output.out),
            "all passed": failed == 0,
        })
    return judge


def judge_all_tests(output):
    failed, total = ctest_summary(output.both)
    return Judgement(f"{total - failed} of {total} tests passed", {
        "some tests ran": total > 0,
        "none skipped": not re.search(r"\*\*\*(Skipped|Not Run)|did not run", output.both),
        "all passed": failed == 0,
        "check.py: all rules held": "check.py: all rules held" in output.both,
    })


def judge_demo_table(output):
    lines = [line for line in output.both.splitlines() if line.strip()]
    totals = re.search(r"^ +all +(\d+) +(\d+) +(\d+) +(\d+) +(\d+) +(\d+)", output.both, re.M)
    if not totals:
        raise Unreadable("no table of the demo")
    injected, above, found, repaired, missed, _ = map(int, totals.groups())
    return Judgement(f"{injected} injected, {found} found, {repaired} repaired, {missed} missed; ends: {lines[-1]!r}", {
        "ends with the demo's verdict": lines[-1].startswith(("PASSED", "NOT PASSED")),
        "passed": lines[-1].startswith("PASSED"),
        "all faults above the bound repaired": 0 < above <= repaired and missed == 0,
        "says that the device is simulated": "simulated device" in output.both,
    })


def table_of_entries(tree):
    spec = importlib.util.spec_from_file_location("check", tree / "tools/check.py")
    check = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(check)
    return check.table_of_entries(tree)


def judge_needed(output):
    needed = set(re.findall(r"\(NEEDED\).*\[(.+?)\]", output.out))
    if not needed:
        raise Unreadable("no NEEDED")
    return Judgement(" ".join(sorted(needed)), {
        "only libc, libm, ld-linux": needed <= {"libc.so.6", "libm.so.6", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}})


def judge_exports(tree):
    def judge(output):
        names = {line.split()[-1] for line in output.out.splitlines() if line.split()}
        want = table_of_entries(tree)
        if not names:
            raise Unreadable("nm lists no name")
        return Judgement(f"{len(names)} exported, {len(names & want)} of the {len(want)} of the table", {
            "exactly the table, unversioned": names == want and len(want) > 10})
    return judge


def judge_bindings(tree):
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
            f"{len(blas) + len(solver)} symbols bound to the shim ({len(blas)} of libcublas, {len(solver)} of libcusolver), "
            f"{len(past)} of the table past it", {
                "libcublas's own cublasLtMatmul bound to the shim": "cublasLtMatmul" in blas,
                "libcusolver's GEMMs bound to the shim":
                    {"cublasGemmEx", "cublasSgemm_v2", "cublasSgemm_v2_64", "cublasCreate_v2"} <= solver,
                "no name of the table bound past the shim": not past,
            })
    return judge


def judge_overhead(output):
    got = read_json(output.out)
    if "over_bare_ns" in got:  # one part alone, of --child: what it measured stands for the call that is not sampled
        got = {"unsampled_ns_over_bare": got["over_bare_ns"]["median"], "unsampled_ns_over_bare_interval":
               [got["over_bare_ns"]["low"], got["over_bare_ns"]["high"]], "bare_ns": got["bare_ns"]["median"],
               "sampled_us_over_bare": 0, "sampled_launches": got["launches"],
               "sampled_other_driver_calls": got["other_driver_calls"], "banned_driver_calls": got["banned_driver_calls"],
               "sampled_in_place_launches": 0, "unsampled": got}
    low, high = got["unsampled_ns_over_bare_interval"]
    return Judgement(
        f"not sampled: {got['unsampled_ns_over_bare']:.1f} ns over the bare {got['bare_ns']:.1f} ns ({low:.1f} to {high:.1f}); "
        f"sampled: {got['sampled_us_over_bare']:.2f} us, {got['sampled_launches']:.2f} launches, "
        f"{got['sampled_other_driver_calls']:.2f} other driver calls, banned {got['banned_driver_calls'] or 'none'}", {
            "a million pairs": got["unsampled"]["pairs"] >= 1_000_000,
            "not sampled: at most 30 ns": got["unsampled_ns_over_bare"] <= 30,
            "not sampled: no driver call": got["unsampled"]["launches"] + got["unsampled"]["other_driver_calls"] < 0.001,
            "sampled: 1 to 6 launches": 1 <= got["sampled_launches"] <= 6 and got["sampled_in_place_launches"] <= 6,
            "sampled: at most 12 other driver calls": got["sampled_other_driver_calls"] <= 12,
            "no banned call": not got["banned_driver_calls"],
        })


# Of the driver's calls, those that a warm call may not make (DESIGN section 9).
BANNED = re.compile(r"Synchronize|Query|MemAlloc|MemFree|MemHostAlloc|MemGetInfo|LoadData|GetFunction|HostRegister"
                    r"|^cuMemcpy(?!.*Async)|^cuMemset(?!.*Async)|Create|Destroy")


def judge_driver_calls(calls, dirty):
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
        warm = {name: (count - one.get(name, 0)) / (calls - 1) for name, count in many.items() if count > one.get(name, 0)}
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
        return Judgement(f"{launches:g} launches, {sum(warm.values()):g} other driver calls a warm call, banned "
                         f"{' '.join(banned) or 'none'}, outcomes {outcomes} in {checked} calls", conditions)
    return judge


def records_of(path):
    try:
        return [json.loads(line) for line in path.read_text().splitlines()]
    except (OSError, json.JSONDecodeError) as error:
        raise Unreadable(f"{path.name}: {error}") from error


def calls_of(path):
    return [record for record in records_of(path) if record["type"] == "call"]


def judge_repeat(output):
    def decisions(name):
        keys = ("call_id", "site", "seed", "outcome", "plan", "lines_dirty", "entries_named", "entries_repaired")
        return sorted(tuple(record[key] for key in keys) for record in calls_of(output.scratch / f"{name}.jsonl"))
    one, other = decisions("one"), decisions("other")
    bits_one, bits_other = (output.scratch / "one.d").read_bytes(), (output.scratch / "other.d").read_bytes()
    ranks = sorted({record["rank"] for name in ("one", "other") for record in calls_of(output.scratch / f"{name}.jsonl")})
    repaired = sum(decision[7] for decision in one)
    return Judgement(f"{len(one)} and {len(other)} of 60 calls checked by ranks {ranks}, {repaired} entries repaired, results of "
                     f"{len(bits_one)} bytes {'equal' if bits_one == bits_other else 'DIFFER'}", {
        "some calls checked, not all": 5 <= len(one) < 60,
        "some entry repaired": repaired > 0,
        "same decisions": one == other,
        "same bits": len(bits_one) > 0 and bits_one == bits_other,
    })


def judge_two_ranks(output):
    judgement = judge_repeat(output)
    ranks = {record["rank"] for name in ("one", "other") for record in calls_of(output.scratch / f"{name}.jsonl")}
    judgement.conditions["two ranks"] = len(ranks) == 2
    return judgement


def judge_observe(output):
    compared = re.findall(r"^(same|DIFFER) (\S+) (\d+) bytes$", output.out, re.M)
    if not compared:
        raise Unreadable("nothing was compared")
    checked = sum(1 for record in calls_of(output.scratch / "compared.jsonl") if record["outcome"] in
                  ("clean", "corrupt", "corrected", "benign"))
    same = sum(1 for word, _, size in compared if word == "same" and int(size) > 0)
    return Judgement(f"{same} of {len(compared)} outputs bit-identical ({sum(int(size) for _, _, size in compared)} bytes), "
                     f"{checked} calls checked", {
        "all outputs written": len(compared) == 6 and all(int(size) > 0 for _, _, size in compared),
        "calls were checked": checked > 0,
        "bit-identical": same == len(compared),
    })


def judge_vectors(expected_files):
    def judge(output):
        matched = [tuple(map(int, pair)) for pair in re.findall(r"^matched (\d+) of (\d+)$", output.out, re.M)]
        if not matched:
            raise Unreadable("no vectors were held against a model")
        good, total = sum(pair[0] for pair in matched), sum(pair[1] for pair in matched)
        return Judgement(f"matched {good} of {total} in {len(matched)} files", {
            "every file read": len(matched) == expected_files and total >= 100 * expected_files,
            "all matched": good == total})
    return judge


def judge_speed(output):
    got = read_json(output.out)
    h100 = [size["h100_of_sgemm"] for size in got["sizes"]]
    rounded = [size["rounded16_of_sgemm"] for size in got["sizes"]]
    return Judgement(f"of OpenBLAS sgemm ({got['openblas_kernel']}), sizes {[size['size'] for size in got['sizes']]}: "
                     f"h100 {h100}, rounded16 {rounded}", {
        "h100 at least 0.15": len(h100) > 0 and min(h100) >= 0.15,
        "rounded16 at least 0.8": len(rounded) > 0 and min(rounded) >= 0.8})


def judge_check(output):
    seen = re.search(r"check.py: (\d+) of (\d+) rules see their planted breach", output.out)
    breaches = len(re.findall(r"^check.py: \S+:", output.out, re.M))
    if not seen and not breaches:
        raise Unreadable("no word of check.py")
    return Judgement(f"{breaches} breaches; {seen.group(0)[10:] if seen else 'self-test not reached'}", {
        "all rules held": "check.py: all rules held" in output.out and breaches == 0,
        "every rule sees its planted breach": bool(seen) and 0 < int(seen.group(1)) == int(seen.group(2))})


def judge_fresh_root(output):
    demo, tests = judge_demo_table(Output(0, "", output.both.split("evidence: tests")[0], 0, output.scratch)), None
    tests = judge_all_tests(output)
    conditions = {"nvcc hidden": "setup: no nvcc on PATH" in output.both}
    conditions.update({f"demo: {text}": held for text, held in demo.conditions.items() if not text.startswith("ends")})
    conditions.update({f"tests: {text}": held for text, held in tests.conditions.items()})
    return Judgement(f"{demo.figure.split('; ends')[0]}; {tests.figure}", conditions)


def judge_set_up(output):
    # Without set-up the fresh root has no compiler at all: the script must get nowhere.
    failed_early = "command not found" in output.both or "No such file" in output.both
    if not failed_early and "tests passed" not in output.both:
        raise Unreadable("neither a summary nor a missing command")
    return Judgement("ended early: a command is missing" if failed_early else "ran", {"tests: all passed": not failed_early})


def judge_gpu_dry_run(output):
    lines = [line for line in output.both.splitlines() if line.strip()]
    counts = {word: len(re.findall(rf"\b{word}\b", output.both, re.I)) for word in ("pass", "fail", "not run")}
    if not lines:
        raise Unreadable("no output")
    return Judgement(f"{counts['pass']} x pass, {counts['fail']} x fail, {counts['not run']} x not run; ends: {lines[-1][:90]!r}", {
        "steps ran and passed": counts["pass"] >= 3,
        "PyTorch is marked as not run": bool(re.search(r"(torch|training).*not run|not run.*(torch|training)", output.both, re.I)),
        "no step failed": not re.search(r"\bFAIL(ED)?\b", output.both)})


# ---- rows -----------------------------------------------------------------------------------------------------------

# What every command may use; printed at the head of a run, so that each can be repeated by hand.
PREAMBLE = r"""
host() { env LD_LIBRARY_PATH=$B/lib/hostcuda "$@"; }  # a program on the host device
guarded() {  # NAME, settings, program: under the shim; what the daemon read of it goes to $T/NAME.jsonl
  local name=$1; shift; mkdir -p $T/$name.rings
  host LD_PRELOAD=$B/lib/libsdcguard.so SDCGUARD_CONFIG=/dev/null SDCGUARD_RING_DIR=$T/$name.rings "$@" &&
    $B/bin/sdcguardd --log-level error --ring-dir $T/$name.rings --once --jsonl $T/$name.jsonl
}
gemm() { echo $B/bin/gemm --m 192 --n 64 --k 128; }  # a plain cuBLAS program, its smallest product with the line plan
demo_without() {  # KERNEL, arguments: the demo, its encoder started with a kernel switched off, on four sentences
  mkdir -p $T/m/bin && cp $B/bin/sdcguard $B/bin/sdcguardd $T/m/bin/ && ln -sfn $B/lib $T/m/lib && ln -sfn $PWD/examples $T/m/
  printf '#!/bin/sh\nHOSTCUDA_SKIP_KERNEL=%s exec %s "$@"\n' $1 $B/bin/encoder >$T/m/bin/encoder && chmod +x $T/m/bin/encoder
  head -n 4 examples/encoder/sentences.txt >$T/few.txt && shift
  $T/m/bin/sdcguard demo --model .cache/model --sentences $T/few.txt "$@"
}
mutant_shim() {  # VERSION_SCRIPT, link flags: a shim from the very objects of the build
  local script=$1; shift
  g++ -shared -o $T/libmutant.so -Wl,--whole-archive $B/libsdcguard_stages.a -Wl,--no-whole-archive $B/libsdcguard_config.a \
    $B/libsdcguard_plan.a -Wl,--as-needed "$@" -Wl,--version-script=$script
}
named_node() { sed 's/^{/SDCGUARD_1 {/' shim/exports.map >$T/named.map && mutant_shim $T/named.map -static-libstdc++ -static-libgcc; }
bindings() {  # SHIM: what the loader binds at start among the real libraries
  LD_DEBUG=bindings LD_BIND_NOW=1 LD_LIBRARY_PATH=$REAL LD_PRELOAD="$1 libcublas.so.13 libcusolver.so.12" /bin/true 2>&1 |
    grep -a 'symbol .cublas'
}
traced() {  # CALLS, settings: traces of one call and of CALLS calls of a product
  local calls=$1; shift
  guarded 1 SDCGUARD_EVERY=1 HOSTCUDA_TRACE=$T/trace.1 "$@" $(gemm) &&
    guarded n SDCGUARD_EVERY=1 HOSTCUDA_TRACE=$T/trace.n HOSTCUDA_FAULT_LOG=$T/faults.n "$@" $(gemm) --calls $calls
}
sixty() {  # NAME, settings: sixty calls, one in three checked, a fault in every product
  guarded "$1" SDCGUARD_EVERY=3 HOSTCUDA_FAULTS=$T/word.toml "${@:2}" $(gemm) --calls 60 --dump $T/$1.d
}
compare_outputs() {  # MODE: six outputs, clean and with faults, unguarded and guarded
  head -n 4 examples/encoder/sentences.txt >$T/few.txt
  local faults encoder="$B/bin/encoder --model .cache/model --sentences $T/few.txt --no-table --embeddings"
  for faults in "" $T/bits.toml; do
    f=${faults:+faulty}
    three() { "$@" $encoder $O.encoder.$f && "$@" $(gemm) --calls 3 --api lt --epilogue gelu_bias --dump $O.lt_bf16.$f &&
      "$@" $(gemm) --calls 3 --api sgemm --beta 0.5 --dump $O.sgemm.$f; }
    O=$T/bare three host HOSTCUDA_FAULTS=$faults || return
    O=$T/under three guarded compared SDCGUARD_EVERY=1 SDCGUARD_MODE=$1 HOSTCUDA_FAULTS=$faults || return
  done
  for f in $T/bare.*; do
    cmp -s $f ${f/bare/under} && echo -n "same " || echo -n "DIFFER "
    echo ${f##*/bare.} $(stat -c %s ${f/bare/under}) bytes
  done
}
vectors() {  # FOLDER ORDER:FILE...
  local pair bad=0
  for pair in "${@:2}"; do $B/bin/tensor_core_vectors ${pair%%:*} $1/${pair#*:} || bad=1; done
  return $bad
}
mutant_routes() { CUDA_INCLUDE=$(source tools/environment.sh && echo $CUDA_ROOT/include) $1/tests/e2e/interposition_mutants.sh $B; }
"""
FAULTS = {
    "word.toml": 'seed = 5\n[[fault]]\nkind = "word"\nvalue = 1000.0\n',
    "bits.toml": 'seed = 5\n[[fault]]\nkind = "accumulator"\nbits = "20..30"\ncount = 2\n',
}


class Evidence:
    def __init__(self, options, tree, build):
        self.options, self.tree, self.build = options, tree, build
        self.listed_tests = None

    # -- tests by name: an absent one is MISSING, never silently fewer

    def test_names(self):
        if self.listed_tests is None:
            listing = subprocess.run(["ctest", "--test-dir", str(self.build), "--show-only=json-v1"], capture_output=True,
                                     text=True, cwd=self.tree)
            try:
                self.listed_tests = [test["name"] for test in json.loads(listing.stdout)["tests"]]
            except (json.JSONDecodeError, KeyError):
                self.listed_tests = []
        return [name for name in self.listed_tests if not name.endswith("_NOT_BUILT")]

    def test_row(self, name, claim, patterns, mutations):
        """`mutations`: (what, environment) under which the same tests must fail."""
        names = [test for test in self.test_names() if any(re.search(pattern, test) for pattern in patterns.values())]
        command = f"ctest --test-dir $B --no-tests=error -R '{'|'.join(patterns.values())}'"
        return Row(name, claim, command, judge_tests(len(names)),
                   [Mutation(what, f"{environment} {command}", "all passed") for what, environment in mutations], tests=patterns)

    def real_libraries(self):
        named = os.environ.get("SDCGUARD_REAL_CUDA_LIBRARIES")
        if named:
            return named
        root = subprocess.run(["bash", "-c", "source tools/environment.sh && echo $CUDA_ROOT"], capture_output=True, text=True,
                              cwd=self.tree).stdout.strip()
        for folder in ("lib64", "lib", "targets/x86_64-linux/lib"):
            if root and os.path.exists(f"{root}/{folder}/libcusolver.so.12"):
                return f"{root}/{folder}"
        return ""

    def vectors(self):
        for folder in (self.tree.parent / "shared/data/tensor-core", SOURCE.parent / "shared/data/tensor-core"):
            if folder.is_dir():
                return folder
        return self.tree / "tests/hostcuda/golden"

    def rows(self):
        o = self.options
        has_own_build = o.build_dir is None
        fresh = "" if not o.in_place and has_own_build else "shown by the fresh clone alone (no --in-place, no --build-dir)"
        yield Row(
            "quickstart", "In a fresh clone tools/quickstart.sh ends with the demo's table.", "tools/quickstart.sh", judge_demo_table,
            [Mutation("the encoder runs without the repair kernel", "demo_without sdcguard_escalate_repair", "repaired")],
            missing=fresh)
        yield Row(
            "tests", "In a fresh clone tools/test.sh ends with ctest's summary, all passed.", "tools/test.sh", judge_all_tests,
            [Mutation("ctest without the product pass",
                      "tools/check.py $B; HOSTCUDA_SKIP_KERNEL=sdcguard_product ctest --test-dir $B -R '^stage.Repair'", "all passed")],
            missing=fresh)
        yield from self.demo_rows()
        yield from self.binding_rows()
        yield from self.named_test_rows()
        yield from self.call_rows()
        yield from self.device_rows()
        yield from self.whole_machine_rows()

    def demo_rows(self):
        programs = ["$B/bin/sdcguard", "$B/bin/sdcguardd", "$B/bin/encoder", "$B/lib/libsdcguard.so", ".cache/model/model.safetensors"]
        seeds = self.options.seeds
        ten = judge_demo(seeds, 200 * seeds)

        def judge(output):  # the mutation runs one seed: its share of the faults
            return judge_demo(1, 200)(output) if '"seeds": 1,' in output.out else ten(output)
        yield Row(
            "demo", f"Demo over {seeds} fixed seeds: every clean call checked, 0 accusations; 2,000 accumulator faults or more, 0 "
            "missed beyond the entry bound, at most 1% below it; guarded error at most 2 order_noise, unguarded at least 10.",
            f"$B/bin/sdcguard demo --seeds {seeds} --json", judge,
            [Mutation("one seed, the repair kernel switched off (HOSTCUDA_SKIP_KERNEL)",
                      "demo_without sdcguard_escalate_repair --seeds 1 --json", "none missed above the bound"),
             Mutation("one seed, the product pass switched off",
                      "demo_without sdcguard_product --seeds 1 --json", "guarded error <= 2 order_noise")],
            needs=programs, timeout=7200)

    def binding_rows(self):
        shim, stages = "$B/lib/libsdcguard.so", "$B/libsdcguard_stages.a"
        yield Row(
            "needed", "The shim needs libc, libm and ld-linux alone.", f"readelf -dW {shim}", judge_needed,
            [Mutation("the same objects linked with libstdc++ as a shared library",
                      "mutant_shim shim/exports.map && readelf -dW $T/libmutant.so", "only libc")],
            needs=[shim, stages])
        yield Row(
            "exports", "The shim exports the table of entry points and dlsym, unversioned, and nothing else.",
            f"nm -D --defined-only {shim}", judge_exports(self.tree),
            [Mutation("the version script with a named node", "named_node && nm -D --defined-only $T/libmutant.so", "unversioned")],
            needs=[shim, stages])
        real = self.real_libraries()
        yield Row(
            "bindings", "The real libcublas.so.13 and libcusolver.so.12 are bound to the shim (LD_DEBUG=bindings, LD_BIND_NOW=1).",
            f"bindings {shim}", judge_bindings(self.tree),
            [Mutation("the version script with a named node", "named_node && bindings $T/libmutant.so", "bound to the shim")],
            needs=[shim, stages], missing="" if real else "no real libcusolver.so.12 here: set SDCGUARD_REAL_CUDA_LIBRARIES")
        yield Row(
            "interposition", "Each rule of the interposition, broken in a copy of the sources, turns a named route red.",
            "mutant_routes .",
            self.judge_interposition,
            [Mutation("one of its mutants left sound",
                      "mkdir -p $T/c && cp -r include kernels config shim tests $T/c && "
                      "sed -i \"s|'if (t_depth > 0) return real(handle, arguments...);' '' depth|'namespace sdcguard {' "
                      "'namespace sdcguard {' depth|\" $T/c/tests/e2e/interposition_mutants.sh && mutant_routes $T/c", "every mutant caught",
                      slow=True)],
            needs=["$B/clients/client_dl", "$B/clients/client_plt"])

    @staticmethod
    def judge_interposition(output):
        verdicts = re.findall(r"^\w+ +(caught|sound|BROKEN|SURVIVED)\b", output.out, re.M)
        if not verdicts:
            raise Unreadable("no mutant ran")
        return Judgement(f"{verdicts.count('caught')} of {len(verdicts) - 1} mutants caught", {
            "the sound sources pass": verdicts.count("sound") == 1,
            "every mutant caught": verdicts.count("caught") == len(verdicts) - 1 > 10})

    def named_test_rows(self):
        yield self.test_row(
            "must-fail", "Each stage switched off in turn makes a named test fail.", {
                "no product pass": "MustFail.*WithoutTheProductPass",
                "no second sign draw": "MustFail.*WithoutTheSecondDraw",
                "no sigma cap": "MustFail.*WithoutTheCap",
                "no finish of repaired entries": "MustFail.*WithoutTheFinish",
                "comparison that lets NaN pass": "MustFail.*Nan",
                "missing wait between streams": "MustFail.*Wait|Wait.*MustFail",
                "the shipped shim, by faults": "^faults.*MustFail",
            }, [("the tests' own baseline without its product pass", "HOSTCUDA_SKIP_KERNEL=sdcguard_product")])
        yield self.test_row(
            "nonfinite", "One NaN in a weight column, one Inf in an activation row: no alarm, the rest checked, a fault elsewhere "
            "still found.", {"through the shipped shim": "^(e2e|faults).*Non[Ff]inite", "kernels": "^stage.*Non[Ff]inite"},
            [("the recomputation switched off", "HOSTCUDA_SKIP_KERNEL=sdcguard_escalate_recompute")])
        yield self.test_row(
            "driver-call-tests", "The driver calls of a sampled call, clean and dirty, counted by the host device.",
            {"by the shipped shim": "^(e2e|faults).*DriverCalls"},
            [("nothing is launched", "HOSTCUDA_SKIP_KERNEL=sdcguard_product,sdcguard_escalate_repair")])
        yield self.test_row(
            "determinism-tests", "The same run repeated gives the same decisions and bits; two ranks decide alike.",
            {"by the shipped shim": "^(e2e|faults).*(Determinis|Repeat|Rank)"},
            [("the product pass switched off", "HOSTCUDA_SKIP_KERNEL=sdcguard_product")])
        yield self.test_row(
            "observe-tests", "Under observe the program's output is bit-identical to the unguarded run.",
            {"by the shipped shim": "^(e2e|faults).*Observe"},
            [("the product pass switched off", "HOSTCUDA_SKIP_KERNEL=sdcguard_product")])

    def call_rows(self):
        yield Row(
            "overhead", "A call not sampled costs at most 30 ns over the bare call; a sampled one at most 6 launches and 12 other "
            "driver calls, none banned; over no-op stand-ins, a million interleaved pairs.",
            "$B/bin/bench_overhead --json", judge_overhead,
            [Mutation("every call sampled, measured as if none were",
                      "LD_PRELOAD=$B/lib/libsdcguard.so SDCGUARD_CONFIG=/dev/null SDCGUARD_RATE=1 $B/bin/bench_overhead --child 100000 0",
                      "at most 30 ns")],
            needs=["$B/bin/bench_overhead", "$B/lib/libsdcguard.so"])
        programs = ["$B/bin/gemm", "$B/bin/sdcguardd", "$B/lib/libsdcguard.so"]
        for kind in ("clean", "dirty"):
            traced = "traced 21" + (" HOSTCUDA_FAULTS=$T/word.toml" if kind == "dirty" else "")
            yield Row(
                f"driver-calls-{kind}", f"A warm sampled call, {kind}, makes at most 6 launches and 12 other driver calls on the host "
                "device, none of the banned ones.", traced, judge_driver_calls(21, kind == "dirty"),
                [Mutation("the first, cold call is counted too", f"{traced} && : >$T/trace.1", "banned")],
                needs=programs)
        for name, claim, judge, first, second in (
                ("repeat", "The same run repeated gives the same decisions and the same bits.", judge_repeat, "", ""),
                ("two-ranks", "Two ranks decide alike.", judge_two_ranks, " RANK=0", " RANK=1")):
            yield Row(name, claim, f"sixty one{first} && sixty other{second}", judge,
                      [Mutation("another seed in the second run", f"sixty one{first} && sixty other{second} SDCGUARD_SEED=7", "same decisions")],
                      needs=programs)
        yield Row(
            "observe", 'Under mode = "observe" the output of the encoder and of the plain client is bit-identical to the unguarded run, '
            "clean and with faults.", "compare_outputs observe", judge_observe,
            [Mutation("mode = repair", "compare_outputs repair", "bit-identical")],
            needs=programs + ["$B/bin/encoder", ".cache/model/model.safetensors"])

    def device_rows(self):
        folder = self.vectors()
        orders = {"H100": "h100", "H200": "h100", "A100": "a100", "L40S": "ada", "V100": "v100", "B200": "b200"}
        files = [(orders[path.name.split("_")[0]], path) for path in sorted(folder.glob("*_*.u32"))
                 if re.search(r"_(bf16|fp16)\.u32$", path.name) and path.name.split("_")[0] in orders]

        def vectors(pairs):
            where = os.path.relpath(folder, self.tree)
            where = where if not where.startswith("../../..") else str(folder)
            return f"vectors {where} " + " ".join(f"{order}:{path.name}" for order, path in pairs)
        wrong = [("a100" if path.name.startswith("H100") else order, path) for order, path in files]
        yield Row(
            "vectors", f"The tensor-core models reproduce all BF16 and FP16 vectors of {folder.name} bit for bit.", vectors(files),
            judge_vectors(len(files)), [Mutation("a100 as the order of H100's files", vectors(wrong), "all matched")],
            needs=["$B/bin/tensor_core_vectors"], missing="" if files else f"no vectors in {folder}")
        yield Row(
            "speed", "h100 at least 0.15 of OpenBLAS's sgemm for BF16, rounded blocks at least 0.8, in the same run.",
            "$B/bin/bench_gemm --json", judge_speed,
            [Mutation("h100 measured under the name of rounded16",
                      "sed 's/rounded16_product(a_view/tensor_core_product({16, 2}, a_view/' tests/bench/bench_gemm.cpp > $T/m.cpp && "
                      "g++ -std=c++20 -O2 -I. -Iinclude -o $T/m $T/m.cpp $B/libhostcuda_gemm.a -pthread && $T/m --json --rounds 3",
                      "rounded16 at least 0.8")],
            needs=["$B/bin/bench_gemm", "$B/libhostcuda_gemm.a"])

    def whole_machine_rows(self):
        o = self.options
        yield Row(
            "check", "The house rules hold, and each rule sees a planted breach.", "tools/check.py $B && tools/check.py --self-test",
            judge_check,
            [Mutation("printf in a kernel", "cp -r include config kernels shim tools examples tests .clang-format $T && "
                      "echo 'inline void planted() { printf(\"\"); }' >> $T/kernels/fold.cu && $T/tools/check.py", "all rules held")],
            needs=["tools/check.py", "$B/lib/libsdcguard.so"])
        yield Row(
            "gpu-check", "tools/gpu_check.sh --dry-run builds the GPU tier and runs each step on the host device.",
            "tools/gpu_check.sh --dry-run", judge_gpu_dry_run,
            [Mutation("the product pass switched off", "HOSTCUDA_SKIP_KERNEL=sdcguard_product tools/gpu_check.sh --dry-run",
                      "no step failed", slow=True)],
            needs=["tools/gpu_check.sh"])
        for preset, mutation, what in (
                ("asan", "sed -i '0,/buffer\\[/s//buffer[9999 + /' SOURCE && tools/test.sh asan", "an access past a buffer"),
                ("tsan", "ctest --preset tsan -R BarrierDeathTest", "each barrier removed in turn, in the preset's own tests")):
            yield Row(
                preset, f"The tests pass under the preset {preset}.", f"tools/test.sh {preset}", judge_all_tests, [],
                missing="" if o.long else "takes an hour; run with --long",
                no_mutation=f"{what}: {mutation}")
        root = o.fresh_root or ("$T/fresh-root" if o.long else "")
        both = "tools/quickstart.sh && echo evidence: tests && tools/test.sh"
        yield Row(
            "fresh-root", "In a fresh Debian root, nvcc hidden, tools/quickstart.sh ends with the demo's table and tools/test.sh with "
            "ctest's summary, all passed.", f"tools/fresh_root.sh {root or 'DIR'} '{both}'", judge_fresh_root,
            [Mutation("without tools/setup.sh, in another fresh root",
                      f"tools/fresh_root.sh {root or 'DIR'}.mutant 'sed -i \"/setup.sh/d\" tools/test.sh && tools/test.sh'; s=$?; "
                      f"rm -rf {root or 'DIR'}.mutant; exit $s", "all passed", slow=True)],
            needs=["tools/fresh_root.sh"],
            missing="" if root else "takes an hour and root; run with --long, or --fresh-root DIR",
            timeout=4 * 3600)

    # -- running

    def prepare(self):
        """A build of the tree, where the rows so far have not made one."""
        if self.options.build_dir is not None:
            return
        wanted = ("bin/sdcguard", "bin/bench_overhead", "bin/bench_gemm", "bin/probe_test", "bin/encoder", "bin/tensor_core_vectors")
        if all((self.build / path).exists() for path in wanted) and (self.tree / ".cache/model/model.safetensors").exists():
            return
        command = ("tools/setup.sh && source tools/environment.sh && tools/fetch_model.sh && "
                   'cmake --preset cpu -DCUDA_ROOT="$CUDA_ROOT" -Wno-dev >/dev/null && cmake --build --preset cpu')
        say(f"evidence: building in {self.tree}\n  $ {command}")
        built = subprocess.run(["bash", "-c", command], cwd=self.tree, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if built.returncode != 0:
            say(built.stdout[-4000:])
            say(f"evidence: the build ended with {built.returncode}; rows that need it will be MISSING")

    def run_command(self, command, timeout):
        with tempfile.TemporaryDirectory(prefix="sdcguard-evidence-") as folder:
            scratch = pathlib.Path(folder)
            for name, text in FAULTS.items():
                (scratch / name).write_text(text)
            environment = {key: value for key, value in os.environ.items()
                           if not key.startswith(("SDCGUARD_", "HOSTCUDA_", "LD_")) or key == "SDCGUARD_REAL_CUDA_LIBRARIES"}
            environment.update(B=str(self.build), T=str(scratch), REAL=self.real_libraries(), GTEST_COLOR="no")
            started = time.monotonic()
            merged, apart = scratch / ".merged", scratch / ".out"
            # Both streams go to one file in order; standard output alone to another, for JSON.
            with open(merged, "w") as log, open(apart, "w") as out:
                process = subprocess.Popen(["bash", "-c", PREAMBLE + command], cwd=self.tree, env=environment, stdout=subprocess.PIPE,
                                           stderr=log, text=True, errors="replace", start_new_session=True)
                try:
                    text, _ = process.communicate(timeout=timeout)
                except subprocess.TimeoutExpired:
                    os.killpg(process.pid, signal.SIGKILL)
                    text, _ = process.communicate()
                    text += f"\nevidence: stopped after {timeout} s\n"
                except BaseException:
                    os.killpg(process.pid, signal.SIGKILL)
                    raise
                out.write(text)
            errors = merged.read_text(errors="replace")
            merged.unlink()
            apart.unlink()
            result = Output(process.returncode, text, errors + text, time.monotonic() - started, scratch)
            yield result

    def judged(self, row, command, timeout):
        """(Output, Judgement or None, why it could not be judged)."""
        for output in self.run_command(command, timeout):
            try:
                judgement = row.judge(output)
                if row.ends_with_zero:
                    judgement.conditions["exit code 0"] = output.code == 0
                return output, judgement, ""
            except (Unreadable, KeyError, TypeError, ValueError, OSError, IndexError) as error:
                tail = " | ".join(line.strip() for line in output.both.splitlines()[-4:])
                return output, None, f"{type(error).__name__}: {error}; output ends: {tail[-400:]}"
        raise AssertionError("run_command yields once")

    def missing_reason(self, row):
        if row.missing:
            return row.missing
        for need in row.needs:
            path = pathlib.Path(need.replace("$B", str(self.build)))
            if not (path if path.is_absolute() else self.tree / path).exists():
                return f"{need} is not there"
        absent = [f"{what} ({pattern})" for what, pattern in row.tests.items()
                  if not any(re.search(pattern, name) for name in self.test_names())]
        return f"no such test: {', '.join(absent)}" if absent else ""

    def run_row(self, row):
        result = {"name": row.name, "claim": row.claim, "command": row.command, "status": MISSING, "exit": None, "figure": "",
                  "seconds": 0, "conditions": {}, "mutations": [], "no_mutation": row.no_mutation}
        say(f"\n[{row.name}] {row.claim}\n  $ {row.command}")
        reason = self.missing_reason(row)
        if reason:
            result["figure"] = reason
            say(f"  MISSING: {reason}")
            for mutation in row.mutations:
                result["mutations"].append({"what": mutation.what, "command": mutation.command, "status": "not run here"})
            return result
        output, judgement, why = self.judged(row, row.command, row.timeout)
        result.update(exit=output.code, seconds=round(output.seconds, 1))
        if judgement is None:
            result.update(status=RED, figure=why)
        else:
            result.update(status=RED if judgement.broken() else GREEN, figure=judgement.figure, conditions=judgement.conditions)
        say(f"  {result['figure']}\n  exit {output.code}, {output.seconds:.1f} s: {result['status']}"
            + (f", not held: {'; '.join(judgement.broken())}" if judgement and judgement.broken() else ""))
        if result["status"] == RED:
            say(textwrap.indent("\n".join(output.both.splitlines()[-25:]), "  | "))
        for mutation in row.mutations:
            result["mutations"].append(self.run_mutation(row, mutation))
            if result["mutations"][-1]["status"] not in ("red", "not run here"):
                result["status"] = RED
        if row.no_mutation:
            say(f"  mutation not run here: {row.no_mutation}")
        elif not row.mutations:
            result["status"] = RED  # a claim that nothing can turn red is no claim
        return result

    def run_mutation(self, row, mutation):
        result = {"what": mutation.what, "command": mutation.command, "status": "not run here"}
        if mutation.slow and not self.options.long:
            say(f"  mutation not run here: {mutation.what}\n    $ {mutation.command}")
            return result
        say(f"  mutation: {mutation.what}\n    $ {mutation.command}")
        output, judgement, why = self.judged(row, mutation.command, row.timeout)
        result.update(exit=output.code, seconds=round(output.seconds, 1), figure=judgement.figure if judgement else why)
        if judgement is None:
            result["status"] = "CANNOT BE JUDGED"
        elif any(mutation.breaks in text for text in judgement.broken()):
            result["status"] = "red"
        else:
            result["status"] = "STAYS GREEN"
        broken = "; ".join(judgement.broken()) if judgement else ""
        say(f"    {result['figure']}\n    exit {output.code}, {output.seconds:.1f} s: {result['status']}"
            + (f" as it must (not held: {broken})" if result["status"] == "red" else f" (it should break: {mutation.breaks})"))
        return result


def say(text):
    print(text, flush=True)


def print_table(results):
    width = max(len(result["name"]) for result in results)
    say(f"\n{'row':{width}}  status   exit  claim, figure, command, mutation")
    for result in results:
        indent = " " * (width + 17)
        code = "-" if result["exit"] is None else result["exit"]
        say(f"{result['name']:{width}}  {result['status']:7}  {code!s:>4}  {result['claim']}")
        say(f"{indent}= {result['figure']}")
        say(f"{indent}$ {result['command']}")
        for mutation in result["mutations"]:
            say(f"{indent}mutation {mutation['status']}: {mutation['what']}")
        if result["no_mutation"]:
            say(f"{indent}mutation not run here: {result['no_mutation']}")


def finish(results, options, head):
    counts = {status: sum(result["status"] == status for result in results) for status in (GREEN, RED, MISSING)}
    mutations = [mutation for result in results for mutation in result["mutations"]]
    print_table(results)
    say(f"\nevidence of {head}: {counts[GREEN]} green, {counts[RED]} red, {counts[MISSING]} missing of {len(results)} rows; "
        f"{sum(m['status'] == 'red' for m in mutations)} of {len(mutations)} mutations turned red")
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps({"head": head, **counts, "rows": results}, indent=1) + "\n")
    return 0 if results and counts[GREEN] == len(results) else 1


def self_test():
    """The driver over rows of its own: what must not be green is not."""
    options = argparse.Namespace(long=False, build_dir=None, in_place=True, json=None, seeds=1, fresh_root=None)
    with tempfile.TemporaryDirectory() as folder:
        evidence = Evidence(options, pathlib.Path(folder), pathlib.Path(folder))
        evidence.listed_tests = ["stage.A.b"]

        def judge(output):
            if "number" not in output.out:
                raise Unreadable("no number")
            return Judgement(output.out, {"number is 1": "number 1" in output.out})
        turns_red = Mutation("another number", "echo number 2", "number is 1")

        def status(**changes):
            values = dict(name="row", claim="claim", command="echo number 1", judge=judge, mutations=[turns_red])
            return evidence.run_row(Row(**{**values, **changes}))["status"]
        none_ran = "echo '100% tests passed, 0 tests failed out of 0'"
        one_ran = "echo '100% tests passed, 0 tests failed out of 1'"
        fails = Mutation("one fails", "echo '0% tests passed, 1 tests failed out of 1'", "all passed")
        cases = [
            ("a claim that holds", GREEN, status()),
            ("a wrong figure", RED, status(command="echo number 2")),
            ("a failing command with a good figure", RED, status(command="echo number 1; exit 3")),
            ("an output that cannot be judged", RED, status(command="echo nothing")),
            ("a mutation that stays green", RED, status(mutations=[Mutation("none", "echo number 1", "number is 1")])),
            ("a mutation that breaks something else", RED, status(mutations=[Mutation("other", "echo number 1; exit 1", "number is 1")])),
            ("a mutation that does not run", RED, status(mutations=[Mutation("typo", "no_such_program", "number is 1")])),
            ("no mutation", RED, status(mutations=[])),
            ("a program that is not there", MISSING, status(needs=["$B/bin/absent"])),
            ("a test that is not there", MISSING, status(tests={"absent": "^stage.C"})),
            ("a test that is there", GREEN, status(tests={"there": "^stage.A"})),
            ("zero tests", RED, status(command=none_ran, judge=judge_tests(0), mutations=[fails])),
            ("fewer tests than listed", RED, status(command=one_ran, judge=judge_tests(2), mutations=[fails])),
            ("as many tests as listed", GREEN, status(command=one_ran, judge=judge_tests(1), mutations=[fails])),
        ]
    wrong = [(what, want, got) for what, want, got in cases if want != got]
    say("")
    for what, want, got in wrong:
        say(f"evidence: {what}: {got}, must be {want}")
    say(f"evidence: self-test: {len(cases) - len(wrong)} of {len(cases)} cases as they must be")
    return 1 if wrong else 0


def main():
    parser = argparse.ArgumentParser(prog="tools/evidence.sh", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--list", action="store_true", help="names of the rows and their claims")
    parser.add_argument("--only", metavar="NAME", action="append", help="these rows alone (a comma between, or several times)")
    parser.add_argument("--json", metavar="FILE", help="all of it as JSON")
    parser.add_argument("--in-place", action="store_true", help="this tree as it is, instead of a fresh clone of HEAD")
    parser.add_argument("--build-dir", metavar="DIR", help="use this build instead of making one")
    parser.add_argument("--long", action="store_true", help="the rows and mutations that take an hour too")
    parser.add_argument("--fresh-root", metavar="DIR", help="folder of the fresh Debian root, made if absent, kept")
    parser.add_argument("--seeds", type=int, default=10, help="of the row demo, for development (default 10)")
    parser.add_argument("--self-test", action="store_true", help="the driver's own rows that must not be green")
    options = parser.parse_args()
    if options.self_test:
        return self_test()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    if options.fresh_root:
        options.fresh_root = os.path.abspath(options.fresh_root)
    head = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=SOURCE, capture_output=True, text=True).stdout.strip()
    with tempfile.TemporaryDirectory(prefix="sdcguard-clone-") as folder:
        tree = SOURCE
        if not options.in_place and not options.list:
            tree = pathlib.Path(folder) / "sdcguard"
            subprocess.run(["git", "clone", "--quiet", "--no-hardlinks", str(SOURCE), str(tree)], check=True)
        elif options.in_place:
            head += " and the working tree"
        build = pathlib.Path(options.build_dir).resolve() if options.build_dir else tree / "build/cpu"
        evidence = Evidence(options, tree, build)
        wanted = [name for text in options.only or [] for name in text.split(",")]
        if options.list:
            for row in evidence.rows():
                say(f"{row.name:18} {row.claim}")
            return 0
        names = [row.name for row in Evidence(argparse.Namespace(**{**vars(options)}), tree, pathlib.Path("/nonexistent")).rows()]
        unknown = [name for name in wanted if name not in names]
        if unknown:
            parser.error(f"no row {', '.join(unknown)}; there are: {', '.join(names)}")
        results = []
        say(f"evidence: in {tree}, B={build}, REAL=the folder of the real CUDA libraries, T=a scratch folder with\n"
            + "".join(f"  {name}: {text!r}\n" for name, text in FAULTS.items()) + textwrap.indent(PREAMBLE.strip(), "  "))
        # The first two rows build the clone; test names are listed only after that.
        for name in wanted or names:
            if name not in ("quickstart", "tests"):
                evidence.prepare()
            row = next(row for row in evidence.rows() if row.name == name)
            results.append(evidence.run_row(row))
        return finish(results, options, head)


if __name__ == "__main__":
    sys.exit(main())
