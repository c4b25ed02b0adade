// SPDX-License-Identifier: MIT

package main

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
	"github.com/google/uuid"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/dns"

	"shop/locking/idempotency/pgtx/pgtest"
	"shop/locking/locktest"
	"shop/locking/servertest"
)

// badSettings must each be refused before anything is done, with an error that says what to do.
var badSettings = []struct {
	name string
	args string
	want []string // in the message
}{
	{"no command", "", []string{"serve"}},
	{"unknown command", "sell", []string{"sell"}},
	{"unknown flag", "serve --turbo", []string{"--turbo"}},
	{"no database", "serve --postgres-url=", []string{"--postgres-url", "SHOP_POSTGRES_URL", "postgres://"}},
	{"no database to migrate", "migrate --postgres-url=", []string{"--postgres-url", "SHOP_POSTGRES_URL"}},
	{"database that is no URL", "serve --postgres-url=postgres://[", []string{"--postgres-url"}},
	{"password file that is not there", "serve --postgres-url=postgres://shop@127.0.0.1:1/none?passfile=/none/pgpass", []string{"--postgres-url", "/none/pgpass", "passfile"}},
	{"password file of another server", "migrate --postgres-url=postgres://shop@127.0.0.1:1/none?passfile=/dev/null", []string{"--postgres-url", "/dev/null", "127.0.0.1:1:none:shop:PASSWORD"}},
	{"password file without a line for a socket", "migrate --postgres-url=postgres://shop@/none?host=/none&passfile=/dev/null", []string{"--postgres-url", "/dev/null", "line localhost:5432:none:shop:PASSWORD", "remove passfile"}},
	{"an IPv6 host in a password file", "migrate --postgres-url=postgres://shop@[::1]:1/no:ne?passfile=/dev/null", []string{`line \:\:1:1:no\:ne:shop:PASSWORD`}},
	{"an unescaped password of PostgreSQL", "serve --postgres-url=postgres://me:p@ss/w:d@127.0.0.1:1/none", []string{"--postgres-url", "@", "%40", "%2F"}},
	{"an unescaped password of MongoDB", "serve --mongo-url=mongodb://me:p@ss/w:d@127.0.0.1:1/none", []string{"--mongo-url", "@", "%40", "%2F"}},
	{"an unescaped password that looks like a port", "serve --redis-url=redis://me:1?d@127.0.0.1:1", []string{"--redis-url", "%3F"}},
	{"an empty member of a list", "serve --etcd-endpoints=127.0.0.1:1,,127.0.0.1:2", []string{"--etcd-endpoints", "empty member"}},
	{"a comma at the end of a list", "serve --hot-products=coffee,", []string{"--hot-products", "empty member"}},
	{"no redis", "serve --redis-url=", []string{"--redis-url", "SHOP_REDIS_URL", "redis://"}},
	{"unknown strategy", "serve --strategy=hope", []string{"hope", "redis+row", "atomic"}},
	{"unsafe strategy", "serve --strategy=naive", []string{"naive", "--lab"}},
	{"failpoint without the lab", "serve --failpoint=after-guard=kill", []string{"--failpoint", "--lab"}},
	{"killing what has no fault", "serve --lab --lab-kill=etcd", []string{"--lab-kill", "redis"}},
	{"a kill that is not allowed", "race --fault=kill", []string{"kill", "--lab-kill=redis", "SHOP_LAB_KILL=redis"}},
	{"a kill of another flow", "race --flow=transfer --fault=kill --lab-kill=redis", []string{"no fault", "kill", "transfer"}},
	{"lab on all interfaces", "serve --lab --listen=0.0.0.0:0", []string{"--lab", "0.0.0.0:0", "127.0.0.1"}},
	{"lab on all addresses", "serve --lab --listen=:0", []string{"--lab", "127.0.0.1"}},
	{"lab on a name", "serve --lab --listen=localhost.example.com:0", []string{"--lab", "127.0.0.1"}},
	{"lab without redis", "serve --lab --strategy=row --redis-url=", []string{"--redis-url"}},
	{"no etcd", "serve --etcd-endpoints=", []string{"--etcd-endpoints", "SHOP_ETCD_ENDPOINTS", "127.0.0.1:2379"}},
	{"lab without etcd", "serve --lab --etcd-endpoints=", []string{"--etcd-endpoints"}},
	{"unknown transfer strategy", "serve --transfer-strategy=hope", []string{"hope", "etcd-fenced", "serializable"}},
	{"unsafe transfer strategy", "serve --transfer-strategy=lease-id-fence", []string{"lease-id-fence", "--lab"}},
	{"transfer strategy that is safe only beside fences", "serve --transfer-strategy=etcd-fence-only", []string{"etcd-fence-only", "row or serializable", "use etcd-fenced", "--lab"}},
	{"batch of a strategy that is safe only beside fences", "batch --transfer-strategy=etcd-fence-only", []string{"etcd-fence-only", "use etcd-fenced", "--lab"}},
	{"mongo that is no URL", "serve --mongo-url=127.0.0.1:27017", []string{"--mongo-url"}},
	{"mongo without a database", "serve --mongo-url=mongodb://127.0.0.1:27017/?replicaSet=rs0", []string{"--mongo-url", "/shop?replicaSet"}},
	{"migrate without a database in mongo", "migrate --mongo-url=mongodb://127.0.0.1", []string{"--mongo-url", "/shop?replicaSet"}},
	{"batch with a mongo that is no URL", "batch --mongo-url=x", []string{"--mongo-url"}},
	{"unknown wallet strategy", "serve --wallet-strategy=hope", []string{"hope", "lockid", "inc"}},
	{"unsafe wallet strategy", "serve --wallet-strategy=txn", []string{"txn", "--lab"}},
	{"bonus that is no address", "serve --bonus-url=127.0.0.1:8090", []string{"--bonus-url", "http://"}},
	{"bonus of another protocol", "serve --bonus-url=ftp://127.0.0.1", []string{"--bonus-url", "http://"}},
	{"half a second", "serve --transfer-lock-ttl=2500ms", []string{"--transfer-lock-ttl", "whole seconds"}},
	{"batch without etcd", "batch --etcd-endpoints=", []string{"--etcd-endpoints"}},
	{"batch without a database", "batch --postgres-url=", []string{"--postgres-url"}},
	{"batch backwards", "batch --every=-1s", []string{"--every"}},
	{"unsafe batch", "batch --transfer-strategy=naive", []string{"naive", "--lab"}},
	{"epoch without etcd", "fence-epoch --etcd-endpoints=", []string{"--etcd-endpoints"}},
	{"locks without a store", "locks --redis-url= --etcd-endpoints= --postgres-url=", []string{"--redis-url", "--postgres-url"}},
	{"a lock to end without its store", "locks --end=APPLE", []string{"--end", "redis product/APPLE"}},
	{"epoch without a database", "fence-epoch --postgres-url=", []string{"--postgres-url"}},
	{"a step of the other flow", "serve --lab --failpoint=inventory/after-call=kill", []string{"after-begin", "after-guard"}},
	{"unknown step", "serve --lab --failpoint=before-lunch=kill", []string{"before-lunch", "after-guard"}},
	{"unknown action", "serve --lab --failpoint=after-guard=sing", []string{"sing", "exp:MEAN"}},
	{"exp without a mean", "serve --lab --failpoint=after-guard=exp", []string{"exp:2ms"}},
	{"negative sleep", "serve --lab --failpoint=after-guard=sleep:-1s", []string{"sleep:2ms"}},
	{"kill-batch with an argument", "serve --lab --failpoint=after-guard=kill-batch:9", []string{"kill-batch"}},
	{"kill with an argument", "serve --lab --failpoint=after-guard=kill:9", []string{"kill"}},
	{"no duration", "serve --request-timeout=soon", []string{"request-timeout"}},
	{"timeout 0", "serve --request-timeout=0s", []string{"--request-timeout"}},
	{"negative delay", "serve --drain-delay=-1s", []string{"--drain-delay"}},
	{"TTL too short", "serve --lock-ttl=1ms", []string{"--lock-ttl"}},
	{"TTL too short for batches", "serve --strategy=combined --lock-ttl=350ms", []string{"--lock-ttl", "400ms"}},
	{"TTL too short for batches of the lab", "serve --lab --lock-ttl=350ms", []string{"--lock-ttl", "400ms"}},
	{"hot accounts without etcd", "serve --transfer-strategy=row --hot-accounts=019a0000-0000-7000-8000-000000000001,019a0000-0000-7000-8000-000000000002", []string{"--hot-accounts", "etcd-fenced"}},
	{"one hot account", "serve --etcd-endpoints=127.0.0.1:1 --hot-accounts=019a0000-0000-7000-8000-000000000001", []string{"--hot-accounts", "alone"}},
	{"no connections", "serve --pg-max-conns=0", []string{"--pg-max-conns"}},
	{"negative rate", "serve --rate-limit=-1", []string{"--rate-limit"}},
	{"no idle time", "serve --idle-timeout=0s", []string{"--idle-timeout"}},
	{"negative connections", "serve --max-conns-per-address=-1", []string{"--max-conns-per-address"}},
	{"negative share", "serve --max-per-client=-1", []string{"--max-per-client"}},
	{"negative stored keys", "serve --max-keys=-1", []string{"--max-keys"}},
	{"negative unknown keys", "serve --unknown-keys=-1", []string{"--unknown-keys"}},
	{"collector that is no address", "serve --otlp-endpoint=127.0.0.1:4318", []string{"--otlp-endpoint", "OTEL_EXPORTER_OTLP_ENDPOINT", "http://"}},
	{"more than all traces", "serve --otlp-endpoint=http://127.0.0.1:1 --trace-ratio=2", []string{"--trace-ratio", "0 to 1"}},
	{"log format", "serve --log-format=xml", []string{"json"}},
	{"client without a name", "client add", []string{"name"}},
}

