#!lua flags=allow-oom
-- A worker ends. KEYS: workers.
local known = redis.call('HGET', KEYS[1], ARGV[1])
if known and string.match(known, '^%-?%d+') == ARGV[2] then redis.call('HDEL', KEYS[1], ARGV[1]) end
return 1
