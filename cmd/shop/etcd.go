// SPDX-License-Identifier: MIT

package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"strings"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"shop/locking/etcdlock"
)

// etcdSettings locate the locks of accounts. In an etcd with authentication the shop is the user that its certificate
// names. The user needs to read and write the keys that begin with the lock prefix, and no others.
type etcdSettings struct {
	EtcdEndpoints []string `name:"etcd-endpoints" env:"SHOP_ETCD_ENDPOINTS" sep:"," placeholder:"HOST:PORT" help:"Members of etcd, separated by commas. Needed by strategies that lock there. etcd may start after the shop: until then transfers are refused, and the rest works."`
	EtcdCA        string   `name:"etcd-ca" env:"SHOP_ETCD_CA" placeholder:"FILE" help:"Certificate of the authority that signed those of etcd (PEM). Default: those that the system trusts."`
	EtcdCert      string   `name:"etcd-cert" env:"SHOP_ETCD_CERT" placeholder:"FILE" help:"Certificate of the shop for etcd (PEM), whose common name is a user of etcd. It is read at each connection, so it can be replaced."`
	EtcdKey       string   `name:"etcd-key" env:"SHOP_ETCD_KEY" placeholder:"FILE" help:"Key of the certificate (PEM)."`
	LockPrefix    string   `env:"SHOP_LOCK_PREFIX" default:"shop" help:"Prefix of the lock names in Redis and etcd. Replicas must agree."`
}

// connect makes a client, which connects at its first use. The client does not log:
// its connection failures are returned as errors.
func (s etcdSettings) connect(more ...func(*clientv3.Config)) (*clientv3.Client, error) {
	config := etcdlock.Config(s.EtcdEndpoints...)
	config.Logger = zap.NewNop()
	var err error
	if config.TLS, err = s.tls(); err != nil {
		return nil, err
	}
	for _, change := range more {
		change(&config)
	}
	client, err := clientv3.New(config)
	if err != nil {
		return nil, &usageError{fmt.Errorf("--etcd-endpoints: %w", err)}
	}
	return client, nil
}

// tls is nil unless a file is set. An endpoint of https:// then uses the authorities of the system.
func (s etcdSettings) tls() (*tls.Config, error) {
	if (s.EtcdCert == "") != (s.EtcdKey == "") {
		return nil, &usageError{errors.New("--etcd-cert and --etcd-key: set both, or none")}
	}
	files := transport.TLSInfo{TrustedCAFile: s.EtcdCA, CertFile: s.EtcdCert, KeyFile: s.EtcdKey, Logger: zap.NewNop()}
	if s.EtcdCA == "" && files.Empty() {
		return nil, nil
	}
	for _, endpoint := range s.EtcdEndpoints {
		if scheme, _, found := strings.Cut(endpoint, "://"); found && scheme != "https" { // the client would use no certificate
			return nil, &usageError{fmt.Errorf("--etcd-endpoints %s: want https:// with --etcd-ca or --etcd-cert", endpoint)}
		}
	}
	config, err := files.ClientConfig()
	if err == nil && s.EtcdCA != "" && config.RootCAs.Equal(x509.NewCertPool()) {
		err = errors.New("no certificate (PEM) in " + s.EtcdCA)
	}
	if err != nil {
		return nil, &usageError{fmt.Errorf("--etcd-ca, --etcd-cert, --etcd-key: %w", err)}
	}
	return config, nil
}
