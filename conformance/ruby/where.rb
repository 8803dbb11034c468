# frozen_string_literal: true

# Where the servers are, how a test asks for a failover, and where results go.
require 'json'
require 'net/http'

module Where
  MASTER = 'mymaster' # the name that every tutorial gives it

  def self.list(name) = ENV.fetch(name, '').split(',').reject(&:empty?)

  ADDRS = list('LOCKSTEP_ADDRS')
  SENTINELS = list('LOCKSTEP_SENTINELS')
  CLUSTER = list('LOCKSTEP_CLUSTER')
  # The same with TLS, and the files of a client; OTHER_CA has signed nothing.
  TLS = { plain: list('LOCKSTEP_TLS_ADDRS'), sentinel: list('LOCKSTEP_TLS_SENTINELS'), cluster: list('LOCKSTEP_TLS_CLUSTER') }.freeze
  CA, CERT, KEY, OTHER_CA = %w[CA CERT KEY OTHER_CA].map { |name| ENV.fetch("LOCKSTEP_TLS_#{name}", '') }
  CONTROL = ENV.fetch('LOCKSTEP_CONTROL', '')
  RESULTS = ENV.fetch('LOCKSTEP_RESULTS', '')

  def self.split(addr)
    host, _, port = addr.rpartition(':')
    { host: host, port: Integer(port) }
  end

  # The addresses at this moment: followers first, the leader last.
  def self.addrs
    return { plain: ADDRS, sentinel: SENTINELS, cluster: CLUSTER, tls: TLS } if CONTROL.empty?

    JSON.parse(Net::HTTP.get(URI("#{CONTROL}/addrs")), symbolize_names: true)
  end

  # kill -9 of the leader; returns when another one leads and it is back.
  def self.failover
    uri = URI("#{CONTROL}/failover")
    reply = Net::HTTP.start(uri.host, uri.port, read_timeout: 60) { |http| http.post(uri.path, '') }
    raise reply.body unless reply.is_a?(Net::HTTPOK)
  end

  # Has the harness ask LOCK.LIST and its kin about a lock; raises if they are wrong.
  def self.sight(seen)
    uri = URI("#{CONTROL}/sight")
    reply = Net::HTTP.start(uri.host, uri.port, read_timeout: 60) { |http| http.post(uri.path, seen.to_json) }
    raise reply.body unless reply.is_a?(Net::HTTPOK)
  end

  # Why a mode cannot be had here; nil if it can.
  def self.missing(mode)
    return 'no TLS listener' if mode.end_with?('TLS') && TLS[:plain].empty?
    return 'no Sentinel listener' if mode == 'sentinel' && SENTINELS.empty?
    return 'no Cluster listener' if mode == 'cluster' && CLUSTER.empty?

    nil
  end

  RESULTS_LOCK = Mutex.new

  # Runs a test and appends its result to $LOCKSTEP_RESULTS.
  def self.report(about, test)
    line = { client: about.client, version: about.version, mode: about.mode, test: test, result: 'failed' }
    yield
    line[:result] = 'passed'
  rescue Minitest::Skip => e
    line.update(result: 'skipped', reason: e.message)
    raise
  ensure
    RESULTS_LOCK.synchronize { File.write(RESULTS, "#{line.to_json}\n", mode: 'a') } unless RESULTS.empty?
  end

  def self.now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

  # Polls until the block says so or the time is over.
  def self.eventually(limit)
    stop = now + limit
    until (ok = yield)
      return false if now > stop

      sleep 0.01
    end
    ok
  end
end
