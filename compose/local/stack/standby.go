// SPDX-License-Identifier: MIT

package stack

import (
	"context"
	"fmt"
)

// PostgreSQL as a primary (member 1) with a synchronous standby (member 2). The address names both, and a client finds
// the one that takes writes, also after `SELECT pg_promote()` on the standby. Nothing keeps a primary that was
// replaced from taking writes again: it must not be started any more.
//
// The standby copies the primary at its first start. It has no synchronous_standby_names of its own: once promoted, its
// commits wait for none.
var _ = register(standbyKind())

func standbyKind() kind {
	k := postgresKind("postgres-standby")
	k.members = 2
	k.program.beside = append(k.program.beside, "pg_basebackup")
	k.setup = func(ctx context.Context, i *instance) error {
		if primary := i.cluster[0]; i != primary {
			return copyPrimary(ctx, i, primary)
		}
		return initDB(ctx, i)
	}
	k.join = func(ctx context.Context, primary *instance) error {
		for _, statement := range []string{
			"CREATE DATABASE shop", "ALTER SYSTEM SET synchronous_standby_names = '*'", "SELECT pg_reload_conf()",
		} {
			if err := psql(ctx, primary, statement); err != nil {
				return err
			}
		}
		// Division by zero until commits wait for the standby.
		return until(ctx, func() error {
			return psql(ctx, primary, "SELECT 1 / count(*) FROM pg_stat_replication WHERE sync_state = 'sync'")
		})
	}
	k.url = func(i *instance) string {
		return fmt.Sprintf("postgres://shop:%s@%s,%s/shop?sslmode=disable&target_session_attrs=read-write", i.Secret, i.cluster[0].addr(), i.cluster[1].addr())
	}
	return k
}

// copyPrimary makes the folder of a standby, which follows the primary from then on.
func copyPrimary(ctx context.Context, i, primary *instance) error {
	if err := until(ctx, func() error { return psql(ctx, primary, "SELECT 1") }); err != nil {
		return err
	}
	from := fmt.Sprintf("postgres://shop:%s@%s", primary.Secret, primary.addr())
	return i.run(ctx, nil, i.tool("pg_basebackup"), "-d", from, "-D", pgData(i.record), "-R", "--checkpoint=fast", "--no-sync")
}
