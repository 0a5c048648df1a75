-- Deleted tables that can be brought back. A row moves to tables if one is, and to doomed when its time
-- has ended: until then no server purges its entities. records: what belonged to it, as JSON.
CREATE TABLE deleted_tables (
    table_no   bigint PRIMARY KEY,
    account    text COLLATE "C" NOT NULL,
    name_lower text COLLATE "C" NOT NULL,
    name       text NOT NULL,
    spread     integer NOT NULL,
    policies   jsonb,
    created    bigint NOT NULL,
    records    text NOT NULL,
    deleted_at bigint NOT NULL,
    kept_until bigint NOT NULL
);

CREATE INDEX deleted_tables_by_time ON deleted_tables (deleted_at);
CREATE INDEX deleted_tables_by_end ON deleted_tables (kept_until);
