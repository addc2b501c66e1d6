#!/bin/bash -l
# A job of sgpu. Its first argument says which launch; then come modules to load, `--`, and the
# Pythons to try. Of an array come `--` and the launch folders of all its tasks, which say it.
IFS= read -r -d '' program <<'END OF THE PROGRAM'
{program}END OF THE PROGRAM
told=$1
if [ -z "$told" ]; then
  folder=${@: -$((SLURM_ARRAY_TASK_COUNT - SLURM_ARRAY_TASK_ID)):1}
  exec >>"$folder/logs/job.log" 2>&1 || exit 0 # the folder is gone: nothing is to be done
  told=$(<"$folder/launch.json") || exit 72
fi
shift
while [ "$1" != -- ]; do
  if ! type module >/dev/null 2>&1; then
    echo "sgpu: a login shell on $HOSTNAME has no command 'module' that could load '$1'" >&2
    exit 72
  elif ! module load "$1"; then
    echo "sgpu: 'module load $1' fails on $HOSTNAME: 'module avail' lists what there is" >&2
    exit 72
  fi
  shift
done
shift
for python in "$@"; do
  if [ "$python" = -- ]; then
    break
  elif "$python" -I -S -c 'import sys; sys.exit(sys.version_info < (3, 10))' >/dev/null 2>&1; then
    exec "$python" -I -S -c "$program" job "$told"
  fi
done
echo "sgpu: none of these is a Python 3.10 or newer on $HOSTNAME: $*" >&2
exit 72
