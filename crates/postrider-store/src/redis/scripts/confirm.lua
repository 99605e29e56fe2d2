#!lua flags=allow-oom
-- Deletes notes up to a number. KEYS: holder, notes.
if redis.call('HGET', KEYS[1], 'nonce') ~= ARGV[1] then return 0 end
local last = tonumber(ARGV[2])
while true do
  local first = redis.call('LINDEX', KEYS[2], 0)
  if not first or tonumber(string.sub(first, 1, 16)) > last then return 1 end
  redis.call('LPOP', KEYS[2])
end
