#!/bin/bash
# two GPUs: first `two`, then parallel lists on each
exec > $OUT/x2.log 2>&1
nvidia-smi -L
date +%T
timeout 190 scripts/gpu-check --budget 180 --out $OUT/r/two two
date +%T
(
 export CUDA_VISIBLE_DEVICES=0
 cp -r . /tmp/a; cd /tmp/a
 timeout 130 python3 .gpu/steady.py gpt2,resnet50 > $OUT/steady.txt 2>&1
 timeout 250 scripts/gpu-check --budget 240 --out $OUT/r/paged paged > $OUT/r/paged.txt 2>&1
) &
(
 export CUDA_VISIBLE_DEVICES=1
 cp -r . /tmp/b; cd /tmp/b
 timeout 60 python3 tests/gpu/torch_turns.py --library dist/libgpushim.so --ledger --processes 4 --turns 2 --at-once 1 2 > $OUT/turns.txt 2>&1
 timeout 60 python3 tests/gpu/torch_turns.py --library dist/libgpushim.so --ledger --tensor 1024 --turns 40 >> $OUT/turns.txt 2>&1
 timeout 260 scripts/gpu-check --budget 250 --out $OUT/r/sit situations shortages autopsies > $OUT/r/sit.txt 2>&1
) &
wait
date +%T
cd $OUT; tar czf r.tgz r; rm -rf r
