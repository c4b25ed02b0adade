// SPDX-License-Identifier: MIT

package lab

import (
	"context"
	"errors"
	"fmt"
	"net"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/connstring"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"shop/locking/etcdlock"
	"shop/wallet"
)

// errNotConfigured reports a store that this server was not given.
var errNotConfigured = errors.New("lab: not configured")

// etcdClient makes a client over a link.
func etcdClient(cfg Config, over *link) (*clientv3.Client, error) {
	if len(cfg.EtcdEndpoints) == 0 {
		return nil, fmt.Errorf("%w: for etcd set --etcd-endpoints or SHOP_ETCD_ENDPOINTS", errNotConfigured)
	}
	config := etcdlock.Config(cfg.EtcdEndpoints...)
	config.TLS = cfg.EtcdTLS
	config.Logger = zap.NewNop() // its connection failures are returned as errors
	config.DialOptions = append(config.DialOptions, grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
		return over.DialContext(ctx, "tcp", address)
	}))
	return clientv3.New(config)
}

// mongoClient makes a client, over a link if there is one, and returns the name of the shop's database.
func mongoClient(cfg Config, over *link) (*mongo.Client, string, error) {
	if cfg.MongoURL == "" {
		return nil, "", fmt.Errorf("%w: for MongoDB set --mongo-url or SHOP_MONGO_URL", errNotConfigured)
	}
	parsed, err := connstring.Parse(cfg.MongoURL)
	if err != nil {
		return nil, "", err
	}
	options, err := wallet.ClientOptions(cfg.MongoURL)
	if err != nil {
		return nil, "", err
	}
	options.SetAppName("shop lab")
	if over != nil {
		options.SetDialer(over)
	}
	client, err := mongo.Connect(options)
	return client, parsed.Database, err
}
