#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The driver of tools/evidence.sh: every claim a row; a row is a command, a judgement of its output, and mutations.

A row is green if every condition of its judgement holds and each of its mutations, run under the same judgement, breaks
the conditions that it names. A mutation whose output cannot be judged proves nothing: the row is red. A row that could
not run (no such program, test or folder, or it takes --long) is MISSING. Zero tests, files or calls are never green.
Commands run by bash in the root of the tree, after commands.sh, with B the build folder and T a scratch folder.
"""

import argparse
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import textwrap
import time

from judgements import Judgement, Output, Unreadable
from judgements import tests as judge_tests
from rows import Mutation, Row, Rows

SOURCE = pathlib.Path(__file__).resolve().parents[2]
COMMANDS = pathlib.Path(__file__).resolve().parent / "commands.sh"
GREEN, RED, MISSING = "green", "RED", "MISSING"


class Runner:
    def __init__(self, options, tree, build):
        self.options, self.tree, self.build = options, tree, build
        self.rows = Rows(options, SOURCE, tree, build)

    def prepare(self):
        """A build of the tree, where the rows so far have not made one."""
        if self.options.build_dir is not None:
            return
        wanted = (
            "bin/sdcguard",
            "bin/bench_overhead",
            "bin/bench_gemm",
            "bin/probe_test",
            "bin/encoder",
            "bin/tensor_core_vectors",
        )
        if (
            all((self.build / path).exists() for path in wanted)
            and (self.tree / ".cache/model/model.safetensors").exists()
        ):
            return
        command = (
            "tools/setup.sh && source tools/environment.sh && tools/fetch_model.sh && "
            'cmake --preset cpu -DCUDA_ROOT="$CUDA_ROOT" -Wno-dev >/dev/null && cmake --build --preset cpu'
        )
        say(f"evidence: building in {self.tree}\n  $ {command}")
        built = subprocess.run(
            ["bash", "-c", command], cwd=self.tree, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        if built.returncode != 0:
            say(built.stdout[-4000:])
            say(f"evidence: the build ended with {built.returncode}; rows that need it will be MISSING")

    def environment(self, scratch):
        """This machine's, without settings of ours; REAL_CUDA_LIBRARIES is the tests' own."""
        kept = {
            key: value
            for key, value in os.environ.items()
            if not key.startswith(("SDCGUARD_", "HOSTCUDA_", "LD_")) or key == "REAL_CUDA_LIBRARIES"
        }
        return {
            **kept,
            "B": str(self.build),
            "T": str(scratch),
            "REAL": self.rows.real_libraries(),
            "GTEST_COLOR": "no",
        }

    def judged(self, row, command):
        """(Output, Judgement or None, why it could not be judged)."""
        with tempfile.TemporaryDirectory(prefix="sdcguard-evidence-") as folder:
            scratch = pathlib.Path(folder)
            started = time.monotonic()
            with tempfile.TemporaryFile("w+", errors="replace") as errors:
                process = subprocess.Popen(
                    ["bash", "-c", f"source {COMMANDS}\n{command}"],
                    cwd=self.tree,
                    env=self.environment(scratch),
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    text=True,
                    errors="replace",
                    start_new_session=True,
                )
                try:
                    text, _ = process.communicate(timeout=row.timeout)
                except subprocess.TimeoutExpired:
                    kill_all_of(scratch)
                    text, _ = process.communicate()
                    text += f"\nevidence: stopped after {row.timeout} s\n"
                except BaseException:
                    kill_all_of(scratch)
                    raise
                errors.seek(0)
                both = errors.read() + text
            output = Output(process.returncode, text, both, time.monotonic() - started, scratch)
            try:
                judgement = row.judge(output)
                judgement.conditions["exit code 0"] = output.code == 0
                return output, judgement, ""
            except (Unreadable, KeyError, TypeError, ValueError, OSError, IndexError) as error:
                tail = " | ".join(line.strip() for line in output.both.splitlines()[-4:])
                return output, None, f"{type(error).__name__}: {error}; output ends: {tail[-400:]}"

    def missing_reason(self, row):
        if row.missing:
            return row.missing
        for need in row.needs:
            path = pathlib.Path(need.replace("$B", str(self.build)))
            if not (path if path.is_absolute() else self.tree / path).exists():
                return f"{need} is not there"
        absent = [
            f"{what} ({pattern})"
            for what, pattern in row.tests.items()
            if not any(re.search(pattern, name) for name in self.rows.test_names())
        ]
        return f"no such test: {', '.join(absent)}" if absent else ""

    def run_row(self, row):
        result = {
            "name": row.name,
            "claim": row.claim,
            "command": row.command,
            "status": MISSING,
            "exit": None,
            "figure": "",
            "seconds": 0,
            "conditions": {},
            "mutations": [],
        }
        say(f"\n[{row.name}] {row.claim}\n  $ {row.command}")
        reason = self.missing_reason(row)
        if reason:
            result["figure"] = reason
            say(f"  MISSING: {reason}")
            for mutation in row.mutations:
                result["mutations"].append(
                    {"what": mutation.what, "command": mutation.command, "status": "not run here"}
                )
            return result
        output, judgement, why = self.judged(row, row.command)
        result.update(exit=output.code, seconds=round(output.seconds, 1))
        if judgement is None:
            result.update(status=RED, figure=why)
        else:
            result.update(
                status=RED if judgement.broken() else GREEN, figure=judgement.figure, conditions=judgement.conditions
            )
        say(
            f"  {result['figure']}\n  exit {output.code}, {output.seconds:.1f} s: {result['status']}"
            + (f", not held: {'; '.join(judgement.broken())}" if judgement and judgement.broken() else "")
        )
        if result["status"] == RED:
            say(textwrap.indent("\n".join(output.both.splitlines()[-25:]), "  | "))
        for mutation in row.mutations:
            result["mutations"].append(self.run_mutation(row, mutation))
            if result["mutations"][-1]["status"] not in ("red", "not run here"):
                result["status"] = RED
        if not row.mutations:
            result["status"] = RED  # a claim that nothing can turn red is no claim
        return result

    def run_mutation(self, row, mutation):
        result = {"what": mutation.what, "command": mutation.command, "status": "not run here"}
        if mutation.slow and not self.options.long:
            say(f"  mutation not run here: {mutation.what}\n    $ {mutation.command}")
            return result
        say(f"  mutation: {mutation.what}\n    $ {mutation.command}")
        output, judgement, why = self.judged(row, mutation.command)
        result.update(exit=output.code, seconds=round(output.seconds, 1), figure=judgement.figure if judgement else why)
        if judgement is None:
            result["status"] = "CANNOT BE JUDGED"
        elif any(mutation.breaks in text for text in judgement.broken()):
            result["status"] = "red"
        else:
            result["status"] = "STAYS GREEN"
        broken = "; ".join(judgement.broken()) if judgement else ""
        say(
            f"    {result['figure']}\n    exit {output.code}, {output.seconds:.1f} s: {result['status']}"
            + (
                f" as it must (not held: {broken})"
                if result["status"] == "red"
                else f" (it should break: {mutation.breaks})"
            )
        )
        return result


def kill_all_of(scratch):
    """Every process that a row's command started and that lives: known by T in its environment, in whatever session."""
    mark = f"T={scratch}".encode()
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if mark in (process / "environ").read_bytes().split(b"\0"):
                os.kill(int(process.name), signal.SIGKILL)
        except (OSError, ValueError):
            pass  # gone meanwhile, or not ours


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


