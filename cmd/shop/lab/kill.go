// SPDX-License-Identifier: MIT

package lab

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"shop/locking/redislock"
)

const (
	backTime = 10 * time.Second // for a killed server to come back
	backTick = 10 * time.Millisecond
	meetTime = 500 * time.Millisecond // for the requests of the other lanes that meet the same kill
)

// killer ends Redis once over its own protocol, and waits until it is back: what runs the server starts it again. The
// lanes of a race have one killer, as they have one server: the kill is that of all lanes, and waits for a moment, so
// that it hits a holder in each of them.
type killer struct {
	client  *redis.Client // of its own, which repeats nothing: a second SHUTDOWN would reach the server that came back
	marker  string        // a key: if it is gone, so are the locks
	records []*record
	life    context.Context // of the kill
	stop    context.CancelFunc
	met     chan struct{} // closed when all lanes have a request at the kill
	ended   chan struct{} // closed when the kill is over

	mu    sync.Mutex
	lanes int   // that have a request at the kill
	err   error // of the kill
	work  sync.WaitGroup
}

// allows returns an error unless the settings of the server allow the race.
func (cfg Config) allows(s Settings) error {
	if s.Fault == Kill && !cfg.KillRedis {
		return fmt.Errorf("%w: the fault kill ends Redis for all that use it, and is not allowed here: if something starts it again, as make run does, set --lab-kill=redis or SHOP_LAB_KILL=redis", ErrSettings)
	}
	return nil
}

func newKiller(cfg Config) (*killer, error) {
	client, err := redislock.Connect(cfg.RedisURL, redisTTL)
	if err != nil {
		return nil, err
	}
	k := &killer{client: client, marker: cfg.LockPrefix + "-kill", met: make(chan struct{}), ended: make(chan struct{})}
	k.life, k.stop = context.WithCancel(context.Background())
	return k, nil
}

func (k *killer) close() {
	k.stop()
	k.work.Wait()
	_ = k.client.Close()
}

// kill lets an attempt of a lane kill the server, or share the kill that another lane has begun. It returns true when
// the server is back, or ctx ends; false if the kill was over before.
func (k *killer) kill(ctx context.Context, r *record, attempt int) bool {
	k.mu.Lock()
	select {
	case <-k.ended:
		k.mu.Unlock()
		return false
	default:
	}
	r.add(Event{Attempt: attempt, Kind: "killed"})
	if k.lanes++; k.lanes == 1 {
		k.work.Go(k.once)
	}
	if k.lanes == len(k.records) {
		close(k.met)
	}
	k.mu.Unlock()
	select {
	case <-k.ended:
	case <-ctx.Done():
	}
	return true
}

// once is the kill.
func (k *killer) once() {
	select {
	case <-k.met:
	case <-time.After(meetTime):
	}
	err := k.run()
	if cancelled := k.life.Err(); cancelled != nil {
		err = cancelled
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.err = err
	close(k.ended)
}

// wait waits for the end of the kill, if one has begun, and returns its error. When ctx ends, so does the kill.
func (k *killer) wait(ctx context.Context) error {
	defer context.AfterFunc(ctx, k.stop)()
	k.work.Wait()
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.err
}

// run kills the server. The nearest to a crash that Redis offers: NOSAVE writes no snapshot, NOW waits for no
// replica, FORCE ignores what would prevent the end. It does flush an append-only file, which a crash may cut short.
func (k *killer) run() error {
	server := "Redis at " + k.client.Options().Addr
	ctx, cancel := context.WithTimeout(k.life, backTime)
	defer cancel()
	before, err := k.runID(ctx)
	if err == nil {
		err = k.client.Set(ctx, k.marker, before, time.Minute).Err()
	}
	if err != nil {
		return fmt.Errorf("%s does not reply, and was not killed: start it: %w", server, err)
	}
	err = k.client.Do(ctx, "SHUTDOWN", "NOSAVE", "NOW", "FORCE").Err()
	if _, refused := errors.AsType[redis.Error](err); refused {
		return fmt.Errorf("%s refuses to be killed: the fault needs Redis 7, and a user that may use SHUTDOWN: %w", server, err)
	}
	holders := make([][]int, len(k.records))
	for n, r := range k.records {
		r.add(Event{Kind: "down"})
		holders[n] = r.holders()
	}
	kept, err := k.await(ctx, before)
	if err != nil {
		return fmt.Errorf("%s was killed, and is not back after %v: start it again, and for the next race let something else do so, as make run and the restart policy of compose.yaml do: %w", server, backTime, err)
	}
	for n, r := range k.records {
		r.back(kept, holders[n])
	}
	return nil
}

// await returns when another process than before replies, and reports whether it has the data of the one before.
func (k *killer) await(ctx context.Context, before string) (kept bool, err error) {
	for {
		id, err := k.runID(ctx)
		switch {
		case err == nil && id == before:
			err = errors.New("the process that was to end still replies")
		case err == nil:
			found := int64(0)
			if found, err = k.client.Exists(ctx, k.marker).Result(); err == nil { // else it is still loading
				return found == 1, nil
			}
		}
		sleep(ctx, backTick)
		if ctx.Err() != nil {
			return false, err
		}
	}
}

// runID returns what identifies the process of the server.
func (k *killer) runID(ctx context.Context) (string, error) {
	info, err := k.client.Info(ctx, "server").Result()
	if err != nil {
		return "", err
	}
	_, rest, found := strings.Cut(info, "\nrun_id:")
	id, _, _ := strings.Cut(rest, "\r")
	if !found || id == "" {
		return "", errors.New("INFO has no run_id")
	}
	return id, nil
}
