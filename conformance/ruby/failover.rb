# frozen_string_literal: true

# One failover in the middle of held and contended locks of every mode at
# once. Not *_test.rb: nothing else may run beside it.
require 'minitest/autorun'
require 'timeout'
require_relative 'adapters'

# One mode: a held lock and clients that contend for another.
class Stage
  WORKERS = 3
  # A grant whose reply is lost with its connection is nobody's until it ends
  # (as with Redis), so leases are short.
  LEASE = 8

  attr_reader :about, :key, :owner, :thief, :held, :faults, :unknown, :after
  attr_writer :over

  def initialize(about)
    @about = about
    @key = "rb:#{SecureRandom.uuid}"
    @faults, @unknown, @inside, @after, @over, @stop = [], [], 0, 0, false, false
  end

  def start(addrs)
    @owner, @thief, *@workers = Array.new(2 + WORKERS) { about.make(addrs) }
    @held = @owner.acquire("#{key}:held", 120)
    @threads = @workers.map { |client| Thread.new { contend(client) until @stop } }
  end

  def stop
    @stop = true
    left = @threads.reject { |thread| thread.join(40) }
    @faults << "#{left.size} clients had no answer for 40 s" unless left.empty?
  end

  def close = [@owner, @thief, *@workers].compact.each(&:close)

  private

  def contend(client)
    held = client.acquire(key, LEASE, LEASE)
    return unless held

    over = @over
    @faults << "#{@inside} inside" if (@inside += 1) != 1
    sleep 0.002
    @inside -= 1
    client.release(held)
    @after += 1 if over
  rescue StandardError => e
    sort(e)
    sleep 0.1
  ensure
    sleep 0.01
  end

  # The answer to a request in flight whose outcome nobody knows, the broken
  # connection of a client of the killed node (SystemCallError: redis-rb hands
  # on what connect met as it is), and what must not be. Such a client sends
  # the request again by itself, so a release that had been carried out is then
  # refused.
  def sort(fault)
    plain = about.mode.start_with?('plain')
    text = "#{fault.class}: #{fault.message}"
    case fault
    when Adapters::NotOwner then (plain ? @faults : @unknown) << text
    when Redis::BaseConnectionError, SystemCallError then @faults << text if plain
    else (text.include?('INDETERMINATE') ? @unknown : @faults) << text unless redirected?(text)
    end
  end

  # A follower redirects to the leader that it knows until it notices that it
  # is dead; redis-rb follows one redirect a request (as with a Redis Cluster).
  def redirected?(text) = about.mode.start_with?('cluster') && text.include?('MOVED')
end

class FailoverTest < Minitest::Test
  IMPOSSIBLE =
    if Where::CONTROL.empty? then 'nobody to ask for a failover'
    elsif Where::ADDRS.size < 3 then 'a failover needs three nodes'
    end
  STAGES = Adapters::ALL.to_h { |about| [about, Stage.new(about)] }

  # The failover, once, before the first test.
  def self.survived
    @survived ||= begin
      stages = STAGES.values.reject { |s| Where.missing(s.about.mode) }
      addrs = Where.addrs
      stages.each { |s| s.start(addrs) }
      sleep 0.5
      Where.failover
      stages.each { |s| s.over = true }
      Where.eventually(25) { stages.all? { |s| s.after >= 3 } }
      stages.map { |s| Thread.new { s.stop } }.each(&:join)
      Minitest.after_run { stages.each(&:close) }
      true
    end
  end

  Adapters::ALL.each do |about|
    define_method("test_held (#{about})") do
      Where.report(about, :failover_held_lock_is_still_held) { held(stage_of(about)) }
    end
    define_method("test_contended (#{about})") do
      Where.report(about, :failover_contended_lock_goes_on) { contended(stage_of(about)) }
    end
  end

  private

  def stage_of(about)
    reason = Where.missing(about.mode) || IMPOSSIBLE
    skip reason if reason
    self.class.survived
    STAGES.fetch(about)
  end

  def held(stage)
    assert stage.held
    assert_nil stage.thief.acquire("#{stage.key}:held", 5), 'granted twice'
    stage.owner.release(stage.held)
    assert stage.thief.acquire("#{stage.key}:held", 5), 'not released'
  end

  def contended(stage)
    assert_empty stage.faults
    # Only what was in flight when the leader died may have an unknown outcome.
    assert_operator stage.unknown.size, :<=, Stage::WORKERS, stage.unknown.join("\n")
    assert_operator stage.after, :>=, 3, 'nobody got the lock after the failover'
  end
end
