#!/usr/bin/env bash
# Plans what is applied already. An issue says what would change, and how to apply that with a click;
# it is closed once nothing would. The plan is proposed for that click alone: no merge carries it out.
#
# TARGET   `prod` by default
set -euo pipefail
cd "$(dirname "$0")/.."

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
sgpu plan -t "${TARGET:-prod}" --heal --propose --json-into "$work/events.jsonl" -o markdown > "$work/drift.md"
# Every apply launches a run with `until: always`, so that it would do so is no drift.
kind=$(python3 - "$work/events.jsonl" << 'END'
import json, sys

with open(sys.argv[1], encoding="utf-8") as file:
    plan = next(one["plan"] for one in map(json.loads, file) if one["type"] == "plan")
drifted = any(
    one["action"] not in ("no_op", "adopt") and one["reason"] != "requested_rerun"
    for one in plan["changes"]
)
print("drift" if drifted else "no-drift")
END
)
python3 ci/comment.py "$kind" "$work/drift.md"
