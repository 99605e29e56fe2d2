#!lua flags=allow-oom
-- The messages of these keys are written. KEYS: keys of periods.
for _, it in ipairs(cmsgpack.unpack(ARGV[1])) do
  local value = redis.call('HGET', KEYS[it[2]], it[1])
  if value and string.sub(value, 17, 32) == it[3] then
    redis.call('HSET', KEYS[it[2]], it[1], string.sub(value, 1, 44) .. '\1')
  end
end
return 1
