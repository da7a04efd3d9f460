#!/usr/bin/env bash
# Start a scheduler and workers as processes of this machine, run COMMAND … --scheduler ADDRESS, and end them.
#
#     WORKERS=4 MEMORY=8GiB ./cluster.sh dlatent fit ppca data.zarr -k 50 -o model.zarr
set -euo pipefail

WORKERS=${WORKERS:-2}                # processes, one thread each
MEMORY=${MEMORY:-2GiB}               # what each of them may use; the plan of a fit believes it
SCRATCH=${SCRATCH:-${TMPDIR:-/tmp}}  # a local disk, for results that do not fit into memory

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
[ $# -gt 0 ] || { sed -n '2,4p' "$0" >&2; exit 2; }
run=$(mktemp -d "$SCRATCH/dlatent-XXXXXX")
started=()
finish() {
    kill "${started[@]}" 2>/dev/null || true
    wait "${started[@]}" 2>/dev/null || true
    find "$run" -mindepth 1 ! -name '*.log' -delete
    echo "The logs are in $run" >&2
}
trap finish EXIT
trap 'exit 143' TERM INT

set -a
# shellcheck source=/dev/null
. "$here/../worker.env"
set +a

dask scheduler --host 127.0.0.1 --port 0 --dashboard-address 127.0.0.1:0 --scheduler-file "$run/scheduler.json" \
    >"$run/scheduler.log" 2>&1 &
started+=($!)
dask worker --host 127.0.0.1 --nworkers "$WORKERS" --nthreads 1 --memory-limit "$MEMORY" --no-dashboard \
    --local-directory "$run" --scheduler-file "$run/scheduler.json" >"$run/workers.log" 2>&1 &
started+=($!)

until [ -s "$run/scheduler.json" ]; do
    kill -0 "${started[0]}" 2>/dev/null || { cat "$run"/*.log >&2; exit 1; }
    sleep 0.2
done
address=$(python -c 'import json, sys; print(json.load(open(sys.argv[1]))["address"])' "$run/scheduler.json")

"$@" --scheduler "$address" &
started+=($!)
wait $! || { status=$?; tail -n 5 "$run"/*.log >&2; exit "$status"; }
