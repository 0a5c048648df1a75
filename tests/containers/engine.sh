#!/usr/bin/env bash
# A Docker engine in namespaces of its own, whose networks, mounts and processes end
# with it: engine.sh FOLDER CGROUP. Its socket is FOLDER/docker.sock.
set -Eeuo pipefail
folder=$1 cgroup=$2
ip link set lo up
# Here the engine makes folders, whatever it is told.
mount -t tmpfs tmpfs /opt
cp -a /etc "$folder/etc"
mount --bind "$folder/etc" /etc
# The engine's proxy would accept connections that the container does not.
echo '{"userland-proxy": false}' >"$folder/daemon.json"
exec dockerd --config-file "$folder/daemon.json" --host "unix://$folder/docker.sock" --pidfile "$folder/docker.pid" \
    --data-root "$folder/data" --exec-root "$folder/exec" --cgroup-parent "$cgroup" >"$folder/engine.log" 2>&1
