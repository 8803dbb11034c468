package lockstep.conformance;

/** The scripts that published lock implementations send, to the byte: blanks and quotes are theirs. */
public final class SeedScripts {
    /** Compare and delete, as an article on locks with Jedis explains it (seed 000, section 2). */
    public static final String COMPARE_AND_DELETE_EXPLAINED =
            "if redis.call('get',KEYS[1]) == ARGV[1] then"
                    + "   return redis.call('del',KEYS[1]) "
                    + "else"
                    + "   return 0 "
                    + "end";

    /** Compare and delete, as the lock of that article and RedisTool send it (seed 000, section 4; seed 002). */
    public static final String COMPARE_AND_DELETE =
            "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end";

    /** Compare and delete in double quotes (seed 002, first implementation). */
    public static final String COMPARE_AND_DELETE_QUOTED =
            "if redis.call(\"get\",KEYS[1]) == ARGV[1] then return redis.call(\"del\",KEYS[1]) else return 0 end";

    /** Reentrant lock with HINCRBY (seed 001): KEYS[1] lock; ARGV[1] lease in ms, ARGV[2] owner. */
    public static final String REENTRANT_LOCK =
            "if (redis.call(\"exists\", KEYS[1]) == 0) then redis.call(\"hincrby\", KEYS[1], ARGV[2], 1); "
                    + "redis.call(\"pexpire\", KEYS[1], ARGV[1]); return nil; end; "
                    + "if (redis.call(\"hexists\", KEYS[1], ARGV[2]) == 1) then "
                    + "redis.call(\"hincrby\", KEYS[1], ARGV[2], 1); "
                    + "redis.call(\"pexpire\", KEYS[1], ARGV[1]); return nil; end; "
                    + "return redis.call(\"pttl\", KEYS[1]);";

    /** Reentrant lock with HSET, of an earlier Redisson (seed 002); keys and arguments as above. */
    public static final String RLOCK_LOCK =
            "if (redis.call('exists', KEYS[1]) == 0) then "
                    + "redis.call('hset', KEYS[1], ARGV[2], 1); "
                    + "redis.call('pexpire', KEYS[1], ARGV[1]); "
                    + "return nil; "
                    + "end; "
                    + "if (redis.call('hexists', KEYS[1], ARGV[2]) == 1) then "
                    + "redis.call('hincrby', KEYS[1], ARGV[2], 1); "
                    + "redis.call('pexpire', KEYS[1], ARGV[1]); "
                    + "return nil; "
                    + "end; "
                    + "return redis.call('pttl', KEYS[1]);";

    /** Its unlock (seed 002): KEYS[1] lock, KEYS[2] channel; ARGV[1] message, ARGV[2] lease in ms, ARGV[3] owner. */
    public static final String RLOCK_UNLOCK =
            "if (redis.call('hexists', KEYS[1], ARGV[3]) == 0) then "
                    + "return nil;"
                    + "end; "
                    + "local counter = redis.call('hincrby', KEYS[1], ARGV[3], -1); "
                    + "if (counter > 0) then "
                    + "redis.call('pexpire', KEYS[1], ARGV[2]); "
                    + "return 0; "
                    + "else "
                    + "redis.call('del', KEYS[1]); "
                    + "redis.call('publish', KEYS[2], ARGV[1]); "
                    + "return 1; "
                    + "end; "
                    + "return nil;";

    private SeedScripts() {}
}
