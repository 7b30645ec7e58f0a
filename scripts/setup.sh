#!/usr/bin/env bash
# Makes a virtual environment with the CPU stack of a hashed lock, and kit itself in editable form.
#   setup.sh PYTHON VENV LOCK [LOCK...]
set -euo pipefail
python=$1 venv=$2
shift 2

if ! command -v "$python" >/dev/null; then
  echo "setup: $python is not on this machine; install Python 3.11 (Debian 12: apt-get install python3 python3-venv)" >&2
  exit 3
fi
start=$SECONDS
if ! "$python" -m venv "$venv" 2>/dev/null; then
  echo "setup: $python cannot make virtual environments; install its venv package (Debian: apt-get install python3-venv)" >&2
  exit 3
fi
for lock in "$@"; do
  "$venv/bin/python" -m pip install --quiet --require-hashes --no-deps -r "$lock" 2> >(grep -v '^WARNING' >&2)
done
"$venv/bin/python" -m pip install --quiet --no-deps --no-build-isolation --editable .
echo "setup: $venv is ready after $((SECONDS - start)) s"
