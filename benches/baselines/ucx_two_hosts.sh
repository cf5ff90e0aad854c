#!/bin/sh
# Runs ucx_perftest between two hosts of symmem-two-hosts: ucx_two_hosts.sh [BYTES ...]
#
#   target/debug/two-hosts -- benches/baselines/ucx_two_hosts.sh 8 65536 1048576
#
# Prints a line for ucp_put_bw, ucp_put_lat, ucp_get and ucp_am_lat at each size:
#
#   {"test":"ucp_put_bw","bytes":65536,"us":38.1,"MB/s":1640.2,"library":"UCX 1.13.1"}
#
# `us` is the mean time of an operation at full rate, and for latencies the median of one way. A MB is 2^20 bytes, as in
# ucx_perftest. Needs ucx-utils.
set -eu
[ $# -gt 0 ] || set -- 8 64 1024 8192 65536 262144 1048576 4194304 16777216
port=13337
library="UCX $(ucx_info -v | sed -n 's/^# \(Library v\|UCT version=\|Version \)\([0-9.]*\).*/\2/p' | head -n 1)"
export UCX_TLS=tcp,self UCX_NET_DEVICES=eth0
for test in ucp_put_bw ucp_put_lat ucp_get ucp_am_lat; do
    for bytes; do
        count=$((bytes <= 8192 ? 20000 : 400 * 1048576 / bytes + 20))
        port=$((port + 1))
        timeout 100 "$TWO_HOSTS_AGENT" host1 exec ucx_perftest -p $port >/dev/null 2>&1 &
        # The server says nothing when it listens, and the client tries once.
        sleep 0.3
        timeout 100 "$TWO_HOSTS_AGENT" host0 exec ucx_perftest -p $port 10.77.0.2 -t $test -s "$bytes" \
            -n $count -w $((count / 10)) -f |
            awk -v test=$test -v bytes="$bytes" -v library="$library" '$1 ~ /^[0-9]+$/ { line = $0 } END {
                split(line, word, " ")
                time = test ~ /_bw$/ ? word[4] : word[2]
                printf "{\"test\":\"%s\",\"bytes\":%d,\"us\":%s,\"MB/s\":%s,\"library\":\"%s\"}\n",
                    test, bytes, time, word[6], library }'
        wait
    done
done
