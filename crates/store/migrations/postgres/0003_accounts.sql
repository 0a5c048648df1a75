-- Accounts that were added by command. Their keys are encrypted under the master
-- key, which is never in the database.
CREATE TABLE accounts (
    name     text COLLATE "C" PRIMARY KEY,
    key1     bytea NOT NULL,
    key2     bytea NOT NULL,
    disabled boolean NOT NULL,
    created  bigint NOT NULL,
    rotated1 bigint NOT NULL,
    rotated2 bigint NOT NULL
);

-- One row, made by the first change. It counts the changes of accounts, so that
-- replicas learn of one by reading a number.
CREATE TABLE account_changes (
    id      integer PRIMARY KEY,
    changes bigint NOT NULL
);
