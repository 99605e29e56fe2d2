#!lua flags=no-writes,allow-oom
-- The parts of several hashes. KEYS: the hashes. Answers the writers and texts of each.
local answer = {}
for i = 1, #KEYS do
  answer[i] = redis.call('HGETALL', KEYS[i])
end
return answer
