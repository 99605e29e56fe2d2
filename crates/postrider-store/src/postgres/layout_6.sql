-- The ledger and the dead letters of one tenant, in their order. The id is in the indexes as bytes, so that looks by id
-- never take one of them.
CREATE INDEX queue_tenant ON queue (tenant, uuid_send(id));
CREATE INDEX dead_tenant ON dead (tenant, uuid_send(id));
CREATE INDEX ledger_tenant ON ledger (tenant, uuid_send(id));
