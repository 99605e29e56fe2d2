-- Rollups. The tenant is empty for the counts of all tenants together. A part is written every second while it grows,
-- so pages keep room for its next version.
CREATE TABLE rollup (
  span smallint NOT NULL, at bigint NOT NULL, tenant text COLLATE "C" NOT NULL, writer bigint NOT NULL,
  text text NOT NULL, PRIMARY KEY (span, tenant, at, writer)) WITH (fillfactor = 60);
CREATE INDEX rollup_at ON rollup (span, at);
