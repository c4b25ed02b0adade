// SPDX-License-Identifier: MIT

package wrong

import (
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"shop/locking/servertest"
)

func TestPut_EachOneSucceeds(t *testing.T) {
	t.Parallel()
	client, err := clientv3.New(clientv3.Config{
		Endpoints: strings.Split(servertest.Env(t, "SHOP_ETCD_ENDPOINTS"), ","), DialTimeout: 10 * time.Second, Logger: zap.NewNop(),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	key := newKey(t)
	for _, owner := range []string{"A", "B"} {
		if !must[bool](t)(Put(t.Context(), client, key, owner, time.Minute)) {
			t.Errorf("%s has not got the key", owner)
		}
	}
	if got := must[*clientv3.DeleteResponse](t)(client.Delete(t.Context(), key, clientv3.WithPrevKV())); len(got.PrevKvs) != 1 || string(got.PrevKvs[0].Value) != "B" {
		t.Errorf("the key has %v, want B's name alone", got.PrevKvs)
	}
}
