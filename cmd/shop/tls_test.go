// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"shop/locking/redislock"
	"shop/locking/servertest"
)

// With sslmode=verify-full the shop sends nothing to a PostgreSQL whose certificate it does not know, or whose
// certificate is for another host.
func TestTLS_PostgreSQLMustHaveTheRightCertificate(t *testing.T) {
	server, plain := servertest.StartPostgres(t)
	certificate, key := selfSigned(t)
	setUp, err := pgx.Connect(t.Context(), plain)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"server.crt": certificate, "server.key": key} { // which must belong to its user
		_, err := setUp.Exec(t.Context(), fmt.Sprintf(`COPY (SELECT unnest(string_to_array('%s', E'\n'))) TO PROGRAM 'umask 077; cat > %s'`, text, name))
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := setUp.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	server.Kill()
	server.Flags = []string{"-c", "ssl=on"}
	server.Start()
	own, other := filepath.Join(t.TempDir(), "own.crt"), filepath.Join(t.TempDir(), "other.crt")
	another, _ := selfSigned(t)
	for file, text := range map[string]string{own: certificate, other: another} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	secure := strings.NewReplacer("127.0.0.1", "localhost", "sslmode=disable", "sslmode=verify-full&sslrootcert="+own).Replace(plain)
	for name, c := range map[string]struct{ url, want string }{
		"right":            {secure, ""},
		"another one":      {strings.Replace(secure, own, other, 1), "unknown authority"},
		"not of a system":  {strings.Replace(secure, "&sslrootcert="+own, "", 1), "unknown authority"},
		"for another host": {strings.Replace(secure, "localhost", "127.0.0.1", 1), "127.0.0.1"},
	} {
		pool, err := (&database{PostgresURL: c.url}).open(t.Context(), 1)
		if err == nil {
			var encrypted bool
			err = pool.QueryRow(t.Context(), "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()").Scan(&encrypted)
			pool.Close()
			if !encrypted {
				t.Errorf("%s: the connection is not encrypted", name)
			}
		}
		if (err == nil) != (c.want == "") || err != nil && (!strings.Contains(err.Error(), "certificate") || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want an error with certificate and %q", name, err, c.want)
		}
	}
}

// The clients of the other servers refuse an unknown certificate in the handshake.
func TestTLS_AnUnknownCertificateIsRefused(t *testing.T) {
	certificate, key := selfSigned(t)
	pair, err := tls.X509KeyPair([]byte(certificate), []byte(key))
	if err != nil {
		t.Fatal(err)
	}
	for name, call := range map[string]func(ctx context.Context, address string) error{
		"Redis": func(ctx context.Context, address string) error {
			client, err := redislock.Connect("rediss://"+address, time.Minute)
			if err != nil {
				return err
			}
			defer client.Close()
			return client.Ping(ctx).Err()
		},
		"etcd": func(ctx context.Context, address string) error {
			client, err := etcdSettings{EtcdEndpoints: []string{"https://" + address}}.connect()
			if err != nil {
				return err
			}
			defer client.Close()
			_, err = client.Get(ctx, "key")
			return err
		},
		"MongoDB": func(ctx context.Context, address string) error {
			db, err := mongoSettings{MongoURL: "mongodb://" + address + "/shop?tls=true&directConnection=true"}.connect()
			if err != nil {
				return err
			}
			defer disconnect(db)
			return db.Client().Ping(ctx, nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{pair}})
			if err != nil {
				t.Fatal(err)
			}
			defer listener.Close()
			handshake := make(chan error, 1)
			go func() {
				for {
					conn, err := listener.Accept()
					if err != nil {
						return
					}
					err = conn.(*tls.Conn).HandshakeContext(t.Context())
					_ = conn.Close()
					if !errors.Is(err, io.EOF) { // as from a client whose time limit has passed
						handshake <- err
						return
					}
				}
			}()
			_, port, _ := net.SplitHostPort(listener.Addr().String())
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			called := make(chan error, 1)
			go func() {
				for { // again after a call whose own time limit has passed
					if err := call(ctx, "localhost:"+port); err == nil || ctx.Err() != nil {
						called <- err
						return
					}
				}
			}()
			select {
			case err := <-handshake:
				if err == nil || !strings.Contains(err.Error(), "bad certificate") {
					t.Errorf("the handshake ended with %v, want bad certificate from the client", err)
				}
			case <-ctx.Done():
				t.Error("no handshake")
			}
			cancel()
			if err := <-called; err == nil {
				t.Error("a call succeeded")
			}
		})
	}
}

// selfSigned makes a certificate for localhost, and its key.
func selfSigned(t *testing.T) (certificate, key string) {
	t.Helper()
	cert, private := certify(t, &x509.Certificate{
		DNSNames: []string{"localhost"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}, nil, nil)
	return certificatePEM(cert), keyPEM(t, private)
}

// certify makes a certificate for an hour, with a new key. Without a parent it is signed with its own.
func certify(t *testing.T, c, parent *x509.Certificate, signer *ecdsa.PrivateKey) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c.SerialNumber, c.NotAfter = big.NewInt(time.Now().UnixNano()), time.Now().Add(time.Hour)
	if parent == nil {
		parent, signer = c, key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, key.Public(), signer)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert, key
}

func certificatePEM(c *x509.Certificate) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw}))
}

func keyPEM(t *testing.T, key *ecdsa.PrivateKey) string {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
}
