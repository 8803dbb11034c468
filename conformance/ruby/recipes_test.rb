# frozen_string_literal: true

# Locks as people write them by hand on redis-rb, and through the libraries
# that Debian has: Rails's cache, Sidekiq.
require 'minitest/autorun'
require 'active_support'
require 'active_support/cache'
require 'active_support/cache/redis_cache_store'
require 'active_support/notifications'
require 'zlib'
require_relative 'adapters'

class RecipesTest < Minitest::Test
  parallelize_me!

  RECIPES = Adapters::About.new('redis-rb recipes', Redis::VERSION, 'plain')
  SCRIPTS = Adapters::About.new("redis-rb with redlock-rb's scripts", Redis::VERSION, 'plain')
  RAILS = Adapters::About.new('Rails RedisCacheStore unless_exist', "#{ActiveSupport.version}, redis-rb #{Redis::VERSION}", 'plain')

  # Declares a test: two clients and a key of its own.
  def self.recipe(test, about = RECIPES, &body)
    define_method("test_#{test}") do
      Where.report(about, test) do
        clients = Array.new(2) { Adapters.connect('plain', Where.addrs) }
        instance_exec(*clients, "rb:#{SecureRandom.uuid}", &body)
      ensure
        clients&.each(&:close)
      end
    end
  end

  recipe :setnx_and_expire do |r, other, key|
    assert r.setnx(key, 'a')
    assert r.expire(key, 5)
    refute other.setnx(key, 'b')
    assert_includes 0..5, other.ttl(key)
    assert Where.eventually(15) { other.setnx(key, 'b') }, 'the lease never ended'
    assert_equal(-1, other.ttl(key))
    assert_equal 1, other.del(key)
    assert_equal(-2, other.ttl(key))
  end

  # The value is the time at which the lock ends; GETSET decides who takes over.
  recipe :getset_of_a_deadline do |r, other, key|
    now = Time.now.to_f
    assert r.setnx(key, now - 1), 'its owner died'
    refute r.setnx(key, 'x')
    seen = r.get(key)
    assert_operator Float(seen), :<, now
    assert_equal seen, r.getset(key, now + 30), 'r is the one that takes over'
    assert_equal (now + 30).to_s, other.getset(key, now + 31), 'other sees a lock that is held'
    assert_equal 1, r.del(key)
  end

  recipe :blpop_semaphore do |r, other, key|
    assert_equal 2, r.rpush(key, %w[permit-1 permit-2])
    assert_equal [key, 'permit-1'], r.blpop(key, timeout: 1)
    assert_equal [key, 'permit-2'], r.blpop(key, timeout: 1)
    assert_nil r.blpop(key, timeout: 1)
    waiter = Thread.new { other.blpop(key, timeout: 20) }
    sleep 0.2
    assert waiter.alive?
    r.rpush(key, 'permit-1')
    assert_equal [key, 'permit-1'], waiter.value
    assert_equal 0, r.llen(key)
  end

  recipe :watch_and_multi_unlock do |r, _other, key|
    r.set(key, 'mine', px: 30_000)
    done = r.watch(key) do
      assert_equal 'mine', r.get(key)
      r.multi { |multi| multi.del(key) }
    end
    assert_equal [1], done
    refute r.exists?(key)
  end

  recipe :watch_and_multi_unlock_of_a_lock_that_was_taken_over do |r, other, key|
    r.set(key, 'mine', px: 30_000)
    done = r.watch(key) do
      assert_equal 'mine', r.get(key)
      other.set(key, 'theirs', px: 30_000)
      r.multi { |multi| multi.del(key) }
    end
    assert_nil done
    assert_equal 'theirs', r.get(key)
  end

  # A waiter that sleeps until the lock ends.
  recipe :listener_to_the_expiry_of_a_lock do |r, other, key|
    r.config(:set, 'notify-keyspace-events', 'Ex')
    subscribed = Queue.new
    listener = Thread.new do
      seen = nil
      other.psubscribe_with_timeout(15, '__keyevent@*__:expired') do |on|
        on.psubscribe { subscribed << true }
        on.pmessage do |_pattern, channel, name|
          next unless name == key

          seen = channel
          other.punsubscribe
        end
      end
      seen
    end
    subscribed.pop
    start = Where.now
    assert r.set(key, 'mine', nx: true, px: 700)
    assert_equal '__keyevent@0__:expired', listener.value
    assert_operator Where.now - start, :>=, 0.7
    assert r.set(key, 'next', nx: true, px: 1000)
  end

  # The table of a token that is not there and of PTTL's -2: [nil, -2].
  recipe :remaining_time, SCRIPTS do |r, _other, key|
    lock = Adapters::RedlockScripts.new(r)
    assert_equal [nil, -2], lock.remaining(key)
    held = lock.acquire(key, 30)
    token, left = lock.remaining(key)
    assert_equal held.token, token
    assert_includes 1..30_000, left
    lock.release(held)
    assert_equal [nil, -2], lock.remaining(key)
  end

  # Each resource of a Redlock is locked on its own server: here one in three databases.
  recipe :redlock_on_three_databases, SCRIPTS do |r, _other, key|
    databases = [r, *[1, 2].map { |db| Redis.new(**Where.split(Where.addrs[:plain].first), db: db) }]
    locks = databases.map { |redis| Adapters::RedlockScripts.new(redis) }
    held = locks.map { |lock| lock.acquire(key, 30) }
    assert held.all?
    assert_empty locks.filter_map { |lock| lock.acquire(key, 30) }
    locks.zip(held).each { |lock, h| lock.release(h) }
    assert_empty databases.select { |redis| redis.exists?(key) }
    databases.drop(1).each(&:close)
  end

  recipe :write_unless_exist, RAILS do |_r, _other, key|
    a, b = Array.new(2) do
      ActiveSupport::Cache::RedisCacheStore.new(url: "redis://#{Where.addrs[:plain].first}",
                                                error_handler: ->(exception:, **) { raise exception })
    end
    assert a.write(key, 'mine', unless_exist: true, expires_in: 5)
    refute b.write(key, 'theirs', unless_exist: true, expires_in: 5)
    assert_equal 'mine', b.read(key)
    assert Where.eventually(15) { b.write(key, 'theirs', unless_exist: true, expires_in: 60) }, 'the lease never ended'
    assert_equal 'theirs', a.read(key)
    assert b.delete(key)
    assert a.write(key, 'mine', unless_exist: true, expires_in: 5)
  end
end
