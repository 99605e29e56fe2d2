#!lua flags=no-writes,allow-oom
-- Documents by prefix, or changes after a version. KEYS: documents, by version, by name, deletions, state.
local state = redis.call('HMGET', KEYS[5], 'newest', 'forgotten')
local newest, forgotten = tonumber(state[1] or '0'), tonumber(state[2] or '0')
local since, names, complete = tonumber(ARGV[2]), nil, 0
if ARGV[2] == '' or since < forgotten or since > newest or since == 0 then
  local last = ARGV[1] == '' and '+' or ('(' .. ARGV[1] .. '\255')
  names = redis.call('ZRANGEBYLEX', KEYS[3], '[' .. ARGV[1], last)
  complete = 1
else
  names = redis.call('ZRANGEBYSCORE', KEYS[2], '(' .. ARGV[2], '+inf')
end
local answer = {tostring(newest), complete}
for _, name in ipairs(names) do
  answer[#answer + 1] = name
  answer[#answer + 1] = redis.call('HGET', KEYS[1], name)
end
return answer