func TestSettings_WhatCannotWorkIsRefusedWithAdvice(t *testing.T) {
	t.Setenv("SHOP_POSTGRES_URL", "postgres://shop@127.0.0.1:1/none")
	t.Setenv("SHOP_REDIS_URL", "redis://127.0.0.1:1/0")
	t.Setenv("SHOP_ETCD_ENDPOINTS", "127.0.0.1:1")
	t.Setenv("SHOP_MONGO_URL", "mongodb://127.0.0.1:1/none")
	for _, c := range badSettings {
		t.Run(c.name, func(t *testing.T) {
			_, err := shop(t, strings.Fields(c.args)...)
			if exitCode(err) != 2 {
				t.Fatalf("%v: exit status %d, want 2", err, exitCode(err))
			}
			for _, word := range c.want {
				if !strings.Contains(err.Error(), word) {
					t.Errorf("it does not say %q: %v", word, err)
				}
			}
		})
	}
}

// Each value is as an environment or a file of secrets may have it.
func TestSettings_AreReadWithoutTheWhiteSpaceAroundThem(t *testing.T) {
	url, _ := newDatabase(t)
	mine := accounts(t, url)
	etcd := servertest.Env(t, "SHOP_ETCD_ENDPOINTS")
	t.Setenv("SHOP_POSTGRES_URL", " "+url+"\n")
	t.Setenv("SHOP_REDIS_URL", servertest.Env(t, "SHOP_REDIS_URL")+"\n")
	t.Setenv("SHOP_MONGO_URL", servertest.Env(t, "SHOP_MONGO_URL")+"\n")
	t.Setenv("SHOP_ETCD_ENDPOINTS", "127.0.0.1:1, "+etcd+"\n")
	t.Setenv("SHOP_HOT_PRODUCTS", "coffee, tea\n")
	t.Setenv("SHOP_HOT_ACCOUNTS", mine["alice"]+", "+mine["bob"]+"\n")
	r := startReplica(t, url+"\n", "")
	locktest.Eventually(t, "etcd is found at the second address", func() bool {
		_, body := r.get(r.url + "/readyz")
		return strings.Contains(body, `"transfers":"ok"`)
	})
	var c cli
	parser, err := kong.New(&c, append(trimmed(), kong.Vars{"version": ""})...)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := parser.Parse([]string{"serve"}); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprintf("%q %v %q", c.Serve.Locks.Hot, c.Serve.Transfers.Hot, c.Serve.Transfers.EtcdEndpoints); got !=
		fmt.Sprintf("%q [%s %s] %q", []string{"coffee", "tea"}, mine["alice"], mine["bob"], []string{"127.0.0.1:1", etcd}) {
		t.Error(got)
	}
}

