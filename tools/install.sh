#!/bin/sh
# Installs the Debian packages that a task needs and that are missing. Usage: tools/install.sh TASK...
# Tasks: build, test, tidy, fuzz, coverage. Asks the package database first, so that a second run returns at once.
set -eu

packages_of() {
  case "$1" in
    build | test)
      echo g++ cmake ninja-build ccache \
        libdnnl-dev libhwy-dev libfmt-dev libcli11-dev libtomlplusplus-dev nlohmann-json3-dev \
        libxxhash-dev libopenmpi-dev openmpi-bin libgtest-dev libgmock-dev python3 iproute2
      ;;
    tidy) echo "$(packages_of build)" clang-format clang-tidy-16 libomp-16-dev ;;
    fuzz) echo "$(packages_of build)" clang-16 libclang-rt-16-dev libomp-16-dev ;;
    coverage) echo "$(packages_of build)" gcovr ;;
    *)
      echo "tools/install.sh: no task '$1'; tasks: build, test, tidy, fuzz, coverage" >&2
      exit 2
      ;;
  esac
}

wanted=""
for task in "$@"; do
  of_task=$(packages_of "$task")
  wanted="$wanted $of_task"
done

if ! command -v dpkg-query > /dev/null || ! command -v apt-get > /dev/null; then
  echo "tools/install.sh: this is no Debian; the build needs what these packages hold:$wanted" >&2
  exit 0  # CMake says what is really missing
fi

installed=$(dpkg-query --show --showformat='${db:Status-Status} ${Package}\n' $wanted 2> /dev/null |
  sed -n 's/^installed //p') || true
missing=""
for package in $wanted; do
  if ! printf '%s\n' "$installed" | grep -qxF "$package"; then
    missing="$missing $package"
  fi
done
if [ -z "$missing" ]; then
  exit 0
fi

as_root=""
if [ "$(id -u)" != 0 ]; then
  if command -v sudo > /dev/null; then
    as_root="sudo"
  else
    echo "tools/install.sh: these packages are missing, and installing them takes root. Run as root:" >&2
    echo "  apt-get update && apt-get install --no-install-recommends$missing" >&2
    exit 1
  fi
fi

echo "tools/install.sh: installing$missing" >&2
apt="$as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -y -o Acquire::Retries=3 -o DPkg::Lock::Timeout=300"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! { $apt update && $apt install --no-install-recommends $missing; } > "$log" 2>&1 < /dev/null; then
  cat "$log" >&2
  echo "tools/install.sh: apt-get failed (above); the packages wanted were:$missing" >&2
  exit 1
fi
