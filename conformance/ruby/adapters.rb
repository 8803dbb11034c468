# frozen_string_literal: true

# Each lock on redis-rb in each mode behind the same few words: an adapter is
# one client with a connection of its own; acquire gives something to release
# and extend with, or nil when the lock was not to be had within `wait`
# seconds. All else is redis-rb's default.
require 'digest/sha1'
require 'redis'
require 'securerandom'
require_relative 'where'

module Adapters
  class NotOwner < StandardError; end

  def self.connect(mode, addrs)
    case mode
    when 'plain' then Redis.new(Where.split(addrs[:plain].first))
    when 'sentinel'
      Redis.new(url: "redis://#{Where::MASTER}", sentinels: addrs[:sentinel].map { |a| Where.split(a) }, role: :master)
    when 'cluster' then Redis.new(cluster: addrs[:cluster].map { |a| "redis://#{a}" })
    else connect_tls(mode, addrs[:tls], trusted)
    end
  end

  # What a program sets; redis-rb verifies the chain and the name.
  def self.trusted
    { ca_file: Where::CA, cert: OpenSSL::X509::Certificate.new(File.read(Where::CERT)), key: OpenSSL::PKey.read(File.read(Where::KEY)) }
  end

  def self.connect_tls(mode, addrs, params)
    case mode
    when 'plain TLS' then Redis.new(url: "rediss://#{addrs[:plain].first}", ssl_params: params)
    when 'sentinel TLS'
      Redis.new(url: "rediss://#{Where::MASTER}", sentinels: addrs[:sentinel].map { |a| Where.split(a) }, role: :master, ssl_params: params)
    when 'cluster TLS' then Redis.new(cluster: addrs[:cluster].map { |a| "rediss://#{a}" }, ssl_params: params)
    end
  end

  Held = Struct.new(:name, :token)

  # SET NX PX with a token and two scripts, as articles teach it.
  class Recipe
    UNLOCK = "if redis.call('get',KEYS[1]) == ARGV[1] then return redis.call('del',KEYS[1]) else return 0 end"
    EXTEND = "if redis.call('get',KEYS[1]) == ARGV[1] then return redis.call('pexpire',KEYS[1],ARGV[2]) else return 0 end"

    def initialize(redis)
      @redis = redis
    end

    def acquire(name, ttl, wait = 0)
      held = Held.new(name, SecureRandom.uuid)
      stop = Where.now + wait
      until take(held, ttl)
        return nil if Where.now >= stop

        sleep 0.05
      end
      held
    end

    def take(held, ttl) = @redis.set(held.name, held.token, nx: true, px: (ttl * 1000).to_i)

    def release(held)
      raise NotOwner unless @redis.eval(UNLOCK, [held.name], [held.token]) == 1
    end

    def extend(held, ttl)
      raise NotOwner unless @redis.eval(EXTEND, [held.name], [held.token, (ttl * 1000).to_i]) == 1
    end

    def foreign(name) = Held.new(name, 'somebody else')

    def close = @redis.close
  end

  # What redlock-rb sends: its gem cannot be had, its three scripts do the
  # same here. EVALSHA, on NOSCRIPT SCRIPT LOAD and EVALSHA again; the lock
  # script answers with SET's status or with nothing at all.
  class RedlockScripts < Recipe
    LOCK = <<~LUA
      local free = redis.call("exists", KEYS[1]) == 0 and ARGV[3] == "yes"
      if free or redis.call("get", KEYS[1]) == ARGV[1] then
        return redis.call("set", KEYS[1], ARGV[1], "PX", ARGV[2])
      end
    LUA
    UNLOCK = <<~LUA
      if redis.call("get", KEYS[1]) == ARGV[1] then
        return redis.call("del", KEYS[1])
      end
      return 0
    LUA
    PTTL = 'return { redis.call("get", KEYS[1]), redis.call("pttl", KEYS[1]) }'

    def take(held, ttl) = run(LOCK, held, (ttl * 1000).to_i, 'yes') == 'OK'

    def release(held)
      raise NotOwner unless run(UNLOCK, held) == 1
    end

    def extend(held, ttl)
      raise NotOwner unless run(LOCK, held, (ttl * 1000).to_i, 'no') == 'OK'
    end

    # The owner's token and the milliseconds that are left: [nil, -2] of a free lock.
    def remaining(name) = run(PTTL, Held.new(name, ''))

    private

    def run(script, held, *args)
      digest = Digest::SHA1.hexdigest(script)
      @redis.evalsha(digest, [held.name], [held.token, *args])
    rescue Redis::CommandError => e
      raise unless e.message.start_with?('NOSCRIPT')

      @redis.script(:load, script)
      @redis.evalsha(digest, [held.name], [held.token, *args])
    end
  end

  # A library in a mode.
  About = Struct.new(:client, :version, :mode, :adapter) do
    def make(addrs = Where.addrs) = adapter.new(Adapters.connect(mode, addrs))

    def to_s = "#{client} #{mode}"
  end

  ALL = [['redis-rb SET NX PX + script', Recipe], ["redis-rb with redlock-rb's scripts", RedlockScripts]].flat_map do |client, adapter|
    ['plain', 'sentinel', 'cluster', 'plain TLS', 'sentinel TLS', 'cluster TLS'].map { |mode| About.new(client, Redis::VERSION, mode, adapter) }
  end
end
