// SPDX-License-Identifier: MIT

package daemon

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Postgres is a PostgreSQL, durable as in production: fsync and synchronous_commit are on by default. It listens on loopback only.
// It demands a random password, since its superuser may run programs. It compares MD5 hashes,
// which suffice on loopback: SCRAM costs 4,096 rounds of HMAC for each connection.
// PostgreSQL keeps dynamic shared memory in its folder, so that a SIGKILL
// leaves none in /dev/shm. Settings ("fsync=off") follow these.
func Postgres(settings ...string) Kind {
	return Kind{
		Name:  "postgres",
		File:  "postgres",
		Users: []string{"postgres", "nobody"}, // it refuses root
		Setup: initDB,
		Argv: func(i *Instance) []string {
			args := []string{"-D", pgData(i.Record), "-p", strconv.Itoa(i.Ports[0])}
			for _, setting := range append([]string{
				"listen_addresses=127.0.0.1", "unix_socket_directories=",
				"max_connections=300", "shared_buffers=128MB",
				"dynamic_shared_memory_type=mmap",
				"log_min_error_statement=panic", // a load test provokes thousands of errors
			}, settings...) {
				args = append(args, "-c", setting)
			}
			return args
		},
		Ready: func(ctx context.Context, i *Instance) error { return psql(ctx, i, "SELECT 1") },
		Join:  func(ctx context.Context, i *Instance) error { return psql(ctx, i, "CREATE DATABASE shop") },
		URL: func(i *Instance) string {
			return fmt.Sprintf("postgres://shop:%s@%s/shop?sslmode=disable", i.Secret, i.Addr())
		},
		Stop:  syscall.SIGINT,  // "fast": ends sessions, writes a checkpoint
		Quick: syscall.SIGQUIT, // "immediate": writes no checkpoint, removes its shared memory
		Scrub: scrubSharedMemory,
	}
}

// PostgresStandby is a primary (member 1) with a synchronous standby (member 2). The address names both, and a client
// finds the one that takes writes, also after `SELECT pg_promote()` on the standby. Nothing keeps a primary that was
// replaced from taking writes again: it must not be started any more.
//
// The standby copies the primary at its first start. It has no synchronous_standby_names of its own: once promoted, its
// commits wait for none.
func PostgresStandby() Kind {
	k := Postgres()
	k.Name, k.Members = "postgres-standby", 2
	k.Setup = func(ctx context.Context, i *Instance) error {
		if primary := i.Cluster[0]; i != primary {
			return Follow(ctx, i, primary)
		}
		return initDB(ctx, i)
	}
	k.Join = func(ctx context.Context, primary *Instance) error {
		for _, statement := range []string{
			"CREATE DATABASE shop", "ALTER SYSTEM SET synchronous_standby_names = '*'", "SELECT pg_reload_conf()",
		} {
			if err := psql(ctx, primary, statement); err != nil {
				return err
			}
		}
		// Division by zero until commits wait for the standby.
		return Until(ctx, func() error {
			return psql(ctx, primary, "SELECT 1 / count(*) FROM pg_stat_replication WHERE sync_state = 'sync'")
		})
	}
	k.URL = func(i *Instance) string {
		return fmt.Sprintf("postgres://shop:%s@%s/shop?sslmode=disable&target_session_attrs=read-write", i.Secret, i.Addresses())
	}
	return k
}

// Follow makes the data of a standby, which copies the primary when that one answers, and follows it from then on. Its
// name in synchronous_standby_names is standby. Both have one Secret.
func Follow(ctx context.Context, i, primary *Instance) error {
	if err := Until(ctx, func() error { return psql(ctx, primary, "SELECT 1") }); err != nil {
		return err
	}
	from := fmt.Sprintf("postgres://shop:%s@%s?application_name=standby", primary.Secret, primary.Addr())
	return i.run(ctx, nil, i.tool("pg_basebackup"), "-d", from, "-D", pgData(i.Record), "-R", "--checkpoint=fast", "--no-sync")
}

func pgData(r Record) string { return filepath.Join(r.Dir, "data") }

func initDB(ctx context.Context, i *Instance) error {
	secret := filepath.Join(i.Dir, "password")
	if err := i.Write(secret, i.Secret); err != nil {
		return err
	}
	return i.run(ctx, nil, i.tool("initdb"), "-D", pgData(i.Record), "-U", "shop", "--pwfile", secret,
		"-A", "md5", "-E", "UTF8", "--locale=C", "--no-sync", "--no-instructions")
}

// psql runs one statement. It checks postmaster.pid first, which is cheaper than a process.
func psql(ctx context.Context, i *Instance, statement string) error {
	if status := postmasterPid(i.Record)[7]; strings.TrimSpace(status) != "ready" {
		return fmt.Errorf("postgres is not ready: %q", status)
	}
	return i.run(ctx, []string{"PGPASSWORD=" + i.Secret, "PGCONNECT_TIMEOUT=5"}, i.tool("psql"), "-X", "-w", "-q", "-A", "-t",
		"-h", "127.0.0.1", "-p", strconv.Itoa(i.Ports[0]), "-U", "shop", "-d", "postgres", "-c", statement)
}

// scrubSharedMemory removes the System V segment that a killed postmaster leaves,
// which is in no folder and would stay until the next boot.
func scrubSharedMemory(r Record) error {
	fields := strings.Fields(postmasterPid(r)[6]) // key, id
	if len(fields) != 2 {
		return nil
	}
	id, err := strconv.Atoi(fields[1])
	if err != nil {
		return nil
	}
	return removeSharedMemory(id)
}

// postmasterPid reads the lines of postmaster.pid: pid, folder, start, port, socket
// folder, address, shared memory, status. Absent lines are empty.
func postmasterPid(r Record) [8]string {
	var lines [8]string
	content, _ := os.ReadFile(filepath.Join(pgData(r), "postmaster.pid"))
	copy(lines[:], strings.Split(string(content), "\n"))
	return lines
}

// removeSharedMemory removes a System V segment, if it exists. It fails while a process
// is attached to it.
func removeSharedMemory(id int) error {
	var desc unix.SysvShmDesc
	switch _, err := unix.SysvShmCtl(id, unix.IPC_STAT, &desc); {
	case err != nil:
		return nil
	case desc.Nattch > 0:
		return fmt.Errorf("%d processes are attached to shared memory %d", desc.Nattch, id)
	}
	_, _ = unix.SysvShmCtl(id, unix.IPC_RMID, nil)
	return nil
}
