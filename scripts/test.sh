#!/usr/bin/env bash
# Lints, types and tests everything. Installs and starts a Docker Engine where root allows; says loudly where it cannot.
#   test.sh VENV LOCAL_BASE [pytest arguments]
set -euo pipefail
venv=$1 base=$2
shift 2

"$venv/bin/ruff" check .
"$venv/bin/ruff" format --check .
"$venv/bin/mypy"

select=()
if ! scripts/docker-engine.sh base "$base"; then
  select=(-m "not docker")
  printf '\n%s\n' "****************************************************************************" \
    "NO DOCKER ENGINE: the Docker tests are NOT run on this machine (see above)." \
    "****************************************************************************" >&2
fi
KIT_TEST_BASE=$base "$venv/bin/pytest" "${select[@]}" "$@"
