// SPDX-License-Identifier: MIT

// Package mongotest creates a database for one test on a real MongoDB server.
package mongotest

import (
	"context"
	"crypto/rand"
	"net/url"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"shop/wallet"
)

// Database makes a database at the server, without collections, and drops it when the test ends.
func Database(t testing.TB, serverURL string) (_ *mongo.Database, databaseURL string) {
	t.Helper()
	databaseURL, name := URL(t, serverURL)
	db := Connect(t, databaseURL).Database(name)
	t.Cleanup(func() { Drop(t, db) })
	return db, databaseURL
}

// URL returns the name of a database that no other test uses, and the URL with it.
func URL(t testing.TB, serverURL string) (databaseURL, name string) {
	t.Helper()
	u, err := url.Parse(serverURL)
	if err != nil {
		t.Fatal(err)
	}
	name = "t_" + strings.ToLower(rand.Text())
	u.Path = "/" + name
	return u.String(), name
}

// Drop drops a database. It works after t.Context has ended.
func Drop(t testing.TB, db *mongo.Database) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := db.Drop(ctx); err != nil {
		t.Errorf("drop database: %v", err)
	}
}

// Connect connects until the test ends, with the settings of the shop.
func Connect(t testing.TB, databaseURL string) *mongo.Client {
	t.Helper()
	o, err := wallet.ClientOptions(databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	client, err := mongo.Connect(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := client.Disconnect(ctx); err != nil {
			t.Errorf("disconnect: %v", err)
		}
	})
	return client
}
