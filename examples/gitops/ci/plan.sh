#!/usr/bin/env bash
# Checks a pull request, plans and proposes what its merge would do, and shows that as a comment.
#
# BASE     the branch that the pull request is for
# LINK     the address of the pull request, kept with the proposal
# FORK     `true` where the branch is of another repository: then only the files are checked
# TARGET   `prod` by default; several, separated by spaces, are shown in one comment
set -euo pipefail
cd "$(dirname "$0")/.."

format=text
if [ -n "${GITHUB_ACTIONS:-}" ]; then
    format=github # errors are shown beside their lines
fi
sgpu fmt --check
sgpu validate --strict -o "$format"
if [ "${FORK:-false}" = true ]; then
    echo 'a pull request of a fork: its files are checked, and nothing is planned'
    exit
fi
if ! git merge-base --is-ancestor "origin/$BASE" HEAD; then
    echo "error: this branch lacks commits of \`$BASE\`, so its plan would undo them" >&2
    echo "hint: merge \`$BASE\` into it, or rebase it" >&2
    exit 1
fi

read -ra targets <<< "${TARGET:-prod}"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
code=0
plans=()
for target in "${targets[@]}"; do
    plan="$work/$target.md"
    sgpu plan -t "$target" --base "origin/$BASE" --propose-link "$LINK" \
        -o markdown --limit $((65000 / ${#targets[@]})) > "$plan" || code=$?
    if [ -s "$plan" ]; then
        plans+=("$plan")
    fi
done
if [ ${#plans[@]} -gt 0 ]; then
    python3 ci/comment.py change "${plans[@]}"
fi
exit "$code"
