#!/bin/sh
# Both commands of the README from nothing: a fresh minimal Debian 12 in a folder, the committed tree cloned into it,
# `make demo` and `make test` inside. Needs root, debootstrap and about 3 GB; takes the time of a build. Outside CI.
#
#   tests/chroot.sh FOLDER       FOLDER is made, and left for a look
set -eu
root=$1
source=$(cd "$(dirname "$0")/.." && pwd)
mirror=$(sed -n -e 's/^deb \(\[[^]]*\] \)\?\([^ ]*\) .*/\2/p' -e 's/^URIs: *\([^ ]*\).*/\1/p' \
  /etc/apt/sources.list /etc/apt/sources.list.d/* 2> /dev/null | head -n 1)

if [ ! -e "$root/etc/debian_version" ]; then
  debootstrap --variant=minbase --include=git,make,python3,ca-certificates bookworm "$root" "$mirror"
  # The same way to the archive as this machine has.
  cp -a /etc/apt/sources.list /etc/apt/sources.list.d /etc/apt/apt.conf.d "$root/etc/apt/" 2> /dev/null || true
  cp /etc/resolv.conf "$root/etc/" 2> /dev/null || true
fi
git clone --quiet "$source" "$root/root/trireme"
mount -t proc proc "$root/proc"
trap 'umount "$root/proc"' EXIT

inside() {
  env -i HOME=/root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 \
    ${http_proxy:+http_proxy="$http_proxy"} ${https_proxy:+https_proxy="$https_proxy"} \
    chroot "$root" sh -c "cd /root/trireme && $1"
}
for command in "make demo" "make test" "make demo"; do
  echo "== $command"
  begin=$(date +%s)
  inside "$command"
  echo "== $command: $(($(date +%s) - begin)) s"
done
