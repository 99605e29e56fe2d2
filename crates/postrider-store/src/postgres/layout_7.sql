-- Entries about people and their addresses. Keys are compared byte by byte, as in every other store.
CREATE TABLE entry (
    tenant text COLLATE "C" NOT NULL, kind smallint NOT NULL, key text COLLATE "C" NOT NULL, version bigint NOT NULL,
    json text NOT NULL, PRIMARY KEY (tenant, kind, key));
