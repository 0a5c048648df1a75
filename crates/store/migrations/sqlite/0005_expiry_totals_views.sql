-- The twin of the migration of PostgreSQL. One server has the file, so there is no lease.

CREATE TABLE expiry (
    table_no INTEGER PRIMARY KEY,
    property TEXT,
    delay    INTEGER NOT NULL,
    pause    INTEGER NOT NULL,
    made     INTEGER NOT NULL,
    due      INTEGER NOT NULL,
    began    INTEGER,
    pk       TEXT,
    rk       TEXT,
    clean    INTEGER,
    expired  INTEGER NOT NULL
) STRICT;

CREATE TABLE table_totals (
    table_no INTEGER PRIMARY KEY,
    entities INTEGER,
    started  INTEGER,
    ended    INTEGER,
    began    INTEGER,
    share    INTEGER,
    pk       TEXT,
    rk       TEXT,
    so_far   INTEGER
) STRICT;

CREATE TABLE sql_views (
    table_no    INTEGER PRIMARY KEY,
    schema_name TEXT,
    name        TEXT NOT NULL,
    columns     TEXT NOT NULL,
    grants      TEXT NOT NULL,
    refreshed   INTEGER NOT NULL,
    seen        INTEGER NOT NULL,
    is_full     INTEGER NOT NULL
) STRICT;
