#!lua
-- New deliveries of one shard. One that is there already, or was, is left alone.
-- KEYS: holder, notes, expiry, counts, pending, bytes, minutes, lanes, tags; then queue, dead and ledger of each minute,
-- and the lanes.
local tenants, items = unpack(cmsgpack.unpack(ARGV[1]))
local rows, minutes, lanes, expiry, names, tags, notes, count, bytes, messages = {}, {}, {}, {}, {}, {}, {}, {}, {}, {}
local new = {}
for i, it in ipairs(items) do
  local id, at, lane, row, note, tenant = it[1], it[2], it[4], it[8], it[9], it[10]
  if redis.call('HEXISTS', KEYS[at], id) == 0 and redis.call('HEXISTS', KEYS[at + 1], id) == 0
    and redis.call('HEXISTS', KEYS[at + 2], id) == 0 then
    local r = rows[at]
    if not r then r = {}; rows[at] = r; minutes[#minutes + 1] = it[3]; minutes[#minutes + 1] = it[3] end
    r[#r + 1] = id; r[#r + 1] = row
    local l = lanes[lane]
    if not l then l = {}; lanes[lane] = l; names[#names + 1] = it[5] end
    l[#l + 1] = it[6]; l[#l + 1] = id
    expiry[#expiry + 1] = it[7]; expiry[#expiry + 1] = id .. struct.pack('>I4', it[5])
    notes[#notes + 1] = note
    count[tenant] = (count[tenant] or 0) + 1
    bytes[tenant] = (bytes[tenant] or 0) + it[11]
    messages[tenant] = (messages[tenant] or 0) + it[12]
    for _, tag in ipairs(it[13]) do tags[#tags + 1] = 0; tags[#tags + 1] = tag end
    new[#new + 1] = i
  end
end
if #new == 0 then return new end
for at, r in pairs(rows) do redis.call('HSET', KEYS[at], unpack(r)) end
for lane, l in pairs(lanes) do redis.call('ZADD', KEYS[lane], unpack(l)) end
redis.call('ZADD', KEYS[3], unpack(expiry))
redis.call('ZADD', KEYS[7], unpack(minutes))
redis.call('SADD', KEYS[8], unpack(names))
if #tags > 0 then redis.call('ZADD', KEYS[9], unpack(tags)) end
for tenant, n in pairs(count) do
  local name = tenants[tenant]
  redis.call('HINCRBY', KEYS[4], 's0:' .. name, n)
  redis.call('HINCRBY', KEYS[5], name, n)
  redis.call('HINCRBY', KEYS[6], name, bytes[tenant])
  if messages[tenant] > 0 then redis.call('HINCRBY', KEYS[4], 'm:' .. name, messages[tenant]) end
end
local number = redis.call('HINCRBY', KEYS[1], 'notes', 1)
redis.call('RPUSH', KEYS[2], string.format('%016.0f0', number) .. table.concat(notes))
return new
