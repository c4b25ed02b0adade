// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"shop/cmd/shop/api"
)

// clientCmd manages the clients of the API. A key is printed only when it is made: the
// table holds only its hash, so a backup contains no usable key.
type clientCmd struct {
	Add    clientAddCmd    `cmd:"" help:"Create a client and print its key, which cannot be printed again."`
	List   clientListCmd   `cmd:"" help:"List the clients."`
	Rotate clientRotateCmd `cmd:"" help:"Give a client a new key; the old one stops working."`
}

// clientAddCmd prints the key and nothing else, for KEY=$(shop client add NAME).
type clientAddCmd struct {
	database
	Name  string `arg:"" help:"Name of the client, unique."`
	Admin bool   `help:"Allow the routes of administrators."`
}

func (c *clientAddCmd) Run(ctx context.Context, out io.Writer) error {
	pool, err := c.open(ctx, 1)
	if err != nil {
		return err
	}
	defer pool.Close()
	_, key, err := api.AddClient(ctx, pool, c.Name, c.Admin)
	switch {
	case errors.Is(err, api.ErrClientName):
		return &usageError{err}
	case errors.Is(err, api.ErrClientExists):
		return fmt.Errorf("%w; a new key for it: shop client rotate %q", err, c.Name)
	case err != nil:
		return err
	}
	fmt.Fprintln(out, key)
	return nil
}

// clientRotateCmd replaces a key that was lost or leaked.
type clientRotateCmd struct {
	database
	Name string `arg:"" help:"Name of the client."`
}

func (c *clientRotateCmd) Run(ctx context.Context, out io.Writer) error {
	pool, err := c.open(ctx, 1)
	if err != nil {
		return err
	}
	defer pool.Close()
	key, err := api.RotateKey(ctx, pool, c.Name)
	if err != nil {
		return err
	}
	fmt.Fprintln(out, key)
	return nil
}

// oneLine quotes a name that is not one line: the table may have one from before names were checked.
func oneLine(name string) string {
	if strings.ContainsFunc(name, unicode.IsControl) {
		return strconv.Quote(name)
	}
	return name
}

// clientListCmd lists the clients.
type clientListCmd struct{ database }

func (c *clientListCmd) Run(ctx context.Context, out io.Writer) error {
	pool, err := c.open(ctx, 1)
	if err != nil {
		return err
	}
	defer pool.Close()
	clients, err := api.Clients(ctx, pool)
	if err != nil {
		return err
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "ID\tNAME\tADMIN\tCREATED")
	for _, client := range clients {
		fmt.Fprintf(table, "%s\t%s\t%t\t%s\n", client.ID, oneLine(client.Name), client.Admin, client.CreatedAt.UTC().Format(time.RFC3339))
	}
	return table.Flush()
}
