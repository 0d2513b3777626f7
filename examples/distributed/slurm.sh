#!/bin/bash
# Embeds INPUTS into the folder OUTPUT: eight tasks, each a shard. `sbatch --array=0-15 slurm.sh` makes it sixteen.
#SBATCH --job-name=foveate
#SBATCH --array=0-7
#SBATCH --cpus-per-task=16
#SBATCH --mem=16G
#SBATCH --time=12:00:00
#SBATCH --requeue
# Time to commit before the limit: foveate ends after the batches in flight.
#SBATCH --signal=B:INT@60
#SBATCH --output=foveate-%A-%a.log
set -euo pipefail

: "${INPUTS:?the photos: a folder, a pattern of tar shards, s3://bucket/prefix/}"
: "${OUTPUT:?a folder that all nodes see, or s3://bucket/vectors/}"

# `auto` is this task's place in the array. A requeued task continues where its shard stopped.
exec foveate embed "$INPUTS" --output "$OUTPUT" --shard auto --model "${MODEL:-facebook/dinov2-small}" --json
