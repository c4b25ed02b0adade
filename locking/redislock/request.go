// SPDX-License-Identifier: MIT

package redislock

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/redis/go-redis/v9"

	"shop/locking/driver"
)

// Run sends a script, and returns its number. It never sends it again when a server may have run it. Its errors are those
// of a driver.Driver: an error of Redis is driver.Refused, a request that was not sent driver.Unsent, and after any other error the
// script may have run.
func Run(ctx context.Context, client redis.Scripter, script *redis.Script, names []string, args ...any) (int64, error) {
	if c, ok := client.(redis.UniversalClient); ok {
		client = once{c}
	}
	n, err := script.Run(ctx, client, names, args...).Int64()
	return n, classify(err)
}

// once never sends a script again that a server may have run. By itself, a client of a
// Cluster sends a request again whose connection broke. Of a release sent twice, the
// second finds nothing, and the Store would report a lost lease.
type once struct{ redis.UniversalClient }

func (c once) EvalSha(ctx context.Context, hash string, names []string, args ...any) *redis.Cmd {
	return c.run(ctx, "evalsha", hash, names, args)
}

func (c once) Eval(ctx context.Context, script string, names []string, args ...any) *redis.Cmd {
	return c.run(ctx, "eval", script, names, args)
}

func (c once) run(ctx context.Context, command, script string, names []string, args []any) *redis.Cmd {
	words := append(make([]any, 0, 3+len(names)+len(args)), command, script, len(names))
	for _, name := range names {
		words = append(words, name)
	}
	cmd := redis.NewCmd(ctx, append(words, args...)...)
	_ = c.Process(ctx, unrepeated{cmd}) // the error is in cmd
	return cmd
}

// unrepeated is a command that the client does not send again.
type unrepeated struct{ *redis.Cmd }

func (unrepeated) NoRetry() bool { return true }

// classify returns the error of a request as a driver.Driver must.
func classify(err error) error {
	var reply redis.Error
	switch {
	case err == nil:
		return nil
	case redis.HasErrorPrefix(err, "CROSSSLOT"):
		return driver.Refused(errors.Join(ErrHashTag, err))
	case errors.As(err, &reply):
		return driver.Refused(err)
	case unsent(err):
		return driver.Unsent(err)
	}
	return err
}

// unsent reports whether no byte of the request was sent.
func unsent(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial" ||
		errors.Is(err, redis.ErrPoolTimeout) || errors.Is(err, redis.ErrPoolExhausted) || errors.Is(err, redis.ErrClosed)
}

// Silence is how long a subscription may receive nothing before it is checked.
const Silence = 2 * time.Second

// Subscribe calls deliver with each message of a channel, and with "" when it has subscribed: messages may have been lost before.
// It returns when the subscription fails, or ctx ends.
//
// A connection whose peer has disappeared fails only when something is written, and a ping
// of go-redis does not wait for its answer. So after two silences, with a ping between
// them, the connection is given up.
func Subscribe(ctx context.Context, client redis.UniversalClient, channel string, silence time.Duration, deliver func(message string)) error {
	sub := client.Subscribe(ctx, channel)
	defer sub.Close()
	defer context.AfterFunc(ctx, func() { _ = sub.Close() })() // ends the read
	for pinged := false; ; {
		received, err := sub.ReceiveTimeout(ctx, silence)
		var timer net.Error
		switch {
		case err == nil:
			pinged = false
		case !pinged && errors.As(err, &timer) && timer.Timeout():
			pinged, err = true, sub.Ping(ctx)
		}
		if err != nil {
			return err
		}
		switch m := received.(type) {
		case *redis.Subscription:
			deliver("")
		case *redis.Message:
			deliver(m.Payload)
		}
	}
}
