// SPDX-License-Identifier: MIT

package bonus

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/google/uuid"

	"shop/locking/idempotency"
	"shop/wallet"
)

// Client requests the bonus of a credit from a bonus service. The ctx must bound the
// request, because the wallet is locked until it returns.
type Client struct {
	url  string
	base *http.Transport
	http *http.Client
}

// NewClient returns a client that uses no proxy from the environment, because the
// bonus service is in the same network. A redirect is an error: following it would send
// the request twice. If over is not nil, it wraps the transport, as for traces.
func NewClient(baseURL string, over func(http.RoundTripper) http.RoundTripper) *Client {
	base := &http.Transport{MaxIdleConnsPerHost: idleMax, IdleConnTimeout: idleWait}
	var transport http.RoundTripper = base
	if over != nil {
		transport = over(base)
	}
	return &Client{url: baseURL + "/v1/bonuses", base: base, http: &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

const (
	idleWait = time.Minute
	idleMax  = 128     // idle connections: a batch of wallet operations calls so often at once
	replyMax = 1 << 10 // of a reply
)

// Call is a wallet.BonusFunc.
func (b *Client) Call(ctx context.Context, a wallet.BonusRequest) (int64, error) {
	question, err := json.Marshal(struct {
		Operation uuid.UUID `json:"operation"`
		Request   uuid.UUID `json:"request"`
		Attempt   int       `json:"attempt"`
		Wallet    uuid.UUID `json:"wallet"`
		Amount    int64     `json:"amount"`
	}{a.Operation, a.Request, a.Attempt, a.Wallet, a.Amount})
	if err != nil {
		return 0, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, b.url, bytes.NewReader(question))
	if err != nil {
		return 0, err
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := b.http.Do(req)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, replyMax)) // to its end, so that the connection can be reused
	switch {
	case err != nil:
		return 0, err
	case res.StatusCode == http.StatusConflict:
		return 0, fmt.Errorf("%w: the bonus service has it for another wallet or amount", idempotency.ErrKeyReused)
	case res.StatusCode != http.StatusOK:
		return 0, fmt.Errorf("the bonus service answered %s", res.Status)
	}
	return readBonus(body)
}

// readBonus requires the field bonus: a reply without it does not mean 0.
func readBonus(body []byte) (int64, error) {
	var answer struct {
		Bonus *int64 `json:"bonus"`
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return 0, fmt.Errorf("the bonus service: %w", err)
	}
	if answer.Bonus == nil {
		return 0, errors.New("the bonus service answered without a bonus")
	}
	return *answer.Bonus, nil
}

// Close closes the connections that are idle.
func (b *Client) Close() { b.base.CloseIdleConnections() }
