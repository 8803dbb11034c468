// Package bridge tests --bridge with a real Redis and with clients of two libraries: half of them use the Redis, the others a lockstep that
// runs their commands on that Redis first.
package bridge
