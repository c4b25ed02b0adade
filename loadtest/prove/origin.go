// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.uber.org/zap"

	"shop/loadtest"
	"shop/locking/etcdlock"
)

const unknown = "unknown"

// originWait bounds the requests for the origin of a report: all requests to servers together, and each
// call of git.
const originWait = 3 * time.Second

// origin describes how a report was made. What cannot be determined is "unknown".
func (c *app) origin(ctx context.Context) loadtest.Origin {
	asking, cancel := context.WithTimeout(ctx, originWait)
	defer cancel()
	servers := []struct {
		name, at string
		version  func(context.Context, string) (string, error)
	}{
		{"PostgreSQL", c.PostgresURL, postgresVersion},
		{"Redis", c.RedisURL, redisVersion},
		{"etcd", c.Etcd, etcdVersion},
		{"MongoDB", c.MongoURL, mongoVersion},
	}
	if c.Target != "" {
		servers = servers[:1] // only the database of the audit is known
	}
	found := make([]string, len(servers))
	var asked sync.WaitGroup
	for i, s := range servers {
		if s.at == "" {
			continue
		}
		asked.Go(func() {
			version, err := s.version(asking, s.at)
			if err != nil {
				version = unknown
			}
			found[i] = s.name + " " + version
		})
	}
	asked.Wait()
	found = slices.DeleteFunc(found, func(text string) bool { return text == "" })
	return loadtest.Origin{Command: commandLine(c.args), Commit: commit(ctx), Machine: machine(), Servers: found}
}

func postgresVersion(ctx context.Context, at string) (version string, err error) {
	conn, err := pgx.Connect(ctx, at)
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close(ctx) }()
	err = conn.QueryRow(ctx, `SELECT split_part(current_setting('server_version'), ' ', 1)`).Scan(&version)
	return version, err
}

func redisVersion(ctx context.Context, at string) (string, error) {
	o, err := redis.ParseURL(at)
	if err != nil {
		return "", err
	}
	client := redis.NewClient(o)
	defer func() { _ = client.Close() }()
	info, err := client.Info(ctx, "server").Result()
	if err != nil {
		return "", err
	}
	_, rest, found := strings.Cut(info, "redis_version:")
	if !found {
		return "", fmt.Errorf("no redis_version in %q", info)
	}
	return strings.Fields(rest)[0], nil
}

func etcdVersion(ctx context.Context, at string) (string, error) {
	config := etcdlock.Config(strings.Split(at, ",")...)
	config.Logger = zap.NewNop()
	client, err := clientv3.New(config)
	if err != nil {
		return "", err
	}
	defer func() { _ = client.Close() }()
	status, err := client.Status(ctx, client.Endpoints()[0])
	if err != nil {
		return "", err
	}
	return status.Version, nil
}

func mongoVersion(ctx context.Context, at string) (string, error) {
	client, err := mongo.Connect(options.Client().ApplyURI(at).SetServerSelectionTimeout(originWait))
	if err != nil {
		return "", err
	}
	defer func() { _ = client.Disconnect(context.WithoutCancel(ctx)) }()
	var info struct{ Version string }
	err = client.Database("admin").RunCommand(ctx, bson.D{{Key: "buildInfo", Value: 1}}).Decode(&info)
	return info.Version, err
}

// A report may be published: it must not hold passwords or tokens.
var (
	userinfo = regexp.MustCompile(`://\S*@`)
	password = regexp.MustCompile(`(?i)(password=)[^&\s]+`)
	plain    = regexp.MustCompile(`^[\w@%+=:,./…-]+$`)
)

// commandLine returns the command that runs this again in a shell, without secrets.
func commandLine(args []string) string {
	words := []string{"prove"}
	for _, arg := range args {
		arg = password.ReplaceAllString(userinfo.ReplaceAllString(arg, "://…@"), "$1…")
		if !plain.MatchString(arg) {
			arg = "'" + strings.ReplaceAll(arg, "'", `'\''`) + "'"
		}
		words = append(words, arg)
	}
	return strings.Join(words, " ")
}

// commit returns the commit of this program's build information; without it, the commit that is checked
// out in the working folder.
func commit(ctx context.Context) string {
	revision, modified := "", false
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			switch s.Key {
			case "vcs.revision":
				revision = s.Value
			case "vcs.modified":
				modified = s.Value == "true"
			}
		}
	}
	if revision == "" {
		revision = git(ctx, "rev-parse", "HEAD")
		modified = git(ctx, "status", "--porcelain", "--untracked-files=no") != ""
	}
	switch {
	case revision == "":
		return unknown
	case modified:
		return revision[:min(12, len(revision))] + ", modified"
	}
	return revision[:min(12, len(revision))]
}

// git returns the output of a git command in the working folder; "" if it fails.
func git(ctx context.Context, args ...string) string {
	ctx, cancel := context.WithTimeout(ctx, originWait)
	defer cancel()
	out, err := exec.CommandContext(ctx, "git", args...).Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}

// machine describes the processor, the usable cores and the memory.
func machine() string {
	cores := strconv.Itoa(runtime.NumCPU()) + " cores"
	if runtime.NumCPU() == 1 {
		cores = "1 core"
	}
	parts := []string{field("/proc/cpuinfo", "model name"), cores, runtime.GOOS + "/" + runtime.GOARCH}
	if parts[0] == "" {
		parts = parts[1:]
	}
	if kB, err := strconv.ParseFloat(strings.TrimSuffix(field("/proc/meminfo", "MemTotal"), " kB"), 64); err == nil {
		parts = append(parts, fmt.Sprintf("%.0f GiB", kB/(1<<20)))
	}
	return strings.Join(parts, ", ")
}

// field returns the value of the first line with this name in a file of /proc; "" if there is none.
func field(file, name string) string {
	text, _ := os.ReadFile(file)
	for line := range strings.Lines(string(text)) {
		if key, value, found := strings.Cut(line, ":"); found && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