def finish(results, options, head):
    counts = {status: sum(result["status"] == status for result in results) for status in (GREEN, RED, MISSING)}
    mutations = [mutation for result in results for mutation in result["mutations"]]
    print_table(results)
    say(
        f"\n{head}: {counts[GREEN]} green, {counts[RED]} red, {counts[MISSING]} missing, {len(results)} rows; "
        f"{sum(m['status'] == 'red' for m in mutations)} of {len(mutations)} mutations turned red"
    )
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps({"head": head, **counts, "rows": results}, indent=1) + "\n")
    return 0 if results and counts[GREEN] == len(results) else 1


def self_test():
    """The driver over rows of its own: what must not be green is not."""
    options = argparse.Namespace(long=False, build_dir=None, in_place=True, json=None, seeds=1, fresh_root=None)
    with tempfile.TemporaryDirectory() as folder:
        runner = Runner(options, pathlib.Path(folder), pathlib.Path(folder))
        runner.rows.listed_tests = ["stage.A.b"]

        def judge(output):
            if "number" not in output.out:
                raise Unreadable("no number")
            return Judgement(output.out, {"number is 1": "number 1" in output.out})

        turns_red = Mutation("another number", "echo number 2", "number is 1")

        def status(**changes):
            values = dict(name="row", claim="claim", command="echo number 1", judge=judge, mutations=[turns_red])
            return runner.run_row(Row(**{**values, **changes}))["status"]

        none_ran = "echo '100% tests passed, 0 tests failed out of 0'"
        one_ran = "echo '100% tests passed, 0 tests failed out of 1'"
        fails = Mutation("one fails", "echo '0% tests passed, 1 tests failed out of 1'", "all passed")
        cases = [
            ("a claim that holds", GREEN, status()),
            ("a wrong figure", RED, status(command="echo number 2")),
            ("a failing command with a good figure", RED, status(command="echo number 1; exit 3")),
            ("an output that cannot be judged", RED, status(command="echo nothing")),
            ("a mutation that stays green", RED, status(mutations=[Mutation("none", "echo number 1", "number is 1")])),
            (
                "a mutation that breaks something else",
                RED,
                status(mutations=[Mutation("other", "echo number 1; exit 1", "number is 1")]),
            ),
            (
                "a mutation that does not run",
                RED,
                status(mutations=[Mutation("typo", "no_such_program", "number is 1")]),
            ),
            ("no mutation", RED, status(mutations=[])),
            ("a program that is not there", MISSING, status(needs=["$B/bin/absent"])),
            ("a test that is not there", MISSING, status(tests={"absent": "^stage.C"})),
            ("a test that is there", GREEN, status(tests={"there": "^stage.A"})),
            ("a command past its time", RED, status(command="setsid sleep 60", timeout=1)),
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
    parser = argparse.ArgumentParser(
        prog="tools/evidence.sh", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--list", action="store_true", help="names of the rows and their claims")
    parser.add_argument(
        "--only", metavar="NAME", action="append", help="these rows alone (a comma between, or several times)"
    )
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
    head = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=SOURCE, capture_output=True, text=True
    ).stdout.strip()
    with tempfile.TemporaryDirectory(prefix="sdcguard-clone-") as folder:
        tree = SOURCE
        if not options.in_place and not options.list:
            tree = pathlib.Path(folder) / "sdcguard"
            subprocess.run(["git", "clone", "--quiet", "--no-hardlinks", str(SOURCE), str(tree)], check=True)
        elif options.in_place:
            head += " and the working tree"
        build = pathlib.Path(options.build_dir).resolve() if options.build_dir else tree / "build/cpu"
        runner = Runner(options, tree, build)
        names = [row.name for row in runner.rows]
        wanted = [name for text in options.only or [] for name in text.split(",")]
        unknown = [name for name in wanted if name not in names]
        if unknown:
            parser.error(f"no row {', '.join(unknown)}; there are: {', '.join(names)}")
        if options.list:
            for row in runner.rows:
                say(f"{row.name:18} {row.claim}")
            return 0
        say(
            f"evidence: in {tree}; B={build}, T={{a scratch folder}}, REAL={runner.rows.real_libraries()}; after\n"
            + textwrap.indent(COMMANDS.read_text(), "  ")
        )
        results = []
        for name in wanted or names:
            # The first two rows build the clone; the rows after them know the tests that are there then.
            if name not in ("quickstart", "tests"):
                runner.prepare()
            results.append(runner.run_row(next(row for row in runner.rows if row.name == name)))
        return finish(results, options, head)


if __name__ == "__main__":
    sys.exit(main())
