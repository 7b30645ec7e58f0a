#!/usr/bin/env bash
# Builds the CPU image where a container engine answers. The base is, in this order: a local base image of that name, the
# definition's own base where a registry can be reached, and a local base image made for the purpose.
#   image.sh KIT LOCAL_BASE
set -euo pipefail
kit=$1 base=$2

if ! command -v docker >/dev/null || ! docker info >/dev/null 2>&1; then
  echo "image: no container engine answers, so no image is built"
  exit 0
fi
if docker image inspect "$base" >/dev/null 2>&1; then
  exec "$kit" images build cpu --base "$base"
fi
"$kit" images build cpu && exit 0
echo "image: the base of the definition cannot be had; making the local base $base" >&2
scripts/docker-engine.sh base "$base"
exec "$kit" images build cpu --base "$base"
