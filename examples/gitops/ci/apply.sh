#!/usr/bin/env bash
# Applies the newest commit of a branch: only what a plan has shown. Runs go on after this job.
#
# BRANCH   the branch that is applied, such as `main`
# TARGET   `prod` by default
# HEAL     `true` to undo what was done by hand, too: what the issue about drift shows
set -euo pipefail
cd "$(dirname "$0")/.."

# A job that waited, or was started again, may have an older commit, which would undo the newer one.
git fetch --quiet origin "$BRANCH"
if [ "$(git rev-parse HEAD)" != "$(git rev-parse FETCH_HEAD)" ]; then
    echo "there is a newer commit on \`$BRANCH\`: its job applies both"
    exit
fi
target=${TARGET:-prod}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
how=(--reviewed)
if [ "${HEAL:-false}" = true ]; then
    how+=(--heal)
fi
code=0
sgpu apply -t "$target" "${how[@]}" -y --detach --json-into "$work/events.jsonl" || code=$?
if [ "$code" = 3 ] && grep -q '"code": "not_reviewed"' "$work/events.jsonl" &&
    sgpu state list -t "$target" -o json | grep -q '"resources": \[\]'; then
    echo "nothing was ever applied to \`$target\`: after a first push, the error above is expected"
    echo 'this job waits for a pull request, whose plan shows what its merge applies'
    exit
fi
exit "$code"
