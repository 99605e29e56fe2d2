#!lua flags=no-writes,allow-oom
-- Deliveries of a lane after a due time and an id. KEYS: lane.
-- Bytes in order, whatever the server's locale says about texts.
local function is_after(a, b)
  for i = 1, 16 do
    local x, y = string.byte(a, i), string.byte(b, i)
    if x ~= y then return x > y end
  end
  return false
end
local due, id, limit = ARGV[1], ARGV[2], tonumber(ARGV[3])
local low = redis.call('ZCOUNT', KEYS[1], '-inf', '(' .. due)
local high = redis.call('ZCOUNT', KEYS[1], '-inf', due)
while low < high do
  local middle = math.floor((low + high) / 2)
  if is_after(redis.call('ZRANGE', KEYS[1], middle, middle)[1], id) then high = middle else low = middle + 1 end
end
return redis.call('ZRANGE', KEYS[1], low, low + limit - 1, 'WITHSCORES')
