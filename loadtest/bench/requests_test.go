// SPDX-License-Identifier: MIT

package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
)

// requests returns how many requests a server has processed, as the server counts them: commands of Redis (those
// inside of scripts too), calls of etcd and messages of its streams, statements of MySQL, operations of MongoDB, packets of
// ZooKeeper. A busy process of PostgreSQL reports what it has done once a second: there the requests are counted that the locks send.
var requests = map[string]func(ctx context.Context) (float64, error){
	"redis": redisCommands, "etcd": etcdMessages, "zookeeper": zookeeperPackets, "mysql": mysqlStatements, "mongo": mongoOperations,
	"postgres": func(context.Context) (float64, error) { return float64(sent.Load()), nil },
}

// redisCommands adds the calls of all commands.
func redisCommands(ctx context.Context) (sum float64, err error) {
	client, err := redisClient()
	if err != nil {
		return 0, err
	}
	defer client.Close()
	text, err := client.Info(ctx, "commandstats").Result()
	for line := range strings.Lines(text) {
		if _, rest, ok := strings.Cut(line, ":calls="); ok {
			calls, _, _ := strings.Cut(rest, ",")
			n, err := strconv.ParseFloat(calls, 64)
			if err != nil {
				return 0, err
			}
			sum += n
		}
	}
	return sum, err
}

// etcdMessages adds the messages that etcd has received.
func etcdMessages(ctx context.Context) (sum float64, err error) {
	endpoint, _, _ := strings.Cut(os.Getenv("SHOP_ETCD_ENDPOINTS"), ",")
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+strings.TrimPrefix(endpoint, "http://")+"/metrics", nil)
	if err != nil {
		return 0, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	found := false
	for lines := bufio.NewReader(resp.Body); ; {
		line, err := lines.ReadString('\n')
		if err == io.EOF {
			break
		}
		if err != nil {
			return 0, err
		}
		if strings.HasPrefix(line, "grpc_server_msg_received_total{") {
			n, err := strconv.ParseFloat(strings.TrimSpace(line[strings.LastIndexByte(line, ' '):]), 64)
			if err != nil {
				return 0, err
			}
			sum, found = sum+n, true
		}
	}
	if !found {
		return 0, fmt.Errorf("etcd at %s has no metric grpc_server_msg_received_total", endpoint)
	}
	return sum, nil
}
