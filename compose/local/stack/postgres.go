// SPDX-License-Identifier: MIT

package stack

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

// PostgreSQL, durable as in production: fsync is on. It listens on loopback only.
// It demands a random password, since its superuser may run programs. It compares MD5 hashes,
// which suffice on loopback: SCRAM costs 4,096 rounds of HMAC for each connection.
// PostgreSQL keeps dynamic shared memory in its folder, so that a SIGKILL
// leaves none in /dev/shm.
var _ = register(postgresKind("postgres"))

func postgresKind(name string) kind {
	return kind{
		name:     name,
		variable: "SHOP_POSTGRES_URL",
		byName:   name != "postgres",
		users:    []string{"postgres", "nobody"}, // it refuses root
		program: program{
			file:   "postgres",
			beside: []string{"initdb", "psql"},
			dirs:   []string{"/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/opt/homebrew/opt/postgresql@*/bin", "/usr/local/opt/postgresql@*/bin"},
			apt:    "postgresql",
			brew:   "postgresql@18",
		},
		setup: initDB,
		argv: func(i *instance) []string {
			return []string{
				"-D", pgData(i.record), "-p", strconv.Itoa(i.Ports[0]),
				"-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories=",
				"-c", "fsync=on", "-c", "synchronous_commit=on",
				"-c", "max_connections=300", "-c", "shared_buffers=128MB",
				"-c", "dynamic_shared_memory_type=mmap",
				"-c", "log_min_error_statement=panic", // a load test provokes thousands of errors
			}
		},
		ready: func(ctx context.Context, i *instance) error { return psql(ctx, i, "SELECT 1") },
		join:  func(ctx context.Context, i *instance) error { return psql(ctx, i, "CREATE DATABASE shop") },
		url: func(i *instance) string {
			return fmt.Sprintf("postgres://shop:%s@%s/shop?sslmode=disable", i.Secret, i.addr())
		},
		stop:  syscall.SIGINT,  // "fast": ends sessions, writes a checkpoint
		quick: syscall.SIGQUIT, // "immediate": writes no checkpoint, removes its shared memory
		scrub: scrubSharedMemory,
	}
}

func pgData(r record) string { return filepath.Join(r.Dir, "data") }

func initDB(ctx context.Context, i *instance) error {
	secret := filepath.Join(i.Dir, "password")
	if err := i.write(secret, i.Secret); err != nil {
		return err
	}
	return i.run(ctx, nil, i.tool("initdb"), "-D", pgData(i.record), "-U", "shop", "--pwfile", secret,
		"-A", "md5", "-E", "UTF8", "--locale=C", "--no-sync", "--no-instructions")
}

// psql runs one statement. It checks postmaster.pid first, which is cheaper than a process.
func psql(ctx context.Context, i *instance, statement string) error {
	if status := postmasterPid(i.record)[7]; strings.TrimSpace(status) != "ready" {
		return fmt.Errorf("postgres is not ready: %q", status)
	}
	return i.run(ctx, []string{"PGPASSWORD=" + i.Secret, "PGCONNECT_TIMEOUT=5"}, i.tool("psql"), "-X", "-w", "-q", "-A", "-t",
		"-h", "127.0.0.1", "-p", strconv.Itoa(i.Ports[0]), "-U", "shop", "-d", "postgres", "-c", statement)
}

// scrubSharedMemory removes the System V segment that a killed postmaster leaves,
// which is in no folder and would stay until the next boot.
func scrubSharedMemory(r record) error {
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
func postmasterPid(r record) [8]string {
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
