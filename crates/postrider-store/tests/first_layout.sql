-- A store as version 0.1 left it: two messages, one of them to three addresses.
CREATE TABLE meta (key TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE tenant (id INTEGER PRIMARY KEY, name TEXT NOT NULL, counts TEXT NOT NULL);
CREATE TABLE lane (
  id INTEGER PRIMARY KEY, tenant TEXT NOT NULL, channel TEXT NOT NULL, provider TEXT NOT NULL,
  class TEXT NOT NULL);
CREATE TABLE message (
  seq INTEGER PRIMARY KEY, tail INTEGER NOT NULL, tenant TEXT NOT NULL, class TEXT NOT NULL,
  expires INTEGER NOT NULL, ttl_s INTEGER NOT NULL, deliveries INTEGER NOT NULL,
  holds INTEGER NOT NULL, envelope TEXT, content TEXT);
CREATE TABLE delivery (
  seq INTEGER PRIMARY KEY, tail INTEGER NOT NULL, message INTEGER NOT NULL, lane INTEGER NOT NULL,
  state INTEGER NOT NULL, reason INTEGER, due INTEGER, attempts INTEGER NOT NULL,
  tries INTEGER NOT NULL, last_delay_ms INTEGER NOT NULL, expires INTEGER NOT NULL,
  changed INTEGER NOT NULL, hash BLOB NOT NULL, address BLOB, address_since INTEGER,
  recipient TEXT, retry TEXT, log TEXT, target TEXT, body TEXT);
CREATE INDEX pending ON delivery (lane, due) WHERE due IS NOT NULL;
CREATE TABLE dead_letter (seq INTEGER PRIMARY KEY);
CREATE TABLE gone (tenant TEXT NOT NULL, hash BLOB NOT NULL, PRIMARY KEY (tenant, hash))
  WITHOUT ROWID;
CREATE TABLE address (
  seq INTEGER PRIMARY KEY, tail INTEGER NOT NULL, tenant TEXT NOT NULL, recipient TEXT,
  channel TEXT NOT NULL, hash BLOB NOT NULL, target TEXT, status TEXT NOT NULL, gone_at INTEGER);
CREATE UNIQUE INDEX address_hash ON address (tenant, hash);
CREATE INDEX address_recipient ON address (tenant, recipient);
CREATE TABLE api_key (
  id BLOB PRIMARY KEY, tenant TEXT NOT NULL, name TEXT NOT NULL, scope TEXT NOT NULL,
  secret_hash BLOB NOT NULL, created INTEGER NOT NULL, revoked INTEGER) WITHOUT ROWID;
CREATE TABLE signing_key (
  id BLOB PRIMARY KEY, tenant TEXT NOT NULL, kind TEXT NOT NULL, secret BLOB NOT NULL,
  created INTEGER NOT NULL, retired INTEGER) WITHOUT ROWID;
CREATE TABLE dedup_bucket (
  id INTEGER PRIMARY KEY, long INTEGER NOT NULL, latest INTEGER NOT NULL, filter BLOB NOT NULL);
CREATE TABLE dedup_open_short (
  id INTEGER PRIMARY KEY, key BLOB NOT NULL, fingerprint BLOB NOT NULL, message INTEGER NOT NULL,
  tail INTEGER NOT NULL, expires INTEGER NOT NULL);
CREATE TABLE dedup_open_long (
  id INTEGER PRIMARY KEY, key BLOB NOT NULL, fingerprint BLOB NOT NULL, message INTEGER NOT NULL,
  tail INTEGER NOT NULL, expires INTEGER NOT NULL);

INSERT INTO meta VALUES ('epoch', 1790000000);
INSERT INTO tenant VALUES (0, 'acme', '{"messages":2,"states":{"queued":2,"sent":1,"failed":1},"dead":{"permanent":1}}');
INSERT INTO lane VALUES (0, 'acme', 'webhook', 'https://host-1.example', 'transactional');
INSERT INTO message VALUES (58654719836160000, 11, 'acme', 'transactional', 1790003595000, 3600, 1, 1, NULL, NULL);
INSERT INTO delivery (seq, tail, message, lane, state, due, attempts, tries, last_delay_ms, expires, changed, hash, target, body)
  VALUES (58654719836160001, 12, 58654719836160000, 0, 0, 1789999995000, 0, 0, 0, 1790003595000, 1789999995000, x'00112233445566778899aabbccddeeff', '{"channel":"webhook","url":"https://host-1.example/hook"}', '{"title":"lone"}');
INSERT INTO message VALUES (58654719836160002, 13, 'acme', 'transactional', 1790003595000, 3600, 3, 2, NULL, '{"title":"fan-out"}');
INSERT INTO delivery (seq, tail, message, lane, state, due, attempts, tries, last_delay_ms, expires, changed, hash, target)
  VALUES (58654719836160003, 14, 58654719836160002, 0, 0, 1789999995000, 0, 0, 0, 1790003595000, 1789999995000, x'00112233445566778899aabbccddeeff', '{"channel":"webhook","url":"https://host-1.example/hook"}');
INSERT INTO delivery (seq, tail, message, lane, state, attempts, tries, last_delay_ms, expires, changed, hash)
  VALUES (58654719836160004, 15, 58654719836160002, 0, 4, 1, 1, 0, 1790003595000, 1789999995000, x'00112233445566778899aabbccddeeff');
INSERT INTO delivery (seq, tail, message, lane, state, reason, attempts, tries, last_delay_ms, expires, changed, hash, target)
  VALUES (58654719836160005, 16, 58654719836160002, 0, 11, 0, 1, 1, 0, 1790003595000, 1789999995000, x'00112233445566778899aabbccddeeff', '{"channel":"webhook","url":"https://host-1.example/hook"}');
INSERT INTO dead_letter VALUES (58654719836160005);
PRAGMA user_version = 1;
