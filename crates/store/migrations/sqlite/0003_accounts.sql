-- The twin of migrations/postgres/0003.

CREATE TABLE accounts (
    name     TEXT PRIMARY KEY,
    key1     BLOB NOT NULL,
    key2     BLOB NOT NULL,
    disabled INTEGER NOT NULL,
    created  INTEGER NOT NULL,
    rotated1 INTEGER NOT NULL,
    rotated2 INTEGER NOT NULL
) STRICT;

CREATE TABLE account_changes (
    id      INTEGER PRIMARY KEY,
    changes INTEGER NOT NULL
) STRICT;