// A value of two lines cannot be meant.
func TestSettings_ANewlineInsideAnAddressIsNamed(t *testing.T) {
	for _, flag := range []string{"--postgres-url", "--redis-url", "--mongo-url"} {
		_, err := shop(t, "serve", "--strategy=row", "--etcd-endpoints=127.0.0.1:1", "--postgres-url=postgres://me@127.0.0.1/shop", flag+"=first://hunter2\nsecond")
		if exitCode(err) != 2 || !strings.Contains(err.Error(), flag+": the address has a newline") || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v", flag, err)
		}
	}
}

func TestSettings_HotKeysThatDoNotExistAreRefused(t *testing.T) {
	url, _ := newDatabase(t)
	none, mine := "019a0000-0000-7000-8000-000000000001", accounts(t, url)
	for _, c := range []struct{ flag, value, unknown string }{
		{"--hot-products", "coffee,cofee", "[cofee]"},
		{"--hot-accounts", mine["alice"] + "," + none, "[" + none + "]"},
	} {
		_, err := shop(t, "serve", "--listen=127.0.0.1:0", "--metrics-listen=", "--lock-prefix", t.Name(), "--postgres-url", url, c.flag, c.value)
		if exitCode(err) != 2 || !strings.Contains(err.Error(), c.flag+": no such: "+c.unknown) {
			t.Errorf("%s %s: %v", c.flag, c.value, err)
		}
	}
}

