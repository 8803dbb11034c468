# frozen_string_literal: true

# Sidekiq itself, client and server in one process: BRPOP of its fetchers, the
# script by which its poller moves what is due, MULTI of its heartbeat.
require 'minitest/autorun'
require 'sidekiq'
require 'sidekiq/api'
require 'timeout'
require 'sidekiq/launcher'
require_relative 'adapters'

class SidekiqTest < Minitest::Test
  ABOUT = Adapters::About.new('Sidekiq', "#{Sidekiq::VERSION}, redis-rb #{Redis::VERSION}", 'plain')
  QUEUE = "conformance-#{SecureRandom.hex(4)}"
  DONE = Queue.new

  class Job
    include Sidekiq::Worker
    sidekiq_options queue: QUEUE

    def perform(n) = DONE << n
  end

  def setup
    Sidekiq.logger.level = Logger::WARN
    Redis.silence_deprecations = true # Sidekiq 6 calls as redis-rb 4.2 was called
    # Connections as two servers of two threads have them; without a command line
    # Sidekiq gives five to both.
    Sidekiq.redis = { url: "redis://#{Where.addrs[:plain].first}", db: 7, size: 2 * (2 + 5) }
  end

  def test_each_job_runs_once
    Where.report(ABOUT, :each_job_runs_once) do
      # Two servers of two threads each, as two processes would have them.
      servers = Array.new(2) { Sidekiq::Launcher.new(Sidekiq.options.merge(queues: [QUEUE], concurrency: 2, timeout: 5)) }
      # One process has one name, which Sidekiq makes without a lock when it is
      # first asked for: two servers that beat for the first time at once would
      # make two, and be counted twice.
      servers.first.identity
      servers.each(&:run)
      20.times { |n| Job.perform_async(n) }
      assert_equal (0...20).to_a, Array.new(20) { within(15) { DONE.pop } }.sort
      assert_equal 0, Sidekiq::Queue.new(QUEUE).size
      # The heartbeat comes from a thread of its own.
      assert Where.eventually(15) { alive == [servers.first.identity] }, -> { "heartbeats tell of #{alive}" }
    ensure
      servers&.each(&:stop)
    end
  end

  def test_what_is_due_is_enqueued_once
    Where.report(ABOUT, :what_is_due_is_enqueued_once) do
      name = "#{QUEUE}-due"
      10.times { |n| Job.set(queue: name).perform_in(0.2, n) }
      queue = Sidekiq::Queue.new(name)
      assert_equal 0, queue.size
      # Two pollers at once.
      assert(Where.eventually(15) do
        Array.new(2) { Thread.new { Sidekiq::Scheduled::Enq.new.enqueue_jobs } }.each(&:join)
        queue.size >= 10
      end)
      assert_equal (0...10).to_a, queue.map { |job| job.args.first }.sort
      queue.clear
    end
  end

  private

  def alive = Sidekiq::ProcessSet.new.map(&:identity)

  def within(seconds, &block) = Timeout.timeout(seconds, &block)
end
