#!/bin/sh
# Four ranks of one job at once, of which rank 2 has batches ten times as long: `ranks.sh PYTHON situations.py`.
for rank in 0 1 2 3; do
    case $rank in
    2) batch=5120 ;;
    *) batch=512 ;;
    esac
    RANK=$rank BATCH=$batch "$1" "$2" clean 8 &
done
wait
