-- The twin of migrations/postgres/0001: same tables, same columns.

CREATE TABLE tables (
    table_no   INTEGER PRIMARY KEY,
    account    TEXT NOT NULL,
    name_lower TEXT NOT NULL,
    name       TEXT NOT NULL,
    spread     INTEGER NOT NULL,
    policies   TEXT,
    created    INTEGER NOT NULL,
    UNIQUE (account, name_lower)
) STRICT;

-- A rowid table: WITHOUT ROWID would spill rows of a kilobyte to overflow pages.
CREATE TABLE entities (
    bucket     INTEGER NOT NULL,
    pk         TEXT NOT NULL,
    rk         TEXT NOT NULL,
    modified   INTEGER NOT NULL,
    properties TEXT NOT NULL,
    PRIMARY KEY (bucket, pk, rk)
) STRICT;

-- Deleted tables whose entities wait to be purged.
CREATE TABLE doomed (
    table_no   INTEGER PRIMARY KEY,
    spread     INTEGER NOT NULL,
    deleted_at INTEGER NOT NULL,
    due        INTEGER NOT NULL
) STRICT;

CREATE INDEX doomed_by_due ON doomed (due);
