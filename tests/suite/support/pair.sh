# A private PostgreSQL with a synchronous standby, which lives as long as its standard input. Either may
# become the primary.
# $1: folder of the programs, $2 $3: loopback ports of servers 0 and 1; 0 is the primary. Prints the folder
# once both run; then does what each line of input says to the server of that number, and prints `done`.
bin=$1
ports="$2 $3"
trap '' INT TERM HUP PIPE
cd /
dir=$(mktemp -d "${TMPDIR:-/tmp}/rowhouse-pair.XXXXXX") || exit 1
port() {
    set -- $ports "$1"
    [ "$3" = 0 ] && echo "$1" || echo "$2"
}
other() {
    echo $((1 - $1))
}
ask() {
    "$bin/psql" -X -q -A -t -h 127.0.0.1 -p "$(port "$1")" -U rowhouse -c "$2" postgres
}
start() {
    "$bin/pg_ctl" -D "$dir/$1" -w -l "$dir/log$1" start >/dev/null 2>&1 -o "-k $dir -p $(port "$1") \
        -c listen_addresses=127.0.0.1 -c max_connections=200 -c shared_buffers=32MB" ||
        { cat "$dir/log$1" >&2; exit 1; }
}
# A server follows the other one, which acknowledges nothing from then on that this one lacks.
follow() {
    echo "primary_conninfo = 'host=127.0.0.1 port=$(port "$(other "$1")") user=rowhouse application_name=pair'" \
        >"$dir/$1/postgresql.auto.conf"
    touch "$dir/$1/standby.signal"
    start "$1"
    ask "$(other "$1")" "ALTER SYSTEM SET synchronous_standby_names = 'pair'" || exit 1
    ask "$(other "$1")" "SELECT pg_reload_conf()" >/dev/null
    tries=0
    until [ "$(ask "$(other "$1")" "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'")" = 1 ]; do
        sleep 0.1
        tries=$((tries + 1))
        [ $tries -lt 600 ] || { tail "$dir/log$1" >&2; exit 1; }
    done
}
copy() {
    rm -rf "$dir/$1"
    "$bin/pg_basebackup" -D "$dir/$1" -h 127.0.0.1 -p "$(port "$(other "$1")")" -U rowhouse -c fast -X stream \
        >"$dir/copy.log" 2>&1 || { cat "$dir/copy.log" >&2; exit 1; }
}
# What a former primary has that the other one lacks is undone.
rewind() {
    "$bin/pg_ctl" -D "$dir/$1" -m immediate stop >/dev/null 2>&1
    # Until then, the other one does not say on which timeline it is.
    ask "$(other "$1")" CHECKPOINT
    "$bin/pg_rewind" -D "$dir/$1" --source-server="host=127.0.0.1 port=$(port "$(other "$1")") user=rowhouse \
        dbname=postgres" >"$dir/rewind.log" 2>&1 || { cat "$dir/rewind.log" >&2; exit 1; }
}
finish() {
    for n in 0 1; do
        thaw $n 2>/dev/null
        "$bin/pg_ctl" -D "$dir/$n" -m immediate stop >/dev/null 2>&1
    done
    rm -rf "$dir"
}
trap finish EXIT
"$bin/initdb" -D "$dir/0" -U rowhouse -A trust -E UTF8 --locale=C --no-sync --data-checksums >"$dir/initdb.log" 2>&1 ||
    { cat "$dir/initdb.log" >&2; exit 1; }
echo "wal_keep_size = 512MB" >>"$dir/0/postgresql.conf"
start 0
copy 1
follow 1
echo "$dir"
while read -r command n; do
    case $command in
    kill) die "$n" ;;
    freeze) freeze "$n" ;;
    thaw) thaw "$n" ;;
    promote) "$bin/pg_ctl" -D "$dir/$n" -w promote >/dev/null || exit 1 ;;
    restrict)
        ask "$n" "ALTER SYSTEM SET default_transaction_read_only = on"
        ask "$n" "SELECT pg_reload_conf()" >/dev/null
        ;;
    rewind) rewind "$n" && follow "$n" ;;
    esac
    echo "done"
done