// Units in slots are sold by slots alone: with another strategy their products would seem sold out.
func TestSettings_UnitsInSlotsNeedTheirStrategy(t *testing.T) {
	url, keys := newDatabase(t)
	running := startReplica(t, url, keys["alice"], "--strategy=row")
	status := func() int { code, _ := running.get(running.url + "/readyz"); return code }
	locktest.Eventually(t, "a replica of row is ready", func() bool { return status() == 200 })
	execute(t, url, `INSERT INTO stock_slots VALUES ('tea', 0, 1)`)
	locktest.Eventually(t, "it is no longer", func() bool { return status() == 503 })
	serve := []string{"serve", "--listen=127.0.0.1:0", "--metrics-listen=", "--lock-prefix", t.Name(), "--postgres-url", url, "--strategy"}
	if _, err := shop(t, append(serve, "row")...); exitCode(err) != 2 || !strings.Contains(err.Error(), "--strategy row does not see units") {
		t.Error(err)
	}
	if _, err := shop(t, append(serve, "slots", "--hot-products", "tea")...); exitCode(err) != 2 || !strings.Contains(err.Error(), "sold out while its units are in slots") {
		t.Error(err)
	}
}

// MongoDB may be down at the start, or not migrated yet. Unknown hot wallets are named once it replies.
func TestSettings_HotWalletsAreLookedUpOnceMongoDBReplies(t *testing.T) {
	db := sharedMongo(t)
	mongoURL, none := os.Getenv("SHOP_MONGO_URL"), uuid.New()
	t.Setenv("SHOP_MONGO_URL", "")
	url, keys := newDatabase(t)
	r := startReplica(t, url, keys["alice"], "--strategy=row", "--mongo-url", mongoURL, "--hot-wallets", none.String())
	if out, err := shop(t, "migrate", "--postgres-url", url, "--mongo-url", mongoURL); err != nil {
		t.Fatal(out, err)
	}
	locktest.Eventually(t, "the log names it", func() bool {
		why, _ := r.log.find("the hot wallets")["error"].(string)
		return strings.Contains(why, "--hot-wallets: no such: ["+none.String()+"]")
	})
	b := &walletBackend{probe: db} // at the start the same error is returned
	if err := b.checkHot(t.Context(), []uuid.UUID{none}); !errors.Is(err, errUnknownHot) {
		t.Error(err)
	}
}

// DNS that has no answer is no mistake in the URL.
func TestSettings_MongoDBByDNSSaysThatDNSHasNoAnswer(t *testing.T) {
	lookUp := dns.DefaultResolver.LookupSRV
	dns.DefaultResolver.LookupSRV = func(_, _, name string) (string, []*net.SRV, error) {
		return "", nil, &net.DNSError{Err: "server misbehaving", Name: name}
	}
	t.Cleanup(func() { dns.DefaultResolver.LookupSRV = lookUp })
	_, err := shop(t, "serve", "--strategy=row", "--etcd-endpoints=127.0.0.1:1", "--postgres-url=postgres://me@127.0.0.1/shop", "--mongo-url=mongodb+srv://me:hunter2@cluster.invalid/shop")
	if exitCode(err) != 2 || !strings.Contains(err.Error(), "DNS") || !strings.Contains(err.Error(), "server misbehaving") || strings.Contains(err.Error(), "hunter2") {
		t.Error(err)
	}
}

// Any part of a malformed address may be the password, so the error repeats no part.
func TestSettings_ErrorsHoldNoCredential(t *testing.T) {
	url, _ := newDatabase(t)
	serve := "serve --listen=127.0.0.1:0 --metrics-listen= --postgres-url=" + url
	for _, args := range []string{
		"migrate --postgres-url=postgres://me:hunter2/shop", // no host: the password is in the place of a port
		"serve --postgres-url=me:hunter2@127.0.0.1/shop",
		"batch --postgres-url=postgres://me:hunter2@[::1/shop",
		"migrate --mongo-url=mongodb://me:hunter2/shop",
		"migrate --mongo-url=mongodb://me:%zzhunter2@127.0.0.1/shop",
		serve + " --redis-url=redis://me:hunter2@[::1",
		serve + " --redis-url=redis://me:hunter2",
		serve + " --redis-url=redis://me:1/hunter2@127.0.0.1",
		serve + " --bonus-url=http://me:hunter2@[::1",
		"ping http://me:hunter2@[::1/readyz",
		"migrate --postgres-url=postgres://me:p@hunter2/w@127.0.0.1:1/shop",
		"migrate --mongo-url=mongodb://me:p@hunter2/w@127.0.0.1:1/shop",
		serve + " --redis-url=redis://me:p@hunter2/w@127.0.0.1:1/0",
		serve + " --bonus-url=http://me:p@hunter2/w@127.0.0.1:1",
		"ping http://me:hunter2@127.0.0.1:1/readyz",
	} {
		if out, err := shop(t, strings.Fields(args)...); err == nil || strings.Contains(err.Error()+out, "hunter2") {
			t.Errorf("%s: %v\n%s", args, err, out)
		}
	}
}

