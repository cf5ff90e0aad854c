#!/bin/sh
# Runs the MPI baseline with ranks on two hosts of symmem-two-hosts: mpi_two_hosts.sh TRANSPORT RANKS PROGRAM [ARGUMENT ...]
#
#   cargo build -p symmem-two-hosts && mpicc -O2 -o target/mpi_collectives benches/baselines/mpi_collectives.c
#   target/debug/two-hosts --rate 1000 -- benches/baselines/mpi_two_hosts.sh ucx 2 target/mpi_collectives
#
# TRANSPORT is ucx (UCX with shared memory on a host and TCP between them) or tcp (Open MPI's own); RANKS are those of
# each host. Needs Open MPI 4.1 with UCX.
set -eu
transport=$1
ranks=$2
shift 2
# Open MPI uses UCX over InfiniBand only, unless these variables allow every device.
case $transport in
ucx) set -- --mca pml ucx --mca opal_common_ucx_tls any --mca opal_common_ucx_devices any \
    -x UCX_TLS=tcp,self,sm -x UCX_NET_DEVICES=eth0 "$@" ;;
tcp) set -- --mca pml ob1 --mca btl tcp,self,vader --mca btl_tcp_if_include eth0 "$@" ;;
*)
    echo "mpi_two_hosts.sh: $transport: neither ucx nor tcp" >&2
    exit 2
    ;;
esac
# Each host counts all processors of the machine as its own, so ranks must yield them: spinning ones take 400 times as
# long. mpirun itself runs on a host, where the daemons of both reach it.
exec "$TWO_HOSTS_AGENT" host0 exec mpirun --allow-run-as-root --oversubscribe --bind-to none \
    --mca plm_rsh_agent "$TWO_HOSTS_AGENT" --mca oob_tcp_if_include eth0 --mca mpi_yield_when_idle 1 \
    --host "host0:$ranks,host1:$ranks" "$@"
