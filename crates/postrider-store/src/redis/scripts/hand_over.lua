#!lua flags=allow-oom
-- Ends the leases of a shard, and holds it no longer. KEYS: holder, leases.
if redis.call('HGET', KEYS[1], 'nonce') ~= ARGV[1] then return 0 end
redis.call('HDEL', KEYS[1], 'node', 'number', 'nonce')
redis.call('DEL', KEYS[2])
return 1
