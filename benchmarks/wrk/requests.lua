-- Send the requests of a file: `wrk -s requests.lua URL -- FILE TAG`.
--
-- A line of the file is METHOD, path and body with tabs between them. Without the mark @@ the lines are picked at
-- random; with it, each request gets a name nobody had before: the tag of the run, the thread and a counter.

local started = 0

function setup(thread)
   thread:set("thread_number", started)
   started = started + 1
end

local function split(line)
   local method, path, body = line:match("^(%S+)\t(%S+)\t(.*)$")
   if body == "" then
      body = nil
   end
   return method, path, body
end

local function fresh(line, prefix)
   local count = 0
   return function()
      count = count + 1
      local method, path, body = split((line:gsub("@@", prefix .. count)))
      return wrk.format(method, path, nil, body)
   end
end

-- Formatting once keeps the load generator's share of the cores small.
local function repeated(lines)
   local ready = {}
   for i, line in ipairs(lines) do
      local method, path, body = split(line)
      ready[i] = wrk.format(method, path, nil, body)
   end
   return function()
      return ready[math.random(#ready)]
   end
end

function init(args)
   wrk.headers["Content-Type"] = "application/json"
   math.randomseed(7919 * (thread_number + 1))
   local lines = {}
   for line in io.lines(args[1]) do
      lines[#lines + 1] = line
   end
   if lines[1]:find("@@", 1, true) then
      request = fresh(lines[1], args[2] .. "_" .. thread_number .. "_")
   else
      request = repeated(lines)
   end
end

function done(summary, latency, _)
   local errors = summary.errors
   io.write(string.format(
      'RESULT {"requests": %d, "micros": %d, "p50": %.1f, "p99": %.1f, "status": %d, "broken": %d}\n',
      summary.requests, summary.duration, latency:percentile(50), latency:percentile(99),
      errors.status, errors.connect + errors.read + errors.write + errors.timeout))
end
