# frozen_string_literal: true

# What every lock promises, in every mode it has.
require 'minitest/autorun'
require_relative 'adapters'

class LocksTest < Minitest::Test
  parallelize_me!

  TESTS = %i[acquire_and_release contention extend expiry release_by_non_owner_is_refused
             waiter_gets_the_lock_when_it_is_released sight].freeze

  Adapters::ALL.product(TESTS).each do |about, test|
    define_method("test_#{test} (#{about})") do
      Where.report(about, test) do
        reason = Where.missing(about.mode)
        skip reason if reason
        @about = about
        @made = []
        send(test, "rb:#{SecureRandom.uuid}")
      ensure
        @made&.each(&:close)
      end
    end
  end

  private

  def make
    @made << @about.make
    @made.last
  end

  def acquire_and_release(key)
    a, b = make, make
    held = a.acquire(key, 30)
    assert held
    assert_nil b.acquire(key, 30)
    a.release(held)
    again = b.acquire(key, 30)
    assert again
    b.release(again)
  end

  def contention(key)
    inside, seen, faults = 0, 0, []
    clients = Array.new(4) { make }
    clients.map do |client|
      Thread.new do
        4.times do
          held = client.acquire(key, 20, 20)
          next faults << 'waited in vain' unless held

          faults << "#{inside} inside" if (inside += 1) != 1
          sleep 0.002
          inside -= 1
          seen += 1
          client.release(held)
        end
      end
    end.each(&:join)
    assert_empty faults
    assert_equal 16, seen
  end

  def extend(key)
    a, b = make, make
    held = a.acquire(key, 5)
    sleep 3
    a.extend(held, 5)
    sleep 3
    assert_nil b.acquire(key, 5), 'the lease ended before its extension'
    a.release(held)
  end

  def expiry(key)
    a, b = make, make
    start = Where.now
    assert a.acquire(key, 3)
    assert_nil b.acquire(key, 3)
    assert Where.eventually(15) { b.acquire(key, 3) }, 'the lease never ended'
    assert_operator Where.now - start, :>=, 3, 'the lease ended early'
  end

  def release_by_non_owner_is_refused(key)
    a, b = make, make
    held = a.acquire(key, 30)
    stranger = b.foreign(key)
    assert_raises(Adapters::NotOwner) { b.release(stranger) }
    assert_raises(Adapters::NotOwner) { b.extend(stranger, 30) }
    assert_nil b.acquire(key, 30), 'a stranger released the lock'
    a.release(held)
  end

  def waiter_gets_the_lock_when_it_is_released(key)
    a, b = make, make
    held = a.acquire(key, 60)
    waiter = Thread.new { b.acquire(key, 60, 30) }
    sleep 0.3
    assert waiter.alive?
    released = Where.now
    a.release(held)
    got = waiter.value
    assert got, 'the waiter did not get the lock'
    assert_operator Where.now - released, :<, 15, 'the waiter waited for its timeout'
    b.release(got)
  end

  def sight(key)
    skip 'nobody to ask: LOCKSTEP_CONTROL is not set' if Where::CONTROL.empty?
    a, b = make, make
    held = a.acquire(key, 60)
    waiter = Thread.new { b.acquire(key, 60, 40) }
    begin
      Where.sight(client: @about.client, version: @about.version, mode: @about.mode, key: key, kind: 'plain',
                  owner: held.token, holds: 1, queue: 'poller')
    ensure
      a.release(held)
    end
    got = waiter.value
    assert got, 'the waiter did not get the lock'
    b.release(got)
  end
end

# That TLS is what it says: who is not to be trusted is refused, on either side.
class TLSTest < Minitest::Test
  ABOUT = Adapters::ALL.find { |about| about.mode == 'plain TLS' }

  def test_nodes_of_another_authority_are_refused
    refused(__method__, Adapters.trusted.merge(ca_file: Where::OTHER_CA), /certificate verify failed/)
  end

  def test_a_client_without_a_certificate_is_refused
    refused(__method__, { ca_file: Where::CA }, /./)
  end

  private

  def refused(test, params, why)
    Where.report(ABOUT, test.to_s.delete_prefix('test_')) do
      reason = Where.missing(ABOUT.mode)
      skip reason if reason
      redis = Adapters.connect_tls(ABOUT.mode, Where.addrs[:tls], params)
      fault = assert_raises(Redis::BaseConnectionError, OpenSSL::SSL::SSLError) { redis.ping }
      assert_match why, fault.message
    ensure
      redis&.close
    end
  end
end
