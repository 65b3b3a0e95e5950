#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Holds the house rules that a compiler does not: layering, exports, NEEDED, knob docs, the hot fences, formatting.

usage: tools/check.py [BUILD_DIR] [--self-test]

Without BUILD_DIR only the sources are checked. --self-test plants one breach of every rule in a copy of the sources and
fails if a rule does not see its own. Exit code 0: all held; 1: breaches, one line each; 2: the script could not run.
"""
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
SOURCE_SUFFIXES = {".h", ".cpp", ".cu", ".c", ".def", ".S"}

# folder -> folders whose headers it may include (its own always). DESIGN section 7.
LAYERS = {
    "include": set(),
    "config": {"include"},
    "kernels": {"include"},
    "shim": {"include", "config", "kernels"},
    "tools/ring": {"include"},
    "tools/daemon": {"include", "config", "tools/ring"},
    "tools/calibrate": {"include", "tools/ring"},
    "tools/measure": {"include", "kernels", "tools/calibrate"},
    "tools/cli": {"include", "config", "kernels", "tools/ring", "tools/calibrate", "tools/measure"},
    # the host device runs host-compiled kernels (kernels/simt_host.h) and logs the entry bound of each fault it injects
    "tools/hostcuda": {"kernels", "include"},
    "examples": set(),
}
NO_CUDA = {"include", "config", "tools/ring", "tools/daemon", "tools/calibrate", "tools/cli"}
FORBIDDEN_STEMS = {"utils", "util", "common", "helpers", "helper", "manager", "misc"}
ALLOWED_NEEDED = {"libc.so.6", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}
HOT_BANNED = [
    (r"\bnew\b", "new"), (r"\bmalloc\b|\bcalloc\b", "malloc"), (r"std::string\b", "std::string"),
    (r"std::function\b", "std::function"), (r"\bmutex\b|pthread_mutex", "mutex"), (r"\bthrow\b", "throw"),
    (r"[Ss]ynchronize", "synchronise"), (r"\bprintf\b|\bfprintf\b|std::cerr|\bwrite\(", "log"),
    (r"\bdlsym\b|\bdlopen\b", "dynamic lookup"), (r"\bgetenv\b", "getenv"),
]


def sources(root):
    for folder in ("include", "config", "kernels", "shim", "tools", "examples", "tests"):
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in SOURCE_SUFFIXES and path.is_file():
                yield path


def layer_of(relative):
    text = relative.as_posix()
    for layer in sorted(LAYERS, key=len, reverse=True):
        if text.startswith(layer + "/"):
            return layer
    return None


def check_layering(root):
    for path in sources(root):
        relative = path.relative_to(root)
        layer = layer_of(relative)
        if layer is None:
            continue
        for number, line in enumerate(path.read_text().splitlines(), 1):
            match = re.match(r'\s*#\s*include\s+["<]([^">]+)[">]', line)
            if not match:
                continue
            included = match.group(1)
            if included == "shim/entry_points.def":  # names of entry points, no code: record readers need them
                continue
            where = f"{relative}:{number}"
            if layer in NO_CUDA and re.match(r"(cuda|cublas|cuda_runtime|cublasLt|cublas_api)[\w]*\.h$", included):
                yield f"{where}: {layer} includes the CUDA header {included}; it must build without CUDA"
            target = layer_of(pathlib.Path(included))
            if included.startswith("sdcguard/"):
                target = "include"
            if target is None and included.startswith("tests/"):
                yield f"{where}: nothing depends on tests, but {layer} includes {included}"
            if target is not None and target != layer and target not in LAYERS[layer]:
                yield f"{where}: {layer} may include {sorted(LAYERS[layer]) or 'nothing'}, not {included}"


def check_cuda_macro(root):
    allowed = {"kernels/simt.h", "kernels/simt_host.h", "include/sdcguard/record.h"}
    for path in sources(root):
        relative = path.relative_to(root).as_posix()
        if relative in allowed:
            continue
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if re.search(r"#\s*if.*__CUDACC__|#\s*if.*__CUDA_ARCH__", line):
                yield f"{relative}:{number}: __CUDACC__ belongs in kernels/simt.h alone: one source for both compilers"


def check_stems(root):
    for path in sources(root):
        if path.stem in FORBIDDEN_STEMS:
            yield f"{path.relative_to(root)}: the stem '{path.stem}' says nothing; name the stage or the thing"


def check_spdx(root):
    for path in sources(root):
        if "SPDX-License-Identifier: MIT" not in path.read_text()[:200]:
            yield f"{path.relative_to(root)}: the first lines lack 'SPDX-License-Identifier: MIT'"


def check_knobs(root):
    header = (root / "config/config.h").read_text()
    manual = (root / "config/sdcguard.toml").read_text()
    keys = re.findall(r'X\((\w+), "(SDCGUARD_\w+)"', header)
    if not keys:
        yield "config/config.h: no knob found in SDCGUARD_KNOBS"
    for key, variable in keys:
        if variable != "SDCGUARD_" + key.upper():
            yield f"config/config.h: knob {key} has the variable {variable}, not SDCGUARD_{key.upper()}"
        if not re.search(rf"^#?\s*{key}\s*=", manual, re.M):
            yield f"config/sdcguard.toml: the knob '{key}' is not in the manual"
    known = {key for key, _ in keys}
    for key in re.findall(r"^#?\s?(\w+) = ", manual, re.M):
        if key not in known:
            yield f"config/sdcguard.toml: '{key}' is no knob of config/config.h"


def check_hot_fences(root):
    fences = 0
    for path in sources(root):
        if not path.relative_to(root).as_posix().startswith("shim/"):
            continue
        inside = False
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if "// hot: begin" in line:
                inside, fences = True, fences + 1
            elif "// hot: end" in line:
                inside = False
            elif inside:
                code = line.split("//")[0]
                for pattern, name in HOT_BANNED:
                    if re.search(pattern, code):
                        yield f"{path.relative_to(root)}:{number}: {name} inside the hot fence"
        if inside:
            yield f"{path.relative_to(root)}: '// hot: begin' without '// hot: end'"
    if fences == 0:
        yield "shim: no hot fence found; the path of an unsampled call must be fenced"


def check_kernels(root):
    banned = [(r"\bprintf\b", "printf"), (r"\basm\b", "asm"), (r"cooperative_groups", "cooperative groups"),
              (r"__shfl", "a bare shuffle"), (r"\bexp2f\b|\blog2f\b|__expf", "a function that differs between compilers"),
              (r"__syncthreads\b", "a bare __syncthreads")]
    for path in sorted((root / "kernels").glob("*.cu")):
        for number, line in enumerate(path.read_text().splitlines(), 1):
            for pattern, name in banned:
                if re.search(pattern, line.split("//")[0]):
                    yield f"{path.relative_to(root)}:{number}: {name}: not in a kernel (kernels/simt.h has what is allowed)"


def check_tasks(root):
    for path in sources(root):
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if re.search(r"\b(TODO|FIXME|XXX|HACK)\b(?!\(#\d)", line):
                yield f"{path.relative_to(root)}:{number}: a task note without an issue number"
            if re.search(r"GTEST_SKIP|DISABLED_", line):
                yield f"{path.relative_to(root)}:{number}: a skipped test"


def check_format(root):
    if shutil.which("clang-format") is None:
        yield "clang-format is not installed (tools/setup.sh installs it)"
        return
    files = [str(p) for p in sources(root) if p.suffix in {".h", ".cpp", ".cu", ".c"}]
    result = subprocess.run(["clang-format", "--dry-run", "-Werror", *files], capture_output=True, text=True, cwd=root)
    for line in sorted(set(re.findall(r"^(\S+?):\d+:\d+: error", result.stderr, re.M))):
        yield f"{pathlib.Path(line).relative_to(root) if line.startswith('/') else line}: not clang-format clean"


SOURCE_CHECKS = [check_layering, check_cuda_macro, check_stems, check_spdx, check_knobs, check_hot_fences, check_kernels,
                 check_tasks, check_format]


def table_of_entries(root):
    """Every symbol of shim/entry_points.def, as the compiler reads it, and dlsym."""
    out = subprocess.run(["c++", "-E", "-P", "-x", "c++", "-D", "SDCGUARD_ENTRY(index, kind, form, symbol, ...)=@symbol@",
                          root / "shim/entry_points.def"], capture_output=True, text=True, check=True).stdout
    return set(re.findall(r"@(\w+)@", out)) | {"dlsym"}


def exported(library):
    out = subprocess.run(["nm", "-D", "--defined-only", library], capture_output=True, text=True, check=True).stdout
    return {line.split()[-1] for line in out.splitlines() if line.split()}


def check_shim_binary(root, build):
    library = build / "lib/libsdcguard.so"
    if not library.exists():
        yield f"{library}: not built"
        return
    instrumented = "sanitize" in " ".join(
        line for line in (build / "CMakeCache.txt").read_text().splitlines() if re.match(r"SDCGUARD_SANITIZE:\w+=.+", line)
    ).lower() and not re.search(r"^SDCGUARD_SANITIZE:\w+=$", (build / "CMakeCache.txt").read_text(), re.M)
    names, want = exported(library), table_of_entries(root)
    if names != want and not instrumented:
        yield f"{library.name}: exports {sorted(names - want)} too many, lacks {sorted(want - names)}"
    dynamic = subprocess.run(["readelf", "-dW", library], capture_output=True, text=True, check=True).stdout
    needed = set(re.findall(r"\(NEEDED\).*\[(.+?)\]", dynamic))
    if not needed <= ALLOWED_NEEDED and not instrumented:
        yield f"{library.name}: NEEDED {sorted(needed - ALLOWED_NEEDED)}; only libc and ld-linux are allowed"
    versions = subprocess.run(["readelf", "-VW", library], capture_output=True, text=True, check=True).stdout
    if "Version definition" in versions:
        yield f"{library.name}: defines symbol versions; a named node intercepts nothing"


def plant_breaches(root):
    """One breach a rule; returns what each must be seen by."""
    (root / "config/planted.h").write_text("// SPDX-License-Identifier: MIT\n#include <cublas_api.h>\n#include \"shim/policy.h\"\n")
    (root / "kernels/planted.cu").write_text("// SPDX-License-Identifier: MIT\n#ifdef __CUDACC__\n#endif\nvoid f() { printf(\"\"); }\n")
    (root / "tools/cli/helpers.cpp").write_text("int  x ;\n// TODO later\n")
    (root / "shim/planted.h").write_text("// SPDX-License-Identifier: MIT\n// hot: begin\nint* p = new int;\n// hot: end\n")
    manual = root / "config/sdcguard.toml"
    manual.write_text(re.sub(r"^#?\s*every\s*=.*$", "", manual.read_text(), flags=re.M))
    return {"check_layering": "config", "check_cuda_macro": "planted.cu", "check_stems": "helpers", "check_spdx": "helpers",
            "check_knobs": "every", "check_hot_fences": "new inside", "check_kernels": "printf", "check_tasks": "task note",
            "check_format": "helpers.cpp"}


def self_test():
    with tempfile.TemporaryDirectory() as folder:
        copy = pathlib.Path(folder) / "tree"
        copy.mkdir()
        for name in ("include", "config", "kernels", "shim", "tools", "examples", "tests", ".clang-format"):
            source = ROOT / name
            if source.is_dir():
                shutil.copytree(source, copy / name)
            else:
                shutil.copy(source, copy / name)
        expected = plant_breaches(copy)
        blind = [check.__name__ for check in SOURCE_CHECKS
                 if not any(expected[check.__name__] in line for line in check(copy))]
        for name in blind:
            print(f"check.py: {name} does not see its planted breach")
        print(f"check.py: {len(SOURCE_CHECKS) - len(blind)} of {len(SOURCE_CHECKS)} rules see their planted breach")
        return 1 if blind else 0


def main():
    arguments = [a for a in sys.argv[1:] if a != "--self-test"]
    if "--self-test" in sys.argv:
        return self_test()
    breaches = [line for check in SOURCE_CHECKS for line in check(ROOT)]
    if arguments:
        breaches += list(check_shim_binary(ROOT, pathlib.Path(arguments[0]).resolve()))
    for line in breaches:
        print(f"check.py: {line}")
    if not breaches:
        print("check.py: all rules held")
    return 1 if breaches else 0


if __name__ == "__main__":
    sys.exit(main())
