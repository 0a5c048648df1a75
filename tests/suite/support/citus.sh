# A private Citus cluster, a coordinator and two workers, that lives as long as its standard input.
# $1: folder of the programs, $2 $3 $4: loopback ports. Prints the cluster's folder once all nodes
# accept connections; then does what each line of input says to the node of that number, and prints
# `done`. As an operator would have it, roles have passwords, and `rowhouse` is an ordinary one: the
# superuser is `admin`. The password of each role is its name.
bin=$1
shift
trap '' INT TERM HUP PIPE
cd /
dir=$(mktemp -d "${TMPDIR:-/tmp}/rowhouse-citus.XXXXXX") || exit 1
# Nodes connect to each other, and libpq looks for passwords and certificates at home.
export HOME="$dir"
echo admin >"$dir/password"
printf '*:*:*:%s\n' admin:admin rowhouse:rowhouse >"$dir/.pgpass"
chmod 600 "$dir/.pgpass"
start() {
    "$bin/pg_ctl" -D "$dir/$1" -w -l "$dir/log$1" start >/dev/null 2>&1 || { cat "$dir/log$1" >&2; exit 1; }
}
# Refuses new connections of the servers' role to a node, and ends those that it has.
refuse() {
    cp "$dir/$1/pg_hba.conf" "$dir/hba$1"
    { echo "host all rowhouse all reject"; cat "$dir/hba$1"; } >"$dir/$1/pg_hba.conf"
    sessions="SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'rowhouse'"
    "$bin/psql" -X -q -h 127.0.0.1 -p "$(port "$1")" -U admin -c "SELECT pg_reload_conf()" -c "$sessions" postgres \
        >/dev/null
}
admit() {
    cp "$dir/hba$1" "$dir/$1/pg_hba.conf"
    "$bin/psql" -X -q -h 127.0.0.1 -p "$(port "$1")" -U admin -c "SELECT pg_reload_conf()" postgres >/dev/null
}
port() {
    sed -n 's/^port = //p' "$dir/$1/postgresql.conf"
}
# Has a node start as a standby, which follows nobody.
recover() {
    touch "$dir/$1/standby.signal"
    start "$1"
}
# Has node 3 follow this one as its synchronous standby.
shadow() {
    "$bin/pg_basebackup" -D "$dir/3" -h 127.0.0.1 -p "$(port "$1")" -U admin -c fast -X stream -R \
        >"$dir/copy.log" 2>&1 || { cat "$dir/copy.log" >&2; exit 1; }
    sed -i "s/^port = .*/port = $2/" "$dir/3/postgresql.conf"
    start 3
    echo "synchronous_standby_names = '*'" >>"$dir/$1/postgresql.conf"
    "$bin/pg_ctl" -D "$dir/$1" reload >/dev/null
    tries=0
    until [ "$("$bin/psql" -X -q -A -t -h 127.0.0.1 -p "$(port "$1")" -U admin \
        -c "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'" postgres)" = 1 ]; do
        sleep 0.1
        tries=$((tries + 1))
        [ $tries -lt 600 ] || { tail "$dir/log3" >&2; exit 1; }
    done
}
finish() {
    for n in 0 1 2 3; do
        thaw $n 2>/dev/null
        "$bin/pg_ctl" -D "$dir/$n" -m immediate stop >/dev/null 2>&1
    done
    rm -rf "$dir"
}
trap finish EXIT
n=0
for port; do
    "$bin/initdb" -D "$dir/$n" -U admin -A scram-sha-256 --pwfile="$dir/password" -E UTF8 --locale=C --no-sync \
        >"$dir/initdb.log" 2>&1 || { cat "$dir/initdb.log" >&2; exit 1; }
    cat >>"$dir/$n/postgresql.conf" <<CONF
port = $port
listen_addresses = '127.0.0.1'
unix_socket_directories = '$dir'
shared_preload_libraries = 'citus'
wal_level = logical
max_connections = 400
max_worker_processes = 200
max_replication_slots = 40
max_wal_senders = 40
max_prepared_transactions = 400
shared_buffers = 64MB
citus.node_connection_timeout = 5s
log_min_messages = warning
CONF
    # Versions of PostgreSQL that have it refuse plugins which it does not name.
    "$bin/postgres" -D "$dir/$n" -C output_plugin_libraries >/dev/null 2>&1 &&
        echo "output_plugin_libraries = 'pgoutput, citus'" >>"$dir/$n/postgresql.conf"
    start $n
    "$bin/psql" -X -q -v ON_ERROR_STOP=1 -h 127.0.0.1 -p "$port" -U admin -c \
        "CREATE ROLE rowhouse LOGIN PASSWORD 'rowhouse'" postgres >&2 || exit 1
    n=$((n + 1))
done
echo "$dir"
while read -r command node port; do
    case $command in
    start) start "$node" ;;
    kill) die "$node" ;;
    freeze) freeze "$node" ;;
    thaw) thaw "$node" ;;
    refuse) refuse "$node" ;;
    admit) admit "$node" ;;
    stop) "$bin/pg_ctl" -D "$dir/$node" -m fast -w stop >/dev/null ;;
    recover) recover "$node" ;;
    shadow) shadow "$node" "$port" ;;
    promote) "$bin/pg_ctl" -D "$dir/$node" -w promote >/dev/null || exit 1 ;;
    esac
    echo "done"
done
