# A training of a second, for the scripts that interrupt it: they read this file, and set `work`.

train() {  # the program, and before it what runs it
  OMP_NUM_THREADS=1 "$@" --batch 2 --length 16 --width 16 --heads 2 --validation-batches 1 \
    --test-batches 1 --split 98/1.9/0.1 --steps 200 --epoch-steps 20 --dropout 0.1 --quiet
}

fail() {
  echo "$1"
  exit 1
}

same_bits() {  # folder of a run, when
  for file in best.safetensors last.safetensors result.json; do
    cmp "$work/straight/$file" "$1/$file" || fail "$2 $file is another one"
  done
}