// The URL without its password, and a file with it, connect as the URL does.
func TestSettings_ThePasswordMayBeInAFile(t *testing.T) {
	withPassword, err := url.Parse(pgtest.Schema(t))
	if err != nil {
		t.Fatal(err)
	}
	password, _ := withPassword.User.Password()
	for _, c := range []struct {
		password string
		right    bool
	}{{password, true}, {"hunter2", false}} {
		file := filepath.Join(t.TempDir(), "pgpass")
		if err := os.WriteFile(file, []byte("*:*:*:"+withPassword.User.Username()+":"+c.password+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		u := *withPassword
		u.User = url.User(u.User.Username())
		u.RawQuery += "&passfile=" + file
		out, err := shop(t, "migrate", "--postgres-url", u.String())
		if (err == nil) != c.right || strings.Contains(fmt.Sprint(out, err), c.password) {
			t.Errorf("with %s in the file: %v\n%s", c.password, err, out)
		}
	}
}

func TestSettings_HelpListsEveryVariable(t *testing.T) {
	out, err := shop(t, "serve", "--help")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range strings.Fields(`POSTGRES_URL LAB_KILL REDIS_URL STRATEGY LOCK_TTL LOCK_PREFIX ETCD_ENDPOINTS TRANSFER_STRATEGY TRANSFER_LOCK_TTL MONGO_URL WALLET_STRATEGY BONUS_URL PG_MAX_CONNS LISTEN METRICS_LISTEN
		REQUEST_TIMEOUT MAX_IN_FLIGHT MAX_PER_CLIENT RATE_LIMIT UNKNOWN_KEYS MAX_KEYS MAX_CONNS MAX_CONNS_PER_ADDRESS IDLE_TIMEOUT DRAIN_DELAY SHUTDOWN_TIMEOUT LAB FAILPOINT SEED LOG_LEVEL LOG_FORMAT`) {
		if !strings.Contains(strings.Join(strings.Fields(out), " "), "($SHOP_"+name+")") {
			t.Errorf("SHOP_%s is not in the help", name)
		}
	}
	if out, err := shop(t, "--version"); err != nil || !strings.Contains(out, "go1") {
		t.Errorf("version: %q, %v", out, err)
	}
}

func TestServe_APortThatIsTakenIsAnErrorAtOnce(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	url, _ := newDatabase(t)
	for _, flags := range [][]string{
		{"--listen", taken.Addr().String(), "--metrics-listen="},
		{"--metrics-listen", taken.Addr().String(), "--listen=127.0.0.1:0"},
	} {
		_, err := shop(t, append([]string{"serve", "--strategy=row", "--postgres-url", url}, flags...)...)
		if exitCode(err) != 2 || !strings.Contains(err.Error(), "choose another") {
			t.Errorf("%v: %v", flags, err)
		}
	}
}

func TestServe_AnUnreachableOrUnmigratedDatabaseIsAnErrorAtOnce(t *testing.T) {
	free := []string{"serve", "--strategy=row", "--listen=127.0.0.1:0", "--metrics-listen="}
	_, err := shop(t, append(free, "--postgres-url", "postgres://shop:hunter2@127.0.0.1:1/shop")...)
	if exitCode(err) != 2 || !strings.Contains(err.Error(), "is it running") || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("no server: %v", err)
	}
	_, err = shop(t, append(free, "--postgres-url", pgtest.Schema(t))...)
	if exitCode(err) != 2 || !strings.Contains(err.Error(), "shop migrate") {
		t.Errorf("no tables: %v", err)
	}
}

func TestExitCode_IsTheErrorsOwn(t *testing.T) {
	for want, err := range map[int]error{0: nil, 1: errors.New("x"), 2: &usageError{errors.New("x")}} {
		if got := exitCode(err); got != want {
			t.Errorf("%v: %d, want %d", err, got, want)
		}
	}
}
