/* redis_script.c - decide.c once more, in the language that Redis runs. A test holds the two
 * against each other; who changes one changes the other.
 *
 * For Redis 5 to 7. Outcomes are the numbers of enum op_outcome, states those of enum once_state.
 * A script writes first what may be refused (a full memory refuses HSET), so that a refusal leaves
 * everything as it was. TIME before a write needs replication of effects: the default since
 * Redis 5, asked for all the same, since it can be configured away until 7.
 *
 * In one thing they differ: this clock has microseconds, where decide() is given milliseconds. So
 * the fence grows also over a row that was forgotten within the same millisecond.
 */
#include "once/redis_int.h"

_Static_assert(OUT_OK == 1 && OUT_BUSY == 2 && OUT_DONE == 3 && OUT_LOST == 4 && OUT_ABSENT == 5,
               "the scripts say these numbers");
_Static_assert(ONCE_CONSUMING == 1 && ONCE_CONSUMED == 2 && ONCE_RELEASED == 3,
               "the scripts store these numbers");

/* The server's clock, and sums that stay whole numbers. */
#define LUA_CLOCK                                                                                  \
    "if redis.replicate_commands then redis.replicate_commands() end\n"                            \
    "local time = redis.call('TIME')\n"                                                            \
    "local now = time[1] * 1000 + math.floor(time[2] / 1000)\n"                                    \
    "local function later(more_ms) return math.min(now + more_ms, 9007199254740991) end\n"

/* What is stored. */
#define LUA_ROW                                                                                    \
    "local key = KEYS[1]\n"                                                                        \
    "local row = redis.call('HMGET', key, 's', 't', 'f', 'u', 'p', 'h', 'r')\n"                    \
    "local state, holder, fence = row[1], row[2], tonumber(row[3]) or 0\n"                         \
    "local left = math.max((tonumber(row[4]) or 0) - now, 0)\n"

/* A claim that has expired but that nobody has taken is still its holder's. */
#define LUA_HOLDS "local holds = state == '1' and holder == ARGV[1]\n"

/* Results of steps are of no use once the message is done, and may be large. */
#define LUA_FORGET_STEPS                                                                           \
    "local function forget_steps()\n"                                                              \
    "    if redis.call('HLEN', key) <= 8 then return end\n"                                        \
    "    for _, field in ipairs(redis.call('HKEYS', key)) do\n"                                    \
    "        if string.sub(field, 1, 5) == 'step:' then redis.call('HDEL', key, field) end\n"      \
    "    end\n"                                                                                    \
    "end\n"

static const char claim[] = LUA_CLOCK LUA_ROW LUA_HOLDS LUA_FORGET_STEPS
    "local token, fingerprint, expiry, retention = ARGV[1], ARGV[2], ARGV[3], ARGV[4]\n"
    "local name, home, steal = ARGV[5], ARGV[6], ARGV[7]\n"
    "if state == '2' and left > 0 then return {3, 0, left, row[5]} end\n"
    "if holds then\n"
    "    fingerprint, state = row[5], '0'\n" /* asked again, because the answer was lost */
    "else\n"
    "    if state == '1' and left > 0 and holder ~= steal then\n"
    "        return {2, 0, left, holder, row[6] or ''}\n"
    "    end\n"
    "    left = 0\n"
    "    fence = math.max(state and fence + 1 or 1, time[1] * 1000000 + time[2])\n"
    "end\n"
    "redis.call('HSET', key, 's', '1', 't', token, 'f', fence, 'u', later(expiry),\n"
    "    'p', fingerprint, 'n', name, 'r', retention, 'h', home)\n"
    "if state == '2' then forget_steps() end\n"
    "redis.call('PEXPIREAT', key, later(expiry + retention))\n"
    "return {1, fence, left, tonumber(state or '0')}\n";

static const char renew[] =
    LUA_CLOCK LUA_ROW LUA_HOLDS "local expiry, home = ARGV[2], ARGV[3]\n"
                                "if not holds then return 4 end\n"
                                "redis.call('HSET', key, 'u', later(expiry), 'h', home)\n"
                                "redis.call('PEXPIREAT', key, later(expiry + row[7]))\n"
                                "return 1\n";

/* Said again, because the answer was lost, it still writes: WAIT waits for what a connection has
 * written, and this may be another one. */
static const char finish[] = LUA_CLOCK LUA_ROW LUA_HOLDS LUA_FORGET_STEPS
    "if state == '2' and holder == ARGV[1] then\n"
    "    redis.call('HSET', key, 's', '2')\n"
    "    return 1\n"
    "end\n"
    "if not holds then return 4 end\n"
    "redis.call('HSET', key, 's', '2', 'u', later(ARGV[2]), 'h', '')\n"
    "forget_steps()\n"
    "redis.call('PEXPIREAT', key, later(ARGV[2]))\n"
    "return 1\n";

static const char release[] = LUA_CLOCK LUA_ROW LUA_HOLDS
    "local retention, forget = ARGV[2], ARGV[3] == '1'\n"
    "if not holds then\n"
    "    if state == '3' and holder == ARGV[1] or forget and not state then return 1 end\n"
    "    return 4\n"
    "end\n"
    "if forget then\n"
    "    redis.call('DEL', key)\n"
    "else\n"
    "    redis.call('HSET', key, 's', '3', 'u', later(retention), 'h', '')\n"
    "    redis.call('PEXPIREAT', key, later(retention))\n"
    "end\n"
    "return 1\n";

static const char look[] = LUA_CLOCK LUA_ROW "if not state then return {5} end\n"
                                             "return {1, tonumber(state), fence, left}\n";

static const char put[] = "local row = redis.call('HMGET', KEYS[1], 's', 't')\n"
                          "if row[1] ~= '1' or row[2] ~= ARGV[1] then return 4 end\n"
                          "redis.call('HSETNX', KEYS[1], ARGV[2], ARGV[3])\n"
                          "return 1\n";

/* SET with both NX and GET exists since Redis 7 only (H-4). */
static const char plain_claim[] =
    "local value = redis.call('GET', KEYS[1])\n"
    "if not value then\n"
    "    redis.call('SET', KEYS[1], '0', 'PX', ARGV[1], 'NX')\n"
    "    return {1}\n"
    "end\n"
    "if value == '0' then return {2, redis.call('PTTL', KEYS[1])} end\n"
    "if value == '1' then return {3, redis.call('PTTL', KEYS[1])} end\n"
    "return redis.error_reply('ERR the key has a value that is neither \"0\" nor \"1\"')\n";

static const char plain_look[] =
    "local value = redis.call('GET', KEYS[1])\n"
    "if not value then return {5} end\n"
    "if value == '0' then return {1, 1, redis.call('PTTL', KEYS[1])} end\n"
    "if value == '1' then return {1, 2, redis.call('PTTL', KEYS[1])} end\n"
    "return redis.error_reply('ERR the key has a value that is neither \"0\" nor \"1\"')\n";

const char *const redis_scripts[SCRIPT_COUNT] = {
    [SCRIPT_CLAIM] = claim,
    [SCRIPT_RENEW] = renew,
    [SCRIPT_FINISH] = finish,
    [SCRIPT_RELEASE] = release,
    [SCRIPT_LOOK] = look,
    [SCRIPT_PUT] = put,
    [SCRIPT_PLAIN_CLAIM] = plain_claim,
    [SCRIPT_PLAIN_LOOK] = plain_look,
};
