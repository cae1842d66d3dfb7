#!/bin/sh
# Kills a training many times, at moments most of which are inside the writing of a checkpoint, and
# goes on with it each time. It must always find a complete checkpoint, and end with the bits of a
# training at one go; then the next one begins.
#
#     tests/kill_and_resume.sh [build/apps/charlm [kills]]
set -u
charlm=${1:-build/apps/charlm}
kills=${2:-200}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

. "$(dirname "$0")/small_training.sh"

train "$charlm" --out "$work/straight" || fail "the training at one go failed"
killed=0 finished=0 skipped=0 life=0
while [ "$killed" -lt "$kills" ] || [ -e "$work/run" ]; do
  life=$((life + 1))
  seconds=$(awk -v n="$life" 'BEGIN { srand(n); print 0.05 + 0.4 * rand() }')
  [ "$killed" -lt "$kills" ] || seconds=0  # never
  again=--resume
  ls -d "$work"/run/step-*/manifest.json >/dev/null 2>&1 || again=--force
  train timeout --foreground -s KILL "$seconds" "$charlm" --out "$work/run" --checkpoint-steps 1 $again \
    2>"$work/errors" >/dev/null
  status=$?
  grep -q "it is skipped" "$work/errors" && skipped=$((skipped + 1))
  case $status in
    137) killed=$((killed + 1)) ;;
    0)
      same_bits "$work/run" "after life $life"
      finished=$((finished + 1))
      rm -r "$work/run"
      ;;
    *) fail "life $life ended with $status: $(cat "$work/errors")" ;;
  esac
done
echo "$killed kills; $skipped times a checkpoint was not complete; $finished trainings ended" \
  "with the same bits"
