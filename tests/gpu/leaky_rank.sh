#!/usr/bin/env bash
# Two GPUs, one of whose ranks leaks 1 MiB a step: `gpushim report` must name the rank, the amount and the function, and
# nothing else; of a job without a leak nothing. docs/measurements/2026-11-24-fleet.md.
cd "$(dirname "$0")/../.." || exit 1
export PYTHONDONTWRITEBYTECODE=1 OUT=${OUT:-out}
gpushim=$PWD/dist/gpushim failed=0
mkdir -p "$OUT"
for leaky in 1 -1; do
    folder=$(mktemp -d)
    timeout 150 "$gpushim" run --trace "$folder/%r-%p.trace" torchrun --standalone --nproc-per-node 2 \
        tests/gpu/torch_leaky_rank.py --steps 200 --leaky $leaky >"$OUT/leaky$leaky.run.txt" 2>&1 || { echo "FAIL leaky $leaky: the job ended with $?"; failed=1; }
    timeout 60 "$gpushim" report "$folder" >"$OUT/leaky$leaky.report.txt" 2>&1
    code=$?
    ls -l "$folder" >"$OUT/leaky$leaky.files.txt"
    case $leaky in
        1) [ $code = 1 ] && grep -q 'rank 1' "$OUT/leaky$leaky.report.txt" && grep -q 'keep' "$OUT/leaky$leaky.report.txt" ;;
        *) [ $code = 0 ] ;;
    esac && echo "PASS leaky $leaky: exit code $code" || { echo "FAIL leaky $leaky: exit code $code"; failed=1; }
    rm -r "$folder"
done
exit $failed
