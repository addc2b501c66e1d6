#!/usr/bin/env bash
# Installs sgpu.
set -euo pipefail
cd "$(dirname "$0")/.."
python3 -m pip install --quiet --disable-pip-version-check -r ci/requirements.txt
