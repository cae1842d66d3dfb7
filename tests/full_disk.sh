#!/bin/sh
# Trains on a disk that is full again and again: a file system in memory, which starts too small and
# gets a little more room after each failure. Each failure must say so and leave the last complete
# checkpoint to go on from, and the training must end with the bits of one that never failed.
# Mounting wants root. Each time the run's folder gains a log for TensorBoard, which takes a page.
#
#     sudo tests/full_disk.sh [build/apps/charlm [kilobytes more each time]]
set -u
charlm=${1:-build/apps/charlm}
more=${2:-16}
work=$(mktemp -d)
disk=$work/disk
trap 'umount "$disk" 2>/dev/null; rm -rf "$work"' EXIT

. "$(dirname "$0")/small_training.sh"

train "$charlm" --out "$work/straight" || fail "the training at one go failed"
room=$more failures=0 resumed=0
mkdir "$disk"
mount -t tmpfs -o "size=${room}k" tmpfs "$disk" || fail "a small file system cannot be mounted here"
while true; do
  again=--force
  if ls -d "$disk"/run/step-*/manifest.json >/dev/null 2>&1; then
    again=--resume resumed=$((resumed + 1))
  fi
  train "$charlm" --out "$disk/run" --checkpoint-steps 1 $again >"$work/output" 2>&1 && break
  grep -q "No space left on device" "$work/output" || fail "with $room KiB: $(cat "$work/output")"
  failures=$((failures + 1)) room=$((room + more))
  [ "$room" -lt 10000 ] || fail "10 MB are not enough"
  mount -o "remount,size=${room}k" "$disk" || exit
done
same_bits "$disk/run" "with $room KiB"
echo "$failures times the disk was full, $resumed times a training went on; it ended with $room KiB" \
  "and the same bits"
