#!lua flags=allow-oom
-- Several changes of one shard, each only if what it was computed from is still so.
-- The holder's nonce (or false), the receipt, whether operators act, and the present time; then the changes:
-- conditions, what must not be leased (or false), commands, and the commands if it is leased.
local nonce, receipt, acts, now, changes = unpack(cmsgpack.unpack(ARGV[1]))
local before = redis.call('HGET', KEYS[receipt[1]], receipt[3])
if before then return cmsgpack.unpack(before) end
if nonce and redis.call('HGET', KEYS[1], 'nonce') ~= nonce then return {-1} end
local leased
local function is_leased(id, free)
  if not leased then
    leased = {}
    local all = redis.call('HGETALL', KEYS[2])
    for i = 1, #all, 2 do
      local batch, value = tonumber(all[i]), all[i + 1]
      if struct.unpack('>l', value) > now then
        for p = 9, #value, 16 do
          local of = string.sub(value, p, p + 15)
          if (leased[of] or 0) < batch then leased[of] = batch end
        end
      end
    end
  end
  return leased[id] and leased[id] > free
end
local function run(commands)
  for _, c in ipairs(commands) do
    local name, key = c[1], KEYS[c[2]]
    if name == 'add' then
      if redis.call('HINCRBY', key, c[3], c[4]) == 0 then redis.call('HDEL', key, c[3]) end
    elseif name == 'note' then
      local number = redis.call('HINCRBY', KEYS[1], 'notes', 1)
      redis.call('RPUSH', key, string.format('%016.0f', number) .. c[3])
    elseif name == 'row+' then
      redis.call('HSET', key, c[4], c[5])
      redis.call('ZADD', KEYS[c[3]], c[6], c[6])
    elseif name == 'row-' then
      redis.call('HDEL', key, c[4])
      if redis.call('EXISTS', key) == 0 then redis.call('ZREM', KEYS[c[3]], c[5]) end
    elseif name == 'lane-' then
      redis.call('ZREM', key, c[4])
      if redis.call('EXISTS', key) == 0 then redis.call('SREM', KEYS[c[3]], c[5]) end
    else
      redis.call(name, key, unpack(c, 3))
    end
  end
end
local answer, applied = {}, false
for i, change in ipairs(changes) do
  local holds = true
  for _, c in ipairs(change[1]) do
    if redis.call('HGET', KEYS[c[1]], c[2]) ~= c[3] then holds = false; break end
  end
  if not holds then
    answer[i] = 0
  elseif change[2] and is_leased(change[2][1], change[2][2]) then
    run(change[4])
    answer[i] = 2
    applied = true
  else
    run(change[3])
    answer[i] = 1
    applied = true
  end
end
if applied then
  redis.call('HSET', KEYS[receipt[1]], receipt[3], cmsgpack.pack(answer))
  redis.call('ZADD', KEYS[receipt[2]], receipt[4], receipt[4])
end
if acts then redis.call('HINCRBY', KEYS[1], 'acts', 1) end
return answer
