#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Shows each claim by a command: clones HEAD into a temporary folder, builds it, runs every row of tools/evidence/rows.py and
# prints claim, command, figure, exit code and the mutation that turns the row red, the mutation run too.
#
#   tools/evidence.sh [--list] [--only NAME,...] [--json FILE] [--long] [--fresh-root DIR] [--self-test]
#                     [--in-place] [--build-dir DIR]
#
# Exit code 0 only if every row asked for is green and none is MISSING.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
command -v python3 >/dev/null && command -v git >/dev/null || "$here/setup.sh"
exec python3 -B "$here/evidence/driver.py" "$@"
