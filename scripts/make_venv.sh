#!/usr/bin/env bash
# make_venv.sh FOLDER [PYTHON]: make a virtual environment with the first Python that will do.
set -euo pipefail

folder=$1
fit='import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))'
for python in ${2:-python3 python3.13 python3.12 python3.11}; do
    if command -v "$python" >/dev/null && "$python" -c "$fit" 2>/dev/null; then
        echo "Making $folder with $("$python" --version) ($(command -v "$python"))."
        exec "$python" -m venv "$folder"
    fi
done
echo "error: no Python 3.11 or newer with the venv module was found${2:+ at \`$2\`}" >&2
echo "hint: install one (on Debian and Ubuntu \`python3 python3-venv\`), or name it: \`make PYTHON=/path/to/python3\`" >&2
exit 1
