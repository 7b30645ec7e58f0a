#!/usr/bin/env bash
# Mutates kit's own judges and runs their tests against every mutant; what survives is listed. About 25 minutes on one core.
#   mutation.sh VENV
# pyproject.toml ([tool.mutmut]) says which files, and which tests. The tool has an environment of its own, which sees the packages of VENV.
set -euo pipefail
venv=$1 tools=$1/mutation

if [[ ! -x $tools/bin/mutmut ]]; then
  "$venv/bin/python" -m venv "$tools"
  "$tools/bin/python" -m pip install --quiet --requirement scripts/mutation.txt 2> >(grep -v '^WARNING' >&2)
  "$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))' \
    >"$("$tools/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/kit-packages.pth"
fi
"$tools/bin/mutmut" run --max-children "${JOBS:-1}"
"$tools/bin/mutmut" results
