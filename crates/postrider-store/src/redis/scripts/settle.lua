#!lua flags=allow-oom
-- Settlements in one shard: all of them or none.
-- KEYS: holder, leases, expiry, counts, pending, bytes, queue minutes, dead minutes, ledger minutes, crashed, receipts,
-- periods of receipts, outbox, lanes; then queue, dead and ledger of each minute, and the lanes.
local receipt, period, nonce, ended, counts, told, items = unpack(cmsgpack.unpack(ARGV[1]))
local before = redis.call('HGET', KEYS[11], receipt)
if before then return cmsgpack.unpack(before) end
if redis.call('HGET', KEYS[1], 'nonce') ~= nonce then return {0} end
local rows = {}
for i, it in ipairs(items) do
  local row = redis.call('HGET', KEYS[it[2]], it[1])
  if not row or struct.unpack('>l', row, 53) >= it[7] then return {0} end
  if it[6] == 2 and math.floor(string.byte(row, 4) / 2) % 2 == 1 then return {0} end
  rows[i] = row
end
local del, dead, final, wait, gone, lane_del, lane_add = {}, {}, {}, {}, {}, {}, {}
local answer, minute_of, lane_of = {1}, {}, {}
local function put(map, key, a, b)
  local l = map[key]
  if not l then l = {}; map[key] = l end
  l[#l + 1] = a
  if b then l[#l + 1] = b end
end
for i, it in ipairs(items) do
  local id, at, lane, op, row, log = it[1], it[2], it[4], it[6], rows[i], it[9]
  local fixed, payload = struct.unpack('>I4I4', row, 61)
  local crashes, moves = struct.unpack('>I4', row, 5), struct.unpack('>I4', row, 17) + 1
  local head = string.sub(it[8], 1, 16) .. struct.pack('>I4', moves) .. string.sub(it[8], 21, 60)
  minute_of[at], lane_of[lane] = it[3], it[5]
  if op == 2 then
    put(wait, at, id, head .. string.sub(row, 61, 68 + fixed + payload) .. log)
    put(lane_add, lane, it[10], id)
  else
    if op == 0 then
      put(final, at + 2, id, head .. struct.pack('>I4I4', fixed, 0) .. string.sub(row, 69, 68 + fixed) .. log)
    else
      put(dead, at + 1, id, head .. string.sub(row, 61, 68 + fixed + payload) .. log)
    end
    put(del, at, id)
    put(lane_del, lane, id)
    gone[#gone + 1] = id .. struct.pack('>I4', it[5])
    if it[11] then
      local needs = string.char(op == 0 and 4 or 6) .. struct.pack('>I4', moves)
      redis.call('HSET', KEYS[13], it[11], needs)
      answer[#answer + 1] = it[11]
      answer[#answer + 1] = needs
    end
  end
  if crashes > 0 then
    local left = struct.unpack('>I4', head, 5)
    if op == 2 and left > 0 then redis.call('HSET', KEYS[10], id, left) else redis.call('HDEL', KEYS[10], id) end
  end
end
for at, l in pairs(del) do
  redis.call('HDEL', KEYS[at], unpack(l))
  if redis.call('EXISTS', KEYS[at]) == 0 then redis.call('ZREM', KEYS[7], minute_of[at]) end
end
for at, l in pairs(wait) do redis.call('HSET', KEYS[at], unpack(l)) end
for at, l in pairs(dead) do
  redis.call('HSET', KEYS[at], unpack(l))
  redis.call('ZADD', KEYS[8], minute_of[at - 1], minute_of[at - 1])
end
for at, l in pairs(final) do
  redis.call('HSET', KEYS[at], unpack(l))
  redis.call('ZADD', KEYS[9], minute_of[at - 2], minute_of[at - 2])
end
for lane, l in pairs(lane_add) do redis.call('ZADD', KEYS[lane], unpack(l)) end
for lane, l in pairs(lane_del) do
  redis.call('ZREM', KEYS[lane], unpack(l))
  if redis.call('EXISTS', KEYS[lane]) == 0 then redis.call('SREM', KEYS[14], lane_of[lane]) end
end
if #gone > 0 then redis.call('ZREM', KEYS[3], unpack(gone)) end
if #ended > 0 then redis.call('HDEL', KEYS[2], unpack(ended)) end
for _, t in ipairs(told) do
  if redis.call('HGET', KEYS[13], t[1]) == t[2] then redis.call('HDEL', KEYS[13], t[1]) end
end
for _, c in ipairs(counts) do
  if redis.call('HINCRBY', KEYS[c[1]], c[2], c[3]) == 0 then redis.call('HDEL', KEYS[c[1]], c[2]) end
end
redis.call('HSET', KEYS[11], receipt, cmsgpack.pack(answer))
redis.call('ZADD', KEYS[12], period, period)
return answer
