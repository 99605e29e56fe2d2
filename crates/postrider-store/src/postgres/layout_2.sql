-- The audit log. An entry without a tenant concerns the whole server.
CREATE TABLE audit (number bigint PRIMARY KEY, at bigint NOT NULL, tenant text, text text NOT NULL);
CREATE INDEX audit_tenant ON audit (tenant, number);
