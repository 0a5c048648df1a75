-- Buckets that an insert may name, where Citus distributes this table together with entities.
-- Empty anywhere else.
CREATE TABLE buckets (
    bucket bigint PRIMARY KEY
);
