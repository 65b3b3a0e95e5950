#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Runs a command in a fresh Debian 12, in a fresh clone of HEAD at /src, with a clean environment: nothing of this
# machine's programs, no nvcc.
#
#   tools/fresh_root.sh ROOT COMMAND     ROOT: a folder to make with mmdebstrap, or one that this script made before
#
# Needs root and mmdebstrap. The packages come from this machine's own Debian sources, and the certificates that this
# machine adds to Debian's are added there too. All mounts live in a mount namespace of the command's own: they are gone
# when it ends, however it ends. A root is used again as it was left (its packages stay installed); /src is always new.
# Exit code: that of the command; 2: the root could not be made.
set -euo pipefail
usage() { sed -n '3,12s/^# \{0,1\}//p' "$0" >&2; exit 2; }
[[ $# -eq 2 && -n $1 && $1 != -* ]] || usage
source_dir=$(cd "$(dirname "$0")/.." && pwd)
root=$(readlink -m "$1")
die() { echo "fresh_root.sh: $*" >&2; exit 2; }
[[ $root != / ]] || die "ROOT is this machine's own"
[[ $(id -u) -eq 0 ]] || die "needs root, for chroot and mounts"
marker=etc/sdcguard-fresh-root

if [[ ! -e $root ]]; then
  command -v mmdebstrap >/dev/null || die "mmdebstrap is not installed (apt-get install mmdebstrap)"
  sources=()
  for list in /etc/apt/sources.list /etc/apt/sources.list.d/*.sources /etc/apt/sources.list.d/*.list; do
    [[ -f $list ]] && grep -q -E 'debian-archive-keyring|://[^ ]*\.debian\.org/debian' "$list" && sources+=("$list")
  done
  ((${#sources[@]})) || sources=(http://deb.debian.org/debian)
  mkdir -p "$(dirname "$root")"
  mmdebstrap --quiet --variant=minbase bookworm "$root" "${sources[@]}" >&2 || { rm -rf "$root"; die "mmdebstrap failed"; }
  touch "$root/$marker"
fi
[[ -e $root/$marker ]] || die "$root is there and was not made by this script"

for certificate in /usr/local/share/ca-certificates/*.crt; do
  [[ -f $certificate ]] && install -D -m 644 "$certificate" -t "$root/usr/local/share/ca-certificates"
done
cp -L /etc/resolv.conf /etc/hosts "$root/etc/"
rm -rf "$root/src"
git clone --quiet --no-hardlinks "$source_dir" "$root/src"

# What reaches the network the way this machine does; nothing else of its environment.
kept=()
for name in http_proxy https_proxy no_proxy PIP_INDEX_URL PIP_DEFAULT_TIMEOUT; do
  [[ -n ${!name:-} ]] && kept+=("$name=${!name}")
done
[[ -d $root/usr/local/share/ca-certificates ]] && kept+=(PIP_CERT=/etc/ssl/certs/ca-certificates.crt)

exec unshare --mount --propagation private bash -c '
  set -e
  root=$1 command=$2
  shift 2
  mount -t proc proc "$root/proc"
  mount --rbind /dev "$root/dev"
  mount --rbind /sys "$root/sys"
  exec chroot "$root" /usr/bin/env -i HOME=/root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    LANG=C.UTF-8 "$@" bash -c "cd /src && $command"
' fresh_root "$root" "$2" ${kept[@]+"${kept[@]}"}
