#!/usr/bin/env bash
# A working Docker engine, and a local base image where no registry can be reached. Debian and Ubuntu; needs root and apt.
#   scripts/docker-engine.sh             install the distribution's engine unless one is there, start it, wait until it answers
#   scripts/docker-engine.sh base NAME   the same, then make image NAME: a minimal Debian bookworm with Python 3.11
# Does nothing that is done already, and leaves an engine that answers alone. Exit code 3 where it cannot.
set -euo pipefail

usage() {
  sed -n '2,5s/^# \{0,1\}//p' "$0" >&2
  exit 2
}

fail() {
  printf '\n*** docker-engine: %s\n*** docker-engine: %s\n\n' "$1" "$2" >&2
  exit 3
}

say() { printf 'docker-engine: %s (%d s)\n' "$1" "$SECONDS"; }

engine_answers() { command -v docker >/dev/null && docker version --format '{{.Server.Version}}' >/dev/null 2>&1; }

need_root_and_apt() {
  [ "$(id -u)" -eq 0 ] || fail "$1 needs root, and this is user $(id -un)" "run it as root: sudo $0"
  command -v apt-get >/dev/null || fail "$1 needs apt-get, and this machine has none" "install $2 by hand (Debian and Ubuntu only)"
}

apt_install() {
  export DEBIAN_FRONTEND=noninteractive
  local log=$scratch/apt.log
  { apt-get update -qq && apt-get install -y -qq --no-install-recommends "$@"; } >"$log" 2>&1 </dev/null && return
  tail -n 5 "$log" >&2
  fail "apt could not install: $*" "see the lines above; check the network and apt's sources"
}

# Where another dockerd is just starting, ours ends at once; the other gets some seconds more.
start_engine() {
  local log=${KIT_ENGINE_LOG:-/var/log/kit-dockerd.log} left=${KIT_ENGINE_WAIT:-60} pid=
  if [ -d /run/systemd/system ] && systemctl start docker >/dev/null 2>&1; then
    log="journalctl -u docker"
  else
    setsid dockerd >"$log" 2>&1 </dev/null &
    pid=$!
  fi
  while ((left-- > 0)); do
    if engine_answers; then return; fi
    if [ -n "$pid" ] && ! kill -0 "$pid" 2>/dev/null; then
      pid=
      left=$((left < 5 ? left : 5))
    fi
    sleep 1
  done
  fail "the engine does not answer" "see $log"
}

make_base() {
  local name=$1 root=$scratch/root log=$scratch/debootstrap.log
  if docker image inspect "$name" >/dev/null 2>&1; then
    say "image $name is there"
    return
  fi
  need_root_and_apt "making a base image" debootstrap
  if ! command -v debootstrap >/dev/null; then
    apt_install debootstrap
    say "debootstrap installed"
  fi
  local packages=python3,python3-venv,python3-pip,ca-certificates
  if ! debootstrap --variant=minbase "--include=$packages" bookworm "$root" "${KIT_DEBIAN_MIRROR:-}" >"$log" 2>&1; then
    tail -n 5 "$log" >&2
    fail "debootstrap failed" "see the lines above; KIT_DEBIAN_MIRROR names another mirror"
  fi
  rm -rf "$root"/var/cache/apt/archives/*.deb "$root"/var/lib/apt/lists/*
  tar -C "$root" --numeric-owner -c . | docker import --change 'CMD ["python3"]' - "$name" >/dev/null
  say "image $name made"
}

case "$#:${1:-}" in
  0:) ;;
  2:base) [ -n "$2" ] || usage ;;
  *) usage ;;
esac
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

if ! engine_answers; then
  need_root_and_apt "installing an engine" Docker
  if ! command -v dockerd >/dev/null; then
    apt_install docker.io iptables
    say "docker.io installed"
  fi
  start_engine
fi
say "engine $(docker version --format '{{.Server.Version}}') answers"
if [ "${1:-}" = base ]; then make_base "$2"; fi
