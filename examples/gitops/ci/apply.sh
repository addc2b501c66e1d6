#!/usr/bin/env bash
# Applies the newest commit of a branch: only what a plan has shown. Runs go on after this job.
#
# BRANCH   the branch that is applied, such as `main`
# TARGET   `prod` by default
set -euo pipefail
cd "$(dirname "$0")/.."

# A job that waited, or was started again, may have an older commit, which would undo the newer one.
git fetch --quiet origin "$BRANCH"
if [ "$(git rev-parse HEAD)" != "$(git rev-parse FETCH_HEAD)" ]; then
    echo "there is a newer commit on \`$BRANCH\`: its job applies both"
    exit
fi
sgpu apply -t "${TARGET:-prod}" --reviewed -y --detach
