#!/bin/sh
# Runs a command on a host of symmem-two-hosts, as ssh does: agent.sh HOST COMMAND [ARGUMENT ...]
#
# Open MPI starts its daemons with it: mpirun --mca plm_rsh_agent agent.sh --host host0:2,host1:2 ...
# The variable TWO_HOSTS_HOST has the options of nsenter that lead to the host.
set -eu
host=$1
shift
eval "enter=\${TWO_HOSTS_$host:?no such host}"
# UCX looks for devices in /sys/class/net, so the host needs its own. The words are joined by spaces, as by ssh.
# shellcheck disable=SC2086
exec nsenter $enter -- unshare --mount -- sh -c 'mount -t sysfs sysfs /sys && eval "$*"' sh "$@"
