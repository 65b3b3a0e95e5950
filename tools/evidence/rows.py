# SPDX-License-Identifier: MIT
"""The rows: claim, command (words of commands.sh), judgement, and the mutations that must break it."""

import dataclasses
import json
import os
import re
import subprocess

import judgements as judge


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
    timeout: int = 3600


class Rows:
    """Iterated anew for each use: what is MISSING may have been built meanwhile."""

    def __init__(self, options, source, tree, build):
        self.options, self.source, self.tree, self.build = options, source, tree, build
        self.listed_tests = None

    # -- tests by name: an absent one is MISSING, never silently fewer

    def test_names(self):
        if not self.listed_tests:  # none: not built yet
            command = ["ctest", "--test-dir", str(self.build), "--show-only=json-v1"]
            listing = subprocess.run(command, capture_output=True, text=True, cwd=self.tree)
            try:
                names = [test["name"] for test in json.loads(listing.stdout)["tests"]]
            except (json.JSONDecodeError, KeyError):
                names = []
            self.listed_tests = [name for name in names if not name.endswith("_NOT_BUILT")]
        return self.listed_tests

    def test_row(self, name, claim, patterns, off=None, mutations=()):
        """`off`: (what, kernel): with the kernel switched off the same tests must fail."""
        names = [test for test in self.test_names() if any(re.search(pattern, test) for pattern in patterns.values())]
        command = f"ctest --test-dir $B --no-tests=error -R '{'|'.join(patterns.values())}'"
        return Row(
            name,
            claim,
            command,
            judge.tests(len(names)),
            (
                [Mutation(f"{off[0]} switched off", f"HOSTCUDA_SKIP_KERNEL={off[1]} {command}", "all passed")]
                if off
                else list(mutations)
            ),
            tests=patterns,
        )

    def real_libraries(self):
        named = os.environ.get("REAL_CUDA_LIBRARIES")
        if named:
            return named
        root = subprocess.run(
            ["bash", "-c", "source tools/environment.sh && echo $CUDA_ROOT"],
            capture_output=True,
            text=True,
            cwd=self.tree,
        ).stdout.strip()
        for folder in ("lib64", "lib", "targets/x86_64-linux/lib"):
            if root and os.path.exists(f"{root}/{folder}/libcusolver.so.12"):
                return f"{root}/{folder}"
        return ""

    def vectors(self):
        for folder in (self.tree.parent / "shared/data/tensor-core", self.source.parent / "shared/data/tensor-core"):
            if folder.is_dir():
                return folder
        return self.tree / "tests/hostcuda/golden"

    def __iter__(self):
        o = self.options
        has_own_build = o.build_dir is None
        fresh = (
            "" if not o.in_place and has_own_build else "shown by the fresh clone alone (no --in-place, no --build-dir)"
        )
        yield Row(
            "quickstart",
            "In a fresh clone tools/quickstart.sh ends with the demo's table.",
            "tools/quickstart.sh",
            judge.demo_table,
            [
                Mutation(
                    "the encoder runs without the repair kernel", "demo_without sdcguard_escalate_repair", "repaired"
                )
            ],
            missing=fresh,
        )
        yield Row(
            "tests",
            "In a fresh clone tools/test.sh ends with ctest's summary, all passed.",
            "tools/test.sh",
            judge.all_tests,
            [
                Mutation(
                    "ctest without the product pass",
                    "tools/check.py $B; HOSTCUDA_SKIP_KERNEL=sdcguard_product ctest --test-dir $B -R '^stage.Repair'",
                    "all passed",
                )
            ],
            missing=fresh,
        )
        yield from self.demo_rows()
        yield from self.binding_rows()
        yield from self.named_test_rows()
        yield from self.surface_rows()
        yield from self.call_rows()
        yield from self.statistics_rows()
        yield from self.device_rows()
        yield from self.whole_machine_rows()

    def demo_rows(self):
        programs = [
            "$B/bin/sdcguard",
            "$B/bin/sdcguardd",
            "$B/bin/encoder",
            "$B/lib/libsdcguard.so",
            ".cache/model/model.safetensors",
        ]
        seeds = self.options.seeds
        # A build elsewhere does not find the sources by itself.
        files = (
            ""
            if self.build.is_relative_to(self.tree)
            else (" --model .cache/model --sentences examples/encoder/sentences.txt")
        )
        yield Row(
            "demo",
            f"Demo over {seeds} fixed seeds: every clean call checked, 0 accusations; {200 * seeds} or more "
            "accumulator faults, 0 missed beyond the bound, at most 1% below it; guarded error at most 2 order noise, "
            "unguarded at least 10.",
            f"$B/bin/sdcguard demo --seeds {seeds} --json{files}",
            judge.demo(seeds),
            [
                Mutation(
                    "one seed, the repair kernel switched off (HOSTCUDA_SKIP_KERNEL)",
                    "demo_without sdcguard_escalate_repair --seeds 1 --json",
                    "none missed above the bound",
                ),
                Mutation(
                    "one seed, the product pass switched off",
                    "demo_without sdcguard_product --seeds 1 --json",
                    "guarded error <= 2 order_noise",
                ),
            ],
            needs=programs,
            timeout=7200,
        )

    def binding_rows(self):
        shim, stages = "$B/lib/libsdcguard.so", "$B/libsdcguard_stages.a"
        yield Row(
            "needed",
            "The shim needs libc and ld-linux alone.",
            f"readelf -dW {shim}",
            judge.needed,
            [
                Mutation(
                    "the same objects linked with libstdc++ as a shared library",
                    "mutant_shim shim/exports.map && readelf -dW $T/libmutant.so",
                    "only libc",
                )
            ],
            needs=[shim, stages],
        )
        yield Row(
            "exports",
            "The shim exports the table of entry points and dlsym, unversioned, and nothing else.",
            f"nm -D --defined-only {shim}",
            judge.exports(self.tree),
            [
                Mutation(
                    "the version script with a named node",
                    "named_node && nm -D --defined-only $T/libmutant.so",
                    "unversioned",
                )
            ],
            needs=[shim, stages],
        )
        real = self.real_libraries()
        yield Row(
            "bindings",
            "The real libcublas.so.13 and libcusolver.so.12 are bound to the shim (LD_DEBUG=bindings, LD_BIND_NOW=1).",
            f"bindings {shim}",
            judge.bindings(self.tree),
            [
                Mutation(
                    "the version script with a named node",
                    "named_node && bindings $T/libmutant.so",
                    "bound to the shim",
                )
            ],
            needs=[shim, stages],
            missing="" if real else "no real libcusolver.so.12 here: set REAL_CUDA_LIBRARIES",
        )
        yield Row(
            "interposition",
            "Each rule of the interposition, broken in a copy of the sources, turns a named route red.",
            "mutant_routes .",
            judge.interposition,
            [
                Mutation(
                    "its routes never fail",
                    "copy_tree && routes_never_fail && mutant_routes $T/c",
                    "every mutant caught",
                )
            ],
            needs=["$B/clients/client_dl", "$B/clients/client_plt"],
        )

    def named_test_rows(self):
        yield self.test_row(
            "must-fail",
            "Each stage switched off in turn makes a named test fail.",
            {
                "no product pass": "MustFail.WithoutTheProductPass",
                "no second sign draw": "MustFail.WithoutTheSecondDraw",
                "no sigma cap": "MustFail.WithoutTheCap",
                "no finish of repaired entries": "MustFail.WithoutTheFinish",
                "comparison that lets NaN pass": "MustFail.ComparisonThatLetsNanPass",
                "a missing wait between streams": "^faults.Waits.EachOneDropped",
                "no order of streams matters": "^faults.Waits.NoOrder",
                "the shipped shim, a kernel off": "^faults.*SwitchedOff",
            },
            off=("the product pass", "sdcguard_product"),
        )
        yield self.test_row(
            "nonfinite",
            "One NaN in a weight column, one Inf in an activation row: no alarm, the rest checked, a fault "
            "elsewhere still found.",
            {"the shipped shim": "^e2e.NonFinite", "kernels": "^stage.Nonfinite"},
            off=("the recomputation", "sdcguard_escalate_recompute"),
        )
        yield self.test_row(
            "driver-call-tests",
            "Every entry point keeps the budget of driver calls, clean and dirty.",
            {"the shipped shim": "^e2e.*DriverCalls"},
            off=("the product pass", "sdcguard_product"),
        )
        yield self.test_row(
            "determinism-tests",
            "The same run repeated gives the same bits; ranks decide alike; under upgrade = site sampling changes no bit.",
            {
                "the same bits": "^e2e.Determinism.TheSameRun",
                "ranks": "^e2e.Determinism.Ranks",
                "the seed decides": "^e2e.Determinism.TheSeed",
                "by site": "^e2e.*BySite",
            },
            mutations=[
                Mutation(
                    "the choice depends on the process too",
                    "copy_tree && sed -i 's/mix(seed + kGolden)/mix(seed + kGolden + uint64_t(getpid()))/; "
                    "0,/#include/s//#include <unistd.h>\\n&/' $T/c/shim/policy.cpp && build_copy '' hostcuda sdcguard "
                    "gemm scenarios determinism_test && ctest --test-dir $T/c/b -R '^e2e.Determinism'",
                    "all passed",
                    slow=True,
                )
            ],
        )
        yield self.test_row(
            "observe-tests",
            "Under observe every entry point's output is bit-identical, and what can be checked is.",
            {
                "bit-identical": "^e2e.*Untouched.ObserveIsBitIdentical",
                "checks": "^e2e.*Untouched.ObserveChecks",
                "finds": "^faults.ObserveMode",
            },
            off=("the product pass", "sdcguard_product"),
        )

        yield self.test_row(
            "bug-cases",
            "The 18 public bug cases and their siblings: caught, quiet or counted as not verified, as each must be.",
            {f"P{number:02}": f"^e2e.BugCases.P{number:02}" for number in range(1, 19)},
            off=("the product pass", "sdcguard_product"),
        )

    def surface_rows(self):
        yield Row(
            "symbol-audit",
            "The table of entry points agrees with every cuBLAS that can be had as a wheel, majors 11 to 13.",
            "tools/symbol_audit.py",
            judge.symbol_audit,
            [
                Mutation(
                    "one product taken out of the table",
                    "copy_tree && sed -i '/kDgemmBatched,/d' $T/c/shim/entry_points.def && "
                    "$T/c/tools/symbol_audit.py --cache .cache/wheels",
                    "nothing wrong",
                )
            ],
            missing="" if self.options.long else "fetches 1.5 GB of wheels; run with --long",
        )
        yield Row(
            "coverage-table",
            "Symbol x type x route: every product entry with every type by every route is right, and checked or stated to "
            "go around; no empty cell without a reason.",
            "tools/coverage_table.py $B",
            judge.coverage_table,
            [
                Mutation(
                    "the product pass switched off",
                    "HOSTCUDA_SKIP_KERNEL=sdcguard_product tools/coverage_table.py $B",
                    "exit code 0",
                )
            ],
            needs=["$B/bin/entry_routes_test", "$B/clients/routes"],
        )
        yield self.test_row(
            "driver-sweep",
            "Every driver call of the shim fails in turn, at every position, in every mode, or hangs: the program's answer is "
            "what it would have been, and the coverage says unverified.",
            {"modes": "^e2e.DriverSweep"},
            mutations=[
                Mutation(
                    "a refused launch is taken for a good one",
                    "copy_tree && sed -i 's/on, arguments, nullptr) == CUDA_SUCCESS;/on, arguments, nullptr) <= CUDA_ERROR_UNKNOWN;/' "
                    "$T/c/shim/probe.cpp && build_copy '' hostcuda sdcguard clients driver_sweep_test && "
                    "ctest --test-dir $T/c/b -R '^e2e.DriverSweep.Repair'",
                    "all passed",
                    slow=True,
                )
            ],
        )
        yield self.test_row(
            "processes",
            "Forks, racing first calls, every way to end, signals, lost contexts, captures, streams that come and go: the "
            "program goes on as it would; whatever stream is starved.",
            {
                "processes": "^e2e.*Processes",
                "children": "^e2e.*ChildProcess",
                "starvation": "^e2e.*Starvation",
                "graphs": "^hostcuda.*Graph",
            },
            mutations=[
                Mutation(
                    "the parent's ring is not forgotten after fork",
                    "copy_tree && sed -i 's/^  process_forget_after_fork();//' $T/c/shim/intercept.cpp && "
                    "build_copy '' hostcuda sdcguard clients processes_test && ctest --test-dir $T/c/b -R '^e2e.*Processes.AChild'",
                    "all passed",
                    slow=True,
                )
            ],
        )
        yield self.test_row(
            "ranks",
            "Two processes acting as tensor-parallel ranks: identical decisions and bits at every sampling setting.",
            {"ranks": "^e2e.*RanksAgree"},
            mutations=[
                Mutation(
                    "the product pass switched off: what they agree on is not what it must be",
                    "HOSTCUDA_SKIP_KERNEL=sdcguard_product ctest --test-dir $B -R '^e2e.*RanksAgree'",
                    "all passed",
                )
            ],
        )
        yield self.test_row(
            "weights",
            "A cached fold accuses nothing when its weight changes, streams share it, faults are found by it; batches by "
            "pointer arrays and grouped products are checked and repaired.",
            {
                "kernels": "^stage.FoldCache",
                "the shipped shim": "^e2e.Weights",
                "batches": "^e2e.Batches",
                "observed": "^e2e.Observed",
            },
            off=("the product pass", "sdcguard_product"),
        )
        yield Row(
            "exec",
            "The preload costs a child process at most 0.3 ms: median of 1,000 interleaved pairs.",
            "$B/bin/bench_exec --json",
            judge.exec_cost,
            [
                Mutation(
                    "a shim with half a millisecond of constructor work",
                    "slow_start_shim && $B/bin/bench_exec --json --pairs 200 --shim $T/libmutant.so",
                    "at most 300 us",
                )
            ],
            needs=["$B/bin/bench_exec", "$B/lib/libsdcguard.so"],
        )

    def call_rows(self):
        calls = 10000
        test = "$B/bin/random_calls_test"
        yield Row(
            "random-calls",
            f"{calls} random calls of all 33 entry points, every documented type, layout, scalar and epilogue, guarded "
            "at every call: observe leaves every bit, detect and repair stay within the bound of the error analysis, "
            "nothing is accused, what is not checked is on a list. (How many were looked at is shown, not judged: a third "
            "of the calls has an operand with one entry beyond all others, where a look is the right answer to sums that "
            "overflow.)",
            f"RANDOM_CALLS={calls} {test}",
            judge.random_calls(calls),
            [
                Mutation(
                    "the product pass switched off",
                    f"HOSTCUDA_SKIP_KERNEL=sdcguard_product RANDOM_CALLS=100 {test}",
                    "all passed",
                )
            ],
            needs=[test, "$B/clients/random_calls", "$B/lib/libsdcguard.so"],
            missing="" if self.options.long else "takes half an hour; run with --long",
        )
        yield Row(
            "overhead",
            "A call not sampled costs at most 30 ns over the bare call; a sampled one at most 6 launches and 12 other "
            "driver calls, none banned; over no-op stand-ins, a million interleaved pairs.",
            "$B/bin/bench_overhead --json",
            judge.overhead,
            [
                Mutation(
                    "every call sampled, measured as if none were",
                    "sampled_alone",
                    "at most 30 ns",
                )
            ],
            needs=["$B/bin/bench_overhead", "$B/lib/libsdcguard.so"],
        )
        programs = ["$B/bin/gemm", "$B/bin/sdcguardd", "$B/lib/libsdcguard.so"]
        for kind in ("clean", "dirty"):
            traced = "traced 21" + (" HOSTCUDA_FAULTS=$T/word.toml" if kind == "dirty" else "")
            yield Row(
                f"driver-calls-{kind}",
                f"A warm sampled call, {kind}, makes at most 6 launches and 12 other driver calls on the host "
                "device, none of the banned ones.",
                traced,
                judge.driver_calls(21, kind == "dirty"),
                [Mutation("the first, cold call is counted too", f"{traced} && : >$T/trace.1", "banned")],
                needs=programs,
            )
        for name, claim, verdict, first, second in (
            ("repeat", "The same run repeated gives the same decisions and the same bits.", judge.repeat, "", ""),
            ("two-ranks", "Two ranks decide alike.", judge.two_ranks, " RANK=0", " RANK=1"),
        ):
            yield Row(
                name,
                claim,
                f"sixty one{first} && sixty other{second}",
                verdict,
                [
                    Mutation(
                        "another seed in the second run",
                        f"sixty one{first} && sixty other{second} SDCGUARD_SEED=7",
                        "same decisions",
                    )
                ],
                needs=programs,
            )
        yield Row(
            "observe",
            'Under mode = "observe" the output of the encoder and of the plain client is bit-identical to '
            "the unguarded run, clean and with faults.",
            "compare_outputs observe",
            judge.observe,
            [Mutation("mode = repair", "compare_outputs repair", "bit-identical")],
            needs=programs + ["$B/bin/encoder", ".cache/model/model.safetensors"],
        )

    def statistics_rows(self):
        yield self.test_row(
            "real-model",
            "The weights and activations of a real model, in every order that has BF16: every product is checked, none is "
            "accused, none is looked at.",
            {"orders": "^e2e.*RealModel"},
            off=("the product pass", "sdcguard_product"),
        )
        lines = 100_000_000 if self.options.long else 1_000_000
        campaign = "$B/bin/clean_campaign --json $T/campaign.json"
        yield Row(
            "clean-campaign",
            f"{lines:,} line tests of clean products over 20 kinds of data, every order, format and shape: no entry is "
            "accused, at most one probe in 10,000 is looked at; T by cell count from this tail beside the one in force.",
            f"{campaign} --lines {lines}",
            judge.clean_campaign(lines),
            [Mutation("one entry of every product is wrong", f"{campaign} --lines 3000 --wrong", "nothing is accused")],
            needs=["$B/bin/clean_campaign"],
            timeout=4 * 3600,
        )
        floor = "$B/bin/detection_floor --brief --json $T/floor.json"
        yield Row(
            "detection-floor",
            "99% of single wrong entries of 1e-4 of the product's root mean square are looked at, 1024x4096x1024 Gaussian "
            "FP32; 16-bit outputs as delivered within 1.3 x of the published sizes.",
            floor,
            judge.detection_floor,
            [Mutation("three times the look threshold", f"{floor} --threshold 3", "rounded blocks at most 1e-4")],
            needs=["$B/bin/detection_floor"],
        )
        faults = "$B/bin/fault_campaign --json $T/faults.json"
        count = 20_000 if self.options.long else 2_000
        yield Row(
            "accumulator-faults",
            f"{count:,} accumulator faults at random places in every order, format and kind of data: of bits 20 to 30 at "
            "least 0.9995 are delivered right, of any bit at least 0.99 of those above the entry bound; every miss is "
            "explained.",
            f"{faults} --faults {count}",
            judge.fault_campaign,
            [Mutation("no product pass", f"{faults} --faults 200 --no-product", "every miss is explained")],
            needs=["$B/bin/fault_campaign"],
        )
        wide = "$B/bin/wide_faults --json $T/wide.json"
        yield Row(
            "wide-faults",
            "Wrong columns, rows, tiles, one entry a row and all entries, at each of three shapes and three sizes: 40 of 40 "
            "are caught.",
            wide,
            judge.wide_faults,
            [Mutation("sigma without the cap of its history", f"{wide} --no-cap", "all are caught")],
            needs=["$B/bin/wide_faults"],
        )
        yield self.test_row(
            "tail",
            "The threshold of a stated rate covers the true one in at least 95% of 200 repetitions, on a planted Gaussian "
            "and on a heavy tail; fleet arithmetic agrees with the figures of the statistics.",
            {"the tail": "^unit.Tail", "the fleet": "^unit.Fleet", "explain": "^e2e.Explain"},
            mutations=[
                Mutation(
                    "the estimate without its confidence limit",
                    "copy_tree && sed -i 's/drawn\\[f\\]\\[static_cast.*/0.0);/' $T/c/tools/calibrate/tail.cpp && "
                    "build_copy -DSDCGUARD_CUDA_ARCHS=90 tail_test && ctest --test-dir $T/c/b -R '^unit.Tail'",
                    "all passed",
                    slow=True,
                )
            ],
        )

        calibrate = "$B/bin/sdcguard calibrate --hostcuda --json --profile $T/noise.toml --plot $T/tail.svg"
        yield Row(
            "calibrate",
            "sdcguard calibrate: the tail of clean products on the host device, every exceedance kept, three limits, a "
            "profile and a picture; nothing is learnt from a device that computes wrong.",
            calibrate,
            judge.calibrate,
            [Mutation("one wrong entry in each product", f"HOSTCUDA_FAULTS=$T/word.toml {calibrate}", "a profile")],
            needs=["$B/bin/sdcguard", "$B/lib/hostcuda/libcuda.so.1"],
        )
        yield self.test_row(
            "health",
            "sdcguard check tells PASS, FAIL, SUSPECT, INCOMPLETE and INCONCLUSIVE apart and keeps the evidence of a FAIL; "
            "profiles hold for their key alone; calls of guarded programs are harvested.",
            {
                "check": "^e2e.Check[.]",
                "calibrate": "^e2e.Calibrate[.]",
                "health": "^unit.Health[.]",
                "memory": "^unit.MemoryPattern[.]",
                "profiles": "^unit.Profile",
                "harvest": "^unit.Harvest[.]",
            },
            off=("the product pass", "sdcguard_product"),
        )

    def device_rows(self):
        folder = self.vectors()
        orders = {"H100": "h100", "H200": "h100", "A100": "a100", "L40S": "ada", "V100": "v100", "B200": "b200"}
        files = [
            (orders[path.name.split("_")[0]], path)
            for path in sorted(folder.glob("*_*.u32"))
            if path.name.split("_")[0] in orders
        ]

        def vectors(pairs):
            where = os.path.relpath(folder, self.tree) if folder.is_relative_to(self.tree.parent) else folder
            return f"vectors {where} " + " ".join(f"{order}:{path.name}" for order, path in pairs)

        wrong = [("a100" if path.name.startswith("H100") else order, path) for order, path in files]
        yield Row(
            "vectors",
            f"The tensor-core models reproduce all vectors of {folder.name} bit for bit: BF16, FP16, TF32, FP8.",
            vectors(files),
            judge.vectors(len(files)),
            [Mutation("a100 as the order of H100's files", vectors(wrong), "all matched")],
            needs=["$B/bin/tensor_core_vectors"],
            missing="" if files else f"no vectors in {folder}",
        )
        yield Row(
            "speed",
            "h100 at least 0.15 of OpenBLAS's sgemm for BF16, rounded blocks at least 0.8, in the same run.",
            "$B/bin/bench_gemm --json",
            judge.speed,
            [
                Mutation(
                    "h100 measured under the name of rounded16",
                    "h100_as_rounded16",
                    "rounded16 at least 0.8",
                )
            ],
            needs=["$B/bin/bench_gemm", "$B/libhostcuda_gemm.a"],
        )

    def whole_machine_rows(self):
        o = self.options
        yield Row(
            "check",
            "The house rules hold, and each rule sees a planted breach.",
            "tools/check.py $B && tools/check.py --self-test",
            judge.check,
            [
                Mutation(
                    "a task note in a kernel",
                    "copy_tree && echo '// TODO: remove' >>$T/c/kernels/fold.cu && $T/c/tools/check.py",
                    "all rules held",
                )
            ],
            needs=["tools/check.py", "$B/lib/libsdcguard.so"],
        )
        yield Row(
            "gpu-check",
            "tools/gpu_check.sh --dry-run builds the GPU tier and runs each step on the host device.",
            "tools/gpu_check.sh --dry-run --limit-scale 10 --build-dir $B --out $T/gpu",
            judge.gpu_dry_run,
            [
                Mutation(
                    "the host device without its kernels",
                    "mkdir -p $T/b/lib/hostcuda && cp -a $B/lib/hostcuda/libcu* $T/b/lib/hostcuda/ && "
                    "tools/gpu_check.sh --dry-run --limit-scale 10 --build-dir $T/b --out $T/gpu",
                    "none failed",
                )
            ],
            needs=["tools/gpu_check.sh"],
        )
        sanitizers = {"asan": "address+undefined", "tsan": "thread"}
        for preset, sanitizer in sanitizers.items():
            yield Row(
                preset,
                f"The tests pass under the preset {preset}.",
                f"tools/test.sh {preset}",
                judge.all_tests,
                [
                    Mutation(
                        "a planted overflow, a planted race",
                        "copy_tree && plant_defects && "
                        f"build_copy -DSDCGUARD_SANITIZE={sanitizer} planted_test && "
                        "ctest --test-dir $T/c/b -R Planted",
                        "all passed",
                        slow=True,
                    )
                ],
                missing="" if o.long else "takes an hour; run with --long",
                timeout=4 * 3600,
            )
        root = o.fresh_root or ("$T/fresh-root" if o.long else "")
        both = "tools/quickstart.sh && echo evidence: tests && tools/test.sh"
        yield Row(
            "fresh-root",
            "In a fresh Debian root, nvcc hidden, tools/quickstart.sh ends with the demo's table, tools/test.sh with "
            "ctest's summary, all passed.",
            f"tools/fresh_root.sh {root or 'DIR'} '{both}'",
            judge.fresh_root,
            [
                Mutation(
                    "without tools/setup.sh, in another fresh root",
                    f"tools/fresh_root.sh {root or 'DIR'}.mutant 'sed -i /setup.sh/d tools/*.sh; tools/test.sh'; s=$?; "
                    f"rm -rf {root or 'DIR'}.mutant; exit $s",
                    "what it needs is set up",
                    slow=True,
                )
            ],
            needs=["tools/fresh_root.sh"],
            missing="" if root else "takes an hour and root; run with --long, or --fresh-root DIR",
            timeout=4 * 3600,
        )
