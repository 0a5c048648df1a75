# A private Citus cluster, a coordinator and two workers, that lives as long as its standard input.
# $1: folder of the programs, $2 $3 $4: loopback ports. Prints the cluster's folder once all nodes
# accept connections; then does what each line of input says to the node of that number, and prints
# `done`.
bin=$1
shift
trap '' INT TERM HUP PIPE
cd /
dir=$(mktemp -d "${TMPDIR:-/tmp}/rowhouse-citus.XXXXXX") || exit 1
# Nodes connect to each other, and libpq looks for certificates at home.
export HOME="$dir"
postmaster() {
    head -n 1 "$dir/$1/postmaster.pid"
}
start() {
    "$bin/pg_ctl" -D "$dir/$1" -w -t 120 -l "$dir/log$1" start >/dev/null 2>&1 || { cat "$dir/log$1" >&2; exit 1; }
}
children() {
    ps -A -o pid=,ppid= | awk -v parent="$1" '$2 == parent { print $1 }'
}
die() {
    pid=$(postmaster "$1") || return
    kill -STOP "$pid"
    kill -KILL $(children "$pid")
    kill -KILL "$pid"
    while kill -0 "$pid" 2>/dev/null; do sleep 0.02; done
}
freeze() {
    pid=$(postmaster "$1")
    kill -STOP "$pid" $(children "$pid") 2>/dev/null
}
thaw() {
    pid=$(postmaster "$1")
    kill -CONT $(children "$pid") "$pid" 2>/dev/null
}
finish() {
    for n in 0 1 2; do
        thaw $n 2>/dev/null
        "$bin/pg_ctl" -D "$dir/$n" -m immediate stop >/dev/null 2>&1
    done
    rm -rf "$dir"
}
trap finish EXIT
n=0
for port; do
    "$bin/initdb" -D "$dir/$n" -U rowhouse -A trust -E UTF8 --locale=C --no-sync >"$dir/initdb.log" 2>&1 ||
        { cat "$dir/initdb.log" >&2; exit 1; }
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
    n=$((n + 1))
done
echo "$dir"
while read -r command node; do
    case $command in
    start) start "$node" ;;
    kill) die "$node" ;;
    freeze) freeze "$node" ;;
    thaw) thaw "$node" ;;
    esac
    echo "done"
done
