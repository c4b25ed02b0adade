// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"shop/locking/locktest"
	"shop/locking/servertest"
	"shop/locking/servertest/daemon"
)

// authority signs certificates, as files of PEM.
type authority struct {
	t    *testing.T
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t, dir: t.TempDir()}
	a.cert, a.key = a.write("ca", x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign})
	return a
}

// sign makes the certificate and the key of a user, or of a server on loopback.
func (a *authority) sign(name string) {
	a.t.Helper()
	a.write(name, x509.Certificate{
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	})
}

// write signs a certificate, the first one with its own key.
func (a *authority) write(name string, c x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	a.t.Helper()
	c.Subject = pkix.Name{CommonName: name}
	cert, key := certify(a.t, &c, a.cert, a.key)
	for file, text := range map[string]string{name + ".crt": certificatePEM(cert), name + ".key": keyPEM(a.t, key)} {
		if err := os.WriteFile(a.file(file), []byte(text), 0o600); err != nil {
			a.t.Fatal(err)
		}
	}
	return cert, key
}

func (a *authority) file(name string) string { return filepath.Join(a.dir, name) }

// flags are those of a client that has the certificate of a user.
func (a *authority) flags(etcd *servertest.Server, user string) []string {
	flags := []string{"--etcd-endpoints=https://" + etcd.Addr, "--etcd-ca=" + a.file("ca.crt")}
	if user != "" {
		flags = append(flags, "--etcd-cert="+a.file(user+".crt"), "--etcd-key="+a.file(user+".key"))
	}
	return flags
}

// startSecureEtcd starts an etcd that demands a certificate of each client. The user shop may use the keys that begin
// with prefix; the user stranger may use none.
func startSecureEtcd(t *testing.T, a *authority, prefix string) *servertest.Server {
	t.Helper()
	for _, name := range []string{"server", "root", "shop", "stranger"} {
		a.sign(name)
	}
	peers := "http://" + servertest.FreeAddr(t)
	settings := func(addr string) etcdSettings {
		return etcdSettings{EtcdEndpoints: []string{addr}, EtcdCA: a.file("ca.crt"), EtcdCert: a.file("root.crt"), EtcdKey: a.file("root.key")}
	}
	etcd := servertest.Start(t, daemon.Kind{
		Name: "etcd", File: "etcd",
		Argv: func(i *daemon.Instance) []string {
			return []string{
				"--data-dir", i.Dir, "--log-level", "error", "--listen-client-urls", "https://" + i.Addr(), "--advertise-client-urls", "https://" + i.Addr(),
				"--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers, "--initial-cluster", "default=" + peers,
				"--client-cert-auth", "--trusted-ca-file", a.file("ca.crt"), "--cert-file", a.file("server.crt"), "--key-file", a.file("server.key"),
			}
		},
		Ready: func(ctx context.Context, i *daemon.Instance) error {
			client, err := settings(i.Addr()).connect()
			if err != nil {
				return err
			}
			defer client.Close()
			ctx, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			_, err = client.Get(ctx, "ready")
			return err
		},
	})
	root, err := settings(etcd.Addr).connect()
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	for _, name := range []string{"root", "shop", "stranger"} {
		if _, err = root.UserAddWithOptions(t.Context(), name, "", &clientv3.UserAddOptions{NoPassword: true}); err == nil {
			_, err = root.RoleAdd(t.Context(), name)
		}
		if err == nil {
			_, err = root.UserGrantRole(t.Context(), name, name)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	_, err = root.RoleGrantPermission(t.Context(), "shop", prefix, clientv3.GetPrefixRangeEnd(prefix), clientv3.PermissionType(clientv3.PermReadWrite))
	if err == nil {
		_, err = root.AuthEnable(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	return etcd
}

// Money moves under locks in an etcd that admits only the users it knows, and the shop's user needs no keys but those
// of its prefix. Any other client is refused, and moves no money.
func TestEtcd_WithUsersAndCertificates(t *testing.T) {
	url, keys := newDatabase(t)
	a := newAuthority(t)
	etcd := startSecureEtcd(t, a, t.Name())
	p := startTransferReplica(t, url, keys["alice"], a.flags(etcd, "shop")...)
	p.wantHealth("ok")
	if status, body := p.pay("first"); status != 201 {
		t.Errorf("%d %s", status, body)
	}
	etcd.Restart()
	locktest.Eventually(t, "money moves after a restart of etcd", func() bool { status, _ := p.pay("second"); return status == 201 })
	if out, err := shop(t, append([]string{"batch", "--postgres-url", url, "--lock-prefix", t.Name()}, a.flags(etcd, "shop")...)...); err != nil {
		t.Errorf("batch: %v\n%s", err, out)
	}
	dropRaces(t, url)
	if out, err := shop(t, append([]string{"race", "--flow=transfer", "--strategy=etcd-fenced", "--clients=4", "--size=4", "--fault=none", "--postgres-url", url, "--lock-prefix", t.Name()}, a.flags(etcd, "shop")...)...); err != nil {
		t.Errorf("race: %v\n%s", err, out)
	}
	another := newAuthority(t)
	another.sign("shop")
	for name, flags := range map[string][]string{
		"without a certificate":  a.flags(etcd, ""),
		"without a permission":   a.flags(etcd, "stranger"),
		"of another authority":   append(a.flags(etcd, ""), another.flags(etcd, "shop")[2:]...),
		"that knows another one": append(a.flags(etcd, "shop"), "--etcd-ca="+another.file("ca.crt")),
		"that does not use TLS":  {"--etcd-endpoints=http://" + etcd.Addr},
		"with another prefix":    append(a.flags(etcd, "shop"), "--lock-prefix=another"),
	} {
		t.Run(name, func(t *testing.T) {
			p := startTransferReplica(t, url, keys["alice"], flags...)
			p.wantHealth("unreachable")
			if status, body := p.pay(name); status != 503 || !strings.Contains(body, "busy") {
				t.Errorf("%d %s", status, body)
			}
		})
	}
	if n := query(t, url, `SELECT count(*) FROM transfers`); n != 2 {
		t.Errorf("%d transfers, want 2", n)
	}
}

func TestEtcd_FilesThatCannotBeUsedAreRefused(t *testing.T) {
	url, _ := newDatabase(t)
	a := newAuthority(t)
	a.sign("shop")
	if err := os.WriteFile(a.file("empty"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for want, flags := range map[string][]string{
		"set both":       {"--etcd-cert=" + a.file("shop.crt")},
		"no such file":   {"--etcd-ca=" + a.file("missing")},
		"private key":    {"--etcd-cert=" + a.file("shop.crt"), "--etcd-key=" + a.file("ca.key")},
		"no certificate": {"--etcd-ca=" + a.file("empty")},
		"want https://":  {"--etcd-ca=" + a.file("ca.crt"), "--etcd-endpoints=http://127.0.0.1:1"},
	} {
		out, err := shop(t, append([]string{"serve", "--listen=127.0.0.1:0", "--postgres-url", url}, flags...)...)
		if exitCode(err) != 2 || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "--etcd-") {
			t.Errorf("%v: %v, want %q\n%s", flags, err, want, out)
		}
	}
}
