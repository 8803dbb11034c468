# frozen_string_literal: true

# docs/locks.md on redis-rb: LOCK.ACQUIRE and LOCK.RELEASE by the generic call.
require 'minitest/autorun'
require_relative 'adapters'

class AcquireTest < Minitest::Test
  parallelize_me!

  ABOUT = Adapters::About.new('redis-rb LOCK.ACQUIRE', Redis::VERSION, 'plain')
  WAIT = 20 # seconds, for a lock that the test is to get

  # A client with a connection of its own.
  class Client
    def initialize
      host, port = Where.split(Where.addrs[:plain].first).values_at(:host, :port)
      wait = WAIT
      redis = Redis.new(host: host, port: port, read_timeout: wait + 5)
      @redis = redis
    end

    def acquire(key, owner, wait = 0)
      redis = @redis
      reply = redis.call('LOCK.ACQUIRE', key, owner, 'PX', 30_000, 'WAIT', (wait * 1000).to_i)
      reply
    end

    def release(key, owner)
      redis = @redis
      holds = redis.call('LOCK.RELEASE', key, owner)
      holds
    end

    def close = @redis.close
  end

  # Declares a test: two clients and a key of its own.
  def self.acquire(test, &body)
    name = "lock_acquire_#{test}"
    define_method("test_#{name}") do
      Where.report(ABOUT, name) do
        clients = Array.new(2) { Client.new }
        skip 'the server has no LOCK.ACQUIRE' if lacking(clients.first)
        instance_exec(*clients, "rb:#{SecureRandom.uuid}", &body)
      ensure
        clients&.each(&:close)
      end
    end
  end

  acquire :replies_three_integers do |client, _other, key|
    granted client, key, 'me'
    assert_equal 0, client.release(key, 'me')
  end

  acquire :waits_for_the_release do |first, second, key|
    granted first, key, 'first'
    start = Where.now
    release = Thread.new do
      sleep 0.25
      first.release(key, 'first')
    end
    granted second, key, 'second', WAIT
    assert_operator Where.now - start, :>=, 0.25
    assert_equal 0, release.value
    assert_equal 0, second.release(key, 'second')
  end

  acquire :in_vain_replies_null do |first, second, key|
    granted first, key, 'first'
    start = Where.now
    assert_nil second.acquire(key, 'second', 0.2)
    assert_operator Where.now - start, :>=, 0.2
    assert_nil second.release(key, 'second')
    assert_equal 0, first.release(key, 'first')
  end

  acquire :refuses_a_deadlock do |client, _other, key|
    granted client, key, 'me'
    fault = assert_raises(Redis::CommandError) { client.acquire(key, 'me', WAIT) }
    assert_match(/\ADEADLOCK /, fault.message)
    assert_equal 0, client.release(key, 'me')
  end

  private

  def granted(client, key, owner, wait = 0)
    token, ttl, holds, *more = client.acquire(key, owner, wait)
    assert_operator token, :>, 0
    assert_includes 1..30_000, ttl
    assert_equal [1], [holds, *more]
  end

  # Other servers than lockstep do not have the commands.
  def lacking(client)
    client.release('none', 'nobody')
    false
  rescue Redis::CommandError => e
    raise unless Where::CONTROL.empty? && e.message.include?('unknown command')

    true
  end
end
