#!/usr/bin/env bash
# Makes every table of the README and of docs/ anew, from text to Markdown:
#
#   benchmarks/reproduce.sh DATA WORK [PART...]
#
# DATA has the folders en-fr, de-en and ja-en with train.XX(.gz) and the gold pairs (docs/accuracy.md).
# WORK keeps texts, models and logs; a command that was stopped goes on where it was. Parts, in order:
#
#   statistical  mx-seed and the peers, eflomal and systran-align (about an hour)
#   student      one student for each set, and the model that ships (an hour)
#   average      students averaged with mx-seed
#   mask-align   the paper's model in sizes that a CPU trains, its student, averages (three hours)
#   long-lines   gold pairs joined into long lines
#   ablation     the paper's eight rows, twice (two hours)
#   variants     what each choice in the student's design is worth (a day)
#   tables       write the results into README.md and docs/
#
# Without parts: statistical student average tables. Times are of one core of a common server.
# A first look that keeps no results: PAIRS=3000 STEPS=50 benchmarks/reproduce.sh DATA WORK
set -euo pipefail

if [ $# -lt 2 ]; then
  sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//p}' "$0"
  exit 2
fi
data=$(realpath "$1") work=$2
shift 2
parts=("$@")
[ ${#parts[@]} -gt 0 ] || parts=(statistical student average tables)
mkdir -p "$work"
work=$(realpath "$work")
cd "$(dirname "$0")/.."

python=${PYTHON:-.venv/bin/python}
bin=$(dirname "$python")
bundled=engine/models/multilingual.mx
steps=${STEPS:+--steps $STEPS}
results=benchmarks/results
[ -z "${PAIRS:-}" ] || results=$work

# The folder of a set in WORK, as the accuracy benchmark names it.
folder() { echo "$work/$1${PAIRS:+-$PAIRS}"; }

accuracy() {
  "$python" -m mx_align.benchmarks.accuracy --data "$data" --work "$work" --threads 1 \
    ${PAIRS:+--pairs "$PAIRS"} "$@"
}

# Links with scores of all of a set's text, to be averaged: score_links SET SYSTEM MODEL
score_links() {
  local text out
  text=$(folder "$1") out=$(folder "$1")/$2/scored.links
  [ -e "$out" ] || "$bin/mx-align" "$text/text.src" "$text/text.tgt" -m "$3" --langs "$1" \
    --format scored --threads 1 -o "$out"
}

run_statistical() {
  # eflomal is GPL and needs a C compiler: only ever a program beside ours.
  [ -x "$work/peers/bin/eflomal-align" ] || {
    python3 -m venv "$work/peers"
    "$work/peers/bin/pip" install -q eflomal systran-align
  }
  accuracy --peer-python "$work/peers/bin/python" \
    --system eflomal --system systran-align --system mx-seed --system mx-align
}

run_student() {
  # This French has no accents; other text must lose them for the model that ships as well.
  accuracy --set en-fr --train "student=--student --fold-accents --dtype bf16 $steps"
  accuracy --set de-en --set ja-en --train "student=--student --dtype bf16 $steps"
  accuracy --bundle "en-fr:bundled model=$bundled" --bundle "de-en:bundled model=$bundled" \
    --bundle "ja-en:bundled model=$bundled" --remark "one model for English and 36 languages, the bundled one"
}

run_average() {
  for langs in en-fr ja-en; do
    accuracy --bundle "$langs:student + mx-seed=$(folder $langs)/student/model.mx" \
      --average "$(folder $langs)/mx-seed/scored.links"
  done
  for langs in en-fr de-en; do
    accuracy --bundle "$langs:bundled model + mx-seed=$bundled" \
      --average "$(folder $langs)/mx-seed/scored.links"
  done
}

run_mask_align() {
  local text tiny
  text=$(folder en-fr)
  tiny=$text/mask-align-tiny/model.mx
  accuracy --set en-fr --train "mask-align-tiny=--preset tiny --steps 9000 --dtype bf16 $steps"
  accuracy --set en-fr --train \
    "student of mask-align-tiny=--student --fold-accents --teacher $tiny --dtype bf16 $steps"
  accuracy --set en-fr --speed-pairs 20000 --train "compact=--preset compact --batch-tokens 1000 \
    --batch-tokens-start 0 --warmup 100 --dtype bf16 --steps 6000 --eval-every 500 --save-every 250 \
    $steps"
  score_links en-fr mask-align-tiny "$tiny"
  score_links en-fr "student of mask-align-tiny" "$text/student of mask-align-tiny/model.mx"
  local average=(--average "$text/mx-seed/scored.links")
  accuracy --bundle "en-fr:student + mx-seed + mask-align-tiny=$text/student/model.mx" \
    "${average[@]}" --average "$text/mask-align-tiny/scored.links"
  accuracy --bundle "en-fr:bundled model + mx-seed + mask-align-tiny=$bundled" \
    "${average[@]}" --average "$text/mask-align-tiny/scored.links"
  average+=(--average "$text/student of mask-align-tiny/scored.links")
  accuracy --bundle \
    "en-fr:student + mx-seed + student of mask-align-tiny=$text/student/model.mx" "${average[@]}"
  average+=(--average "$text/mask-align-tiny/scored.links")
  accuracy --bundle \
    "en-fr:student + mx-seed + student of mask-align-tiny + mask-align-tiny=$text/student/model.mx" \
    "${average[@]}"
}

run_long_lines() {
  for langs in en-fr de-en; do
    "$python" -m mx_align.benchmarks.long_lines "$bundled" "$data/$langs/test.${langs%-*}" \
      "$data/$langs/test.${langs#*-}" "$data/$langs/test.talp" --langs $langs --name $langs \
      --json "$results/long_lines.json"
  done
  "$python" -m mx_align.benchmarks.long_lines "$(folder ja-en)/student/model.mx" \
    "$data/ja-en/dev.ja" "$data/ja-en/dev.en" "$data/ja-en/dev.talp" --name ja-en \
    --json "$results/long_lines.json"
}

run_ablation() {
  local flags="--batch-tokens 1000 --batch-tokens-start 0 --warmup 100 --dtype bf16"
  ablation() {
    "$python" -m mx_align.benchmarks.ablation --data "$data" --set en-fr --preset compact \
      --work "$work" ${PAIRS:+--pairs "$PAIRS"} "$@"
  }
  # Into files of their own: rows that were trained in another way are not put beside these.
  ablation --guided 0.4 --steps "${STEPS:-1000}" --json "$work/ablation_guided.json" \
    --flags "$flags --eval-every 250 --save-every 250"
  ablation --steps "${STEPS:-800}" --json "$work/ablation.json" \
    --flags "$flags --eval-every 800 --save-every 200"
  [ "$results" = "$work" ] || cp "$work"/ablation*.json "$results"
}

run_variants() {
  local text
  text=$(folder en-fr)
  "$python" -m mx_align.benchmarks.students "$text/text.src" "$text/text.tgt" \
    --links "$text/mx-seed/scored.links" --steps "${STEPS:-500}" --work "$work/variants" \
    --gold "$data/en-fr/test.en" "$data/en-fr/test.fr" "$data/en-fr/test.talp" \
    -o "$results/students.json"
}

for part in "${parts[@]}"; do
  case $part in
    statistical | student | average | mask-align | long-lines | ablation | variants)
      "run_${part//-/_}" ;;
    tables)
      [ -n "${PAIRS:-}" ] || "$python" -m mx_align.benchmarks.tables ;;
    *)
      echo "reproduce.sh: no part '$part'; without arguments it lists them" >&2
      exit 2 ;;
  esac
done
