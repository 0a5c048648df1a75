# A private PostgreSQL cluster that can be stopped, killed and started again, and
# lives as long as its standard input.
# $1: folder of the programs, $2: loopback port. Prints the cluster's folder once
# the server accepts connections; then does what each line of input says, and
# prints `done`.
bin=$1
port=$2
trap '' INT TERM HUP PIPE
cd /
dir=$(mktemp -d "${TMPDIR:-/tmp}/rowhouse-pg.XXXXXX") || exit 1
start() {
    "$bin/pg_ctl" -D "$dir/data" -w -l "$dir/log" start >/dev/null 2>&1 -o "-k $dir -p $port \
        -c listen_addresses=127.0.0.1 -c max_connections=200 -c shared_buffers=32MB" ||
        { cat "$dir/log" >&2; exit 1; }
}
trap '"$bin/pg_ctl" -D "$dir/data" -m immediate stop >/dev/null 2>&1; rm -rf "$dir"' EXIT
"$bin/initdb" -D "$dir/data" -U rowhouse -A trust -E UTF8 --locale=C --no-sync >"$dir/initdb.log" 2>&1 ||
    { cat "$dir/initdb.log" >&2; exit 1; }
start
echo "$dir"
while read -r command; do
    case $command in
    start) start ;;
    stop) "$bin/pg_ctl" -D "$dir/data" -m fast -w stop >/dev/null ;;
    kill) die data ;;
    demote)
        # It comes back as a standby, with what it has.
        "$bin/pg_ctl" -D "$dir/data" -m fast -w stop >/dev/null
        touch "$dir/data/standby.signal"
        start
        ;;
    promote) "$bin/pg_ctl" -D "$dir/data" -w promote >/dev/null || exit 1 ;;
    esac
    echo "done"
done
