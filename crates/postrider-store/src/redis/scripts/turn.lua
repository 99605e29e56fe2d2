#!lua flags=allow-oom
-- The turn of a suspect: asked for until a time, or ended if the time is empty. KEYS: turn.
local id, till, now = ARGV[1], ARGV[2], tonumber(ARGV[3])
local held = redis.call('HMGET', KEYS[1], 'id', 'until')
if till == '' then
  if held[1] == id then redis.call('DEL', KEYS[1]) end
  return '0'
end
if held[1] and held[1] ~= id and tonumber(held[2]) > now then return held[2] end
redis.call('HSET', KEYS[1], 'id', id, 'until', till)
return '0'
