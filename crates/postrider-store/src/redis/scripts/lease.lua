#!lua flags=allow-oom
-- A lease of deliveries of one shard.
-- KEYS: holder, leases; then the queues of minutes.
local nonce, acts, batch, till, now, expired, ended, groups = unpack(cmsgpack.unpack(ARGV[1]))
local held = redis.call('HMGET', KEYS[1], 'nonce', 'acts')
if held[1] ~= nonce or (held[2] or '0') ~= acts then return false end
if #ended > 0 then redis.call('HDEL', KEYS[2], unpack(ended)) end
local found, ids = {}, {}
for at, asked in ipairs(groups) do
  local rows = redis.call('HMGET', KEYS[2 + at], unpack(asked))
  for i, row in ipairs(rows) do
    if row and (expired or struct.unpack('>l', row, 21) <= now) then
      ids[#ids + 1] = asked[i]
      found[#found + 1] = asked[i]
      found[#found + 1] = row
    end
  end
end
local leases = redis.call('HGET', KEYS[1], 'leases') or '0'
if #ids > 0 then
  redis.call('HSET', KEYS[2], batch, struct.pack('>l', till) .. table.concat(ids))
  leases = redis.call('HINCRBY', KEYS[1], 'leases', 1)
end
return {leases, found}
