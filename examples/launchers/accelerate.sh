#!/bin/bash
# accelerate on every node of a job, one task on each:
#   hpckit submit serial accelerate.sh --nodes 2 --tasks-per-node 1 --gpus 4 --env ~/venvs/torch -- train.py --lr 0.1
exec accelerate launch --multi_gpu --num_machines "$WORLD_SIZE" --machine_rank "$NODE_RANK" \
  --num_processes $((WORLD_SIZE * ${SLURM_GPUS_ON_NODE:-1})) --mixed_precision no --dynamo_backend no \
  --main_process_ip "$MASTER_ADDR" --main_process_port "$MASTER_PORT" "$@"
