#!/usr/bin/env bash
# Plans what is applied already. An issue says what would change; it is closed once nothing would.
#
# TARGET   `prod` by default
set -euo pipefail
cd "$(dirname "$0")/.."

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
code=0
sgpu plan -t "${TARGET:-prod}" --detailed-exitcode -o markdown > "$work/drift.md" || code=$?
case $code in
0) python3 ci/comment.py no-drift "$work/drift.md" ;;
2) python3 ci/comment.py drift "$work/drift.md" ;;
*) exit "$code" ;;
esac
