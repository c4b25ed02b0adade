// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

// pingCmd is the health check of a container that has no shell and no curl.
type pingCmd struct {
	URL  string        `arg:"" optional:"" default:"http://127.0.0.1:8080/readyz" env:"SHOP_PING_URL" help:"URL to request."`
	Wait time.Duration `default:"2s" help:"How long to wait for the answer."`
}

func (c *pingCmd) Run(ctx context.Context, out io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, c.Wait)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.URL, nil)
	if err != nil {
		return &usageError{errors.New("not a URL (not shown, because it may contain a password): want http://127.0.0.1:8080/readyz")}
	}
	// No keep-alive: the process exits after the reply.
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := client.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, 1<<10))
	if err != nil {
		return err
	}
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s: %s", req.URL.Redacted(), res.Status, body)
	}
	fmt.Fprintf(out, "%s", body)
	return nil
}
