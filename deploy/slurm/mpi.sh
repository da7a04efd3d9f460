#!/usr/bin/env bash
# A cluster from one mpirun, where a site has MPI and another batch system than Slurm, or no srun.  Within a job:
#
#     TASKS=8 ./mpi.sh dlatent fit ppca data.zarr -k 50 -o model.zarr --checkpoint fit.checkpoint --resume
#
# Rank 0 is the scheduler, the others are workers.  MPI only starts them; Dask talks over TCP.
set -euo pipefail

TASKS=${TASKS:-4}
MPIRUN=${MPIRUN:-mpirun}             # with the options of your site, for example "mpirun --hostfile hosts"
INTERFACE=${INTERFACE:-ib0}          # the fast network, as `ip address` names it
MEMORY=${MEMORY:-4GiB}               # of a worker
SCRATCH=${SCRATCH:-${TMPDIR:-/tmp}}  # a disk of each node

[ $# -gt 0 ] || { sed -n '2,6p' "$0" >&2; exit 2; }
set -a
# shellcheck source=/dev/null
. "$(dirname "${BASH_SOURCE[0]}")/worker.env"
set +a

command=
run=$(mktemp -d "$PWD/dlatent-mpi-XXXXXX")  # every node must see it
# shellcheck disable=SC2086
$MPIRUN -n "$TASKS" dask-mpi --interface "$INTERFACE" --nthreads 1 --memory-limit "$MEMORY" --no-dashboard \
    --worker-class distributed.Nanny --local-directory "$SCRATCH" --scheduler-file "$run/scheduler.json" >"$run/log" 2>&1 &
cluster=$!
trap 'kill "$cluster" 2>/dev/null || true; wait "$cluster" 2>/dev/null || true; rm -rf "$run"' EXIT
trap 'kill "$command" 2>/dev/null || true; exit 143' TERM INT

until [ -s "$run/scheduler.json" ]; do
    kill -0 "$cluster" 2>/dev/null || { cat "$run/log" >&2; exit 1; }
    sleep 0.5
done
address=$(python -c 'import json, sys; print(json.load(open(sys.argv[1]))["address"])' "$run/scheduler.json")

"$@" --scheduler "$address" &
command=$!
wait "$command"
