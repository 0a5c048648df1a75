-- Names are compared and ordered by code point, whatever the database's locale.
CREATE TABLE tables (
    table_no   bigint PRIMARY KEY,
    account    text COLLATE "C" NOT NULL,
    name_lower text COLLATE "C" NOT NULL,
    name       text NOT NULL,
    spread     integer NOT NULL,
    policies   jsonb,
    created    bigint NOT NULL,
    UNIQUE (account, name_lower)
);

-- No foreign key, trigger, default or generated column: sharding engines refuse
-- them on a distributed table. bucket is the distribution column.
CREATE TABLE entities (
    bucket     bigint NOT NULL,
    pk         text COLLATE "C" NOT NULL,
    rk         text COLLATE "C" NOT NULL,
    modified   bigint NOT NULL,
    properties jsonb NOT NULL,
    PRIMARY KEY (bucket, pk, rk)
);

-- Deleted tables whose rows are to be purged. A record outlives the first clean
-- sweep, because a statement that was under way at the deletion may still land.
CREATE TABLE doomed (
    table_no   bigint PRIMARY KEY,
    spread     integer NOT NULL,
    deleted_at bigint NOT NULL,
    due        bigint NOT NULL
);

CREATE INDEX doomed_by_due ON doomed (due);
