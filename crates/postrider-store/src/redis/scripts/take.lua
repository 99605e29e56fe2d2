#!lua flags=allow-oom
-- Takes a shard, if its holder is still the expected one. What that one left leased was in flight at a crash.
-- KEYS: holder, leases, crashed; then the queues of minutes.
local before, leases, node, number, nonce, leased = unpack(cmsgpack.unpack(ARGV[1]))
local held = redis.call('HMGET', KEYS[1], 'nonce', 'leases', 'acts')
if (held[1] or '') ~= before or (held[2] or '0') ~= leases then return false end
for _, l in ipairs(leased) do
  local key = KEYS[l[2]]
  local row = redis.call('HGET', key, l[1])
  if row and struct.unpack('>l', row, 53) < l[3] then
    local crashes = struct.unpack('>I4', row, 5) + 1
    redis.call('HSET', key, l[1], string.sub(row, 1, 4) .. struct.pack('>I4', crashes) .. string.sub(row, 9))
    redis.call('HSET', KEYS[3], l[1], crashes)
  end
end
redis.call('DEL', KEYS[2])
redis.call('HSET', KEYS[1], 'node', node, 'number', number, 'nonce', nonce)
return held[3] or '0'
