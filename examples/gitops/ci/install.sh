#!/usr/bin/env bash
# Installs sgpu and what it needs: exactly the files whose hashes ci/requirements.txt has.
set -euo pipefail
cd "$(dirname "$0")/.."
if [ ! -f ci/requirements.txt ]; then
    echo 'error: `ci/requirements.txt` is missing: it pins sgpu and what it needs by their hashes' >&2
    echo 'hint: README.md says under "The version that CI installs" how to make it' >&2
    exit 1
fi
python3 -m pip install --quiet --disable-pip-version-check --only-binary :all: --require-hashes \
    -r ci/requirements.txt
