-- Reads on in a lane from a place, however many deliveries have the same due time. The id is in it as bytes, so that
-- looks by id never take this index.
DROP INDEX queue_due;
CREATE INDEX queue_due ON queue (shard, lane, due, uuid_send(id));
