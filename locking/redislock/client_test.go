// SPDX-License-Identifier: MIT

package redislock

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"shop/locking"
)

// T18 and T19: a client whose settings would break a lock is refused, and the error
// names each setting and the reason.
func TestNew_RefusesClientsThatBreakLocks(t *testing.T) {
	const ttl = 2 * time.Second
	tuned := func(change func(*redis.Options)) redis.UniversalClient {
		o := Tune(&redis.UniversalOptions{}, ttl).Simple()
		change(o)
		return redis.NewClient(o)
	}
	for says, client := range map[string]redis.UniversalClient{
		"MaxRetries is 3":                tuned(func(o *redis.Options) { o.MaxRetries = 0 }),
		"ContextTimeoutEnabled is false": tuned(func(o *redis.Options) { o.ContextTimeoutEnabled = false }),
		"ReadTimeout is ":                tuned(func(o *redis.Options) { o.ReadTimeout = 0 }),
		"WriteTimeout is 0s":             tuned(func(o *redis.Options) { o.WriteTimeout = -1 }),
		"DialTimeout is ":                tuned(func(o *redis.Options) { o.DialTimeout = 0 }),
		"PoolTimeout is 1.001s":          tuned(func(o *redis.Options) { o.PoolTimeout = 1001 * time.Millisecond }),
		"a Ring moves keys":              redis.NewRing(&redis.RingOptions{}),
		"suit locks with TTL 2s":         redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}}),
		"no client":                      nil,
	} {
		store, err := New(client, ttl, Options{})
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("want an error that says %q, got %v and %+v", says, err, store)
		}
		if client != nil {
			_ = client.Close()
		}
	}
}

// One tuning serves all kinds of client.
func TestTune_MakesClientsThatAreAccepted(t *testing.T) {
	for _, ttl := range []time.Duration{TTLMin, time.Second, time.Hour} {
		for kind, o := range map[string]*redis.UniversalOptions{
			"single":   {},
			"sentinel": {MasterName: "m", Addrs: []string{"127.0.0.1:1"}},
			"cluster":  {IsClusterMode: true, Addrs: []string{"127.0.0.1:1"}},
		} {
			client := redis.NewUniversalClient(Tune(o, ttl))
			store, err := New(client, ttl, Options{})
			if err != nil {
				t.Errorf("%s, TTL %v: %v", kind, ttl, err)
			} else {
				store.Close()
			}
			_ = client.Close()
		}
	}
}

func TestConnect_IsTuned(t *testing.T) {
	client, err := Connect("redis://example.org?max_retries=3&pool_timeout=1m", time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	tuned := redis.NewUniversalClient(Tune(&redis.UniversalOptions{Addrs: []string{"example.org:6379"}}, time.Second))
	defer tuned.Close()
	got, want := reflect.ValueOf(*client.Options()), reflect.ValueOf(*tuned.(*redis.Client).Options())
	for i := range got.NumField() {
		field := got.Type().Field(i)
		if kind := field.Type.Kind(); kind != reflect.Int && kind != reflect.Int64 && kind != reflect.Bool {
			continue
		}
		if g, w := got.Field(i), want.Field(i); !g.Equal(w) {
			t.Errorf("%s is %v, want %v", field.Name, g, w)
		}
	}
}

func TestConnect_KeepsTheOtherSettingsOfTheURL(t *testing.T) {
	client, err := Connect("redis://me:secret@example.org:6380/3?client_name=shop&read_timeout=30s", time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	o := client.Options()
	if o.Addr != "example.org:6380" || o.DB != 3 || o.Username != "me" || o.Password != "secret" || o.ClientName != "shop" {
		t.Errorf("options %+v", o)
	}
	if o.ReadTimeout != requestTimeout(time.Second) {
		t.Errorf("ReadTimeout is %v: the URL must not override the tuning", o.ReadTimeout)
	}
}

// With a master_name, the URL is that of Sentinels.
func TestConnect_FollowsSentinels(t *testing.T) {
	client, err := Connect("redis://example.org:26379/3?master_name=mymaster&addr=example.net:26379&username=me&password=secret&read_timeout=30s&max_retries=3", time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if _, err := New(client, time.Second, Options{}); err != nil {
		t.Errorf("a connected client is refused: %v", err)
	}
	o := client.Options()
	if o.Addr != "FailoverClient" || o.DB != 3 || o.Username != "me" || o.Password != "secret" || o.ReadTimeout != requestTimeout(time.Second) || o.MaxRetries != 0 {
		t.Errorf("options %+v", o)
	}
}

// Any part of a malformed URL may be the password.
func TestConnect_ErrorHoldsNoCredential(t *testing.T) {
	for _, url := range []string{
		"http://me:secret@example.org",
		"redis://me:secret@[::1",
		"redis://me:secret@example.org:port/0",
		"redis://me:secret",
		"redis://me:%zzsecret@example.org",
		"redis://me:1/secret@example.org",
		"redis://me:secret@example.org/0/secret",
		"redis://example.org/0?db=secret",
		"redis://me:secret@example.org/0?master_name=",
		"redis://me:secret@example.org/0/0?master_name=mymaster",
		":secret@example.org:6379",
	} {
		if client, err := Connect(url, time.Second); err == nil || strings.Contains(err.Error(), "secret") || !strings.Contains(err.Error(), "redis://") {
			t.Errorf("%s: %v, %v", url, client, err)
		}
	}
}

// A typed nil, as of a client that could not be made, is not taken for a client.
func TestNew_WithoutAClientIsAnError(t *testing.T) {
	t.Parallel()
	for _, client := range []redis.UniversalClient{nil, (*redis.Client)(nil), (*redis.ClusterClient)(nil)} {
		if _, err := New(client, time.Minute, Options{}); !errors.Is(err, locking.ErrNoClient) {
			t.Errorf("New(%#v): got %v, want ErrNoClient", client, err)
		}
	}
}
