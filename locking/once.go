// SPDX-License-Identifier: MIT

package locking

import "context"

// Once runs fn unless done reports that its work has been done. It asks done twice: before it takes the key, so
// that a call for work that has been done takes no lock, and again while it holds the key, because the holder
// before may have done the work. So of many calls for the same work at once, in any number of processes, one
// runs fn and the others wait for it, or skip it: with Options.NoWait they get ErrBusy at once.
//
//	a cache filled once          done: the entry is there; fn: compute and store it
//	a job started once           done: the job has a record; fn: run it and store the record
//	a batch on one server alone  done: today's result is there; fn: compute it; NoWait
//
// Once makes it rare that fn runs twice, and does not exclude it: a holder that was paused may run on while the
// next one begins. What fn stores must be refused the second time, by a unique key or a guard. Errors are those
// of Do, and the first error of done.
func Once(ctx context.Context, s Store, o Options, key string, done func(context.Context) (bool, error), fn func(context.Context, Lease) error) error {
	if has, err := done(ctx); has || err != nil {
		return err
	}
	return Do(ctx, s, o, []string{key}, func(ctx context.Context, l Lease) error {
		if has, err := done(ctx); has || err != nil {
			return err
		}
		return fn(ctx, l)
	})
}
