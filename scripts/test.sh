#!/usr/bin/env bash
# Lints, types and tests everything. Installs and starts a Docker Engine where root allows; says loudly where it cannot.
#   test.sh VENV LOCAL_BASE [pytest arguments]
# With KIT_NIGHTLY=1 it runs the tests marked nightly, and those alone; else all others.
set -euo pipefail
venv=$1 base=$2
shift 2

"$venv/bin/ruff" check .
"$venv/bin/ruff" format --check .
"$venv/bin/mypy"
"$venv/bin/hadolint" Dockerfile.*

# The report is tested in a real browser; its tests are skipped, and say so, where there is none.
if ! command -v chromium >/dev/null && [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null; then
  export DEBIAN_FRONTEND=noninteractive
  { apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core; } >/dev/null 2>&1 ||
    echo "NO CHROMIUM: apt could not install it, so the report is NOT tested in a browser" >&2
fi

# Launch faults are provoked on Podman too, where root can have it; catatonit is its --init, uidmap lets an ordinary user have it.
if ! { command -v podman && command -v newuidmap; } >/dev/null && [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null; then
  export DEBIAN_FRONTEND=noninteractive
  { apt-get update -qq && apt-get install -y -qq --no-install-recommends podman catatonit uidmap; } >/dev/null 2>&1 ||
    echo "NO PODMAN: apt could not install it, so launch faults are NOT provoked on it" >&2
fi

# A pushed image is pulled again from a real registry; its tests are skipped, and say so, where there is none.
if ! command -v docker-registry >/dev/null && [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null; then
  export DEBIAN_FRONTEND=noninteractive
  { apt-get update -qq && apt-get install -y -qq --no-install-recommends docker-registry; } >/dev/null 2>&1 ||
    echo "NO REGISTRY: apt could not install docker-registry, so pushing an image is NOT tested" >&2
fi

select="not nightly"
if [ "${KIT_NIGHTLY:-0}" = 1 ]; then select=nightly; fi
if ! scripts/docker-engine.sh base "$base"; then
  select="$select and not docker"
  printf '\n%s\n' "****************************************************************************" \
    "NO DOCKER ENGINE: the Docker tests are NOT run on this machine (see above)." \
    "****************************************************************************" >&2
fi
KIT_TEST_BASE=$base "$venv/bin/pytest" -m "$select" "$@"
